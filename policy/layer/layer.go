// Package layer makes the rules and kinds of what came through the API, which are in force beside a bundle: CustomResourceDefinitions, roles and bindings,
// webhooks.
//
// What is in force follows from the stored objects and from the policy of the bundle alone, so that every replica, and a read of the past, has the same.
package layer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/brought"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/crd"
	"stele.dev/stele/schemas/crd/definitions"
)

// Stored is a stored object that came through the API.
type Stored struct {
	Resource        schema.GroupResource
	Namespace, Name string
	Revision        uint64
	JSON            []byte
}

// place says where an object is, and at which revision it was written.
type place struct {
	resource        schema.GroupResource
	namespace, name string
	revision        uint64
}

// made is what is made of an object, whatever the others are.
type made struct {
	kind    *policy.Kind
	role    *role
	binding *binding
	hooks   []policy.Reviewer
	failed  error
}

// Over returns the policy with what the objects say that came through the API. What before, which may be nil, has of the same revisions is not made
// again. An object of which nothing can be made is left out and given to failed: an earlier version of the program has accepted it.
func Over(p, before *policy.Policy, all []Stored, failed func(resource schema.GroupResource, name string, err error)) *policy.Policy {
	known := map[place]*made{}
	if before != nil && before.Brought() != nil {
		known = before.Brought().Made.(map[place]*made)
	}
	base, l, r := p.Base().Form(), &policy.Layer{}, &rbac{}
	now := make(map[place]*made, len(all))
	for i := range all {
		x := &all[i]
		at := place{x.Resource, x.Namespace, x.Name, x.Revision}
		m := known[at]
		if m == nil {
			m = makeOf(x)
			if m.failed != nil {
				failed(x.Resource, x.Name, m.failed)
			}
		}
		now[at] = m
		switch of := brought.Of(x.Resource); {
		case m.failed != nil && m.hooks == nil || of != nil && !base.AllowsBrought(of, x.Namespace):
		case m.kind != nil:
			l.Kinds = append(l.Kinds, m.kind)
		case m.role != nil:
			r.roles = append(r.roles, m.role)
		case m.binding != nil:
			r.bindings = append(r.bindings, m.binding)
		default:
			l.Reviewers = append(l.Reviewers, m.hooks...)
		}
	}
	slices.SortFunc(l.Kinds, func(a, b *policy.Kind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Plural, b.Plural))
	})
	order(base, l)
	r.over(base, l)
	l.Made, l.Empty = now, len(now) == 0
	next, err := p.With(l, before)
	if err != nil {
		panic(fmt.Sprintf("layer: %v", err)) // its parts have been compiled, and name each other
	}
	return next
}

// makeOf makes what an object says.
func makeOf(x *Stored) *made {
	m := &made{}
	switch x.Resource {
	case definitions.Resource:
		m.kind, m.failed = kindOf(x)
	case brought.ClusterRoles.GroupResource(), brought.Roles.GroupResource():
		m.role, m.failed = roleOf(x)
	case brought.ClusterRoleBindings.GroupResource(), brought.RoleBindings.GroupResource():
		m.binding, m.failed = bindingOf(x)
	default:
		m.hooks, m.failed = hooksOf(x)
	}
	return m
}

// at returns the position of an object: its name, and the revision that says so.
func (x *Stored) at() schemas.Position {
	name := x.Name
	if x.Namespace != "" {
		name = x.Namespace + "/" + name
	}
	return schemas.Position{File: fmt.Sprintf("%s/%s@%d", x.Resource.Resource, name, x.Revision)}
}

// kindOf returns the kind of a stored definition; nil if it is not in force.
func kindOf(x *Stored) (*policy.Kind, error) {
	d, err := definitions.Decode(x.JSON)
	if err != nil {
		return nil, err
	}
	if !definitions.InForce(d) {
		return nil, nil
	}
	d.Spec.Names = d.Status.AcceptedNames
	k, err := Compile(d, x.Revision)
	if err == nil {
		k.Object, k.Terminating = x.Revision, definitions.Terminating(d)
	}
	return k, err
}

// Compile compiles a definition that kube-apiserver's validation has accepted, and that is stored at a revision; 0 if it is not stored yet.
func Compile(d *definitions.Definition, revision uint64) (*policy.Kind, error) {
	at := schemas.Position{File: fmt.Sprintf("%s/%s@%d", definitions.Resource.Resource, d.Name, revision)}
	of, errs, _ := crd.TranslateValid(d, func([]string) schemas.Position { return at })
	if len(errs) > 0 {
		return nil, errs
	}
	for i := range of.Versions {
		v := &of.Versions[i]
		for j := range v.Rules {
			if err := compileRule(&of, v, &v.Rules[j]); err != nil {
				return nil, fmt.Errorf("version %s, rule %s: %w", v.Name, v.Rules[j].Name, err)
			}
		}
	}
	return policy.NewKind(&of)
}

// CheckDefinition returns why a definition that kube-apiserver's validation has accepted cannot be in force here, and what of it has no effect.
func CheckDefinition(d *definitions.Definition) (errs field.ErrorList, warnings []string) {
	_, refused, unused := crd.TranslateValid(d, func([]string) schemas.Position { return schemas.Position{} })
	for _, x := range refused {
		text := x.Message
		if x.Hint != "" {
			text += ": " + x.Hint
		}
		errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: x.Path, BadValue: field.OmitValueType{}, Detail: text})
	}
	for _, x := range unused {
		warnings = append(warnings, x.Path+": "+x.Message)
	}
	if len(errs) > 0 {
		return errs, warnings
	}
	if _, err := Compile(d, 0); err != nil {
		errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: "spec.versions", BadValue: field.OmitValueType{}, Detail: err.Error()})
	}
	return errs, warnings
}

// compileRule checks the expressions of a rule and sets their programs.
func compileRule(k *schemas.Kind, v *schemas.Version, r *schemas.Rule) error {
	path, err := policy.ParseRulePath(r.Path)
	if err != nil {
		return err
	}
	t, items, err := path.Type(k, v)
	if err != nil {
		return err
	}
	old := t
	if r.OptionalOldSelf {
		old = celtype.OptionalOf(t)
	}
	scope, err := expr.Root().With(map[string]*celtype.Type{expr.VarSelf: t, expr.VarOldSelf: old})
	if err != nil {
		return err
	}
	compiled := func(text string, want *cel.Type) (*expr.Checked, error) {
		checked, fault := scope.Compile(text, want)
		if fault != nil {
			message, _ := fault.Explain(text)
			return nil, fmt.Errorf("in CEL: %s", message)
		}
		return checked, nil
	}
	checked, err := compiled(r.Rule, cel.BoolType)
	if err != nil {
		return err
	}
	r.Checked, r.Transition = checked.AST, slices.Contains(checked.Names, expr.VarOldSelf)
	if r.Transition && items {
		return fmt.Errorf("oldSelf cannot be used for the items of a list: nothing tells which item it was before")
	}
	if r.MessageExpression != "" {
		message, err := compiled(r.MessageExpression, cel.StringType)
		if err != nil {
			return err
		}
		r.CheckedMessage = message.AST
	}
	return nil
}
