package managed

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/openapi"
)

// What is done to an object once: its first status, its first label, its first applying.
func BenchmarkFirst(b *testing.B) {
	merge := openapi.MergeType(&schemas.Node{Kinds: schemas.StructKind})
	types := append([]smd.TypeDef{}, merge.Schema.Types...)
	text, number := smd.String, smd.Numeric
	field := func(name string, of smd.Atom) smd.StructField {
		return smd.StructField{Name: name, Type: smd.TypeRef{Inlined: of}}
	}
	for i := range types {
		if types[i].Name == *merge.TypeRef.NamedType {
			object := &smd.Map{ElementType: types[i].Map.ElementType, ElementRelationship: types[i].Map.ElementRelationship}
			object.Fields = append(append(object.Fields, types[i].Map.Fields...),
				field("spec", smd.Atom{Map: &smd.Map{Fields: []smd.StructField{field("size", smd.Atom{Scalar: &number}), field("color", smd.Atom{Scalar: &text})}}}),
				field("status", smd.Atom{Map: &smd.Map{Fields: []smd.StructField{field("phase", smd.Atom{Scalar: &text}), field("observed", smd.Atom{Scalar: &number})}}}))
			types[i].Map = object
		}
	}
	merge = (&typed.Parser{Schema: smd.Schema{Types: types}}).Type(*merge.TypeRef.NamedType)
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	forms := map[string]form{"example.com/v1": {of: new(policy.Kind), merge: merge}}
	main := (&Fields{kind: kind, forms: forms, merge: merge, zero: map[string]any{}, reset: []string{"status"}}).ready()
	status := (&Fields{kind: kind, forms: forms, merge: merge, zero: map[string]any{}, reset: []string{"metadata", "spec"}, subresource: "status"}).ready()
	at := time.Unix(1_700_000_000, 0)
	old := &policy.Object{
		Meta:    &metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "u", Labels: map[string]string{"app": "x"}},
		Content: map[string]any{"spec": map[string]any{"size": int64(1), "color": "red"}},
	}
	if err := main.Update(nil, old, "ann", at); err != nil {
		b.Fatal(err)
	}
	with := copied(old)
	with.Content["status"] = map[string]any{"phase": "Ready", "observed": int64(1)}
	labelled := copied(old)
	labelled.Meta.Labels["team"] = "y"
	applied := map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"size": int64(2), "color": "blue"}}
	type update = func(old, updated *policy.Object, manager string, at time.Time) error
	type apply = func(old *policy.Object, applied map[string]any, manager string, force bool, at time.Time) (*policy.Object, error)
	for _, way := range []struct {
		name         string
		status, main update
		apply        apply
	}{
		{"library", status.update, main.update, main.apply},
		{"quick", status.Update, main.Update, main.Apply},
	} {
		updates := func(update update, updated *policy.Object) func(b *testing.B) {
			return func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					o := &policy.Object{Meta: updated.Meta.DeepCopy(), Content: updated.Content}
					if err := update(old, o, "bob", at); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		b.Run("status/"+way.name, updates(way.status, with))
		b.Run("label/"+way.name, updates(way.main, labelled))
		b.Run("apply/"+way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := way.apply(old, runtime.DeepCopyJSON(applied), "ann", true, at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
