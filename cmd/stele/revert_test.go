package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/restore"
)

// What has changed between a plan and its writes is left as it is, and named; the rest of the
// plan is carried out.
func TestRevertOverwritesNothingThatItHasNotSeen(t *testing.T) {
	dir := t.TempDir()
	startServer(t, dir)
	config := clientConfig(t, dir)
	db, ctx := dynamicClient(t, config), t.Context()
	for _, name := range []string{"changed", "deleted", "removed", "untouched"} {
		create(t, db, name)
	}
	then := revisionOf(t, create(t, db, "last"))
	for _, name := range []string{"changed", "removed", "untouched"} {
		grow(t, db, name, 20)
	}
	remove(t, db, "deleted")
	create(t, db, "new")

	client, plan := planOf(t, config, then)
	if n := plan.Writes(); n != 5 {
		t.Fatalf("the plan has %d writes, want 5", n)
	}
	grow(t, db, "changed", 30)
	create(t, db, "deleted")
	grow(t, db, "new", 30)
	remove(t, db, "removed")
	if err := client.Apply(ctx, plan); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]string{
		"changed": "the object has been modified", "deleted": "already exists", "new": "the ResourceVersion in the precondition", "removed": "not found", "untouched": "", "last": "",
	} {
		for _, i := range plan.Items {
			if i.Name == name && (want == "" && i.Failed != "" || !strings.Contains(i.Failed, want)) {
				t.Errorf("%s failed with %q, want %q", name, i.Failed, want)
			}
		}
	}
	for name, want := range map[string]int64{"changed": 30, "deleted": 10, "new": 30, "untouched": 10} {
		o, err := db.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, _, _ := unstructured.NestedInt64(o.Object, "spec", "storageGiB"); got != want {
			t.Errorf("%s has %d GiB, want %d", name, got, want)
		}
	}
	if _, err := db.Get(ctx, "removed", metav1.GetOptions{}); err == nil {
		t.Error("removed is back, which an update must not do")
	}
}

func create(t *testing.T, db dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := db.Create(t.Context(), database(name, 10), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func grow(t *testing.T, db dynamic.ResourceInterface, name string, gib int) {
	t.Helper()
	if _, err := db.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"storageGiB":%d}}`, gib), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, db dynamic.ResourceInterface, name string) {
	t.Helper()
	if err := db.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func revisionOf(t *testing.T, o *unstructured.Unstructured) uint64 {
	t.Helper()
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func restoreClient(t *testing.T, config *rest.Config) (dynamic.Interface, *restore.Client) {
	t.Helper()
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := restore.NewClient(served, objects)
	if err != nil {
		t.Fatal(err)
	}
	return objects, client
}

// planOf plans to take all databases back to a revision, and has the server try it.
func planOf(t *testing.T, config *rest.Config, revision uint64) (*restore.Client, *restore.Plan) {
	t.Helper()
	_, client := restoreClient(t, config)
	kind, err := client.Kind(databases.GroupVersion().WithKind("Database"))
	if err != nil {
		t.Fatal(err)
	}
	subjects, err := client.Selected(t.Context(), kind, "", labels.Everything(), revision)
	if err != nil {
		t.Fatal(err)
	}
	plan := restore.Make(subjects, client.Owners(t.Context()), restore.Options{Prune: true, Status: true})
	if err := client.Try(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	return client, plan
}

// However a namespace has changed, after a revert all that clients say of what is in it is what
// it was; and then there is nothing to revert.
func TestARevertedNamespaceIsWhatItWas(t *testing.T) {
	dir := t.TempDir()
	startServer(t, dir)
	config := clientConfig(t, dir)
	objects, client := restoreClient(t, config)
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	type moment struct {
		revision uint64
		content  map[string]any
	}
	now := func() moment {
		m := moment{content: map[string]any{}}
		for _, gvr := range []schema.GroupVersionResource{databases, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"}} {
			list, err := objects.Resource(gvr).Namespace("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			m.revision, _ = strconv.ParseUint(list.GetResourceVersion(), 10, 64)
			for _, o := range list.Items {
				for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
					unstructured.RemoveNestedField(o.Object, "metadata", field)
				}
				m.content[o.GetKind()+" "+o.GetName()] = o.Object
			}
		}
		return m
	}
	change := func() {
		name := string(rune('a' + random.IntN(4)))
		in, body := objects.Resource(databases).Namespace("default"), database(name, 10)
		value := fmt.Sprint(random.IntN(3))
		patch := fmt.Sprintf(`{"spec":{"storageGiB":1%s,"parameters":{"p":"%s"}},"metadata":{"labels":{"v":"%s"}}}`, value, value, value)
		if resource := []string{"databases", "configmaps", "secrets"}[random.IntN(3)]; resource != "databases" {
			in = objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace("default")
			kind := map[string]string{"configmaps": "ConfigMap", "secrets": "Secret"}[resource]
			body = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}}}
			patch = fmt.Sprintf(`{"data":{"k":"%s","%s":"Zg=="}}`, []string{"YQ==", "Yg=="}[random.IntN(2)], value)
		}
		var err error
		switch random.IntN(5) {
		case 0:
			err = in.Delete(t.Context(), name, metav1.DeleteOptions{})
		case 1, 2:
			_, err = in.Create(t.Context(), body, metav1.CreateOptions{})
		case 3:
			_, err = in.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		case 4:
			phase := []string{`{"phase":"Ready","endpoint":"` + value + `"}`, `{"phase":"Failed","endpoint":null}`, `null`}[random.IntN(3)]
			_, err = objects.Resource(databases).Namespace("default").Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":`+phase+`}`), metav1.PatchOptions{}, "status")
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	plan := func(revision uint64) *restore.Plan {
		subjects, _, _, err := client.Namespace(t.Context(), "default", revision)
		if err != nil {
			t.Fatal(err)
		}
		p := restore.Make(subjects, client.Owners(t.Context()), restore.Options{Prune: true, Status: true})
		if err := client.Try(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	moments := []moment{now()}
	for round := range 12 {
		for range 20 {
			change()
			moments = append(moments, now())
		}
		to := moments[random.IntN(len(moments))]
		p := plan(to.revision)
		if err := client.Apply(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		for _, i := range p.Items {
			if i.Failed != "" || i.Refused != "" {
				t.Errorf("round %d: %s: %s%s", round, i.Key(), i.Failed, i.Refused)
			}
		}
		if diff := cmp.Diff(to.content, now().content); diff != "" {
			t.Fatalf("round %d: after a revert to %d (-then +now):\n%s", round, to.revision, diff)
		}
		if n := plan(to.revision).Writes(); n != 0 {
			t.Errorf("round %d: after a revert to %d there are %d writes to make", round, to.revision, n)
		}
	}
}
