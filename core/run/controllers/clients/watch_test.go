package clients_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/metadata"
	"stele.dev/stele/core/auth/loopback"
	"stele.dev/stele/core/run/controllers/clients"
	"stele.dev/stele/core/run/plane/planetest"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

const bundle = `
package test
import "stele.dev/policy"
bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"]}
}
`

// seen is what a follower received last.
type seen struct {
	how string
	of  []*metav1.PartialObjectMetadata
}

// recorder is a follower that records.
type recorder chan seen

func (r recorder) Replace(there []*metav1.PartialObjectMetadata) { r <- seen{"replaced", there} }
func (r recorder) Changed(o *metav1.PartialObjectMetadata) {
	r <- seen{"changed", []*metav1.PartialObjectMetadata{o}}
}
func (r recorder) Gone(o *metav1.PartialObjectMetadata) {
	r <- seen{"gone", []*metav1.PartialObjectMetadata{o}}
}

func (r recorder) next(t *testing.T) seen {
	t.Helper()
	select {
	case s := <-r:
		return s
	case <-time.After(20 * time.Second):
		t.Fatal("the follower hears nothing")
		panic("unreachable")
	}
}

// known is what controllers look at of an object's metadata.
func known(o *metav1.PartialObjectMetadata) string {
	text, _ := json.Marshal([]any{o.Namespace, o.Name, o.UID, o.ResourceVersion, o.OwnerReferences, o.Finalizers, o.DeletionTimestamp})
	return string(text)
}

func TestAFollowerReceivesTheMetadataThatClientsGet(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: bundle})
	config := loopback.Config(p.Pipeline, &user.DefaultInfo{Name: "robot", Groups: []string{user.SystemPrivilegedGroup}})
	set, err := clients.New(config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	client := planetest.Must[metadata.Interface](t)(metadata.NewForConfig(config)).Resource(configMaps).Namespace("default")
	objects := set.Objects.Resource(configMaps).Namespace("default")
	create := func(m *corev1.ConfigMap) {
		m.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := objects.Create(t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(name string) *metav1.PartialObjectMetadata {
		return planetest.Must[*metav1.PartialObjectMetadata](t)(client.Get(t.Context(), name, metav1.GetOptions{}))
	}
	yes := true
	create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plain", Labels: map[string]string{"name": "other"}, Annotations: map[string]string{"uid": "other"}}})
	create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owned", Finalizers: []string{"example.com/a", metav1.FinalizerDeleteDependents},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "plain", UID: is("plain").UID, Controller: &yes, BlockOwnerDeletion: &yes}},
	}})

	heard := make(recorder, 100)
	go set.Follow(t.Context(), configMaps, "metadata.namespace=default", heard)
	first := heard.next(t)
	var there, want []string
	for _, o := range first.of {
		there = append(there, known(o))
		if o.Labels != nil || o.Annotations != nil || o.ManagedFields != nil {
			t.Errorf("what no controller looks at is there: %+v", o.ObjectMeta)
		}
	}
	for _, name := range []string{"plain", "owned"} {
		want = append(want, known(is(name)))
	}
	slices.Sort(there)
	if slices.Sort(want); first.how != "replaced" || !slices.Equal(there, want) {
		t.Errorf("at first: %s\n%s", first.how, cmp.Diff(want, there))
	}

	if err := client.Delete(t.Context(), "owned", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if now := heard.next(t); now.how != "changed" || known(now.of[0]) != known(is("owned")) || now.of[0].DeletionTimestamp == nil {
		t.Errorf("marked: %s %s, want %s", now.how, known(now.of[0]), known(is("owned")))
	}
	if err := client.Delete(t.Context(), "plain", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if now := heard.next(t); now.how != "gone" || now.of[0].Name != "plain" {
		t.Errorf("deleted: %s %s", now.how, known(now.of[0]))
	}
}
