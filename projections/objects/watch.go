package objects

import (
	"slices"
	"sort"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Bounds of what waits in one watcher's queue; over them, it reads the shared
// changes instead.
const (
	maxQueued      = 1024
	maxQueuedBytes = 4 << 20
)

// feed holds the recent changes of a resource and who watches it. Store.mu guards
// it, but for what says otherwise.
type feed struct {
	changes deque[*Change] // ascending by revision
	// floor is the revision of the newest change that was dropped.
	floor uint64
	// Each watcher stands in exactly one index, the one that fewest changes visit.
	all         map[*Watcher]struct{}
	byNamespace map[string]map[*Watcher]struct{}
	byKey       map[key]map[*Watcher]struct{} // an empty namespace: in all of them
	byField     map[fieldValue]map[*Watcher]struct{}
	watched     []string // fields that byField has or had
}

type fieldValue struct{ field, value string }

func (s *Store) feed(r schema.GroupResource) *feed {
	f := s.feeds[r]
	if f == nil {
		f = &feed{
			all:         map[*Watcher]struct{}{},
			byNamespace: map[string]map[*Watcher]struct{}{},
			byKey:       map[key]map[*Watcher]struct{}{},
			byField:     map[fieldValue]map[*Watcher]struct{}{},
		}
		s.feeds[r] = f
	}
	return f
}

// after returns up to max changes behind a revision, but for the first so many.
func (f *feed) after(revision uint64, skip, max int) []*Change {
	n := f.changes.len()
	i := sort.Search(n, func(i int) bool { return f.changes.at(i).Revision > revision }) + skip
	changes := make([]*Change, 0, min(n-i, max))
	for ; i < n && len(changes) < max; i++ {
		changes = append(changes, f.changes.at(i))
	}
	return changes
}

// Watcher receives the changes of a resource that may concern a selection. Take
// and Stop belong to one goroutine.
type Watcher struct {
	store *Store
	feed  *feed
	sel   Selection
	wake  chan struct{} // capacity 1

	mu     sync.Mutex // locked after Store.mu, if both are
	queue  []*Change
	queued int // bytes
	// Take has returned everything up to seen. Invariant: what is queued is above.
	seen uint64
	// lagging: the queue is not in use; Take reads the feed from seen on, and of what
	// follows it has returned so many changes already, which are of one revision.
	lagging bool
	part    int
	last    key // of the object of the last of these, if part is not 0
}

// Place is how far a watch has come.
type Place struct {
	// Revision up to which all changes have been taken.
	Revision uint64
	// Partly: and of those of the revision behind it, which an activation has made in the order
	// of their objects, those up to this object.
	Partly          bool
	Namespace, Name string
}

// Watch registers a watcher for what follows a revision, which is at most the
// current one. [ExpiredError] if changes since have been dropped. The caller MUST
// call [Watcher.Stop].
func (s *Store) Watch(r schema.GroupResource, sel Selection, after uint64) (*Watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feed(r)
	if after < f.floor {
		return nil, &ExpiredError{f.floor}
	}
	// It starts as one that lags, and so finds what it missed by itself.
	w := &Watcher{store: s, feed: f, sel: sel, wake: make(chan struct{}, 1), seen: after, lagging: true}
	w.wake <- struct{}{}
	f.index(w, func(set map[*Watcher]struct{}) { set[w] = struct{}{} })
	s.watchers++
	return w, nil
}

// Stop ends the watcher.
func (w *Watcher) Stop() {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.feed.index(w, func(set map[*Watcher]struct{}) { delete(set, w) })
	w.store.watchers--
}

// index changes the set that a watcher belongs to.
func (f *feed) index(w *Watcher, change func(map[*Watcher]struct{})) {
	switch {
	case w.sel.Name != "":
		changeSet(f.byKey, key{w.sel.Namespace, w.sel.Name}, change)
	case w.sel.field != "":
		changeSet(f.byField, fieldValue{w.sel.field, w.sel.value}, change)
		if !slices.Contains(f.watched, w.sel.field) {
			f.watched = append(f.watched, w.sel.field)
		}
	case w.sel.Namespace != "":
		changeSet(f.byNamespace, w.sel.Namespace, change)
	default:
		change(f.all)
	}
}

func changeSet[K comparable](sets map[K]map[*Watcher]struct{}, k K, change func(map[*Watcher]struct{})) {
	set := sets[k]
	if set == nil {
		set = map[*Watcher]struct{}{}
		sets[k] = set
	}
	if change(set); len(set) == 0 {
		delete(sets, k)
	}
}

// visit calls each for the watchers that a change may concern: by where the object
// is, by what its selectable fields are, and by what they were.
func (f *feed) visit(c *Change, each func(*Watcher)) {
	visitSet(f.all, each)
	o := c.Object
	if o.Namespace != "" {
		visitSet(f.byNamespace[o.Namespace], each)
		visitSet(f.byKey[key{"", o.Name}], each)
	}
	visitSet(f.byKey[o.key()], each)
	if len(f.byField) == 0 {
		return
	}
	for _, field := range f.watched {
		if o.kind.fieldIndex(field) >= 0 {
			continue
		}
		for of, set := range f.byField { // the kind has lost it, and may get it again
			if of.field == field {
				visitSet(set, each)
			}
		}
	}
	for i, field := range o.kind.Fields {
		is := o.fields[i]
		visitSet(f.byField[fieldValue{field, is}], each)
		if c.Before == nil {
			continue
		}
		if was := (objectFields{c.Before, nil}).Get(field); was != is {
			visitSet(f.byField[fieldValue{field, was}], each)
		}
	}
}

func visitSet(set map[*Watcher]struct{}, each func(*Watcher)) {
	for w := range set {
		each(w)
	}
}

// push offers a change.
func (w *Watcher) push(c *Change) {
	w.mu.Lock()
	if w.lagging || c.Revision <= w.seen {
		w.mu.Unlock()
		return // Take finds it in the feed, or has found it
	}
	if w.queued += cost(c); len(w.queue) == maxQueued || w.queued > maxQueuedBytes && len(w.queue) > 0 {
		w.queue, w.queued, w.lagging = nil, 0, true
	} else {
		w.queue = append(w.queue, c)
	}
	w.mu.Unlock()
	w.poke()
}

// poke makes the watcher's owner call Take.
func (w *Watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Place is how far Take has come, also once that has failed. It belongs to the goroutine of Take.
func (w *Watcher) Place() Place {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.part == 0 {
		return Place{Revision: w.seen}
	}
	return Place{w.seen, true, w.last.namespace, w.last.name}
}

// Ready is sent a value when Take may have something to return.
func (w *Watcher) Ready() <-chan struct{} { return w.wake }

// takeAtOnce bounds how many changes a lagging watcher takes under one lock.
const takeAtOnce = 256

// Take returns the events since the last call, in order of revision, and the
// revision up to which nothing is missing: a bookmark. more tells to call again
// rather than wait for [Watcher.Ready]. [ExpiredError] if changes that the watcher has not seen have been
// dropped.
func (w *Watcher) Take() (events []Event, bookmark uint64, more bool, err error) {
	// Read first: whatever was offered up to here is in the queue by now.
	offered := w.store.offered.Load()
	w.mu.Lock()
	changes, lagging := w.queue, w.lagging
	if !lagging {
		changes = w.whole(offered)
		w.seen = max(w.seen, offered)
		if n := len(changes); n > 0 {
			w.seen = max(w.seen, changes[n-1].Revision)
		}
	}
	bookmark = w.seen
	w.mu.Unlock()
	if lagging {
		if changes, bookmark, more, err = w.catchUp(); err != nil {
			return nil, 0, false, err
		}
	}
	for _, c := range changes {
		if e, ok := c.Event(&w.sel); ok {
			events = append(events, e)
		}
	}
	return events, bookmark, more, nil
}

// whole takes from the queue the changes of those revisions that have been offered to the
// end. w.mu is held.
func (w *Watcher) whole(offered uint64) []*Change {
	n := len(w.queue)
	if n > 0 && w.queue[n-1].partial {
		for last := w.queue[n-1].Revision; last > offered && n > 0 && w.queue[n-1].Revision == last; {
			n-- // offer says when the rest is there
		}
	}
	changes := w.queue[:n:n]
	if w.queue = w.queue[n:]; len(w.queue) == 0 {
		w.queue = nil
	}
	for _, c := range changes {
		w.queued -= cost(c)
	}
	return changes
}

func (w *Watcher) catchUp() (changes []*Change, bookmark uint64, more bool, err error) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen < w.feed.floor {
		return nil, 0, false, &ExpiredError{w.feed.floor}
	}
	changes = w.feed.after(w.seen, w.part, takeAtOnce)
	if more = len(changes) == takeAtOnce; !more {
		// All that is published has been seen, offered or not.
		w.seen, w.lagging, w.part = max(w.seen, w.store.revision), false, 0
		return changes, w.seen, more, nil
	}
	last := changes[takeAtOnce-1]
	if !last.partial {
		w.seen, w.part = last.Revision, 0
		return changes, w.seen, more, nil
	}
	if w.seen != last.Revision-1 {
		w.seen, w.part = last.Revision-1, 0
	}
	for _, c := range changes {
		if c.Revision == last.Revision {
			w.part++
		}
	}
	w.last = last.Object.key()
	return changes, w.seen, more, nil
}

// EventType is what a change is to a watcher.
type EventType uint8

// The types of events.
const (
	Added EventType = iota + 1
	Modified
	Deleted
)

// Event is a change as a watcher sees it.
type Event struct {
	Type   EventType
	Object *Object
	// Rendered: nobody wrote the object, it looks otherwise now. Its revision is older than
	// what the watcher has seen, and a bookmark should follow.
	Rendered bool
}

// rendered tells whether nobody wrote the object, but it looks otherwise.
func (c *Change) rendered() bool { return c.Object.Revision != c.Revision }

// Event is the change as seen through a selection, if it is to be seen: what was out and is in
// was added, what was in and is out was deleted.
func (c *Change) Event(sel *Selection) (Event, bool) {
	is := !c.Deleted && sel.Matches(c.Object)
	was := c.Before != nil && sel.Matches(c.Before)
	rendered := c.rendered()
	switch {
	case is && was:
		return Event{Modified, c.Object, rendered}, true
	case is:
		return Event{Added, c.Object, rendered}, true
	case was && c.Deleted:
		return Event{Deleted, c.Object, rendered}, true
	case was:
		return Event{Deleted, c.left(), rendered}, true
	}
	return Event{}, false
}

// left is the object as it was before the change, at the change's revision: how it
// leaves the sight of those who no longer select it. Where there may be more changes of that
// revision it is the revision before: who is cut off behind it and goes on from there must
// not miss the others.
func (c *Change) left() *Object {
	c.leaving.Do(func() {
		at := c.Revision
		if c.rendered() {
			at--
		}
		c.leaver = c.Before.At(at)
	})
	return c.leaver
}

// offerAtOnce bounds how many changes are offered under one hold of the lock.
const offerAtOnce = 16

// offer takes the next changes to the watchers that they may concern, and tells
// whether there are more.
func (s *Store) offer() (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.history.len()
	for todo := min(n, s.next+offerAtOnce); s.next < todo; s.next++ {
		c := s.history.at(s.next)
		f := s.feeds[c.Object.kind.GroupResource]
		if c.partial {
			f.visit(c, func(w *Watcher) { w.push(c); s.halfway[w] = struct{}{} })
			continue
		}
		f.visit(c, func(w *Watcher) { w.push(c) })
		s.complete(c.Revision)
	}
	if s.next < n {
		return true
	}
	s.complete(s.revision)
	s.drop() // what had to wait for being offered
	return false
}

// complete: all changes up to a revision have been offered.
func (s *Store) complete(revision uint64) {
	s.offered.Store(revision)
	for w := range s.halfway {
		w.poke()
	}
	clear(s.halfway)
}
