package managed

import (
	"slices"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// widened returns the type of objects of a version that admits what objects of another version have, too. An object that is compared
// at a version keeps the fields that only the other one has: it is converted back, and nothing may be lost on the way. kube-apiserver
// refuses such objects with "field not declared in schema".
func widened(t, other typed.ParseableType) typed.ParseableType {
	if t.TypeRef.NamedType == nil || other.TypeRef.NamedType == nil {
		return t
	}
	a, ok1 := t.Schema.FindNamedType(*t.TypeRef.NamedType)
	b, ok2 := other.Schema.FindNamedType(*other.TypeRef.NamedType)
	if !ok1 || !ok2 {
		return t
	}
	types := slices.Clone(t.Schema.Types)
	for i := range types {
		if types[i].Name == a.Name {
			types[i].Atom = widenedAtom(a.Atom, b.Atom)
		}
	}
	return (&typed.Parser{Schema: smd.Schema{Types: types}}).Type(a.Name)
}

func widenedAtom(a, b smd.Atom) smd.Atom {
	switch {
	case a.Scalar == nil:
		a.Scalar = b.Scalar
	case b.Scalar != nil && *a.Scalar != *b.Scalar:
		untyped := smd.Scalar(smd.Untyped)
		a.Scalar = &untyped
	}
	switch {
	case a.List == nil:
		a.List = b.List
	case b.List != nil:
		list := *a.List
		list.ElementType = widenedRef(list.ElementType, b.List.ElementType)
		a.List = &list
	}
	switch {
	case a.Map == nil:
		a.Map = b.Map
	case b.Map != nil:
		a.Map = widenedMap(a.Map, b.Map)
	}
	return a
}

func widenedMap(a, b *smd.Map) *smd.Map {
	m := &smd.Map{Fields: slices.Clone(a.Fields), ElementType: a.ElementType, ElementRelationship: a.ElementRelationship}
	for _, f := range b.Fields {
		i := slices.IndexFunc(m.Fields, func(g smd.StructField) bool { return g.Name == f.Name })
		if i < 0 {
			m.Fields = append(m.Fields, f)
			continue
		}
		m.Fields[i].Type = widenedRef(m.Fields[i].Type, f.Type)
	}
	empty := smd.TypeRef{}
	switch {
	case a.ElementType.Equals(&empty):
		m.ElementType = b.ElementType
	case !b.ElementType.Equals(&empty):
		m.ElementType = widenedRef(a.ElementType, b.ElementType)
	}
	return m
}

// widenedRef takes types with names as they are: those of metadata and of values without a schema, which are the same in each version.
func widenedRef(a, b smd.TypeRef) smd.TypeRef {
	switch {
	case a.NamedType != nil:
		return a
	case b.NamedType != nil:
		return b
	}
	a.Inlined, a.Nullable = widenedAtom(a.Inlined, b.Inlined), a.Nullable || b.Nullable
	return a
}
