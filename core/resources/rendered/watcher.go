package rendered

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/objects"
)

// Watcher receives the changes of a kind that match a selection, like objects.Watcher. Take and Stop must be called by
// one goroutine.
//
// Watcher compares states, so it may report several changes at once. Several events may have the same revision. A
// client that disconnects between two of them resumes from the last revision it received, and must not miss the
// others. So deletions come first, and have the last revision that the client saw completely. A resumed watch gets the
// objects of its first revision again.
type Watcher struct {
	ctx        context.Context // of the watch
	committer  *commit.Committer
	namespaces *objects.Watcher
	overlays   *objects.Watcher // wakes whoever namespaces wakes
	sel        objects.Selection
	last       *State
	// seen is the revision of the state last.
	seen uint64
	// again is the revision whose objects are sent although last has them; 0 for none.
	again uint64
}

// Watch registers a watcher for changes after the tip then. resumed means that the client may have received only a part
// of the revision of that tip. The caller must call [Watcher.Stop]. The context limits how long Take waits.
func Watch(ctx context.Context, c *commit.Committer, then *commit.Tip, k *Kind, sel objects.Selection, resumed bool) (*Watcher, error) {
	w := &Watcher{ctx: ctx, committer: c, sel: sel, last: At(k, then, then.Objects), seen: then.Revision()}
	if resumed {
		w.again = w.seen
	}
	return w, w.follow(w.seen)
}

// follow wakes the watcher when namespaces or overlays change. One notification for several changes is enough, because the watcher
// compares states.
func (w *Watcher) follow(after uint64) (err error) {
	store, r := w.committer.Objects(), w.last.kind.Version.Kind.GroupResource()
	for {
		w.namespaces, err = store.Watch(commit.Namespaces, objects.Selection{Name: w.sel.Namespace}, after)
		if err == nil {
			if w.overlays, err = store.WatchWith(w.namespaces, r, objects.Selection{Namespace: w.sel.Namespace, Name: w.sel.Name}, after); err == nil {
				return nil
			}
			w.namespaces.Stop()
		}
		var expired *objects.ExpiredError
		if !errors.As(err, &expired) {
			return err
		}
		after = expired.Oldest
	}
}

// Stop ends the watcher.
func (w *Watcher) Stop() {
	w.namespaces.Stop()
	w.overlays.Stop()
}

// changed returns the revision up to which the changes of namespaces and overlays are known, and whether there are more.
func (w *Watcher) changed() (revision uint64, more bool, err error) {
	for _, of := range []*objects.Watcher{w.namespaces, w.overlays} {
		_, upTo, further, err := of.Take()
		if err != nil {
			return 0, false, err
		}
		revision, more = max(revision, upTo), more || further
	}
	return revision, more, nil
}

// Ready returns a channel that receives a value when Take may have events, also after an activation.
func (w *Watcher) Ready() <-chan struct{} { return w.namespaces.Ready() }

// Take returns the events since the last call, and the revision up to which they are complete. If more is true, call
// it again without waiting. Its errors are those of [commit.Committer.Settle].
func (w *Watcher) Take() (events []objects.Event, bookmark uint64, more bool, err error) {
	changed, more, err := w.changed()
	for errors.Is(err, objects.ErrExpired) {
		w.Stop()
		if err := w.follow(w.seen); err != nil {
			return nil, 0, false, err
		}
		changed, more, err = w.changed()
	}
	if err != nil {
		return nil, 0, false, err
	}
	tip := w.committer.Tip()
	if tip.Revision() < changed { // the new policy is about to be published
		if tip, err = w.committer.Settle(w.ctx); err != nil {
			return nil, 0, false, err
		}
	}
	next := At(w.last.kind, tip, tip.Objects)
	events = w.events(next)
	w.last, w.seen, w.again = next, tip.Revision(), 0
	return events, w.seen, more, nil
}

// events returns the changes from the last state to the next.
func (w *Watcher) events(next *State) []objects.Event {
	return changes(w.last, next, &w.sel, w.seen, w.again)
}

// Changes returns the changes from one state to a later one that match a selection. Deletions have the revision seen,
// up to which the client saw everything.
func Changes(last, next *State, sel *objects.Selection, seen uint64) []objects.Event {
	return changes(last, next, sel, seen, 0)
}

// changes is Changes. Objects of the revision again are sent although both states have them; 0 for none. It only looks at places
// that differ, and only renders objects that do.
func changes(last, next *State, sel *objects.Selection, seen, again uint64) (gone []objects.Event) {
	overlaid := last.overlaid(next)
	differs := func(p place) bool {
		return again != 0 || last.in.revision != next.in.revision || last.revisionOf(p.namespace) != next.revisionOf(p.namespace) || overlaid(p.namespace)
	}
	type key struct{ namespace, name string }
	before := map[key]item{}
	for x := range last.items(sel, differs) {
		if !x.hidden() {
			before[key{x.namespace, x.entry.Name}] = x
		}
	}
	leaves := func(x item) {
		if o := last.object(x); sel.Matches(o) {
			gone = append(gone, objects.Event{Type: objects.Deleted, Object: o.At(seen)})
		}
	}
	var is []objects.Event
	for x := range next.items(sel, differs) {
		if x.hidden() {
			continue
		}
		k := key{x.namespace, x.entry.Name}
		was, existed := before[k]
		delete(before, k)
		if existed && was.revision == x.revision && x.revision != again {
			continue
		}
		e := objects.Event{Type: objects.Added, Object: next.object(x)}
		if existed && last.object(was).UID != e.Object.UID { // it was deleted in between
			leaves(was)
			existed = false
		}
		switch {
		case !sel.Matches(e.Object) && existed:
			leaves(was)
			continue
		case !sel.Matches(e.Object):
			continue
		case existed && sel.Matches(last.object(was)):
			e.Type = objects.Modified
		}
		is = append(is, e)
	}
	for _, x := range before {
		leaves(x)
	}
	dropped, changed := broughtChanges(last, next, sel, seen, again)
	gone, is = append(gone, dropped...), append(is, changed...)
	slices.SortFunc(gone, func(a, b objects.Event) int {
		return cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	slices.SortStableFunc(is, func(a, b objects.Event) int { return cmp.Compare(a.Object.Revision, b.Object.Revision) })
	return append(gone, is...)
}

// broughtChanges is changes for objects that the API brought.
func broughtChanges(last, next *State, sel *objects.Selection, seen, again uint64) (gone, is []objects.Event) {
	r := last.kind.Version.Kind.GroupResource()
	if last.kind.Brought == nil || again == 0 && last.overlays.Shares(next.overlays, r) && last.in.revision == next.in.revision {
		return nil, nil
	}
	leave := func(o *objects.Object) {
		if sel.Matches(o) {
			gone = append(gone, objects.Event{Type: objects.Deleted, Object: o.At(seen)})
		}
	}
	for o := range last.allBrought(sel) {
		if now := next.brought(o.Namespace, o.Name); now == nil || now.UID != o.UID || !sel.Matches(now) {
			leave(o)
		}
	}
	for o := range next.allBrought(sel) {
		was := last.brought(o.Namespace, o.Name)
		existed := was != nil && was.UID == o.UID && sel.Matches(was)
		switch {
		case !sel.Matches(o), existed && was.Revision == o.Revision && o.Revision != again:
		case existed:
			is = append(is, objects.Event{Type: objects.Modified, Object: o})
		default:
			is = append(is, objects.Event{Type: objects.Added, Object: o})
		}
	}
	return gone, is
}
