package rendered

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/objects"
)

// Watcher receives the changes of a kind that concern a selection, as objects.Watcher
// does. Take and Stop belong to one goroutine.
//
// It compares states, and so tells what came of several changes at once. Who is cut off
// between events goes on from the last one that came, and must miss nothing although
// others may have the same revision. So what is gone comes first, and has the revision up
// to which the watch was complete before; and a watch that may go on gets what its
// first revision brought once more.
type Watcher struct {
	ctx        context.Context // of the watch
	committer  *commit.Committer
	namespaces *objects.Watcher
	sel        objects.Selection
	last       *State
	// Take has returned what led to last, which is the state of this revision.
	seen uint64
	// again is the revision whose objects are sent though they are in last; 0 for none.
	again uint64
}

// Watch registers a watcher for what follows a moment, given as the world of then: its policy
// and its namespaces. resumed tells that whoever watches may have seen only a part of what
// the revision brought. The caller MUST call [Watcher.Stop]; the context bounds how long Take
// waits.
func Watch(ctx context.Context, c *commit.Committer, then *commit.Tip, k *Kind, sel objects.Selection, resumed bool) (*Watcher, error) {
	w := &Watcher{ctx: ctx, committer: c, sel: sel, last: At(k, then, then.Objects), seen: then.Revision()}
	if resumed {
		w.again = w.seen
	}
	return w, w.follow(w.seen)
}

// follow has the watcher woken by what becomes of namespaces. It need not be told of each
// change: that something happened is enough, for states are compared.
func (w *Watcher) follow(after uint64) (err error) {
	for {
		w.namespaces, err = w.committer.Objects().Watch(commit.Namespaces, objects.Selection{Name: w.sel.Namespace}, after)
		var expired *objects.ExpiredError
		if !errors.As(err, &expired) {
			return err
		}
		after = expired.Oldest
	}
}

// Stop ends the watcher.
func (w *Watcher) Stop() { w.namespaces.Stop() }

// Ready is sent a value when Take may have something to return; it may, too, when another
// policy has come in force.
func (w *Watcher) Ready() <-chan struct{} { return w.namespaces.Ready() }

// Take returns the events since the last call, and the revision up to which nothing is
// missing. more tells to call again rather than wait. Its errors are those of
// [commit.Committer.Settle].
func (w *Watcher) Take() (events []objects.Event, bookmark uint64, more bool, err error) {
	_, changed, more, err := w.namespaces.Take()
	for errors.Is(err, objects.ErrExpired) {
		w.namespaces.Stop()
		if err := w.follow(w.seen); err != nil {
			return nil, 0, false, err
		}
		_, changed, more, err = w.namespaces.Take()
	}
	if err != nil {
		return nil, 0, false, err
	}
	tip := w.committer.Tip()
	if tip.Revision() < changed { // it is about to be published
		if tip, err = w.committer.Settle(w.ctx); err != nil {
			return nil, 0, false, err
		}
	}
	next := At(w.last.kind, tip, tip.Objects)
	events = w.events(next)
	w.last, w.seen, w.again = next, tip.Revision(), 0
	return events, w.seen, more, nil
}

// events leads from the last state to the next. Only places that differ are looked at.
func (w *Watcher) events(next *State) []objects.Event {
	return changes(w.last, next, &w.sel, w.seen, func(p place) bool {
		return w.last.since(p.namespace) != next.since(p.namespace) || p.since == w.again
	})
}

// Changes leads from one state to a later one, as a selection sees them. What is gone has the revision
// up to which everything was seen.
func Changes(last, next *State, sel *objects.Selection, seen uint64) []objects.Event {
	return changes(last, next, sel, seen, func(p place) bool { return last.since(p.namespace) != next.since(p.namespace) })
}

func changes(last, next *State, sel *objects.Selection, seen uint64, differs func(place) bool) (events []objects.Event) {
	type key struct{ namespace, name string }
	before := map[key]*objects.Object{}
	for o := range last.list(sel, differs) {
		before[key{o.Namespace, o.Name}] = o
	}
	var is []objects.Event
	for o := range next.list(sel, differs) {
		k, e := key{o.Namespace, o.Name}, objects.Event{Type: objects.Added, Object: o}
		if before[k] != nil {
			e.Type = objects.Modified
		}
		delete(before, k)
		is = append(is, e)
	}
	for _, o := range before {
		events = append(events, objects.Event{Type: objects.Deleted, Object: o.At(seen)})
	}
	slices.SortFunc(events, func(a, b objects.Event) int {
		return cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	slices.SortStableFunc(is, func(a, b objects.Event) int { return cmp.Compare(a.Object.Revision, b.Object.Revision) })
	return append(events, is...)
}
