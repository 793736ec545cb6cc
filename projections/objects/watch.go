package objects

import (
	"math"
	"slices"
	"sort"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/limits/lru"
)

// Limits of one watcher's queue. Above them, the watcher reads the shared changes instead.
const (
	maxQueued      = 1024
	maxQueuedBytes = 512 << 10
)

// feed holds the recent changes and the watchers of a resource. Store.mu guards it. The indexes of watchers are only
// changed under Store.counting, too, so that either lock is enough to read them.
type feed struct {
	changes deque[*Change] // ascending by revision
	// floor is the revision of the newest change that was dropped.
	floor uint64
	// replaced is that of the first state whose objects follow from the changes. Pinned states from before have others.
	replaced uint64
	// Each watcher stands in exactly one index, the one that fewest changes visit.
	all         watchers
	byNamespace map[string]*watchers
	byKey       map[key]*watchers // an empty namespace: in all of them
	byField     map[fieldValue]*watchers
	fielded     int      // watchers in byField
	watched     []string // fields that are, or were, in byField
	notified    []*notified
	// indexes are those of the kind that the resource has, the last used one first. The changes since their revisions are
	// in memory. See Store.index.
	indexes []*index
	making  map[subject]bool               // indexes that are being made
	asked   *lru.Cache[subject, requested] // what has no index, or had none when it was asked for
}

type fieldValue struct{ field, value string }

func (s *Store) feed(r schema.GroupResource) *feed {
	f := s.feeds[r]
	if f == nil {
		f = &feed{
			floor:       s.begin(r),
			byNamespace: map[string]*watchers{},
			byKey:       map[key]*watchers{},
			byField:     map[fieldValue]*watchers{},
		}
		s.counting.Lock()
		s.feeds[r] = f
		s.counting.Unlock()
	}
	return f
}

// firstAfter returns the index of the first change after a revision.
func (f *feed) firstAfter(revision uint64) int {
	return sort.Search(f.changes.len(), func(i int) bool { return f.changes.get(i).Revision > revision })
}

// changesAfter returns up to max changes after a revision, without the first skip of them, and none after they have maxBytes. more
// reports that there are further ones.
func (f *feed) changesAfter(revision uint64, skip, max, maxBytes int) (changes []*Change, more bool) {
	n := f.changes.len()
	i := f.firstAfter(revision) + skip
	changes = make([]*Change, 0, min(n-i, max))
	for bytes := 0; i < n && len(changes) < max && bytes < maxBytes; i++ {
		c := f.changes.get(i)
		changes = append(changes, c)
		bytes += cost(c) + len(c.Object.JSON)
	}
	return changes, i < n
}

// Watcher receives the changes of a resource that may concern a selection. One goroutine calls Take and
// Stop.
type Watcher struct {
	store *Store
	feed  *feed
	sel   Selection
	wake  chan struct{} // capacity 1
	at    int           // its place in the index of the feed, -1 if it has stopped; guarded as that is

	mu     sync.Mutex // locked after Store.mu, if both are
	wave   uint32     // in which the queue got its first change; 0 if that has been taken
	queue  []*Change
	spare  []*Change // an empty queue, for the next one; nil if it is in use
	queued int       // bytes
	// seen is the revision up to which Take has returned everything. Invariant: queued changes are newer.
	seen uint64
	// lagging is set if the queue is not in use and Take reads the feed from seen on.
	lagging bool
	// part is how many changes of the revision after seen Take has returned, if it is lagging; last is the
	// object of the last of them, if part is not 0.
	part int
	last key
}

// Place is how far a watch has come.
type Place struct {
	// Revision up to which all changes have been taken.
	Revision uint64
	// Partly is set if changes of the next revision have been taken, too: those up to the object
	// Namespace/Name. They are of an activation, which changes objects in the order of their names.
	Partly          bool
	Namespace, Name string
}

// Watch registers a watcher for the changes after a revision, which is at most the current one. It returns
// [ExpiredError] if later changes have been dropped. The caller MUST call [Watcher.Stop].
func (s *Store) Watch(r schema.GroupResource, sel Selection, after uint64) (*Watcher, error) {
	return s.watch(r, sel, after, make(chan struct{}, 1))
}

// WatchWith is [Store.Watch] for a watcher that shares the channel of [Watcher.Ready] with another one: whoever waits for one of them is
// woken for both.
func (s *Store) WatchWith(other *Watcher, r schema.GroupResource, sel Selection, after uint64) (*Watcher, error) {
	return s.watch(r, sel, after, other.wake)
}

func (s *Store) watch(r schema.GroupResource, sel Selection, after uint64, wake chan struct{}) (*Watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feed(r)
	if after < f.floor {
		return nil, &ExpiredError{f.floor}
	}
	// A new watcher is lagging, so that it reads the changes since the revision by itself.
	w := &Watcher{store: s, feed: f, sel: sel, wake: wake, seen: after, lagging: true}
	w.poke()
	s.counting.Lock()
	f.index(w, 1, func(set *watchers) { set.add(w) })
	s.counting.Unlock()
	s.watchers++
	return w, nil
}

// Stop ends the watcher. Further calls do nothing.
func (w *Watcher) Stop() {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if w.at < 0 {
		return
	}
	w.store.counting.Lock()
	w.feed.index(w, -1, func(set *watchers) { set.remove(w) })
	w.store.counting.Unlock()
	w.store.watchers--
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaveWave()
}

// leaveWave says that the changes for which the watcher was woken have been taken, or will not be. The caller holds w.mu.
func (w *Watcher) leaveWave() {
	if w.wave != 0 {
		w.store.wave.took(w.wave)
		w.wave = 0
	}
}

// Watchers returns about how many watchers a write of an object will reach. They are counted by what they select: all
// objects of the resource, those of the namespace, or one name. Watchers of selectable fields are counted as if each
// value were written equally often. The name may be "" if it is not known. It never waits for watchers that are being
// offered changes.
func (s *Store) Watchers(r schema.GroupResource, namespace, name string) int {
	s.counting.RLock()
	defer s.counting.RUnlock()
	f := s.feeds[r]
	if f == nil {
		return 0
	}
	n := f.all.len()
	if namespace != "" {
		n += f.byNamespace[namespace].len()
	}
	if name != "" {
		n += f.byKey[key{namespace, name}].len()
		if namespace != "" {
			n += f.byKey[key{"", name}].len()
		}
	}
	if values := len(f.byField); values > 0 {
		n += (f.fielded + values - 1) / values
	}
	return n
}

// ChangesAfter returns about how many changes of a resource there are after a revision, and whether all of them are in
// memory. If they are not, it assumes that the resource had the same share of the older changes as it has of those in
// memory.
func (s *Store) ChangesAfter(r schema.GroupResource, revision uint64) (n int, inMemory bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feeds[r]
	switch {
	case revision >= s.revision:
		return 0, true
	case f == nil:
		return 0, revision >= s.begin(r)
	}
	n = f.changes.len() - f.firstAfter(revision)
	if revision >= f.floor {
		return n, true
	}
	older, all := int(min(f.floor-revision, math.MaxInt32)), max(1, s.history.len())
	return n + older*max(1, n)/all, false
}

// index calls change with the set of watchers that w belongs to, to which it adds n watchers.
func (f *feed) index(w *Watcher, n int, change func(*watchers)) {
	switch {
	case w.sel.Name != "":
		changeSet(f.byKey, key{w.sel.Namespace, w.sel.Name}, change)
	case w.sel.field != "":
		f.fielded += n
		changeSet(f.byField, fieldValue{w.sel.field, w.sel.value}, change)
		if !slices.Contains(f.watched, w.sel.field) {
			f.watched = append(f.watched, w.sel.field)
		}
	case w.sel.Namespace != "":
		changeSet(f.byNamespace, w.sel.Namespace, change)
	default:
		change(&f.all)
	}
}

func changeSet[K comparable](sets map[K]*watchers, k K, change func(*watchers)) {
	set := sets[k]
	if set == nil {
		set = new(watchers)
		sets[k] = set
	}
	if change(set); set.len() == 0 {
		delete(sets, k)
	}
}

// watchers are watchers in about the order in which they began. Those of one connection often began together, and if they are woken
// together they share writes to the connection.
type watchers struct{ list []*Watcher }

func (s *watchers) len() int {
	if s == nil {
		return 0
	}
	return len(s.list)
}

func (s *watchers) add(w *Watcher) {
	w.at = len(s.list)
	s.list = append(s.list, w)
}

func (s *watchers) remove(w *Watcher) {
	last := len(s.list) - 1
	s.list[w.at], s.list[last].at = s.list[last], w.at
	s.list[last] = nil
	s.list = s.list[:last]
	w.at = -1
}

// visit calls each for the watchers that a change may concern: by the object's namespace and name, and by
// its selectable fields before and after the change.
func (f *feed) visit(c *Change, each func(*Watcher)) {
	visitSet(&f.all, each)
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
		for watched, set := range f.byField { // the kind no longer has the field, but may get it again
			if watched.field == field {
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

func visitSet(set *watchers, each func(*Watcher)) {
	if set == nil {
		return
	}
	for _, w := range set.list {
		each(w)
	}
}

// push queues a change.
func (w *Watcher) push(c *Change) {
	w.mu.Lock()
	if w.lagging || c.Revision <= w.seen {
		w.mu.Unlock()
		return // Take reads it from the feed, or has read it
	}
	if w.queued += cost(c); len(w.queue) == maxQueued || w.queued > maxQueuedBytes && len(w.queue) > 0 {
		w.leaveWave()
		w.queue, w.queued, w.lagging = nil, 0, true
	} else {
		if w.queue == nil {
			w.queue, w.spare = w.spare, nil
			w.wave = w.store.wave.woken()
		}
		w.queue = append(w.queue, c)
	}
	w.mu.Unlock()
	w.poke()
}

// poke tells the watcher's owner to call Take.
func (w *Watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Place returns how far Take has come, even after Take has failed. It is called by the goroutine of Take.
func (w *Watcher) Place() Place {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.part == 0 {
		return Place{Revision: w.seen}
	}
	return Place{w.seen, true, w.last.namespace, w.last.name}
}

// Ready returns a channel that receives a value when Take may have something to return.
func (w *Watcher) Ready() <-chan struct{} { return w.wake }

// takeAtOnce is the maximum number of changes that a lagging watcher takes under one hold of the lock. It takes no further
// one after takeBytes, because a slow client holds them for long, also when they have been dropped from the feed.
const (
	takeAtOnce = 256
	takeBytes  = 512 << 10
)

// Take returns the events since the last call, in order of revision, and the revision up to which no event
// is missing, for a bookmark. If more is true, the caller must call Take again instead of waiting for
// [Watcher.Ready]. The error is an [ExpiredError] if changes that the watcher has not seen were dropped.
func (w *Watcher) Take() (events []Event, bookmark uint64, more bool, err error) {
	// This must be read first: all changes up to it are then in the queue.
	offered := w.store.offered.Load()
	w.mu.Lock()
	changes, lagging := w.queue, w.lagging
	if !lagging {
		w.leaveWave()
		changes = w.takeComplete(offered)
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
	if !lagging {
		w.reuse(changes)
	}
	return events, bookmark, more, nil
}

// mostSpare is the most changes that a queue holds which is kept for later.
const mostSpare = 16

// reuse keeps a queue that was taken, so that not each event allocates one. The caller does not use it any more.
func (w *Watcher) reuse(taken []*Change) {
	if n := cap(taken); n == 0 || n > mostSpare {
		return
	}
	clear(taken)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spare = taken[:0]
}

// takeComplete removes from the queue, and returns, the changes of revisions that have been offered completely. The
// queue does not use their slice any more. The caller holds w.mu.
func (w *Watcher) takeComplete(offered uint64) []*Change {
	n := len(w.queue)
	if n > 0 && w.queue[n-1].partial {
		for last := w.queue[n-1].Revision; last > offered && n > 0 && w.queue[n-1].Revision == last; {
			n-- // offer wakes the watcher when the rest is there
		}
	}
	changes := w.queue
	if w.queue = nil; n < len(changes) {
		changes, w.queue = slices.Clone(changes[:n]), changes[n:]
	}
	for _, c := range changes {
		w.queued -= cost(c)
	}
	return changes
}

// catchUp returns the next changes of the feed to a lagging watcher, which stops lagging at the end.
func (w *Watcher) catchUp() (changes []*Change, bookmark uint64, more bool, err error) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen < w.feed.floor {
		return nil, 0, false, &ExpiredError{w.feed.floor}
	}
	if changes, more = w.feed.changesAfter(w.seen, w.part, takeAtOnce, takeBytes); !more {
		// The watcher has seen all published changes, whether they were offered or not.
		w.seen, w.lagging, w.part = max(w.seen, w.store.revision), false, 0
		return changes, w.seen, more, nil
	}
	last := changes[len(changes)-1]
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

// EventType is the type of an event.
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
	// Rendered is set if nobody wrote the object, but a policy changed its representation. Its revision
	// may be older than the bookmark; the caller should send a bookmark after it.
	Rendered bool
}

// rendered reports whether nobody wrote the object, but a policy changed its representation.
func (c *Change) rendered() bool { return c.Object.Revision != c.Revision }

// Event returns the change as an event for a selection, and whether there is one. An object that enters the
// selection was added, one that leaves it was deleted.
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
		return Event{Deleted, c.removed(), rendered}, true
	}
	return Event{}, false
}

// removed returns the object before the change, with the change's revision: watchers get it when the object
// leaves their selection. If there may be more changes of that revision, it has the revision before, so
// that a watcher which is disconnected and resumes there does not miss the others.
func (c *Change) removed() *Object {
	c.leaving.Do(func() {
		at := c.Revision
		if c.rendered() {
			at--
		}
		c.leaver = c.Before.At(at)
	})
	return c.leaver
}

// offerAtOnce is the maximum number of changes that are offered under one hold of the lock.
const offerAtOnce = 16

// offer offers the next changes to the watchers that they may concern, and reports whether there are more.
func (s *Store) offer() (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.history.len()
	for todo := min(n, s.next+offerAtOnce); s.next < todo; s.next++ {
		c := s.history.get(s.next)
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
	s.drop() // changes that were over the limit but not offered yet
	return false
}

// complete records that all changes up to a revision have been offered.
func (s *Store) complete(revision uint64) {
	s.offered.Store(revision)
	for w := range s.halfway {
		w.poke()
	}
	clear(s.halfway)
}
