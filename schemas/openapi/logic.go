package openapi

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// In a structural schema, the schemas in allOf, anyOf, oneOf and not only validate. They may not add
// types, defaults or fields. What they cannot express makes a schema weaker. A weaker alternative in
// anyOf is safe. In not and oneOf it would reject values that the program accepts.

// addConditions adds the fields of conditions as properties.
func addConditions(o *schemas.Struct, s *spec.Schema) {
	for _, f := range o.AllFields()[len(o.Fields):] {
		if s.Properties == nil {
			s.Properties = map[string]spec.Schema{}
		}
		if _, err := program.NewChecker(f.Schema); err == nil {
			s.Properties[f.Name] = *schemaOf(f.Schema, false)
		} else {
			s.Properties[f.Name] = *anyValue()
		}
	}
}

// addUnion adds the arms of a union: the required fields and the discriminator values of each.
func addUnion(s *spec.Schema, u *schemas.Union) {
	if u == nil || len(u.Arms) < 2 {
		return
	}
	var arms []spec.Schema
	for i := range u.Arms {
		arm := &u.Arms[i]
		var v spec.Schema
		v.Required = required(arm)
		if _, has := s.Properties[u.Discriminator]; has && len(arm.Values) > 0 {
			if values, err := jsonvalue.DecodeAll(arm.Values); err == nil {
				v.Properties = map[string]spec.Schema{u.Discriminator: {SchemaProps: spec.SchemaProps{Enum: values}}}
			}
		}
		if empty(&v) {
			return // this arm fits every value
		}
		arms = append(arms, v)
	}
	if areExclusive(u) {
		s.OneOf = append(s.OneOf, arms...)
	} else {
		conjoin(s, spec.Schema{SchemaProps: spec.SchemaProps{AnyOf: arms}})
	}
}

// required returns the fields that an object of the arm must have.
func required(a *schemas.Arm) []string {
	var names []string
	for i := range a.Struct.Fields {
		f := &a.Struct.Fields[i]
		if _, fills := program.Absent(f); f.Presence == schemas.Optional || fills || f.TakenFromElsewhere() {
			continue
		}
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return names
}

// areExclusive reports whether the OpenAPI schemas of the arms exclude each other.
func areExclusive(u *schemas.Union) bool {
	for i := range u.Arms {
		for j := range u.Arms {
			if i != j && !excludes(&u.Arms[i], &u.Arms[j], u.Discriminator) {
				return false
			}
		}
	}
	return true
}

// excludes reports whether no object of arm a matches the OpenAPI schema of arm b, because of another
// discriminator value or a field that a does not have.
func excludes(a *schemas.Arm, b *schemas.Arm, discriminator string) bool {
	if len(a.Values) > 0 && len(b.Values) > 0 && slices.Contains(required(a), discriminator) {
		return !slices.ContainsFunc(a.Values, func(x json.RawMessage) bool {
			return slices.ContainsFunc(b.Values, func(y json.RawMessage) bool { return bytes.Equal(x, y) })
		})
	}
	closed := !a.Struct.Open && len(a.Struct.Patterns) == 0 && len(a.Struct.Conditions) == 0
	return closed && slices.ContainsFunc(required(b), func(name string) bool {
		return !slices.ContainsFunc(a.Struct.Fields, func(f schemas.Field) bool { return f.Name == name })
	})
}

// addLogic adds the logic of a node to its schema.
func addLogic(s *spec.Schema, n *schemas.Node) {
	if n.Logic != nil {
		v, _ := logicValidation(n.Logic, s)
		conjoin(s, v)
	}
}

// logicValidation returns the logic as an OpenAPI schema for values with the structure within. exact
// reports whether it expresses everything.
func logicValidation(l *schemas.Logic, within *spec.Schema) (v spec.Schema, exact bool) {
	exact = true
	for _, n := range l.AllOf {
		one, whole := nodeValidation(n, within)
		exact = exact && whole
		if !empty(&one) {
			v.AllOf = append(v.AllOf, one)
		}
	}
	if len(l.AnyOf) > 0 {
		anyOf, whole := anyOf(l.AnyOf, within)
		v.AnyOf, exact = anyOf, exact && whole
	}
	if len(l.OneOf) > 0 {
		oneOf, whole := anyOf(l.OneOf, within)
		exact = exact && whole
		if whole {
			v.OneOf = oneOf
		} else {
			conjoin(&v, spec.Schema{SchemaProps: spec.SchemaProps{AnyOf: oneOf}})
		}
	}
	if l.Not != nil {
		not, whole := nodeValidation(l.Not, within)
		if exact = exact && whole; whole {
			v.Not = &not
		}
	}
	return v, exact
}

// anyOf returns schemas of which at least one must match. The result is empty if one of the nodes admits
// everything.
func anyOf(nodes []*schemas.Node, within *spec.Schema) (schemas []spec.Schema, exact bool) {
	exact = true
	free := false
	for _, n := range nodes {
		one, whole := nodeValidation(n, within)
		exact = exact && whole
		free = free || empty(&one)
		schemas = append(schemas, one)
	}
	if free && !exact {
		return nil, false
	}
	return schemas, exact
}

// nodeValidation returns the rules of the node as an OpenAPI schema for values with the structure
// within. exact reports whether it expresses everything.
func nodeValidation(n *schemas.Node, within *spec.Schema) (v spec.Schema, exact bool) {
	kinds := structureKinds(within)
	exact = n.Kinds.Has(kinds) && n.Union == nil && n.Fallback == nil && !n.Embedded && n.Format == ""
	exact = addScalars(n, &v, kinds) && exact
	if n.List != nil && kinds.Has(schemas.ListKind) {
		exact = listValidation(n.List, &v, within) && exact
	}
	if n.Struct != nil && kinds.Has(schemas.StructKind) {
		exact = structValidation(n.Struct, &v, within) && exact
	}
	if n.Logic != nil {
		logic, whole := logicValidation(n.Logic, within)
		conjoin(&v, logic)
		exact = exact && whole
	}
	return v, exact
}

func listValidation(l *schemas.List, v, within *spec.Schema) (exact bool) {
	if l.MinItems != nil {
		v.MinItems = ptr(int64(l.MinItems.Count))
	}
	if l.MaxItems != nil {
		v.MaxItems = ptr(int64(l.MaxItems.Count))
	}
	exact = !l.Unique && len(l.Prefix) == 0 && (l.Type == "" || l.Type == schemas.ListAtomic)
	if l.Items == nil {
		return exact
	}
	if within.Items == nil || within.Items.Schema == nil {
		return false
	}
	items, whole := nodeValidation(l.Items, within.Items.Schema)
	if !empty(&items) {
		v.Items = &spec.SchemaOrArray{Schema: &items}
	}
	return exact && whole
}

func structValidation(s *schemas.Struct, v, within *spec.Schema) (exact bool) {
	if s.MinFields != nil {
		v.MinProperties = ptr(int64(s.MinFields.Count))
	}
	if s.MaxFields != nil {
		v.MaxProperties = ptr(int64(s.MaxFields.Count))
	}
	exact = len(s.Patterns) == 0 && len(s.Comparisons) == 0 && len(s.Conditions) == 0
	for _, f := range s.Fields {
		if f.Presence != schemas.Optional {
			v.Required = append(v.Required, f.Name)
		}
		property, has := within.Properties[f.Name]
		if !has || f.Name == "metadata" { // rules for metadata are not allowed there
			exact = exact && f.Schema.AdmitsAll()
			continue
		}
		one, whole := nodeValidation(f.Schema, &property)
		exact = exact && whole
		if !empty(&one) {
			if v.Properties == nil {
				v.Properties = map[string]spec.Schema{}
			}
			v.Properties[f.Name] = one
		}
	}
	return exact
}

// structureKinds returns the kinds that the structure of a schema admits.
func structureKinds(s *spec.Schema) schemas.Kinds {
	kinds := schemas.AnyKind
	switch {
	case s.Type.Contains("boolean"):
		kinds = schemas.BoolKind
	case s.Type.Contains("integer"):
		kinds = schemas.IntegerKind
	case s.Type.Contains("number"):
		kinds = schemas.IntegerKind | schemas.NumberKind
	case s.Type.Contains("string"):
		kinds = schemas.StringKind
	case s.Type.Contains("array"):
		kinds = schemas.ListKind
	case s.Type.Contains("object"):
		kinds = schemas.StructKind
	case s.Extensions[intOrString] == true:
		kinds = schemas.IntegerKind | schemas.StringKind
	}
	if s.Nullable {
		kinds |= schemas.NullKind
	}
	return kinds
}

func empty(s *spec.Schema) bool { return reflect.DeepEqual(s, &spec.Schema{}) }

// conjoin adds the rules of v to s. v has no structure.
func conjoin(s *spec.Schema, v spec.Schema) {
	s.AllOf = append(s.AllOf, v.AllOf...)
	v.AllOf = nil
	if len(v.AnyOf) > 0 && len(s.AnyOf) == 0 {
		s.AnyOf, v.AnyOf = v.AnyOf, nil
	}
	if len(v.OneOf) > 0 && len(s.OneOf) == 0 {
		s.OneOf, v.OneOf = v.OneOf, nil
	}
	if v.Not != nil && s.Not == nil {
		s.Not, v.Not = v.Not, nil
	}
	if !empty(&v) {
		s.AllOf = append(s.AllOf, v)
	}
}
