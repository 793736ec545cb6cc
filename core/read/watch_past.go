package read

import (
	"context"
	"iter"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/past"
	"stele.dev/stele/projections/objects"
)

// ended is the source of events for a watch below /at: the events up to the requested moment, and none after.
type ended struct {
	ctx     context.Context // of the watch
	rd      *Reader
	tip     *commit.Tip // the present tip
	replay  past.Replay
	changed []objects.Event // events of rendered objects
	held    int             // bytes of the chunk that was taken last
}

// sourceOfPast is source for a watch below /at.
func (rd *Reader) sourceOfPast(ctx context.Context, c *call.Call, kind Rendered, sel objects.Selection, from uint64) (Source, error) {
	if kind == nil {
		sel = sel.As(commit.KindOf(c.Kind.Kind.Stored()))
	}
	if ofView(c) {
		return rd.viewOfPast(ctx, c, sel, from)
	}
	e := &ended{ctx: ctx, rd: rd, tip: c.Tip, replay: past.Replay{Resource: c.Resource(), Selection: sel, From: objects.Place{Revision: from}, UpTo: c.Past.Tip.Revision()}}
	if kind != nil && from < c.Past.Tip.Revision() {
		before, err := rd.policyAt(ctx, c.Tip, c.Resource(), from)
		if err != nil {
			return nil, err
		}
		after, err := rd.policyAt(ctx, c.Tip, c.Resource(), c.Past.Tip.Revision())
		if err != nil {
			return nil, err
		}
		e.changed = kind.Changes(before, after, &sel, from)
		e.replay.From.Revision = c.Past.Tip.Revision()
	}
	return e, nil
}

// policyAt returns the state at a past revision. Its objects are namespaces, and those of a rendered resource that are stored beside it: all
// that rendered objects follow from.
func (rd *Reader) policyAt(ctx context.Context, tip *commit.Tip, r schema.GroupResource, revision uint64) (*commit.Tip, error) {
	past, err := rd.Past.Tip(ctx, tip, revision)
	if err != nil {
		return nil, err
	}
	past.Objects, err = rd.underRendered(ctx, tip, r, revision)
	return past, err
}

// underRendered returns what rendered objects follow from besides the policy, as it was at a revision.
func (rd *Reader) underRendered(ctx context.Context, tip *commit.Tip, r schema.GroupResource, revision uint64) (*objects.State, error) {
	namespaces, err := rd.Past.Objects(ctx, tip, commit.Namespaces, "", revision)
	if err != nil {
		return nil, err
	}
	overlays, err := rd.Past.Objects(ctx, tip, r, "", revision)
	if err != nil {
		return nil, err
	}
	return namespaces.Beside(overlays), nil
}

// presentOfPast is present for a watch below /at.
func (rd *Reader) presentOfPast(ctx context.Context, c *call.Call, kind Rendered, sel *objects.Selection) (iter.Seq[*objects.Object], error) {
	if kind != nil {
		tip, err := rd.policyAt(ctx, c.Tip, c.Resource(), c.Past.Tip.Revision())
		if err != nil {
			return nil, err
		}
		return kind.List(tip, sel), nil
	}
	s, err := rd.stateAt(ctx, c, c.Past.Tip.Revision())
	if err != nil {
		return nil, err
	}
	as := sel.As(commit.KindOf(c.Kind.Kind.Stored()))
	return s.List(c.Resource(), &as, "", ""), nil
}

// Take implements Source.
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

// Ready returns nil: no events come later.
func (e *ended) Ready() <-chan struct{} { return nil }

// Stop frees the chunk that was taken last, because it has been sent.
func (e *ended) Stop() {
	e.rd.Replays.Hold(-e.held)
	e.held = 0
}
