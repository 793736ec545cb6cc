package core

import (
	"context"

	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// sight decides which changes a request gets to see: those about objects on which its user
// may do today what the request does with changes (get, list, watch), as far back as that
// reaches. It belongs to one request, and to one policy.
type sight struct {
	p       *Pipeline
	r       *Request
	decided map[sightKey]bool
}

// sightKey is what a decision depends on; name only where the policy has names.
type sightKey struct{ group, resource, namespace, name string }

func (p *Pipeline) sight(r *Request) *sight {
	return &sight{p: p, r: r, decided: map[sightKey]bool{}}
}

// access is what the user would have to be allowed to read the object of a change.
func (s *sight) access(h *history.Change) policy.Request {
	o := h.Object
	return policy.Request{
		User: s.r.user.GetName(), UID: s.r.user.GetUID(), Groups: s.r.user.GetGroups(), Extra: s.r.user.GetExtra(),
		Verb: s.r.info.Verb, IsResource: true, Group: o.GetGroup(), Version: o.GetVersion(), Resource: o.GetResource(), Namespace: o.GetNamespace(), Name: o.GetName(),
	}
}

// reads tells whether the user may read the object of a change, if it is about one.
func (s *sight) reads(h *history.Change) bool {
	if h.Object == nil {
		return true // the log's own
	}
	access := s.access(h)
	k := sightKey{access.Group, access.Resource, access.Namespace, ""}
	if s.byName(&access) {
		k.name = access.Name
	}
	allowed, known := s.decided[k]
	if !known {
		allowed = s.r.tip.Policy.Authorize(&access).Allowed
		s.decided[k] = allowed
	}
	return allowed
}

func (s *sight) byName(access *policy.Request) bool {
	k := sightKey{access.Group, access.Resource, "*", "*"} // which are no names
	byName, known := s.decided[k]
	if !known {
		byName = s.r.tip.Policy.ByName(access)
		s.decided[k] = byName
	}
	return byName
}

// sees tells whether a change is to be shown.
func (s *sight) sees(_ context.Context, _ *changesQuery, h *history.Change) (bool, error) {
	return s.reads(h), nil
}

// reach is the answer to who asks for a change of an object that they may read today, but
// not as far back.
func (s *sight) reach(context.Context, *history.Change) error { return nil }
