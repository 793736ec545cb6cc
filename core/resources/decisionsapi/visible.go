package decisionsapi

import (
	"context"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
)

// visibility decides what of decisions a request may see. It is for one request and one policy.
type visibility struct{ *read.Disclosure }

func (v *service) newVisibility(r *call.Call) *visibility { return &visibility{v.Disclosure(r, "get")} }

// show describes a record, and leaves out what the user may not see.
func (s *visibility) show(ctx context.Context, r *record, bodies bool) (*Decision, error) {
	if r.object.GetResource() == "" { // no object that it could quote
		return r.describe(), ctx.Err()
	}
	shown := read.Disclosed(r.meta)
	if !bodies && !read.Hides(r.meta, shown) {
		return r.describe(), ctx.Err()
	}
	reads, err := s.reads(ctx, r)
	if err != nil {
		return nil, err
	}
	if !reads {
		return r.as(shown).describe(), nil
	}
	d := r.describe()
	if bodies {
		r.bodies(d)
	}
	return d, nil
}

// reads reports whether the user may get the object of a record, as it was then.
func (s *visibility) reads(ctx context.Context, r *record) (bool, error) {
	if r.write != nil {
		return s.Change(ctx, r.write)
	}
	return s.Decision(ctx, r.meta)
}
