package core

import (
	"context"
	"iter"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/rendered"
	"stele.dev/stele/projections/objects"
)

// ended is the source of a watch below /at: what there was up to the world's end, and silence
// from then on.
type ended struct {
	ctx     context.Context // of the watch
	p       *Pipeline
	tip     *commit.Tip // knows the policies of then
	replay  past.Replay
	changed []objects.Event // of what the policy says
	held    int             // bytes of the chunk that was taken last
}

// sourceThen is source below /at.
func (p *Pipeline) sourceThen(ctx context.Context, r *Request, sel objects.Selection, from uint64) (source, error) {
	if r.rendered == nil {
		sel = sel.As(commit.KindOf(r.kind.Kind.Stored()))
	}
	e := &ended{ctx: ctx, p: p, tip: r.tip, replay: past.Replay{Resource: r.resource(), Selection: sel, From: objects.Place{Revision: from}, UpTo: r.past.Revision()}}
	if r.rendered != nil && from < r.past.Revision() {
		before, err := p.renderedAt(ctx, r, from)
		if err != nil {
			return nil, err
		}
		after, err := p.renderedAt(ctx, r, r.past.Revision())
		if err != nil {
			return nil, err
		}
		e.changed = rendered.Changes(before, after, &sel, from)
		e.replay.From.Revision = r.past.Revision()
	}
	return e, nil
}

// renderedAt is what the policy said at a revision.
func (p *Pipeline) renderedAt(ctx context.Context, r *Request, revision uint64) (*rendered.State, error) {
	then, err := p.past.Tip(ctx, r.tip, revision)
	if err != nil {
		return nil, err
	}
	namespaces, err := p.objectsAt(ctx, r, commit.Namespaces, "", revision)
	if err != nil {
		return nil, err
	}
	return rendered.At(r.rendered, then, namespaces), nil
}

// presentThen is present below /at.
func (p *Pipeline) presentThen(ctx context.Context, r *Request, sel *objects.Selection) (iter.Seq[*objects.Object], error) {
	if r.rendered != nil {
		s, err := p.renderedAt(ctx, r, r.past.Revision())
		if err != nil {
			return nil, err
		}
		return s.List(sel), nil
	}
	s, err := p.objectsAt(ctx, r, r.resource(), r.key.Namespace, r.past.Revision())
	if err != nil {
		return nil, err
	}
	as := sel.As(commit.KindOf(r.kind.Kind.Stored()))
	return s.List(r.resource(), &as, "", ""), nil
}

// Take implements source.
func (e *ended) Take() (events []objects.Event, bookmark uint64, more bool, err error) {
	e.Stop()
	if e.replay.From.Revision == e.replay.UpTo || e.ctx.Err() != nil {
		events, e.changed = e.changed, nil
		return events, e.replay.From.Revision, false, nil
	}
	if err := e.p.replays.turns.Acquire(e.ctx, 1); err != nil {
		return nil, e.replay.From.Revision, false, nil // the context has ended
	}
	e.replay.Bytes = e.p.replays.share()
	chunk, err := e.p.past.Chunk(e.ctx, e.tip, e.replay)
	e.p.replays.turns.Release(1)
	if err != nil {
		return nil, e.replay.From.Revision, false, err
	}
	e.replay.From, e.held = chunk.Place, chunk.Bytes
	e.p.replays.held.Add(int64(e.held))
	return chunk.Events, chunk.Place.Revision, chunk.Place.Revision < e.replay.UpTo, nil
}

// Ready is never sent anything.
func (e *ended) Ready() <-chan struct{} { return nil }

// Stop implements source: what was taken last has been sent.
func (e *ended) Stop() {
	e.p.replays.held.Add(-int64(e.held))
	e.held = 0
}
