package commit

import (
	"context"

	"stele.dev/stele/core/shown"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/builtin"
)

// prepared is a policy that is about to come in force, and the objects as it shows them.
// Both follow from what is in the log: whoever finds nothing prepared makes the same.
type prepared struct {
	digest  policies.Digest
	policy  *policy.Policy
	objects objects.Rendered
}

// Prepare does ahead what it takes to put a policy in force: it is loaded, and the objects at
// the tip that it shows otherwise than the policy in force are rendered. If it is activated
// soon after, writers wait for that no longer than for another write; without Prepare, until
// all this is done. What was prepared is forgotten by release, which the caller MUST call.
// The error is that of loading the policy.
func (c *Committer) Prepare(ctx context.Context, proposal *policies.Proposal) (release func(), err error) {
	next, err := c.load(proposal)
	if err != nil {
		return func() {}, err
	}
	tip := c.Tip()
	ahead := &prepared{proposal.Digest, next, tip.Objects.Render(ctx, c.kinds(tip.Policy, next))}
	c.prepared.Store(ahead)
	return func() { c.prepared.CompareAndSwap(ahead, nil) }, nil
}

// ready is a policy that has been activated, and what was rendered for it ahead.
func (c *Committer) ready(proposal *policies.Proposal) (*policy.Policy, objects.Rendered, error) {
	if p := c.prepared.Load(); p != nil && p.digest == proposal.Digest {
		return p.policy, p.objects, nil
	}
	next, err := c.load(proposal)
	return next, nil, err
}

// kinds lists what the objects projection must know of the kinds of a policy that comes in
// force after another one. Objects of those that have the same form are left as they are.
func (c *Committer) kinds(before, next *policy.Policy) []objects.Kind {
	were := map[string]*schemas.Kind{}
	if before != nil {
		for _, k := range before.Kinds() {
			were[k.Resource()] = k.Kind
		}
	}
	var kinds []objects.Kind
	for _, k := range next.Kinds() {
		if k.Of != nil {
			continue // its objects are another kind's
		}
		kind := KindOf(k)
		if was := were[k.Resource()]; was == nil || !was.SameForm(k.Kind) {
			kind.Render = c.render(k)
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// KindOf is what the objects projection must know of a kind.
func KindOf(k *policy.Kind) objects.Kind {
	kind := objects.Kind{GroupResource: k.GroupResource(), Fields: k.SelectableFields()}
	if k.Builtin {
		kind.Paths = builtin.FieldPaths(k.Resource())
	}
	return kind
}

// Load compiles a policy from its form, as when it is activated.
func (c *Committer) Load(proposal *policies.Proposal) (*policy.Policy, error) {
	return c.load(proposal)
}

// render shows what cannot be rendered as it is: no object is ever lost for it.
func (c *Committer) render(k *policy.Kind) func([]byte) []byte {
	stored := shown.Stored(k)
	return func(payload []byte) []byte {
		rendered, err := stored(payload)
		if err != nil {
			c.logger.Error("a stored object cannot be shown as its schema wants it", "kind", k.Resource(), "error", err)
			return payload
		}
		return rendered
	}
}
