package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrExpired reports that needed changes have been dropped from memory.
var ErrExpired = errors.New("objects: revision is too old")

// ExpiredError is the [ErrExpired] of a watch.
type ExpiredError struct {
	// Oldest is the oldest revision from which a watch can start.
	Oldest uint64
}

// Error implements error.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("%v: the oldest is %d", ErrExpired, e.Oldest)
}

// Is reports whether target is ErrExpired, for errors.Is.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// DefaultHistoryBytes is the default memory for recent changes: live watches and paged lists rarely need
// older ones, which are in the log.
const DefaultHistoryBytes = 24 << 20

// Store holds the current state and the recent changes. One goroutine calls Begin, the methods of Tx, and
// Publish; all other methods are safe for concurrent use.
type Store struct {
	// IndexBytes is the memory for indexes of labels and fields. It is not changed when the store is in use.
	IndexBytes int64

	state   atomic.Pointer[State]
	derived atomic.Bool // the store has derived objects
	// cloning is held while a tree is cloned, because that writes to the original.
	cloning sync.Mutex

	historyBytes int
	lacks        map[schema.GroupResource]uint64 // see MayLack

	// mu guards the fields below. It is held for a bounded time, never during I/O.
	mu sync.Mutex
	// revision is that of the state. Invariant: the feeds have all changes up to it.
	revision uint64
	feeds    map[schema.GroupResource]*feed
	history  deque[*Change] // of all feeds, ascending by revision
	bytes    int            // total cost of history
	// floor is the revision of the newest change that was dropped.
	floor    uint64
	base     uint64 // the floor of feeds that are new, see Restore
	watchers int
	uses     uint64 // of indexes
	pinned   []pin  // ascending by revision
	// spent is the total cost of all changes ever published.
	spent uint64

	// counting is held, after mu, to change the map of feeds or their indexes of watchers. Readers of these hold either
	// of both locks.
	counting sync.RWMutex

	// offered is the revision up to which all changes have been offered to watchers. It is written
	// under mu, after they have been.
	offered atomic.Uint64
	// next is the index in history of the next change to offer.
	next int
	// halfway are the watchers that have been offered a part of the revision after offered.
	halfway map[*Watcher]struct{}

	work chan struct{} // capacity 1: there are changes to offer
	wave *wave
}

// New makes an empty store. historyBytes is the memory for recent changes; DefaultHistoryBytes if 0.
func New(historyBytes int) *Store {
	if historyBytes == 0 {
		historyBytes = DefaultHistoryBytes
	}
	s := &Store{IndexBytes: DefaultIndexBytes, historyBytes: historyBytes, feeds: map[schema.GroupResource]*feed{}, halfway: map[*Watcher]struct{}{}, work: make(chan struct{}, 1), wave: newWave()}
	s.state.Store(&State{})
	return s
}

// State returns the current state.
func (s *Store) State() *State { return s.state.Load() }

// Publish makes a scratch copy the current state. revision is that of the last event, which may be about
// no object.
func (s *Store) Publish(tx *Tx, revision uint64) *State {
	return s.PublishAfter(tx, revision, func(*State) {})
}

// PublishAfter is [Store.Publish]. It calls a function with the new state before it tells watchers, so that what the function makes known
// is known to whoever has heard of a change. The function must not call the store.
func (s *Store) PublishAfter(tx *Tx, revision uint64, before func(*State)) *State {
	next := new(State) // a pointer into tx would keep all of tx in memory
	*next = tx.next
	next.store, next.scratch, next.Revision = s, nil, max(next.Revision, revision)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropIndexes(tx)
	s.state.Store(next)
	s.revision = next.Revision
	before(next)
	for _, c := range tx.changes {
		f := s.feed(c.Object.kind.GroupResource)
		f.changes.push(c)
		for _, n := range f.notified {
			n.tell()
		}
		s.history.push(c)
		s.bytes += cost(c)
		s.spent += uint64(cost(c))
	}
	s.drop()
	if len(s.work) == 0 {
		s.work <- struct{}{} // this is the only sender
	}
	return next
}

// cost returns about how much memory a change takes that the current state does not share.
func cost(c *Change) int {
	n := 128
	if c.Before != nil {
		n += len(c.Before.JSON) + 256
	}
	if c.Deleted {
		n += len(c.Object.JSON) + 256
	}
	return n
}

// drop removes the oldest changes until the rest fits into historyBytes, and pinned states that hold too
// much. The caller holds mu.
func (s *Store) drop() {
	for s.bytes > s.historyBytes && s.history.len() > 0 && (s.watchers == 0 || s.history.get(0).Revision <= s.offered.Load()) {
		c := s.history.pop()
		s.next = max(0, s.next-1)
		f := s.feeds[c.Object.kind.GroupResource]
		f.changes.pop() // the same change
		f.floor, s.floor = max(f.floor, c.Revision), c.Revision
		f.forget()
		s.bytes -= cost(c)
	}
	// A pinned state holds at most the memory of the changes since, and all pinned states share that.
	s.pinned = slices.DeleteFunc(s.pinned, func(p pin) bool { return s.spent-p.spent > uint64(pinnedFor*s.historyBytes) })
}

// begin returns the floor of a feed that is new. Up to what the log may lack, its changes do not give the states that were.
func (s *Store) begin(r schema.GroupResource) uint64 { return max(s.base, s.lacks[r]) }

func (s *Store) clone(t *tree) *tree {
	s.cloning.Lock()
	defer s.cloning.Unlock()
	return t.Copy()
}

const (
	// maxPinned is the maximum number of pinned states.
	maxPinned = 256
	// pinnedFor bounds the memory that pinned states hold, as a multiple of historyBytes. Making the state
	// of a large resource from disk for each page would cost far more.
	pinnedFor = 3
)

// pin is a pinned state, and the total cost of all changes up to it.
type pin struct {
	*State
	spent uint64
}

// Pin keeps a state for [Store.At] until much has changed since. The state must have been current recently;
// states made by At are ignored.
func (s *Store) Pin(state *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state.partial || state.Revision < s.floor {
		return
	}
	i, found := s.searchPinned(state.Revision)
	if found {
		if s.pinned[i].replaced < state.replaced {
			s.pinned[i].State = state
		}
		return
	}
	s.pinned = slices.Insert(s.pinned, i, pin{state, s.spent})
	if len(s.pinned) > maxPinned {
		s.pinned = slices.Delete(s.pinned, 0, 1)
	}
}

func (s *Store) searchPinned(revision uint64) (int, bool) {
	return slices.BinarySearchFunc(s.pinned, revision, func(p pin, r uint64) int { return cmp.Compare(p.Revision, r) })
}

// At returns the state of one resource at a revision up to the current one; other resources may be missing
// in it. It returns [ErrExpired] if later changes have been dropped.
func (s *Store) At(r schema.GroupResource, revision uint64) (*State, error) {
	return s.AtHand(r, revision, math.MaxInt)
}

// AtHand is like At, but it also returns [ErrExpired] if it would have to undo more than most changes.
func (s *Store) AtHand(r schema.GroupResource, revision uint64, most int) (*State, error) {
	s.mu.Lock()
	current := s.state.Load()
	if revision == current.Revision {
		s.mu.Unlock()
		return current, nil
	}
	f := s.feed(r)
	if i, found := s.searchPinned(revision); found && s.pinned[i].replaced >= f.replaced {
		defer s.mu.Unlock()
		return s.pinned[i].State, nil
	}
	if revision < f.floor {
		s.mu.Unlock()
		return nil, ErrExpired
	}
	undo, _ := f.changesAfter(revision, 0, min(most, f.changes.len())+1, math.MaxInt)
	s.mu.Unlock()
	if len(undo) > most {
		return nil, ErrExpired
	}

	past := &State{Revision: revision, store: s, trees: map[schema.GroupResource]*tree{}, partial: true}
	t := current.trees[r]
	if t == nil {
		return past, nil
	}
	if len(undo) > 0 {
		t = s.clone(t)
		for _, c := range slices.Backward(undo) {
			if c.Before == nil {
				t.Delete(c.Object)
			} else {
				t.Set(c.Before)
			}
		}
	}
	past.trees[r] = t
	return past, nil
}

// Undone returns how many changes [Store.At] would undo for the state of a resource at a revision: none for the current
// state and for pinned ones. ok is false if later changes have been dropped.
func (s *Store) Undone(r schema.GroupResource, revision uint64) (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, pinned := s.searchPinned(revision); pinned || revision >= s.revision {
		return 0, true
	}
	f := s.feeds[r]
	if f == nil {
		return 0, revision >= s.begin(r)
	}
	return f.changes.len() - f.firstAfter(revision), revision >= f.floor
}

// Run offers published changes to watchers until the context ends.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-s.work:
			s.wave.begin()
			for s.offer() {
			}
			s.wave.end(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
