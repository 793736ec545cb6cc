package fromcue_test

import (
	"reflect"
	"testing"

	kubernetes "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/openapi"
)

// modelsOf returns the OpenAPI models that Kubernetes publishes for a form, with the fields of all
// objects, also in embedded ones.
func modelsOf(n *schemas.Node) map[string]*spec.Schema {
	ref := func(name string) spec.Ref { return spec.MustCreateRef("#/components/schemas/" + name) }
	models := map[string]*spec.Schema{}
	for name, def := range kubernetes.GetOpenAPIDefinitions(ref) {
		models[name] = &def.Schema
	}
	object := func(s *spec.Schema) {
		s.SetProperty("apiVersion", *spec.StringProperty())
		s.SetProperty("kind", *spec.StringProperty())
		s.SetProperty("metadata", spec.Schema{SchemaProps: spec.SchemaProps{Ref: ref(metav1.ObjectMeta{}.OpenAPIModelName())}})
	}
	var visit func(s *spec.Schema)
	visit = func(s *spec.Schema) {
		for name, property := range s.Properties {
			visit(&property)
			s.Properties[name] = property
		}
		if s.Items != nil {
			visit(s.Items.Schema)
		}
		if s.AdditionalProperties != nil {
			visit(s.AdditionalProperties.Schema)
		}
		if s.Extensions["x-kubernetes-embedded-resource"] == true {
			object(s)
		}
	}
	s := openapi.Of(n)
	visit(s)
	object(s)
	s.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": "example.com", "version": "v1", "kind": "Thing"}})
	models["com.example.v1.Thing"] = s
	return models
}

// Server-side apply gives the same results as in Kubernetes.
func TestMergeTypesAreKubernetes(t *testing.T) {
	merged, refused, sets := 0, 0, 0
	for seed := range uint64(150) {
		n, g := formed(seed)
		theirs, err := managedfields.NewTypeConverter(modelsOf(n), false)
		if err != nil {
			t.Fatal(err)
		}
		ours := openapi.MergeType(n)
		both := func(content any) (a, b *typed.TypedValue) {
			u := &unstructured.Unstructured{Object: content.(map[string]any)}
			u.Object["apiVersion"], u.Object["kind"] = "example.com/v1", "Thing"
			u.Object["metadata"] = map[string]any{"name": "a", "labels": map[string]any{g.OneOf("x", "y"): "z"}, "finalizers": []any{g.OneOf("f", "g")}}
			a, err1 := ours.FromUnstructured(u.Object)
			b, err2 := theirs.ObjectToTyped(u)
			if (err1 == nil) != (err2 == nil) {
				t.Fatalf("seed %d: %v; Kubernetes says %v\n%s\n%s", seed, err1, err2, asJSON(u.Object), asJSON(openapi.Of(n)))
			}
			if err1 != nil {
				refused++
				return nil, nil
			}
			setA, errA := a.ToFieldSet()
			setB, errB := b.ToFieldSet()
			if (errA == nil) != (errB == nil) || errA == nil && !setA.Equals(setB) {
				t.Fatalf("seed %d: the fields of %s are\n%s\nin Kubernetes they are\n%s\n%s", seed, asJSON(u.Object), setA, setB, asJSON(openapi.Of(n)))
			}
			sets++
			return a, b
		}
		for range 15 {
			first := g.Witness(n)
			second := g.Witness(n)
			if g.Chance(50) {
				second = g.Mutate(jsonvalue.Clone(first))
			}
			a1, b1 := both(first)
			a2, b2 := both(second)
			if a1 == nil || a2 == nil {
				continue
			}
			a, errA := a1.Merge(a2)
			b, errB := b1.Merge(b2)
			if (errA == nil) != (errB == nil) || errA == nil && !reflect.DeepEqual(a.AsValue().Unstructured(), b.AsValue().Unstructured()) {
				t.Fatalf("seed %d: merged: %v, %v; in Kubernetes: %v, %v", seed, a, errA, b, errB)
			}
			if errA == nil {
				merged++
			}
			differA, errA := a1.Compare(a2)
			differB, errB := b1.Compare(b2)
			if (errA == nil) != (errB == nil) || errA == nil && differA.String() != differB.String() {
				t.Fatalf("seed %d: differences: %s; in Kubernetes: %s", seed, differA, differB)
			}
		}
	}
	if merged < 300 || refused < 50 || sets < 1000 {
		t.Errorf("%d merges, %d refusals, %d sets: the test asks too little", merged, refused, sets)
	}
}
