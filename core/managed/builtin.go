package managed

import (
	"encoding/json"
	"slices"

	kjson "sigs.k8s.io/json"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	kinds "stele.dev/stele/core/typed"
	"stele.dev/stele/policy"
)

// zero is what an object of the kind is before it is anything: for built-in kinds what
// their Go type has in it then, because upstream holds new objects against that, and
// nobody manages an empty struct.
func zero(v *policy.Version) map[string]any {
	content := map[string]any{}
	if !v.Kind.Builtin || !kinds.Has(v.GroupVersionKind()) {
		return content
	}
	value, err := kinds.New(v.GroupVersionKind())
	if err != nil {
		panic(err) // it has one
	}
	text, err := json.Marshal(value)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &content)
	}
	if err != nil {
		panic(err) // a zero value
	}
	delete(content, "metadata")
	return content
}

// mergeType is the type of the version's objects.
func mergeType(v *policy.Version) typed.ParseableType {
	t := v.MergeType()
	if v.Kind.Builtin && v.Kind.Group == "" && v.Kind.Kind.Kind == "ServiceAccount" {
		// The only list of a built-in kind whose items are merged by a key that they need not
		// have, and that may be there twice: no schema of a CustomResourceDefinition says that.
		return byKeys(t, "secrets", "name")
	}
	return t
}

// byKeys is a type in which the items of a list, a field of the object, are merged by keys,
// each as a whole.
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
