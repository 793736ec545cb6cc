package past

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
)

const (
	// changesAtOnce limits the changes in a chunk.
	changesAtOnce = 256
	// revisionsAtOnce limits the part of the log that is searched for a chunk.
	revisionsAtOnce = 1 << 15
)

// Replay selects the events of a watch of the past: the changes of a resource after a place, up to a revision, that
// match a selection.
type Replay struct {
	Resource  schema.GroupResource
	Selection objects.Selection
	From      objects.Place
	// UpTo is the last revision, not above that of the tip.
	UpTo uint64
	// Bytes is the approximate limit of a chunk's memory. A chunk has at least one change.
	Bytes int
}

// Chunk is a part of a replay.
type Chunk struct {
	Events []objects.Event
	// Place is the end of the chunk.
	Place objects.Place
	// Bytes is the approximate memory of the events.
	Bytes int

	looked int // the number of changes that were read
}

func (c *Chunk) full(r *Replay) bool { return c.looked >= changesAtOnce || c.Bytes >= r.Bytes }

func (c *Chunk) add(change *objects.Change, r *Replay) {
	c.looked++
	if e, ok := change.Event(&r.Selection); ok {
		c.Events = append(c.Events, e)
		c.Bytes += len(e.Object.JSON) + overhead
	}
}

// Chunk reads the next part of a replay: the events that a watch received at that time, in the same order. A chunk may
// be empty although more follow after its place.
func (p *Past) Chunk(ctx context.Context, tip *commit.Tip, r Replay) (*Chunk, error) {
	c, err := p.chunk(ctx, tip, r)
	if err == nil { // else the history may have left out what was forgotten meanwhile
		err = p.KeptOf(r.Resource, max(1, r.From.Revision))
	}
	return c, err
}

func (p *Past) chunk(ctx context.Context, tip *commit.Tip, r Replay) (*Chunk, error) {
	if err := p.history.Reach(ctx, r.UpTo); err != nil {
		return nil, err
	}
	c := &Chunk{Place: r.From}
	upto := min(r.UpTo, r.From.Revision+revisionsAtOnce)
	if gap, lost := p.history.Lost(upto); lost {
		upto = gap.Next // clients cannot continue from lost revisions
	}
	changes := tip.Policies.ChangesAfter(r.From.Revision)
	for c.Place.Revision < upto && !c.full(&r) {
		if len(changes) == 0 || changes[0] > upto {
			return c, p.replayWrites(ctx, tip, &r, c, upto)
		}
		at := changes[0]
		changes = changes[1:]
		if err := p.replayWrites(ctx, tip, &r, c, at-1); err != nil || c.full(&r) {
			return c, err
		}
		if err := p.replayActivation(ctx, tip, &r, c, at); err != nil {
			return c, err
		}
	}
	return c, nil
}

// replayWrites reads revisions without an activation.
func (p *Past) replayWrites(ctx context.Context, tip *commit.Tip, r *Replay, c *Chunk, upto uint64) error {
	if c.Place.Revision >= upto {
		return nil
	}
	render, err := p.rendererAt(ctx, tip, r.Resource, upto)
	if err != nil {
		return err
	}
	parse := render.kind.Parser()
	in := history.Filter{Resource: r.Resource, Namespace: r.Selection.Namespace, Name: r.Selection.Name}
	for event, err := range p.history.After(ctx, in, c.Place.Revision, upto) {
		if err != nil {
			return err
		}
		change, err := p.change(ctx, render, parse, r, event)
		if err != nil {
			return err
		}
		c.add(change, r)
		if c.Place = (objects.Place{Revision: event.Revision}); c.full(r) {
			return nil
		}
	}
	c.Place = objects.Place{Revision: upto}
	return nil
}

// change returns what an event changed in the objects.
func (p *Past) change(ctx context.Context, render *renderer, parse func([]byte, uint64) (*objects.Object, error), r *Replay, event *history.Change) (*objects.Change, error) {
	change := &objects.Change{Revision: event.Revision, Deleted: event.Deleted}
	bulk := event.Meta.GetBulk() != nil // it has no payloads: the objects are deleted as they were
	if event.Previous != 0 && (bulk || !r.Selection.ByKey()) {
		was, err := p.history.Get(ctx, r.Resource, event.Object.GetNamespace(), event.Object.GetName(), event.Revision-1)
		if err != nil {
			return nil, err
		}
		if was == nil || was.Revision != event.Previous {
			return nil, fmt.Errorf("past: what %s %q was before revision %d is missing", event.Object.GetResource(), event.Object.GetName(), event.Revision)
		}
		payload, err := render.payload(ctx, was)
		if err != nil {
			return nil, err
		}
		if change.Before, err = parse(payload, was.Revision); err != nil {
			return nil, err
		}
	}
	if bulk {
		change.Object = change.Before.At(event.Revision)
		return change, nil
	}
	payload, err := render.payload(ctx, event)
	if err != nil {
		return nil, err
	}
	if change.Object, err = parse(payload, event.Revision); err != nil {
		return nil, err
	}
	if event.Previous != 0 && change.Before == nil {
		change.Before = change.Object // only the key is needed, and it is the same
	}
	return change, nil
}

// replayActivation reads the revision of an activation, or of a change of definitions: objects that the new policy renders differently changed at it,
// in their order.
func (p *Past) replayActivation(ctx context.Context, tip *commit.Tip, r *Replay, c *Chunk, at uint64) error {
	render, err := p.rendererAt(ctx, tip, r.Resource, at)
	if err != nil {
		return err
	}
	same, err := render.sameForm(ctx, at-1)
	if err != nil {
		return err
	}
	if !same {
		before, err := p.Objects(ctx, tip, r.Resource, r.Selection.Namespace, at-1)
		if err != nil {
			return err
		}
		after, err := p.Objects(ctx, tip, r.Resource, r.Selection.Namespace, at)
		if err != nil {
			return err
		}
		in := objects.Selection{Namespace: r.Selection.Namespace, Name: r.Selection.Name}
		for is := range after.List(r.Resource, &in, c.Place.Namespace, c.Place.Name) {
			if c.full(r) {
				return nil
			}
			if was := before.Get(r.Resource, is.Namespace, is.Name); was != nil && !was.SameJSON(is) {
				c.add(&objects.Change{Revision: at, Object: is, Before: was}, r)
			}
			c.Place = objects.Place{Revision: at - 1, Partly: true, Namespace: is.Namespace, Name: is.Name}
		}
	}
	c.Place = objects.Place{Revision: at}
	return nil
}
