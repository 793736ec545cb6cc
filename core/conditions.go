package core

import (
	"context"

	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// conditions completes an authorization that depends on the object. Here the object is valid, and as it would be
// committed.
func (p *Pipeline) conditions(ctx context.Context, r *Request) error {
	if err := r.mayCreate(ctx); err != nil {
		return err
	}
	if r.authorized.Pending == nil {
		return nil
	}
	// Each round decides again: the object may have changed.
	var err error
	if r.Decision, err = r.settled(ctx, r.authorized); err != nil {
		return err
	}
	if !r.Decision.Allowed {
		r.denied = r.Decision
		return status.Forbidden(&r.Access, r.Decision)
	}
	return nil
}

// mayCreate requires permission for the verb create if an update creates its object. As in kube-apiserver, it runs
// once the object is known to be valid.
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
		r.denied = d
		return status.Forbidden(&access, d)
	}
	r.creating = d
	return nil
}

// settled returns the final decision. If d depends on the object, it is decided by the object.
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

// discreet replaces the error of a write by a plain refusal, if the user may not read the object and it is not known
// whether the conditions of the grant hold. The error, a warning or the name of the stage could reveal the content of
// the object, or whether it exists.
func (r *Request) discreet(ctx context.Context, err error) error {
	r.hidden = nil
	if r.authorized == nil || r.authorized.Pending == nil || r.Info.Verb == "create" {
		return err
	}
	switch r.Stage {
	case "decode", "mutation", "schema", "conditions":
	default:
		return err
	}
	read := r.Access
	read.Verb = "get"
	if r.Tip.Policy.Authorize(ctx, &read).Allowed {
		return err
	}
	r.hidden = &hidden{r.Stage, err}
	r.Stage = "conditions"
	r.ResetWarnings()
	if r.trace != nil {
		r.trace.Forget("decode")
	}
	return status.Forbidden(&r.Access, r.authorized)
}
