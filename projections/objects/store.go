package objects

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrExpired reports that changes which would be needed have been dropped.
var ErrExpired = errors.New("objects: revision is too old")

// ExpiredError is [ErrExpired] to a watcher.
type ExpiredError struct {
	// Oldest is the oldest revision that would do.
	Oldest uint64
}

// Error implements error.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("%v: the oldest is %d", ErrExpired, e.Oldest)
}

// Is tells errors.Is that it is ErrExpired.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// DefaultHistoryBytes bounds the recent changes in memory: enough that live watches and pages
// rarely need what is before, and no more, for that is in the log.
const DefaultHistoryBytes = 24 << 20

// Store holds the current state and the recent changes. Begin, what is done to a Tx,
// and Publish belong to one goroutine; all else is safe for concurrent use.
type Store struct {
	state atomic.Pointer[State]
	// cloning is held while a tree is cloned, which changes the original a little.
	cloning sync.Mutex

	historyBytes int

	// mu guards what follows. It is held for a bounded time, never across I/O.
	mu sync.Mutex
	// revision is the state's: changes up to it are in the feeds.
	revision uint64
	feeds    map[schema.GroupResource]*feed
	history  deque[*Change] // of all feeds, ascending by revision
	bytes    int            // what history costs
	// floor is the revision of the newest change that was dropped.
	floor    uint64
	watchers int
	pinned   []pin // ascending by revision
	// spent is what all changes cost that ever were.
	spent uint64

	// offered: watchers have been offered all changes up to here. Written under mu,
	// after the fact.
	offered atomic.Uint64
	// What comes next is in the history behind so many changes, and these watchers have
	// been offered a part of the revision that follows offered.
	next    int
	halfway map[*Watcher]struct{}

	work chan struct{} // capacity 1: there are changes to offer
}

// New makes an empty store. historyBytes bounds the changes kept in memory;
// DefaultHistoryBytes if 0.
func New(historyBytes int) *Store {
	if historyBytes == 0 {
		historyBytes = DefaultHistoryBytes
	}
	s := &Store{historyBytes: historyBytes, feeds: map[schema.GroupResource]*feed{}, halfway: map[*Watcher]struct{}{}, work: make(chan struct{}, 1)}
	s.state.Store(&State{})
	return s
}

// State returns the current state.
func (s *Store) State() *State { return s.state.Load() }

// Publish makes a scratch copy of the current state the current state. Revision is
// that of the last event, for the case that it concerned no object.
func (s *Store) Publish(tx *Tx, revision uint64) *State {
	next := new(State) // not a part of tx, which holds more
	*next = tx.next
	next.Revision = max(next.Revision, revision)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Store(next)
	s.revision = next.Revision
	for _, c := range tx.changes {
		f := s.feed(c.Object.kind.GroupResource)
		f.changes.push(c)
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

// cost is about what a change keeps in memory that the current state does not.
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

// drop forgets the oldest changes until the rest fits. mu is held.
func (s *Store) drop() {
	for s.bytes > s.historyBytes && s.history.len() > 0 && (s.watchers == 0 || s.history.at(0).Revision <= s.offered.Load()) {
		c := s.history.pop()
		s.next = max(0, s.next-1)
		f := s.feeds[c.Object.kind.GroupResource]
		f.changes.pop() // the same one
		f.floor, s.floor = c.Revision, c.Revision
		s.bytes -= cost(c)
	}
	// What a pinned state holds on to is no more than the changes since, which all that are pinned share.
	s.pinned = slices.DeleteFunc(s.pinned, func(p pin) bool { return s.spent-p.spent > uint64(pinnedFor*s.historyBytes) })
}

func (s *Store) clone(t *tree) *tree {
	s.cloning.Lock()
	defer s.cloning.Unlock()
	return t.Copy()
}

const (
	// maxPinned bounds the paged lists whose state is at hand as it was.
	maxPinned = 256
	// pinnedFor bounds what they hold on to, in what the recent changes may cost: to make the state
	// of a large resource from what is on disk, for each page, would cost far more.
	pinnedFor = 3
)

// pin is a state that is at hand, and what all changes up to it cost.
type pin struct {
	*State
	spent uint64
}

// Pin keeps a state at hand for [Store.At], until much has changed since. It must have been
// current a moment ago; one that came from there is made anew instead.
func (s *Store) Pin(state *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state.partial || state.Revision < s.floor {
		return
	}
	i, found := s.searchPinned(state.Revision)
	if found {
		return
	}
	s.pinned = slices.Insert(s.pinned, i, pin{state, s.spent})
	if len(s.pinned) > maxPinned {
		s.pinned = slices.Delete(s.pinned, 0, 1)
	}
}

func (s *Store) searchPinned(revision uint64) (int, bool) {
	return slices.BinarySearchFunc(s.pinned, revision, func(p pin, r uint64) int {
		switch {
		case p.Revision < r:
			return -1
		case p.Revision > r:
			return 1
		}
		return 0
	})
}

// At returns the state of one resource (others may lack) at a revision that is not
// above the current one. [ErrExpired] if changes since have been dropped.
func (s *Store) At(r schema.GroupResource, revision uint64) (*State, error) {
	return s.AtHand(r, revision, math.MaxInt)
}

// AtHand is At for who would rather have [ErrExpired] than that more than so many changes are undone
// for it.
func (s *Store) AtHand(r schema.GroupResource, revision uint64, most int) (*State, error) {
	s.mu.Lock()
	current := s.state.Load()
	if revision == current.Revision {
		s.mu.Unlock()
		return current, nil
	}
	if i, found := s.searchPinned(revision); found {
		defer s.mu.Unlock()
		return s.pinned[i].State, nil
	}
	f := s.feed(r)
	if revision < f.floor {
		s.mu.Unlock()
		return nil, ErrExpired
	}
	undo := f.after(revision, 0, min(most, f.changes.len())+1)
	s.mu.Unlock()
	if len(undo) > most {
		return nil, ErrExpired
	}

	past := &State{Revision: revision, trees: map[schema.GroupResource]*tree{}, partial: true}
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

// Run offers published changes to watchers until the context ends.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-s.work:
			for s.offer() {
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
