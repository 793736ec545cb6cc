package read

import (
	"context"
	"iter"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/past"
	"stele.dev/stele/projections/objects"
)

// ended is the source of a watch below /at: what there was up to the world's end, and silence
// from then on.
type ended struct {
	ctx     context.Context // of the watch
	rd      *Reader
	tip     *commit.Tip // knows the policies of then
	replay  past.Replay
	changed []objects.Event // of what the policy says
	held    int             // bytes of the chunk that was taken last
}

// sourceThen is source below /at.
func (rd *Reader) sourceOfPast(ctx context.Context, c *call.Call, kind Rendered, sel objects.Selection, from uint64) (Source, error) {
	if kind == nil {
		sel = sel.As(commit.KindOf(c.Kind.Kind.Stored()))
	}
	e := &ended{ctx: ctx, rd: rd, tip: c.Tip, replay: past.Replay{Resource: c.Resource(), Selection: sel, From: objects.Place{Revision: from}, UpTo: c.Past.Tip.Revision()}}
	if kind != nil && from < c.Past.Tip.Revision() {
		before, err := rd.policyAt(ctx, c, from)
		if err != nil {
			return nil, err
		}
		after, err := rd.policyAt(ctx, c, c.Past.Tip.Revision())
		if err != nil {
			return nil, err
		}
		e.changed = kind.Changes(before, after, &sel, from)
		e.replay.From.Revision = c.Past.Tip.Revision()
	}
	return e, nil
}

// policyAt returns the tip of a revision, with the namespaces as its only objects: all that rendering needs.
func (rd *Reader) policyAt(ctx context.Context, c *call.Call, revision uint64) (*commit.Tip, error) {
	tip, err := rd.Past.Tip(ctx, c.Tip, revision)
	if err != nil {
		return nil, err
	}
	tip.Objects, err = rd.ObjectsAt(ctx, c, commit.Namespaces, "", revision)
	return tip, err
}

// presentThen is present below /at.
func (rd *Reader) presentOfPast(ctx context.Context, c *call.Call, kind Rendered, sel *objects.Selection) (iter.Seq[*objects.Object], error) {
	if kind != nil {
		tip, err := rd.policyAt(ctx, c, c.Past.Tip.Revision())
		if err != nil {
			return nil, err
		}
		return kind.List(tip, sel), nil
	}
	s, err := rd.ObjectsAt(ctx, c, c.Resource(), c.Key.Namespace, c.Past.Tip.Revision())
	if err != nil {
		return nil, err
	}
	as := sel.As(commit.KindOf(c.Kind.Kind.Stored()))
	return s.List(c.Resource(), &as, "", ""), nil
}

// Take implements source.
func (e *ended) Take() (events []objects.Event, bookmark uint64, more bool, err error) {
	e.Stop()
	if e.replay.From.Revision == e.replay.UpTo || e.ctx.Err() != nil {
		events, e.changed = e.changed, nil
		return events, e.replay.From.Revision, false, nil
	}
	if err := e.rd.Replays.turns.Acquire(e.ctx, 1); err != nil {
		return nil, e.replay.From.Revision, false, nil // the context has ended
	}
	e.replay.Bytes = e.rd.Replays.Share()
	chunk, err := e.rd.Past.Chunk(e.ctx, e.tip, e.replay)
	e.rd.Replays.turns.Release(1)
	if err != nil {
		return nil, e.replay.From.Revision, false, err
	}
	e.replay.From, e.held = chunk.Place, chunk.Bytes
	e.rd.Replays.Hold(e.held)
	return chunk.Events, chunk.Place.Revision, chunk.Place.Revision < e.replay.UpTo, nil
}

// Ready is never sent anything.
func (e *ended) Ready() <-chan struct{} { return nil }

// Stop implements source: what was taken last has been sent.
func (e *ended) Stop() {
	e.rd.Replays.Hold(-e.held)
	e.held = 0
}
