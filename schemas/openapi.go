package schemas

import (
	"math"
	"strconv"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The vendor extensions of structural schemas.
const (
	preserveUnknownFields = "x-kubernetes-preserve-unknown-fields"
	intOrString           = "x-kubernetes-int-or-string"
)

// OpenAPI returns n as a structural schema, as clients read it: types, limits,
// defaults and descriptions.
//
// It never says that a value is invalid which the program accepts. The reverse
// may happen, where OpenAPI has no words: which keys a map may have, what a value
// of several types must satisfy, that a struct is closed.
func (n *Node) OpenAPI() *spec.Schema {
	c, err := newCheck(n, 0)
	if err != nil {
		return anyValue()
	}
	return c.openAPI(true)
}

func anyValue() *spec.Schema {
	s := &spec.Schema{}
	s.Nullable = true
	s.AddExtension(preserveUnknownFields, true)
	return s
}

func (c *check) openAPI(root bool) *spec.Schema {
	n := c.node
	s := &spec.Schema{}
	s.Description = n.Doc
	s.Nullable = n.Kinds.Has(NullKind)
	s.Format = n.Format
	switch n.Kinds &^ NullKind {
	case BoolKind:
		s.Type = spec.StringOrArray{"boolean"}
	case IntegerKind:
		s.Type = spec.StringOrArray{"integer"}
	case IntegerKind | NumberKind:
		s.Type = spec.StringOrArray{"number"}
	case StringKind:
		s.Type = spec.StringOrArray{"string"}
	case ListKind:
		s.Type = spec.StringOrArray{"array"}
		c.openList(s)
	case StructKind:
		s.Type = spec.StringOrArray{"object"}
		c.openObject(s, root)
	case IntegerKind | StringKind:
		s.AddExtension(intOrString, true)
	default:
		s.AddExtension(preserveUnknownFields, true)
	}
	c.openScalars(s)
	return s
}

func (c *check) openList(s *spec.Schema) {
	items := anyValue()
	if l := c.list; l != nil {
		if l.items != nil {
			items = l.items.openAPI(false)
		}
		if l.min > 0 {
			s.MinItems = ptr(int64(l.min))
		}
		if l.max >= 0 {
			s.MaxItems = ptr(int64(l.max))
		}
	}
	s.Items = &spec.SchemaOrArray{Schema: items}
}

func (c *check) openObject(s *spec.Schema, root bool) {
	o := c.object
	if o == nil {
		s.AddExtension(preserveUnknownFields, true)
		return
	}
	if len(o.fields) > 0 {
		s.Properties = make(map[string]spec.Schema, len(o.fields))
	}
	for i := range o.fields {
		f := &o.fields[i]
		property := f.check.openAPI(false)
		switch {
		case f.fills && len(f.check.node.Default) > 0:
			property.Default = f.absent
		case f.fills:
			property.Default = map[string]any{} // completed by the defaults within
		case f.presence != Optional:
			s.Required = append(s.Required, f.name)
		}
		s.Properties[f.name] = *property
	}
	switch {
	case len(o.patterns) == 1 && len(o.fields) == 0 && !root &&
		(!o.open || len(o.patterns[0].key.node.Scalars) == 0):
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: o.patterns[0].value.openAPI(false)}
	case o.open || len(o.patterns) > 0:
		s.AddExtension(preserveUnknownFields, true)
	}
}

// openScalars adds the rules for scalars. Rules of OpenAPI apply to values of
// their own type only, so those for numbers and for strings can stand together;
// alternatives can be told apart by type no more than that.
func (c *check) openScalars(s *spec.Schema) {
	numbers, texts := c.alternatives(IntegerKind|NumberKind), c.alternatives(StringKind)
	all := c.alternatives(scalarKinds)
	switch kinds := c.kinds &^ NullKind; {
	case len(all) == 0:
	case len(all) == 1 && len(all[0].Enum) > 0 && kinds&^all[0].Kinds == 0:
		s.Enum = enumOf(all[0])
		if c.kinds.Has(NullKind) {
			s.Enum = append(s.Enum, nil)
		}
	case kinds == StringKind || kinds&^(IntegerKind|NumberKind) == 0:
		if len(all) == 1 {
			all[0].openAPI(s)
			return
		}
		for _, alternative := range all {
			var a spec.Schema
			a.Enum = enumOf(alternative)
			alternative.openAPI(&a)
			s.AnyOf = append(s.AnyOf, a)
		}
		if c.kinds.Has(NullKind) {
			s.AnyOf = append(s.AnyOf, spec.Schema{SchemaProps: spec.SchemaProps{Enum: []any{nil}}})
		}
	default:
		for _, of := range [...][]*Scalar{numbers, texts} {
			if len(of) == 1 && len(of[0].Enum) == 0 && len(of[0].Not) == 0 && of[0].coversNumbers(c.kinds) {
				of[0].openAPI(s)
			}
		}
	}
}

// coversNumbers reports whether the alternative speaks of all numbers that a
// node with the kinds admits.
func (s *Scalar) coversNumbers(kinds Kinds) bool {
	numeric := IntegerKind | NumberKind
	return s.Kinds&numeric == 0 || s.Kinds&numeric == kinds&numeric
}

func enumOf(s *Scalar) []any {
	var values []any
	for _, text := range s.Enum {
		if v, err := decode(text); err == nil {
			values = append(values, v)
		}
	}
	return values
}

// openAPI adds the rules of an alternative, but for its enumeration.
func (s *Scalar) openAPI(to *spec.Schema) {
	if format, ok := s.integerFormat(); ok {
		to.Format = format
	} else {
		if b := s.Minimum; b != nil {
			to.Minimum, to.ExclusiveMinimum = boundOf(b)
		}
		if b := s.Maximum; b != nil {
			to.Maximum, to.ExclusiveMaximum = boundOf(b)
		}
	}
	if s.MinRunes != nil {
		to.MinLength = ptr(int64(s.MinRunes.Count))
	}
	if s.MaxRunes != nil {
		to.MaxLength = ptr(int64(s.MaxRunes.Count))
	}
	for _, p := range s.Patterns {
		switch {
		case p.Negated:
			to.AllOf = append(to.AllOf, spec.Schema{SchemaProps: spec.SchemaProps{
				Not: &spec.Schema{SchemaProps: spec.SchemaProps{Pattern: p.Regexp}},
			}})
		case to.Pattern == "":
			to.Pattern = p.Regexp
		default:
			to.AllOf = append(to.AllOf, spec.Schema{SchemaProps: spec.SchemaProps{Pattern: p.Regexp}})
		}
	}
	if len(s.Not) > 0 {
		var not spec.Schema
		for _, x := range s.Not {
			if v, err := decode(x.Value); err == nil {
				not.Enum = append(not.Enum, v)
			}
		}
		to.Not = &not
	}
}

// integerFormat returns the format that stands for the bounds of int32 or int64.
func (s *Scalar) integerFormat() (string, bool) {
	if s.Kinds != IntegerKind || s.Minimum == nil || s.Maximum == nil || s.Minimum.Exclusive || s.Maximum.Exclusive {
		return "", false
	}
	is := func(low, high int64) bool {
		return s.Minimum.Value == strconv.FormatInt(low, 10) && s.Maximum.Value == strconv.FormatInt(high, 10)
	}
	switch {
	case is(math.MinInt32, math.MaxInt32):
		return "int32", true
	case is(math.MinInt64, math.MaxInt64):
		return "int64", true
	}
	return "", false
}

// boundOf returns a bound as OpenAPI writes it, or nil for one that is beyond 64
// bits: validators compare integers as integers, and overflow.
func boundOf(b *Bound) (*float64, bool) {
	r, err := parseDecimal(b.Value)
	if err != nil {
		return nil, false
	}
	f, _ := r.Float64()
	if math.Abs(f) >= 1<<63 {
		return nil, false
	}
	return &f, b.Exclusive
}

func ptr[T any](v T) *T { return &v }
