package policy

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/brought"
	"stele.dev/stele/schemas/crd/definitions"
)

// OwnAnnotations begins the names of the annotations that only objects of a policy have: they show the rule that the object is made of. No client can
// write one.
const OwnAnnotations = "stele.dev/"

// RuleAnnotation is the annotation with the ID of the rule.
const RuleAnnotation = OwnAnnotations + "rule"

// Definitions is the version in which CustomResourceDefinitions of the API are written and stored. Every policy has it: a policy says what becomes of such
// writes, see [Form.Dynamic]. The kind is not among [Policy.Kinds].
var Definitions = sync.OnceValue(func() *Version {
	of := definitions.Kind()
	k, err := NewKind(&of)
	if err != nil {
		panic(err) // it is always the same
	}
	return k.Versions[0]
})

// Brought returns the version in which objects of a resource are written and stored by which clients bring rules, nil if there are none. Every policy has
// it, as [Definitions].
func Brought(r schema.GroupResource) *Version { return broughtVersions()[r] }

// AllBrought returns the kinds of [Brought].
func AllBrought() []*Kind {
	list := make([]*Kind, 0, len(brought.All()))
	for _, of := range brought.All() {
		list = append(list, Brought(of.GroupResource()).Kind)
	}
	return list
}

var broughtVersions = sync.OnceValue(func() map[schema.GroupResource]*Version {
	all := map[schema.GroupResource]*Version{}
	for _, of := range brought.All() {
		k, err := NewKind(&of.Kind)
		if err != nil {
			panic(err) // it is always the same
		}
		k.Brought = of
		all[of.GroupResource()] = k.Versions[0]
	}
	return all
})

// Layer is what came through the API and is in force beside a bundle. It never changes.
type Layer struct {
	// Kinds are those of definitions, sorted by group and name.
	Kinds []*Kind
	// Roles are what clients brought, Joined the rules that those add to aggregated roles of the bundle, by the names of these.
	Roles  []Role
	Joined map[string][]Rule
	// Bindings have roles of the layer or of the bundle.
	Bindings  []Binding
	Reviewers []Reviewer
	// Empty is set if there are no objects, also none that are not in force.
	Empty bool
	// Made has what is made of each object, so that only what has changed is made again.
	Made any
}

// With returns the policy of a bundle with what came through the API. It shares all else with the policy of the bundle. A kind that the bundle has is left
// out: a definition never changes what the bundle defines. before is a policy from which it takes what has not changed; it may be nil.
func (p *Policy) With(l *Layer, before *Policy) (*Policy, error) {
	base := p.Base()
	kinds := slices.DeleteFunc(slices.Clone(l.Kinds), func(k *Kind) bool { return base.byResource[k.GroupResource()] != nil })
	if len(kinds)+len(l.Roles)+len(l.Bindings)+len(l.Reviewers) == 0 && l.Empty {
		return base, nil
	}
	next, form := *base, *base.form
	next.base, next.form, next.layer = base, &form, l
	form.Kinds = slices.Clone(form.Kinds)
	next.kinds = append(slices.Clip(base.kinds), kinds...)
	next.byGVR, next.byResource = maps.Clone(base.byGVR), maps.Clone(base.byResource)
	for _, k := range kinds {
		form.Kinds = append(form.Kinds, *k.Kind)
		next.byResource[k.GroupResource()] = k
		for _, v := range k.Versions {
			if v.Served {
				next.byGVR[v.GroupVersionResource()] = v
			}
		}
	}
	form.Reviewers = append(slices.Clip(form.Reviewers), l.Reviewers...)
	next.kept = next.share(before)
	return &next, next.grantBrought()
}

// share returns the derived results of a policy before, if what they are derived from is the same: all but who may do what.
func (p *Policy) share(before *Policy) *kept {
	if before == nil || before.Base() != p.base || !slices.Equal(before.kinds, p.kinds) || before.layer == nil && len(p.layer.Reviewers) > 0 ||
		before.layer != nil && !reflect.DeepEqual(before.layer.Reviewers, p.layer.Reviewers) {
		return new(kept)
	}
	p.form.Reviewers = before.form.Reviewers // the same ones, also for those that remember where they are
	return before.kept
}

// grantBrought adds the roles and bindings of the layer to the form, and indexes what they grant.
func (p *Policy) grantBrought() (err error) {
	l, f := p.layer, p.form
	if len(l.Roles)+len(l.Bindings) == 0 {
		return nil
	}
	// more has what is granted besides what the bundle grants: its bindings grant the rules that join their roles.
	more := Form{Roles: slices.Clone(l.Roles), Bindings: slices.Clone(l.Bindings)}
	f.Roles, f.Bindings = slices.Clone(f.Roles), append(slices.Clip(f.Bindings), l.Bindings...)
	bound := map[string]bool{}
	for i := range l.Bindings {
		bound[l.Bindings[i].Role] = true
	}
	for i := range f.Roles {
		r := &f.Roles[i]
		joined := l.Joined[r.Name]
		if len(joined) > 0 {
			r.Rules = append(slices.Clip(r.Rules), joined...)
			only := *r
			only.Rules, only.Name = joined, joinedName+r.Name
			more.Roles = append(more.Roles, only)
			for _, b := range p.base.form.Bindings {
				if b.Role == r.Name {
					b.Role = only.Name
					more.Bindings = append(more.Bindings, b)
				}
			}
		}
		if bound[r.Name] {
			more.Roles = append(more.Roles, *r)
		}
	}
	f.Roles = append(f.Roles, l.Roles...)
	p.more, err = newAccess(&more)
	return err
}

// joinedName begins the names of roles that have only the rules that join another one. No role of a bundle or of the API has such a name.
const joinedName = "+"

// Base returns the policy without what came through the API: what the bundle says.
func (p *Policy) Base() *Policy {
	if p.base != nil {
		return p.base
	}
	return p
}

// Layer returns the kinds of definitions that came through the API.
func (p *Policy) Layer() []*Kind { return p.kinds[len(p.Base().kinds):] }

// Brought returns all that came through the API, also what is not in force because the bundle has it; nil if there is nothing.
func (p *Policy) Brought() *Layer { return p.layer }

// DefinedBy returns the kind of the bundle, or the built-in one, of a resource; nil if there is none.
func (p *Policy) DefinedBy(r schema.GroupResource) *schemas.Kind {
	if k := p.Base().byResource[r]; k != nil {
		return k.Kind
	}
	return nil
}
