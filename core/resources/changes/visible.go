package changes

import (
	"context"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/history"
)

// visibility decides which changes a request may see: those of objects with which the policy in force allows the user the verb of the
// request (get, list, watch), as far back as the user may read. A visibility is for one request and one policy.
type visibility struct {
	*read.Disclosure
	r *call.Call
}

func (v *service) newVisibility(r *call.Call) *visibility {
	return &visibility{v.Disclosure(r, r.Info.Verb), r}
}

// reads reports whether the user may read the object of a change now; true for a change without an object.
func (s *visibility) reads(ctx context.Context, h *history.Change) (bool, error) {
	if h.Object == nil {
		return true, nil // an event of the log itself
	}
	return s.Now(ctx, h.Object)
}

// sees reports whether the user may see a change. Changes before the user's window are left out; a query for one kind
// gets an error instead.
func (s *visibility) sees(ctx context.Context, q *query, h *history.Change) (bool, error) {
	if reads, err := s.reads(ctx, h); err != nil || !reads {
		return false, err
	}
	if _, one := q.Exactly("object.resource"); one && s.known(h) {
		err := s.reach(ctx, h)
		return err == nil, err
	}
	return s.Change(ctx, h)
}

// reach returns an error if the user may read the object of a change now, but not as far back as the change.
func (s *visibility) reach(ctx context.Context, h *history.Change) error {
	if s.known(h) {
		return s.Reach(ctx, h)
	}
	sees, err := s.Change(ctx, h)
	if err == nil && !sees {
		err = status.NotFound(s.r.Resource(), s.r.Info.Name)
	}
	return err
}

// known reports whether the policy in force has the kind of a change's object. A kind that it has not has no window.
func (s *visibility) known(h *history.Change) bool {
	return h.Object != nil && s.r.Tip.Policy.Kind(resourceOf(h)) != nil
}
