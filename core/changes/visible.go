package changes

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// sight decides which changes a request gets to see: those about objects on which its user
// may do today what the request does with changes (get, list, watch), as far back as that
// reaches. It belongs to one request, and to one policy.
type sight struct {
	r       *call.Call
	history *history.Store
	windows *read.Windows
	decided map[sightKey]bool
}

// sightKey is what a decision depends on; name only where the policy has names.
type sightKey struct{ group, resource, namespace, name string }

func (v *service) newSight(r *call.Call) *sight {
	return &sight{r: r, history: v.History, windows: v.Windows(r), decided: map[sightKey]bool{}}
}

// access is what the user would have to be allowed to read the object of a change.
func (s *sight) access(h *history.Change) policy.Request {
	o := h.Object
	return policy.Request{
		User: s.r.User.GetName(), UID: s.r.User.GetUID(), Groups: s.r.User.GetGroups(), Extra: s.r.User.GetExtra(),
		Verb: s.r.Info.Verb, IsResource: true, Group: o.GetGroup(), Version: o.GetVersion(), Resource: o.GetResource(), Namespace: o.GetNamespace(), Name: o.GetName(),
	}
}

// reads tells whether the user may read the object of a change, if it is about one. Under a policy with a webhook
// or a plugin in its chain each object is a question to that, at most once for a request, and as long as the
// request's deadline allows; one of which the match names nothing here costs nothing.
//
// While one of those that are asked fails, who may read it by the policy itself gets an error: to leave changes
// out would tell them that there are none.
func (s *sight) reads(ctx context.Context, h *history.Change) (bool, error) {
	if h.Object == nil {
		return true, nil // the log's own
	}
	access := s.access(h)
	k := sightKey{access.Group, access.Resource, access.Namespace, ""}
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

func (s *sight) byName(access *policy.Request) bool {
	k := sightKey{access.Group, access.Resource, "*", "*"} // which are no names
	byName, known := s.decided[k]
	if !known {
		byName = s.r.Tip.Policy.ByName(access)
		s.decided[k] = byName
	}
	return byName
}

// sees tells whether a change is to be shown. What is beyond a window is left out, but of who
// asks for the changes of one kind: that is refused.
func (s *sight) sees(ctx context.Context, q *query, h *history.Change) (bool, error) {
	if reads, err := s.reads(ctx, h); err != nil || !reads {
		return false, cmp.Or(ctx.Err(), err) // past the deadline nobody was asked: that is no answer
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

// reach is the answer to who asks for a change of an object that they may read today, but
// not as far back.
func (s *sight) reach(ctx context.Context, h *history.Change) error {
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

// shows is the earliest revision of which a change shows something: that before it, for it has
// what was replaced or deleted, which nobody could read since.
func shows(h *history.Change) uint64 {
	if h.Previous == 0 && !h.Deleted {
		return h.Revision
	}
	return h.Revision - 1
}

func (s *sight) kind(h *history.Change) *policy.Kind {
	return s.r.Tip.Policy.Kind(resourceOf(h))
}

// readsLost is for kinds that are no more, and so have no window: where they held secrets, before
// the change or after it, it takes the verb history.
func (s *sight) readsLost(ctx context.Context, h *history.Change) (bool, error) {
	secret := HoldsSecrets(h)
	if !secret && h.Previous > 0 {
		before, err := s.history.Get(ctx, resourceOf(h), h.Object.GetNamespace(), h.Object.GetName(), h.Revision-1)
		if err != nil {
			return false, err
		}
		secret = before == nil || HoldsSecrets(before)
	}
	if !secret {
		return true, nil
	}
	return s.windows.Authorized(ctx, s.access(h))
}

// resourceOf is the resource of the object of a change.
func resourceOf(h *history.Change) schema.GroupResource {
	return schema.GroupResource{Group: h.Object.GetGroup(), Resource: h.Object.GetResource()}
}
