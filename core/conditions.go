package core

import (
	"context"

	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// conditions ends an authorization that depends on the object, which is known now, valid
// and as it would be committed.
func (p *Pipeline) conditions(ctx context.Context, r *Request) error {
	create := r.mayBeCreated != nil && r.mayBeCreated.Pending != nil
	if r.authorized.Pending == nil && !create {
		return nil
	}
	object, old, err := r.objects()
	if err != nil {
		return err
	}
	// Decided anew in each round: the object may be another one.
	if r.authorized.Pending != nil {
		if r.decision = r.authorized.Pending.Decide(ctx, r.kind, object, old); !r.decision.Allowed {
			return status.Forbidden(&r.access, r.decision)
		}
	}
	if create {
		if d := r.mayBeCreated.Pending.Decide(ctx, r.kind, object, old); !d.Allowed {
			return status.Forbidden(&r.createAccess, d)
		}
	}
	return nil
}

// discreet makes one refusal of all that can become of a write before its conditions are
// known to hold, for those who may not read the object: what an error quotes, a warning
// names, or the stage tells that it came from, would be something about an object that they
// may neither read nor write, or about whether it is there.
func (r *Request) discreet(err error) error {
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
	if r.tip.Policy.Authorize(&read).Allowed {
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
	case r.creates() || r.old == nil:
	case r.object != nil:
		old = &policy.Object{Meta: r.oldMeta, Content: r.oldContent}
	default:
		meta, content, err := decodeStored(r.old.JSON)
		if err != nil {
			return nil, nil, err
		}
		old = &policy.Object{Meta: meta, Content: content}
	}
	return object, old, nil
}
