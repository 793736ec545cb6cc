package changes

import (
	"cmp"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// visibility decides which changes a request may see. The policy in force must allow the user the verb of the request (get,
// list, watch) on the object of the change, and must let the user read that far back. A visibility is for one request and
// one policy.
type visibility struct {
	r       *call.Call
	history *history.Store
	windows *read.Windows
	decided map[visibilityKey]bool
}

// visibilityKey is what a decision depends on. name is empty unless the policy has rules for single names.
type visibilityKey struct{ group, resource, namespace, name string }

func (v *service) newVisibility(r *call.Call) *visibility {
	return &visibility{r: r, history: v.History, windows: v.Windows(r), decided: map[visibilityKey]bool{}}
}

// access returns the request that the policy must allow if the user is to see the change.
func (s *visibility) access(h *history.Change) policy.Request {
	o := h.Object
	return policy.Request{
		User: s.r.User.GetName(), UID: s.r.User.GetUID(), Groups: s.r.User.GetGroups(), Extra: s.r.User.GetExtra(),
		Verb: s.r.Info.Verb, IsResource: true, Group: o.GetGroup(), Version: o.GetVersion(), Resource: o.GetResource(), Namespace: o.GetNamespace(), Name: o.GetName(),
	}
}

// reads reports whether the user may read the object of a change; true for a change without an object. If the policy
// has a webhook or a plugin whose match includes the object, it is asked once per request and object, until the
// request's deadline.
//
// If a webhook or a plugin fails, a user whom the policy's own rules allow gets an error. To leave out the changes would
// mean that there are none.
func (s *visibility) reads(ctx context.Context, h *history.Change) (bool, error) {
	if h.Object == nil {
		return true, nil // an event of the log itself
	}
	access := s.access(h)
	k := visibilityKey{access.Group, access.Resource, access.Namespace, ""}
	if s.byName(&access) {
		k.name = access.Name
	}
	allowed, known := s.decided[k]
	if !known {
		d := s.windows.Ask(ctx, &access)
		if err := read.Undecided(s.r.Tip.Policy, &access, d); err != nil {
			return false, err
		}
		allowed = d.Allowed
		s.decided[k] = allowed
	}
	return allowed, nil
}

func (s *visibility) byName(access *policy.Request) bool {
	k := visibilityKey{access.Group, access.Resource, "*", "*"} // no object has these names
	byName, known := s.decided[k]
	if !known {
		byName = s.r.Tip.Policy.ByName(access)
		s.decided[k] = byName
	}
	return byName
}

// sees reports whether the user may see a change. Changes before the user's window are left out; a query for one kind
// gets an error instead.
func (s *visibility) sees(ctx context.Context, q *query, h *history.Change) (bool, error) {
	if reads, err := s.reads(ctx, h); err != nil || !reads {
		return false, cmp.Or(ctx.Err(), err) // after the deadline, false is no decision
	}
	if h.Object == nil {
		return true, nil
	}
	kind := s.kind(h)
	if kind == nil {
		return s.readsLost(ctx, h)
	}
	if _, one := q.Exactly("object.resource"); one {
		err := s.reach(ctx, h)
		return err == nil, err
	}
	return s.windows.Allowed(ctx, kind, s.access(h), shows(h))
}

// reach returns an error if the user may read the object of a change now, but not as far back as the change.
func (s *visibility) reach(ctx context.Context, h *history.Change) error {
	if h.Object == nil {
		return nil
	}
	kind := s.kind(h)
	if kind == nil {
		if reads, err := s.readsLost(ctx, h); err != nil || reads {
			return err
		}
		return status.NotFound(s.r.Resource(), s.r.Info.Name)
	}
	return s.windows.Reach(ctx, kind, s.access(h), shows(h))
}

// shows returns the earliest revision whose state a change shows. Unless the change created the object, that is the
// revision before it, because the difference has the values that were replaced or deleted.
func shows(h *history.Change) uint64 {
	if h.Previous == 0 && !h.Deleted {
		return h.Revision
	}
	return h.Revision - 1
}

func (s *visibility) kind(h *history.Change) *policy.Kind {
	return s.r.Tip.Policy.Kind(resourceOf(h))
}

// readsLost reports whether the user may see a change of a kind that no longer exists, and so has no window. If the
// object held secrets before or after the change, the user needs the verb history.
func (s *visibility) readsLost(ctx context.Context, h *history.Change) (bool, error) {
	secret := HoldsSecrets(h)
	if !secret && h.Previous > 0 {
		before, err := s.history.Get(ctx, resourceOf(h), h.Object.GetNamespace(), h.Object.GetName(), h.Revision-1)
		if err != nil && !errors.Is(err, history.ErrForgotten) {
			return false, err
		}
		secret = before == nil || HoldsSecrets(before)
	}
	if !secret {
		return true, nil
	}
	return s.windows.Authorized(ctx, s.access(h))
}

// resourceOf returns the resource of a change's object.
func resourceOf(h *history.Change) schema.GroupResource {
	return schema.GroupResource{Group: h.Object.GetGroup(), Resource: h.Object.GetResource()}
}
