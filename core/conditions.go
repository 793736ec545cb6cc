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
	if r.decision, err = r.settled(ctx, r.authorized); err != nil {
		return err
	}
	if !r.decision.Allowed {
		return status.Forbidden(&r.access, r.decision)
	}
	return nil
}

// mayCreate authorizes an update that creates to do that as well, as upstream does once the
// object is known to be valid.
func (r *Request) mayCreate(ctx context.Context) error {
	r.creating = nil
	if r.law || r.info.Verb == "create" || !r.creates() {
		return nil
	}
	access := r.access
	access.Verb = "create"
	d, err := r.settled(ctx, r.tip.Policy.Authorize(ctx, &access))
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
	object, old, err := r.objects()
	if err != nil {
		return nil, err
	}
	return d.Pending.Decide(ctx, r.kind, object, old), nil
}

// discreet makes one refusal of all that can become of a write before its conditions are
// known to hold, for those who may not read the object: what an error quotes, a warning
// names, or the stage tells that it came from, would be something about an object that they
// may neither read nor write, or about whether it is there.
func (r *Request) discreet(ctx context.Context, err error) error {
	if r.authorized == nil || r.authorized.Pending == nil || r.info.Verb == "create" {
		return err
	}
	switch r.stage {
	case "decode", "schema", "conditions":
	default:
		return err
	}
	read := r.access
	read.Verb = "get"
	if r.tip.Policy.Authorize(ctx, &read).Allowed {
		return err
	}
	r.stage, r.warnings = "conditions", nil
	if r.trace != nil {
		r.trace.forget("decode")
	}
	return status.Forbidden(&r.access, r.authorized)
}

// objects are what the request writes, nil of a delete, and what is there, nil of a
// create.
func (r *Request) objects() (object, old *policy.Object, err error) {
	if r.object != nil {
		object = &policy.Object{Meta: r.object.meta, Content: r.object.content}
	}
	switch {
	case r.creates():
	case r.object != nil:
		old = &policy.Object{Meta: r.oldMeta, Content: r.oldContent}
	default:
		meta, content, err := r.decodeStored(r.old.JSON)
		if err != nil {
			return nil, nil, err
		}
		old = &policy.Object{Meta: meta, Content: content}
	}
	if r.scales() {
		if object, err = r.scaleObject(object); err == nil {
			old, err = r.scaleObject(old)
		}
	}
	return object, old, err
}
