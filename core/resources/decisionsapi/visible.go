package decisionsapi

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/policy"
)

// visibility decides what of decisions a request may see. It is for one request and one policy.
type visibility struct {
	r       *call.Call
	windows *read.Windows
	decided map[policyKey]bool
}

type policyKey struct{ group, resource, namespace, name string }

func (v *service) newVisibility(r *call.Call) *visibility {
	return &visibility{r: r, windows: v.Windows(r), decided: map[policyKey]bool{}}
}

// ofObjects are the stages whose messages may quote the object.
var ofObjects = map[string]bool{"decode": true, "schema": true, "conditions": true, "validation": true, "commit": true}

// show describes a record, and leaves out what the user may not see.
func (s *visibility) show(ctx context.Context, r *record, bodies bool) (*Decision, error) {
	d := r.describe()
	if d.Message == "" && !bodies || d.Object == nil || d.Object.Resource == "" {
		if bodies {
			r.bodies(d)
		}
		return d, ctx.Err()
	}
	reads, err := s.reads(ctx, r)
	if err != nil {
		return nil, err
	}
	if !reads && ofObjects[d.Stage] {
		d.Message = ""
	}
	if reads && bodies {
		r.bodies(d)
	}
	return d, nil
}

// reads reports whether the user may get the object of a record, as it was then.
func (s *visibility) reads(ctx context.Context, r *record) (bool, error) {
	o, u := r.object, s.r.User
	access := policy.Request{
		User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra(),
		Verb: "get", IsResource: true, Group: o.GetGroup(), Version: o.GetVersion(), Resource: o.GetResource(), Namespace: o.GetNamespace(), Name: o.GetName(),
	}
	k := policyKey{access.Group, access.Resource, access.Namespace, access.Name}
	allowed, known := s.decided[k]
	if !known {
		if len(s.decided) >= maxDecided {
			clear(s.decided)
		}
		d := s.windows.Ask(ctx, &access)
		if err := read.Undecided(s.r.Tip.Policy, &access, d); err != nil {
			return false, err
		}
		allowed = d.Allowed
		s.decided[k] = allowed
	}
	if err := ctx.Err(); err != nil || !allowed { // after the deadline, false is no decision
		return false, err
	}
	kind := s.r.Tip.Policy.Kind(schema.GroupResource{Group: access.Group, Resource: access.Resource})
	if kind == nil {
		return true, nil
	}
	revision := r.decision.GetRevision()
	if r.write != nil {
		revision = r.write.Revision
	}
	return s.windows.Allowed(ctx, kind, access, revision)
}

// maxDecided is how many decisions about objects a request remembers.
const maxDecided = 10_000
