// Package join merges schemas into one that admits every value that any of them admits.
package join

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"stele.dev/stele/schemas"
)

// Arms returns a struct that has the fields of all arms.
func Arms(u *schemas.Union) *schemas.Struct {
	m := Clone(u.Arms[0].Struct)
	for i := range u.Arms[1:] {
		m = Structs(m, u.Arms[i+1].Struct)
	}
	return m
}

// Structs returns a struct that admits every value that a or b admits.
func Structs(a, b *schemas.Struct) *schemas.Struct {
	m := &schemas.Struct{Open: a.Open || b.Open, Type: cmp.Or(a.Type, b.Type)}
	for _, f := range a.Fields {
		g, ok := schemas.FieldNamed(b, f.Name)
		if !ok {
			m.Fields = append(m.Fields, besides(f, b))
			continue
		}
		if f.Schema.Forbidden() {
			f.Schema = g.Schema
		} else if g.Schema.Forbidden() {
			g.Schema = f.Schema
		}
		presence := schemas.Optional
		if f.Presence == schemas.Required && g.Presence == schemas.Required {
			presence = schemas.Required
		}
		m.Fields = append(m.Fields, schemas.Field{Name: f.Name, Presence: presence, Schema: Nodes(f.Schema, g.Schema)})
	}
	for _, g := range b.Fields {
		if _, ok := schemas.FieldNamed(a, g.Name); !ok {
			m.Fields = append(m.Fields, besides(g, a))
		}
	}
	// A key that matches a pattern of one struct may have any value in the other.
	m.Open = m.Open || len(a.Patterns)+len(b.Patterns) > 0
	return m
}

// besides returns f as an optional field of a merged struct. other is the struct that lacks the field.
func besides(f schemas.Field, other *schemas.Struct) schemas.Field {
	f.Presence = schemas.Optional
	if other.Open || len(other.Patterns) > 0 {
		f.Schema = &schemas.Node{Kinds: schemas.AnyKind, Sensitive: f.Schema.HasSensitive(), Doc: f.Schema.Doc, Source: f.Schema.Source}
	}
	return f
}

// Clone returns a copy of s without comparisons and conditions.
func Clone(s *schemas.Struct) *schemas.Struct {
	m := *s
	m.Fields = WithConditions(s, s.Open)
	for i := range m.Fields {
		if m.Fields[i].Presence == schemas.Regular {
			m.Fields[i].Presence = schemas.Optional
		}
	}
	m.Comparisons, m.Conditions = nil, nil
	return &m
}

// WithConditions returns the fields of s and of its conditions. A field with several declarations admits
// anything. So does a field that only a condition adds, if the struct is open without it.
func WithConditions(s *schemas.Struct, open bool) []schemas.Field {
	fields := slices.Clone(s.Fields)
	for _, condition := range s.Conditions {
		for _, f := range condition.Fields {
			i := slices.IndexFunc(fields, func(g schemas.Field) bool { return g.Name == f.Name })
			if i < 0 {
				fields = append(fields, besides(f, &schemas.Struct{Open: open || len(s.Patterns) > 0}))
				continue
			}
			g := fields[i].Schema
			fields[i].Presence = schemas.Optional
			fields[i].Schema = &schemas.Node{Kinds: schemas.AnyKind, Sensitive: g.HasSensitive() || f.Schema.HasSensitive(), Doc: g.Doc, Source: g.Source}
		}
	}
	return fields
}

// Nodes returns a node that admits every value that a or b admits.
func Nodes(a, b *schemas.Node) *schemas.Node {
	m := &schemas.Node{Kinds: a.Kinds | b.Kinds, Source: a.Source, Doc: cmp.Or(a.Doc, b.Doc), Sensitive: a.Sensitive || b.Sensitive}
	var scalars []schemas.Scalar
	for _, n := range []*schemas.Node{a, b} {
		spoken := schemas.Kinds(0)
		for _, x := range n.Scalars {
			scalars = append(scalars, x)
			spoken |= x.Kinds
		}
		if free := n.Kinds & schemas.ScalarKinds &^ spoken; free != 0 {
			scalars = append(scalars, schemas.Scalar{Kinds: free})
		}
	}
	m.Scalars = mergedEnums(Simplified(scalars))
	if a.Format == b.Format {
		m.Format = a.Format
	}
	if a.Immutable != nil && b.Immutable != nil {
		m.Immutable = a.Immutable
	}
	m.Embedded = a.Embedded && b.Embedded
	switch {
	case a.Struct != nil && b.Struct != nil:
		m.Struct = Structs(Clone(a.Struct), Clone(b.Struct))
	case a.Struct != nil && !b.Kinds.Has(schemas.StructKind):
		m.Struct = Clone(a.Struct)
	case b.Struct != nil && !a.Kinds.Has(schemas.StructKind):
		m.Struct = Clone(b.Struct)
	}
	switch {
	case a.List != nil && b.List != nil:
		m.List = &schemas.List{}
		if a.List.Type == b.List.Type && slices.Equal(a.List.MapKeys, b.List.MapKeys) {
			m.List.Type, m.List.MapKeys = a.List.Type, a.List.MapKeys
		}
		if a.List.Items != nil && b.List.Items != nil {
			m.List.Items = Nodes(a.List.Items, b.List.Items)
		}
	case a.List != nil && !b.Kinds.Has(schemas.ListKind):
		m.List = a.List
	case b.List != nil && !a.Kinds.Has(schemas.ListKind):
		m.List = b.List
	}
	return m
}

// mergedEnums merges alternatives that consist only of constants.
func mergedEnums(scalars []schemas.Scalar) []schemas.Scalar {
	var joined schemas.Scalar
	var rest []schemas.Scalar
	for _, s := range scalars {
		if len(s.Enum) == 0 || s.Kinds&^(schemas.BoolKind|schemas.IntegerKind|schemas.NumberKind|schemas.StringKind) != 0 || len(s.Not)+len(s.Patterns)+len(s.Forms) > 0 {
			rest = append(rest, s)
			continue
		}
		joined.Kinds |= s.Kinds
		for _, e := range s.Enum {
			if !slices.ContainsFunc(joined.Enum, func(x json.RawMessage) bool { return bytes.Equal(x, e) }) {
				joined.Enum = append(joined.Enum, e)
			}
		}
	}
	if len(joined.Enum) == 0 {
		return rest
	}
	return append([]schemas.Scalar{joined}, rest...)
}
