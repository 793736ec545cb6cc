package read

import (
	"context"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read/views"
	"stele.dev/stele/projections/objects"
)

// ofView reports whether a call reads the rows of a view, which are not stored.
func ofView(c *call.Call) bool { return c.Kind != nil && c.Kind.Kind.View != nil }

// currentState returns the state that has the objects of a call at its tip.
func (rd *Reader) currentState(ctx context.Context, c *call.Call) (*objects.State, error) {
	if ofView(c) {
		return rd.Views.State(ctx, c.Tip, c.Kind)
	}
	return c.Tip.Objects, nil
}

// stateAt returns the state that has the objects of a call at a past revision.
func (rd *Reader) stateAt(ctx context.Context, c *call.Call, revision uint64) (*objects.State, error) {
	if ofView(c) {
		return rd.Views.At(ctx, c.Tip, c.Kind, c.Key.Namespace, revision)
	}
	return rd.Past.Objects(ctx, c.Tip, c.Resource(), c.Key.Namespace, revision)
}

// viewOfPast is sourceOfPast for a view: the events are what differs between the rows at both revisions.
func (rd *Reader) viewOfPast(ctx context.Context, c *call.Call, sel objects.Selection, from uint64) (Source, error) {
	upTo := c.Past.Tip.Revision()
	d := &differences{revision: upTo}
	if from < upTo {
		before, err := rd.stateAt(ctx, c, from)
		if err != nil {
			return nil, err
		}
		after, err := rd.stateAt(ctx, c, upTo)
		if err != nil {
			return nil, err
		}
		d.events = views.Changes(c.Kind, before, after, &sel)
	}
	return d, nil
}

// differences is a source of events that were all there at the beginning.
type differences struct {
	events   []objects.Event
	revision uint64
}

// Take implements Source.
func (d *differences) Take() (events []objects.Event, bookmark uint64, more bool, err error) {
	events, d.events = d.events, nil
	return events, d.revision, false, nil
}

// Ready returns nil: no events come later.
func (d *differences) Ready() <-chan struct{} { return nil }

// Stop implements Source.
func (d *differences) Stop() {}
