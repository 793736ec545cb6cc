package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
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
	db, ctx := client(t, config), t.Context()
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

// planOf plans to take all databases back to a revision, and has the server try it.
func planOf(t *testing.T, config *rest.Config, revision uint64) (*restore.Client, *restore.Plan) {
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
