package core

import (
	"context"

	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// conditions ends an authorization that depends on the object, which is known now, valid
// and as it would be committed.
func (p *Pipeline) conditions(ctx context.Context, r *Request) error {
	if err := r.mayCreate(ctx); err != nil {
		return err
	}
	if r.authorized.Pending == nil {
		return nil
	}
	// Decided anew in each round: the object may be another one.
	var err error
	if r.Decision, err = r.settled(ctx, r.authorized); err != nil {
		return err
	}
	if !r.Decision.Allowed {
		return status.Forbidden(&r.Access, r.Decision)
	}
	return nil
}

// mayCreate authorizes an update that creates to do that as well, as upstream does once the
// object is known to be valid.
func (r *Request) mayCreate(ctx context.Context) error {
	r.creating = nil
	if r.write != nil || r.Info.Verb == "create" || !r.Creates() {
		return nil
	}
	access := r.Access
	access.Verb = "create"
	d, err := r.settled(ctx, r.Tip.Policy.Authorize(ctx, &access))
	if err != nil {
		return err
	}
	if !d.Allowed {
		return status.Forbidden(&access, d)
	}
	r.creating = d
	return nil
}

// settled is a decision that depends on the object no more.
func (r *Request) settled(ctx context.Context, d *policy.Decision) (*policy.Decision, error) {
	if d.Pending == nil {
		return d, nil
	}
	object, old, err := r.Objects()
	if err != nil {
		return nil, err
	}
	return d.Pending.Decide(ctx, r.Kind, object, old), nil
}

// discreet makes one refusal of all that can become of a write before its conditions are
// known to hold, for those who may not read the object: what an error quotes, a warning
// names, or the stage tells that it came from, would be something about an object that they
// may neither read nor write, or about whether it is there.
func (r *Request) discreet(ctx context.Context, err error) error {
	if r.authorized == nil || r.authorized.Pending == nil || r.Info.Verb == "create" {
		return err
	}
	switch r.Stage {
	case "decode", "schema", "conditions":
	default:
		return err
	}
	read := r.Access
	read.Verb = "get"
	if r.Tip.Policy.Authorize(ctx, &read).Allowed {
		return err
	}
	r.Stage = "conditions"
	r.ResetWarnings()
	if r.trace != nil {
		r.trace.Forget("decode")
	}
	return status.Forbidden(&r.Access, r.authorized)
}
