package core

import (
	"context"

	"stele.dev/stele/core/call"
	"stele.dev/stele/limits/memory"
)

// decode makes the object that a write asks for: it reads the body, applies a patch to the tip's object, prunes it
// and fills in defaults. It runs again, on the same body, if the object changes before the commit.
func (p *Pipeline) decode(ctx context.Context, r *Request) error {
	if r.row != nil && r.row.Stored != nil && r.write == nil {
		stored, err := r.row.Stored(&r.Call)
		if err != nil {
			return err
		}
		if stored != nil {
			r.row, r.Kind = nil, stored
		}
	}
	if r.row != nil {
		if r.write == nil {
			if err := p.roomForRow(ctx, r); err != nil {
				return err
			}
			r.write = r.row.Write(&r.Call)
		}
		return r.write.Decode(ctx)
	}
	r.ResetAnnotations()
	r.reviewed = nil
	if err := r.Start(); err != nil {
		return err
	}
	if r.Mode.Is(call.Replayed) { // without a turn: others do not wait for it
		r.lookup = p.replayed.Reader(r.Tip.Objects, &r.Key)
		return r.Draft.Decode(ctx)
	}
	r.lookup = p.lookups.Reader(r.Tip.Objects, &r.Key)
	if r.Large() {
		done, err := p.largeWrites.Take(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	return r.Draft.Decode(ctx)
}

// roomForRow takes the share of memory of a request for a virtual resource, until the request ends.
func (p *Pipeline) roomForRow(ctx context.Context, r *Request) error {
	if r.row.Memory == 0 || !r.Mode.OfClient() {
		return nil
	}
	done, err := p.memory.Take(ctx, memory.Questions, r.row.Memory)
	if err == nil {
		context.AfterFunc(ctx, done)
	}
	return err
}
