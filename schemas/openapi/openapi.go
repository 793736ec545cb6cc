// Package openapi converts schemas to OpenAPI and to the types of server-side apply.
package openapi

import (
	"math"
	"math/big"
	"strconv"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// The vendor extensions of structural schemas.
const (
	preserveUnknownFields = "x-kubernetes-preserve-unknown-fields"
	intOrString           = "x-kubernetes-int-or-string"
	embeddedResource      = "x-kubernetes-embedded-resource"
	listTypeName          = "x-kubernetes-list-type"
	listMapKeys           = "x-kubernetes-list-map-keys"
	mapType               = "x-kubernetes-map-type"
)

// Of returns n as a structural schema for clients: types, limits, defaults and descriptions.
//
// The schema accepts every value that the program accepts. It may accept more, because OpenAPI cannot
// express some rules: patterns of map keys, rules for values of several types, closed structs,
// comparisons between fields, and fallbacks.
func Of(n *schemas.Node) *spec.Schema {
	if _, err := program.NewChecker(n); err != nil || n.Kinds != schemas.StructKind {
		s := anyValue()
		s.Type, s.Nullable = spec.StringOrArray{"object"}, false
		return s
	}
	return schemaOf(n, true)
}

func anyValue() *spec.Schema {
	s := &spec.Schema{}
	s.Nullable = true
	s.AddExtension(preserveUnknownFields, true)
	return s
}

func schemaOf(n *schemas.Node, root bool) *spec.Schema {
	s := &spec.Schema{}
	s.Description = description(n)
	s.Nullable = n.Kinds.Has(schemas.NullKind)
	switch n.Kinds &^ schemas.NullKind {
	case schemas.BoolKind:
		s.Type = spec.StringOrArray{"boolean"}
	case schemas.IntegerKind:
		s.Type = spec.StringOrArray{"integer"}
	case schemas.IntegerKind | schemas.NumberKind:
		s.Type = spec.StringOrArray{"number"}
	case schemas.StringKind:
		s.Type = spec.StringOrArray{"string"}
		s.Format = textFormat(n)
	case schemas.ListKind:
		s.Type = spec.StringOrArray{"array"}
		addList(n, s)
	case schemas.StructKind:
		s.Type = spec.StringOrArray{"object"}
		addObject(n, s, root)
		addUnion(s, n.Union)
	case schemas.IntegerKind | schemas.StringKind:
		s.AddExtension(intOrString, true)
	default:
		s.AddExtension(preserveUnknownFields, true)
	}
	addScalars(n, s, n.Kinds)
	addLogic(s, n)
	return s
}

// description returns the doc of the node and the rules that OpenAPI cannot express.
func description(n *schemas.Node) string {
	switch {
	case n.Immutable == nil:
		return n.Doc
	case n.Doc == "":
		return "Cannot be changed."
	}
	return n.Doc + "\n\nCannot be changed."
}

// textFormat returns the format of strings. A CUE format is used only if all strings that it admits are
// valid for OpenAPI, and if CEL still sees a string: with date-time it would see a timestamp.
func textFormat(n *schemas.Node) string {
	switch {
	case n.Format != "":
		return n.Format
	case n.Sensitive:
		return "password"
	case len(n.Scalars) != 1:
		return ""
	}
	for _, f := range n.Scalars[0].Forms {
		if format, ok := formats[f.Name]; ok {
			return format
		}
	}
	return ""
}

var formats = map[string]string{
	"net.IPv4":   "ipv4",
	"net.IPCIDR": "cidr",
}

func addList(n *schemas.Node, s *spec.Schema) {
	items := anyValue()
	if l := n.List; l != nil {
		if l.Items != nil {
			items = schemaOf(l.Items, false)
		}
		if l.MinItems != nil && l.MinItems.Count > 0 {
			s.MinItems = ptr(int64(l.MinItems.Count))
		}
		if l.MaxItems != nil {
			s.MaxItems = ptr(int64(l.MaxItems.Count))
		}
	}
	s.Items = &spec.SchemaOrArray{Schema: items}
	if l := n.List; l != nil && l.Type != "" && schemas.CheckList(nil, l) == nil {
		s.AddExtension(listTypeName, l.Type)
		if l.Type == schemas.ListMap {
			keys := make([]any, len(l.MapKeys)) // the type that readers expect, as in decoded JSON
			for i, key := range l.MapKeys {
				keys[i] = key
			}
			s.AddExtension(listMapKeys, keys)
		}
	}
}

func addObject(n *schemas.Node, s *spec.Schema, root bool) {
	o := n.Struct
	if o == nil {
		s.AddExtension(preserveUnknownFields, true)
		if n.Embedded && !root {
			s.AddExtension(embeddedResource, true)
		}
		return
	}
	if len(o.Fields) > 0 {
		s.Properties = make(map[string]spec.Schema, len(o.Fields))
	}
	for i := range o.Fields {
		f := &o.Fields[i]
		absent, fills := program.Absent(f)
		property := schemaOf(f.Schema, false)
		property.Default = defaultOf(f, absent, fills)
		if !fills && !f.TakenFromElsewhere() && f.Presence != schemas.Optional {
			s.Required = append(s.Required, f.Name)
		}
		s.Properties[f.Name] = *property
	}
	addConditions(o, s)
	if o.Type != "" {
		s.AddExtension(mapType, o.Type)
	}
	if !root { // others adds apiVersion, kind and metadata at the root
		if o.MinFields != nil {
			s.MinProperties = ptr(int64(o.MinFields.Count))
		}
		if o.MaxFields != nil {
			s.MaxProperties = ptr(int64(o.MaxFields.Count))
		}
	}
	if n.Embedded && !root {
		s.AddExtension(embeddedResource, true)
	}
	entries, keeps := undeclaredFields(n, root)
	if entries != nil {
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: schemaOf(entries, false)}
	}
	if keeps {
		s.AddExtension(preserveUnknownFields, true)
	}
}

// undeclaredFields returns which undeclared fields the OpenAPI schema admits: entries of a map, or any field if
// keeps is true.
func undeclaredFields(n *schemas.Node, root bool) (entries *schemas.Node, keeps bool) {
	o := n.Struct
	named := len(o.Fields) > 0 || len(o.Conditions) > 0
	switch {
	case n.Embedded && !root:
		return nil, o.Open || len(o.Patterns) > 0 || !named
	case len(o.Patterns) == 1 && !named && !root && (!o.Open || len(o.Patterns[0].Key.Scalars) == 0):
		return o.Patterns[0].Value, false
	}
	return nil, o.Open || len(o.Patterns) > 0
}

// defaultOf returns the OpenAPI default of a field, or nil. absent is the value of the missing field, if
// fills is true. A struct without a default is completed with the defaults inside it, if the result is
// valid.
func defaultOf(f *schemas.Field, absent any, fills bool) any {
	n := f.Schema
	switch {
	case !fills:
		return nil
	case len(n.Default) > 0:
		return absent
	case n.Logic == nil && n.Union == nil && (n.Struct == nil || n.Struct.MinFields == nil):
		return map[string]any{}
	}
	return nil
}

// addScalars adds the rules for scalars of the given kinds. exact reports whether it added all rules. In
// OpenAPI, a rule applies only to values of its own type. So the rules for numbers and for strings can
// stand together, but several alternatives for one type cannot.
func addScalars(n *schemas.Node, s *spec.Schema, kinds schemas.Kinds) (exact bool) {
	all := joinEnums(n.Alternatives(kinds & schemas.ScalarKinds))
	null := kinds.Has(schemas.NullKind)
	switch kinds &^= schemas.NullKind; {
	case len(all) == 0:
		return true
	case len(all) == 1 && len(all[0].Enum) > 0 && kinds&^all[0].Kinds == 0:
		if s.Enum = enumOf(all[0]); null {
			// Kubernetes' validators never find null in enum, but do not check for it in
			// allOf.
			s.AllOf = append(s.AllOf, spec.Schema{SchemaProps: spec.SchemaProps{Enum: append(s.Enum, nil)}})
			s.Enum = nil
		}
		rest := *all[0]
		rest.Enum = nil
		return !rest.Constrained()
	case kinds == schemas.StringKind || kinds&^(schemas.IntegerKind|schemas.NumberKind) == 0:
		if len(all) == 1 {
			return addRules(all[0], s, false) && coversNumbers(all[0], kinds)
		}
		exact = true
		for _, alternative := range all {
			var a spec.Schema
			a.Enum = enumOf(alternative)
			exact = addRules(alternative, &a, false) && coversNumbers(alternative, kinds) && exact
			s.AnyOf = append(s.AnyOf, a)
		}
		if null {
			s.AnyOf = append(s.AnyOf, spec.Schema{SchemaProps: spec.SchemaProps{Enum: []any{nil}}})
		}
		return exact
	}
	exact = true
	for _, of := range [...][]*schemas.Scalar{n.Alternatives(kinds & (schemas.IntegerKind | schemas.NumberKind)), n.Alternatives(kinds & schemas.StringKind)} {
		switch {
		case len(of) == 0:
		case len(of) == 1 && len(of[0].Enum) == 0 && len(of[0].Not) == 0 && coversNumbers(of[0], kinds):
			exact = addRules(of[0], s, true) && exact
		default:
			exact = false
		}
	}
	return exact && len(n.Alternatives(kinds&schemas.BoolKind)) == 0
}

// joinEnums merges alternatives that are only enumerations into one.
func joinEnums(all []*schemas.Scalar) []*schemas.Scalar {
	var joined schemas.Scalar
	for _, s := range all {
		rest := *s
		if rest.Enum = nil; len(s.Enum) == 0 || rest.Constrained() {
			return all
		}
		joined.Kinds |= s.Kinds
		joined.Enum = append(joined.Enum, s.Enum...)
	}
	if len(all) < 2 {
		return all
	}
	return []*schemas.Scalar{&joined}
}

// coversNumbers reports whether the alternative applies to all numbers that a node with these kinds
// admits.
func coversNumbers(s *schemas.Scalar, kinds schemas.Kinds) bool {
	numeric := schemas.IntegerKind | schemas.NumberKind
	return s.Kinds&numeric == 0 || s.Kinds&numeric == kinds&numeric
}

func enumOf(s *schemas.Scalar) []any {
	var values []any
	for _, text := range s.Enum {
		if v, err := jsonvalue.Decode(text); err == nil {
			values = append(values, v)
		}
	}
	return values
}

// addRules adds the rules of an alternative except its enumeration. exact reports whether it added all
// of them. mixed says that values of other types are valid too, which a negated pattern would reject.
func addRules(s *schemas.Scalar, to *spec.Schema, mixed bool) (exact bool) {
	exact = len(s.Forms) == 0
	if format, ok := integerFormat(s); ok {
		to.Format = format
	} else {
		if b := s.Minimum; b != nil {
			to.Minimum, to.ExclusiveMinimum = boundOf(s, b, 1)
			exact = exact && to.Minimum != nil
		}
		if b := s.Maximum; b != nil {
			to.Maximum, to.ExclusiveMaximum = boundOf(s, b, -1)
			exact = exact && to.Maximum != nil
		}
	}
	if f, ok := factor(s); ok {
		to.MultipleOf = &f
	} else if s.MultipleOf != nil {
		exact = false
	}
	if s.MinRunes != nil {
		to.MinLength = ptr(int64(s.MinRunes.Count))
	}
	if s.MaxRunes != nil {
		to.MaxLength = ptr(int64(s.MaxRunes.Count))
	}
	for _, p := range s.Patterns {
		switch {
		case p.Negated && mixed:
			exact = false
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
			if v, err := jsonvalue.Decode(x.Value); err == nil {
				not.Enum = append(not.Enum, v)
			}
		}
		to.Not = &not
	}
	return exact
}

// factor returns the number for multipleOf, if validators compute it exactly: only for integers.
func factor(s *schemas.Scalar) (float64, bool) {
	if s.MultipleOf == nil || s.Kinds.Has(schemas.NumberKind) {
		return 0, false
	}
	r, err := jsonvalue.ParseDecimal(s.MultipleOf.Value)
	if err != nil || !r.IsInt() || r.Sign() <= 0 {
		return 0, false
	}
	f, exact := r.Float64()
	return f, exact && f < 1<<53
}

// integerFormat returns int32 or int64 if the bounds are those of that type.
func integerFormat(s *schemas.Scalar) (string, bool) {
	if s.Kinds != schemas.IntegerKind || s.Minimum == nil || s.Maximum == nil || s.Minimum.Exclusive || s.Maximum.Exclusive {
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

// boundOf returns a bound as an OpenAPI number, or nil if OpenAPI cannot express it: beyond 64 bits,
// where validators overflow, and between two adjacent floats. A bound of integers must not have a
// fraction; it is rounded in the direction inward, 1 or -1.
func boundOf(s *schemas.Scalar, b *schemas.Bound, inward int64) (*float64, bool) {
	r, err := jsonvalue.ParseDecimal(b.Value)
	if err != nil {
		return nil, false
	}
	exclusive := b.Exclusive
	if !s.Kinds.Has(schemas.NumberKind) && !r.IsInt() {
		down := new(big.Int).Div(r.Num(), r.Denom()) // Div rounds down for a positive divisor
		if inward > 0 {
			down.Add(down, big.NewInt(1))
		}
		r, exclusive = new(big.Rat).SetInt(down), false
	}
	f, exact := r.Float64()
	if math.Abs(f) >= 1<<63 || math.Abs(f) >= 1<<53 && !exact {
		return nil, false
	}
	return &f, exclusive
}

func ptr[T any](v T) *T { return &v }
