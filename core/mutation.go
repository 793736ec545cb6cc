package core

import (
	"cmp"
	"context"
	"slices"
)

// mutator is one party of mutating admission that a write concerns: a rule of the policy, a plugin or a webhook.
type mutator struct {
	id, source string
	// order is the number in the bundle. No two mutators of a policy have the same.
	order int
	// reinvoked says that the mutator is asked again if a later one changed the object: its reinvocationPolicy is IfNeeded.
	reinvoked bool
	// run changes the object by [edit.Draft.Replace]. changed says whether it did.
	run func(ctx context.Context, r *Request, round int) (changed bool, err error)

	stale bool // a later mutator changed the object after this one had seen it
}

// mutation lets mutators change the object, each after those of a lower order. As in kube-apiserver, a mutator may be asked
// a second time, once, to see what later ones changed.
func (p *Pipeline) mutation(ctx context.Context, r *Request) error {
	if r.write != nil || r.Mistyped != nil {
		return nil
	}
	all := p.mutators(r)
	slices.SortStableFunc(all, func(a, b *mutator) int { return cmp.Compare(a.order, b.order) })
	for round := range 2 {
		for i, m := range all {
			if round > 0 && (!m.reinvoked || !m.stale) {
				continue
			}
			m.stale = false
			changed, err := m.run(ctx, r, round)
			if err != nil {
				return err
			}
			for j, other := range all {
				other.stale = other.stale || changed && j != i && (round > 0 || j < i)
			}
		}
	}
	return nil
}

// mutators returns the mutators that may be about a write.
func (p *Pipeline) mutators(*Request) []*mutator { return nil }
