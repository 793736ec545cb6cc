package managed

import (
	"encoding/json"
	"slices"

	kjson "sigs.k8s.io/json"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	kinds "stele.dev/stele/core/object/gotypes"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/openapi"
)

// zero returns an object of the kind before any field is set. For built-in kinds, it is the zero value of the Go type:
// kube-apiserver compares new objects with it, and an empty struct has no manager.
func zero(v *policy.Version) map[string]any {
	content := map[string]any{}
	if v.Program == nil || !v.Kind.Builtin || !kinds.Has(v.GroupVersionKind()) {
		return content
	}
	value, err := kinds.New(v.GroupVersionKind())
	if err != nil {
		panic(err) // the kind has a Go type
	}
	text, err := json.Marshal(value)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &content)
	}
	if err != nil {
		panic(err) // a zero value always encodes
	}
	delete(content, "metadata")
	return content
}

// mergeType returns the type that server-side apply uses for the version.
func mergeType(v *policy.Version) typed.ParseableType {
	if v.Program == nil { // what the policy says has no managers: only metadata is written
		return openapi.MergeType(&schemas.Node{Kinds: schemas.StructKind})
	}
	t := v.MergeType()
	if v.Kind.Builtin && v.Kind.Group == "" && v.Kind.Kind.Kind == "ServiceAccount" {
		// This is the only list of a built-in kind whose items may lack their merge key, or share it. No schema of a
		// CustomResourceDefinition can say that.
		return byKeys(t, "secrets", "name")
	}
	return t
}

// byKeys returns a type in which the items of a list field are merged by keys, each item as a whole.
func byKeys(t typed.ParseableType, list string, keys ...string) typed.ParseableType {
	types := slices.Clone(t.Schema.Types)
	root := slices.IndexFunc(types, func(d smd.TypeDef) bool { return d.Name == *t.TypeRef.NamedType })
	object := &smd.Map{Fields: slices.Clone(types[root].Map.Fields), ElementType: types[root].Map.ElementType, ElementRelationship: types[root].Map.ElementRelationship}
	at := slices.IndexFunc(object.Fields, func(f smd.StructField) bool { return f.Name == list })
	items := *object.Fields[at].Type.Inlined.List
	item := &smd.Map{Fields: items.ElementType.Inlined.Map.Fields, ElementRelationship: smd.Atomic}
	items.ElementRelationship, items.Keys, items.ElementType.Inlined = smd.Associative, keys, smd.Atom{Map: item}
	object.Fields[at].Type.Inlined.List = &items
	types[root].Map = object
	return (&typed.Parser{Schema: smd.Schema{Types: types}}).Type(types[root].Name)
}
