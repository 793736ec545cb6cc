package schemas

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// What stands below allOf, anyOf, oneOf and not in a structural schema says what is valid,
// and nothing else: no types, no defaults, no fields that the structure does not have. What
// that leaves unsaid makes a schema weaker. A weaker alternative makes anyOf weaker, which
// is safe; below not, and among oneOf, it would refuse what the program accepts.

// openConditions adds the fields that conditions add.
func (o *Struct) openConditions(s *spec.Schema) {
	for _, f := range o.AllFields()[len(o.Fields):] {
		if s.Properties == nil {
			s.Properties = map[string]spec.Schema{}
		}
		if _, err := NewChecker(f.Schema); err == nil {
			s.Properties[f.Name] = *f.Schema.openAPI(false)
		} else {
			s.Properties[f.Name] = *anyValue()
		}
	}
}

// openUnion says which arms there are: by the fields that each must have and the values
// of the discriminator.
func openUnion(s *spec.Schema, u *Union) {
	if u == nil || len(u.Arms) < 2 {
		return
	}
	var arms []spec.Schema
	for i := range u.Arms {
		arm := &u.Arms[i]
		var v spec.Schema
		v.Required = arm.required()
		if _, has := s.Properties[u.Discriminator]; has && len(arm.Values) > 0 {
			if values, err := decodeAll(arm.Values); err == nil {
				v.Properties = map[string]spec.Schema{u.Discriminator: {SchemaProps: spec.SchemaProps{Enum: values}}}
			}
		}
		if empty(&v) {
			return // whatever there is, it may be this arm
		}
		arms = append(arms, v)
	}
	if u.apart() {
		s.OneOf = append(s.OneOf, arms...)
	} else {
		conjoin(s, spec.Schema{SchemaProps: spec.SchemaProps{AnyOf: arms}})
	}
}

// required are the fields that an object must have to be of the arm.
func (a *Arm) required() []string {
	var names []string
	for i := range a.Struct.Fields {
		f := &a.Struct.Fields[i]
		if _, fills := Absent(f); f.Presence == Optional || fills || f.taken() {
			continue
		}
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return names
}

// apart reports whether what is of one arm has never what OpenAPI is told of another.
func (u *Union) apart() bool {
	for i := range u.Arms {
		for j := range u.Arms {
			if i != j && !u.Arms[i].excludes(&u.Arms[j], u.Discriminator) {
				return false
			}
		}
	}
	return true
}

// excludes reports whether nothing that is of the arm a has what OpenAPI says of the arm b:
// another value of the discriminator, or a field that a does not have.
func (a *Arm) excludes(b *Arm, discriminator string) bool {
	if len(a.Values) > 0 && len(b.Values) > 0 && slices.Contains(a.required(), discriminator) {
		return !slices.ContainsFunc(a.Values, func(x json.RawMessage) bool {
			return slices.ContainsFunc(b.Values, func(y json.RawMessage) bool { return bytes.Equal(x, y) })
		})
	}
	closed := !a.Struct.Open && len(a.Struct.Patterns) == 0 && len(a.Struct.Conditions) == 0
	return closed && slices.ContainsFunc(b.required(), func(name string) bool {
		return !slices.ContainsFunc(a.Struct.Fields, func(f Field) bool { return f.Name == name })
	})
}

// openLogic adds what the logic of a node says.
func openLogic(s *spec.Schema, n *Node) {
	if n.Logic != nil {
		v, _ := n.Logic.validation(s)
		conjoin(s, v)
	}
}

// validation is what the logic says of values whose structure is within.
func (l *Logic) validation(within *spec.Schema) (v spec.Schema, exact bool) {
	exact = true
	for _, n := range l.AllOf {
		one, whole := n.validation(within)
		exact = exact && whole
		if !empty(&one) {
			v.AllOf = append(v.AllOf, one)
		}
	}
	if len(l.AnyOf) > 0 {
		anyOf, whole := some(l.AnyOf, within)
		v.AnyOf, exact = anyOf, exact && whole
	}
	if len(l.OneOf) > 0 {
		oneOf, whole := some(l.OneOf, within)
		exact = exact && whole
		if whole {
			v.OneOf = oneOf
		} else {
			conjoin(&v, spec.Schema{SchemaProps: spec.SchemaProps{AnyOf: oneOf}})
		}
	}
	if l.Not != nil {
		not, whole := l.Not.validation(within)
		if exact = exact && whole; whole {
			v.Not = &not
		}
	}
	return v, exact
}

// some are nodes of which some must hold; none if one of them says nothing.
func some(nodes []*Node, within *spec.Schema) (schemas []spec.Schema, exact bool) {
	exact = true
	free := false
	for _, n := range nodes {
		one, whole := n.validation(within)
		exact = exact && whole
		free = free || empty(&one)
		schemas = append(schemas, one)
	}
	if free && !exact {
		return nil, false
	}
	return schemas, exact
}

// validation is what the node says of values whose structure is within.
func (n *Node) validation(within *spec.Schema) (v spec.Schema, exact bool) {
	kinds := structureKinds(within)
	exact = n.Kinds.Has(kinds) && n.Union == nil && n.Fallback == nil && !n.Embedded && n.Format == ""
	exact = n.openScalars(&v, kinds) && exact
	if n.List != nil && kinds.Has(ListKind) {
		exact = n.List.validation(&v, within) && exact
	}
	if n.Struct != nil && kinds.Has(StructKind) {
		exact = n.Struct.validation(&v, within) && exact
	}
	if n.Logic != nil {
		logic, whole := n.Logic.validation(within)
		conjoin(&v, logic)
		exact = exact && whole
	}
	return v, exact
}

func (l *List) validation(v, within *spec.Schema) (exact bool) {
	if l.MinItems != nil {
		v.MinItems = ptr(int64(l.MinItems.Count))
	}
	if l.MaxItems != nil {
		v.MaxItems = ptr(int64(l.MaxItems.Count))
	}
	exact = !l.Unique && len(l.Prefix) == 0 && (l.Type == "" || l.Type == ListAtomic)
	if l.Items == nil {
		return exact
	}
	if within.Items == nil || within.Items.Schema == nil {
		return false
	}
	items, whole := l.Items.validation(within.Items.Schema)
	if !empty(&items) {
		v.Items = &spec.SchemaOrArray{Schema: &items}
	}
	return exact && whole
}

func (s *Struct) validation(v, within *spec.Schema) (exact bool) {
	if s.MinFields != nil {
		v.MinProperties = ptr(int64(s.MinFields.Count))
	}
	if s.MaxFields != nil {
		v.MaxProperties = ptr(int64(s.MaxFields.Count))
	}
	exact = len(s.Patterns) == 0 && len(s.Comparisons) == 0 && len(s.Conditions) == 0
	for _, f := range s.Fields {
		if f.Presence != Optional {
			v.Required = append(v.Required, f.Name)
		}
		property, has := within.Properties[f.Name]
		if !has || f.Name == "metadata" { // of which nothing may be said there
			exact = exact && f.Schema.free()
			continue
		}
		one, whole := f.Schema.validation(&property)
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

// free reports whether the node admits everything.
func (n *Node) free() bool {
	return n.Kinds == AnyKind && n.Scalars == nil && n.List == nil && n.Struct == nil && n.Union == nil &&
		n.Logic == nil && n.Fallback == nil && n.Format == ""
}

// structureKinds are the kinds that the structure of a schema admits.
func structureKinds(s *spec.Schema) Kinds {
	kinds := AnyKind
	switch {
	case s.Type.Contains("boolean"):
		kinds = BoolKind
	case s.Type.Contains("integer"):
		kinds = IntegerKind
	case s.Type.Contains("number"):
		kinds = IntegerKind | NumberKind
	case s.Type.Contains("string"):
		kinds = StringKind
	case s.Type.Contains("array"):
		kinds = ListKind
	case s.Type.Contains("object"):
		kinds = StructKind
	case s.Extensions[intOrString] == true:
		kinds = IntegerKind | StringKind
	}
	if s.Nullable {
		kinds |= NullKind
	}
	return kinds
}

func empty(s *spec.Schema) bool { return reflect.DeepEqual(s, &spec.Schema{}) }

// conjoin makes s say what v says as well; v has no structure.
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
