package turns

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
)

// Writes makes writes that have met a conflict take turns with those that would conflict with them again. At first these are the
// writes of the same object, or, if what its rules have read changed, the writes whose rules read the same selection. A write that
// loses again over another selection takes turns with all writes of the resource that it read. A write holds one turn at a
// time, so that no two wait for each other. It is safe for concurrent use; the zero value is ready.
type Writes struct{ turns ByKey[place] }

// place is what writes take turns at: one of the fields is set.
type place struct {
	object    commit.Key
	selection string
	resource  schema.GroupResource
}

// ofResource reports whether it is the place of a whole resource.
func (k *place) ofResource() bool { return k.resource.Resource != "" }

// Turn is the turn of one write; the zero value is none. It belongs to one goroutine.
type Turn struct {
	at  place
	end func()
}

// End ends the turn, if there is one. It is called when the outcome is known and before the answer is written, because the client
// may read slowly.
func (t *Turn) End() {
	if t.end != nil {
		t.end()
		*t = Turn{}
	}
}

// take waits for a turn, in place of the one that is held.
func (w *Writes) take(ctx context.Context, t *Turn, at place) error {
	t.End()
	end, err := w.turns.Take(ctx, at)
	if err == nil {
		t.at, t.end = at, end
	}
	return err
}

// Contend waits for the turn of a write of an object that is to be decided again. lost is the check that failed; nil if none did.
func (w *Writes) Contend(ctx context.Context, t *Turn, object commit.Key, lost *commit.Stale) error {
	at := place{object: object}
	switch {
	case t.at.ofResource():
		return nil
	case lost == nil || lost.Selection == "":
		if t.end != nil {
			return nil
		}
	case t.at.selection == "":
		at = place{selection: lost.Selection}
	default:
		at = place{resource: lost.Resource}
	}
	return w.take(ctx, t, at)
}

// Yield lets earlier writes go first that met a conflict and would conflict with a write of an object, whose rules have read some
// selections. It reports whether it had to wait.
func (w *Writes) Yield(ctx context.Context, t *Turn, object commit.Key, read []commit.Unchanged) (waited bool, err error) {
	at, wanted := w.wanted(t, object, read)
	if !wanted {
		return false, nil
	}
	return true, w.take(ctx, t, at)
}

// wanted returns the turn that a write must take because others wait for it.
func (w *Writes) wanted(t *Turn, object commit.Key, read []commit.Unchanged) (at place, wanted bool) {
	if w.turns.Idle() || t.at.ofResource() {
		return at, false
	}
	if at.resource = object.GroupResource; w.turns.Wanted(at) {
		return at, true
	}
	for i := range read {
		if at.resource = read[i].Resource; w.turns.Wanted(at) {
			return at, true
		}
	}
	if t.end != nil {
		return at, false
	}
	if at = (place{object: object}); w.turns.Wanted(at) {
		return at, true
	}
	for i := range read {
		if at = (place{selection: read[i].Of.String()}); w.turns.Wanted(at) {
			return at, true
		}
	}
	return at, false
}
