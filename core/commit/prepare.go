package commit

import (
	"context"

	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/builtin"
)

// prepared is a policy that will soon be in force, and the objects as it renders them. Both follow from the log, so a
// replica that has not prepared them computes the same.
type prepared struct {
	digest  policies.Digest
	policy  *policy.Policy
	objects objects.Rendered
}

// Prepare does the slow part of an activation in advance: it loads the policy, and renders the objects at the tip that
// the policy changes. An activation soon after that delays writes no more than another write; without Prepare, it
// delays them until all this is done. The caller must call release, which drops the prepared state. The error is that
// of loading the policy.
func (c *Committer) Prepare(ctx context.Context, proposal *policies.Proposal) (release func(), err error) {
	next, err := c.load(proposal)
	if err != nil {
		return func() {}, err
	}
	tip := c.Tip()
	ahead := &prepared{proposal.Digest, next, tip.Objects.Render(ctx, c.kinds(tip.Policy, c.Layered(next, tip.Policy, tip.Objects)))}
	c.prepared.Store(ahead)
	return func() { c.prepared.CompareAndSwap(ahead, nil) }, nil
}

// ready returns a policy that was activated, and the objects that were rendered for it.
func (c *Committer) ready(proposal *policies.Proposal) (*policy.Policy, objects.Rendered, error) {
	if p := c.prepared.Load(); p != nil && p.digest == proposal.Digest {
		return p.policy, p.objects, nil
	}
	next, err := c.load(proposal)
	return next, nil, err
}

// kinds returns the kinds of a new policy as the objects projection needs them. Objects of kinds with an unchanged
// form stay as they are.
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
			continue // its objects belong to another kind
		}
		kind := KindOf(k)
		if was := were[k.Resource()]; was == nil || was != k.Kind && !was.SameForm(k.Kind) {
			kind.Render = c.render(k)
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// KindOf returns a kind as the objects projection needs it.
func KindOf(k *policy.Kind) objects.Kind {
	kind := objects.Kind{GroupResource: k.GroupResource(), Fields: k.SelectableFields()}
	if k.Builtin {
		kind.Paths = builtin.FieldPaths(k.Resource())
	}
	return kind
}

// Load compiles a policy from its form, as an activation does. It has no definitions that came through the API.
func (c *Committer) Load(proposal *policies.Proposal) (*policy.Policy, error) {
	return c.load(proposal)
}

// render returns the function that renders objects of a kind. An object that cannot be rendered is shown as it was
// written, so that no object is lost.
func (c *Committer) render(k *policy.Kind) func([]byte) []byte {
	stored := versions.Stored(k)
	return func(payload []byte) []byte {
		rendered, err := stored(payload)
		if err != nil {
			c.logger.Error("a stored object cannot be shown as its schema wants it", "kind", k.Resource(), "error", err)
			return payload
		}
		return rendered
	}
}
