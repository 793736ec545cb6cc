package policy

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/schemas"
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

// With returns the policy of a bundle with kinds of definitions that came through the API, sorted by group and name. It shares all else with the
// policy of the bundle. A kind that the bundle has is left out: a definition never changes what the bundle defines.
func (p *Policy) With(kinds []*Kind) *Policy {
	base := p.Base()
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(k *Kind) bool { return base.byResource[k.GroupResource()] != nil })
	if len(kinds) == 0 {
		return base
	}
	next, form := *base, *base.form
	next.base, next.form, next.kept = base, &form, new(kept)
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
	return &next
}

// Base returns the policy without kinds of definitions that came through the API: what the bundle says.
func (p *Policy) Base() *Policy {
	if p.base != nil {
		return p.base
	}
	return p
}

// Layer returns the kinds of definitions that came through the API.
func (p *Policy) Layer() []*Kind { return p.kinds[len(p.Base().kinds):] }

// DefinedBy returns the kind of the bundle, or the built-in one, of a resource; nil if there is none.
func (p *Policy) DefinedBy(r schema.GroupResource) *schemas.Kind {
	if k := p.Base().byResource[r]; k != nil {
		return k.Kind
	}
	return nil
}
