package controllers_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	gauges      = schema.GroupVersionResource{Group: "lab.example.org", Version: "v1", Resource: "gauges"}
)

func init() {
	typeOf[definitions] = metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
	typeOf[gauges] = metav1.TypeMeta{APIVersion: "lab.example.org/v1", Kind: "Gauge"}
}

// newAllowing starts a control plane whose clients may bring definitions, with the controller of definitions.
func newAllowing(t testing.TB) *testPlane {
	t.Helper()
	p := newPlane(t)
	p.Activate(t, bundle+"\nbundle: dynamic: customresourcedefinitions: \"Allow\"\n")
	p.run(t, "customresourcedefinition-controller")
	return p
}

// defining makes an object the definition of a kind.
func defining(plural, kind string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		o.Object["spec"] = map[string]any{
			"group": "lab.example.org", "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		}
	}
}

func TestADefinitionIsDeletedWithTheObjectsOfItsKind(t *testing.T) {
	p := newAllowing(t)
	p.create(t, definitions, "", "gauges.lab.example.org", defining("gauges", "Gauge"))
	p.create(t, namespaces, "", "shop")
	for _, in := range []string{"default", "shop"} {
		p.create(t, gauges, in, "one")
	}
	p.create(t, gauges, "shop", "held", finalizers("example.com/held"))
	p.delete(t, definitions, "", "gauges.lab.example.org")
	p.awaitGone(t, gauges, "default", "one")
	p.await(t, gauges, "shop", "held", "being deleted", func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	p.awaitThere(t, definitions, "", "gauges.lab.example.org")
	p.patch(t, gauges, "shop", "held", `{"metadata": {"finalizers": null}}`)
	p.awaitGone(t, definitions, "", "gauges.lab.example.org")
	// The name is free again, and the kind has no objects.
	p.create(t, definitions, "", "gauges.lab.example.org", defining("gauges", "Gauge"))
	p.create(t, gauges, "shop", "one")
}

func TestNamesAreDecidedAgainOnceTheyAreFree(t *testing.T) {
	p := newAllowing(t)
	p.create(t, definitions, "", "gauges.lab.example.org", defining("gauges", "Gauge"))
	late := p.create(t, definitions, "", "meters.lab.example.org", defining("meters", "Gauge"))
	if got := condition(late, "NamesAccepted"); !strings.HasPrefix(got, "False ListKindConflict") {
		t.Errorf("its names are %s", got)
	}
	p.delete(t, definitions, "", "gauges.lab.example.org")
	p.await(t, definitions, "", "meters.lab.example.org", "established", func(o *unstructured.Unstructured) bool {
		return strings.HasPrefix(condition(o, "Established"), "True InitialNamesAccepted")
	})
}

func TestNamesAreDecidedAgainOnceAnUpdateFreesThem(t *testing.T) {
	p := newAllowing(t)
	short := func(plural, kind string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			defining(plural, kind)(o)
			_ = unstructured.SetNestedStringSlice(o.Object, []string{"g"}, "spec", "names", "shortNames")
		}
	}
	p.create(t, definitions, "", "gauges.lab.example.org", short("gauges", "Gauge"))
	late := p.create(t, definitions, "", "meters.lab.example.org", short("meters", "Meter"))
	if got := condition(late, "NamesAccepted"); !strings.HasPrefix(got, "False ShortNamesConflict") {
		t.Errorf("its names are %s", got)
	}
	p.patch(t, definitions, "", "gauges.lab.example.org", `{"spec": {"names": {"shortNames": null}}}`)
	p.await(t, definitions, "", "meters.lab.example.org", "established", func(o *unstructured.Unstructured) bool {
		return strings.HasPrefix(condition(o, "Established"), "True InitialNamesAccepted")
	})
}

func TestADefinitionWithoutAServedVersionCanBeDeleted(t *testing.T) {
	p := newAllowing(t)
	p.create(t, definitions, "", "gauges.lab.example.org", func(o *unstructured.Unstructured) {
		defining("gauges", "Gauge")(o)
		o.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["served"] = false
	})
	p.delete(t, definitions, "", "gauges.lab.example.org")
	p.awaitGone(t, definitions, "", "gauges.lab.example.org")
}
