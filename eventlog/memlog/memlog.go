// Package memlog is an in-memory backend of the log for tests: it has the same semantics as the others,
// and any fault that a network or a store can have.
//
// A [Store] takes the place of the cluster: it outlives the replicas. Each replica opens its own
// [Backend] on it, with a [Schedule] that decides for each call how slow the network is and what is lost.
// Under testing/synctest the latencies take no real time.
package memlog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/turns"
)

// ErrLost is the error of a call whose request or answer was lost: the caller does not know the outcome.
var ErrLost = errors.New("memlog: connection lost")

// ErrClosed is the error of calls on a closed backend.
var ErrClosed = errors.New("memlog: closed")

// Op names a call of a backend.
type Op string

// The calls that a [Schedule] decides on.
const (
	Append   Op = "append"
	Read     Op = "read"
	ReadBack Op = "read back"
	Wait     Op = "wait" // and each News
	Leave    Op = "leave"
	Trim     Op = "trim"
)

// Fault is what happens to one call.
type Fault struct {
	// Request and Answer are the latencies of the request and of the answer.
	Request, Answer time.Duration
	// Refuse, if not nil, is returned at once, and the store never gets the request.
	Refuse error
	// LoseRequest: the store never gets the request; the caller gets ErrLost.
	LoseRequest bool
	// LoseAnswer: the store executes the request; the caller gets ErrLost.
	LoseAnswer bool
	// Linger: the caller gets ErrLost at once; the store executes the request later, after Request.
	Linger bool
}

// Schedule decides what happens to a call. It is called once per call, in the caller's goroutine, and
// must be safe for concurrent use.
type Schedule func(Op) Fault

// Store holds a log. Its zero value is empty and ready for use; it is safe for
// concurrent use.
type Store struct {
	// MaxValue is the maximum size of one value in bytes; 8 MiB if 0.
	MaxValue int
	// Room is the number of bytes of all values from which on appends are refused, and an eighth more for
	// those that free space; 0 for no limit.
	Room atomic.Int64
	// MaxBatches is the maximum number of batches that one Read returns; 100 if 0.
	MaxBatches int

	refused atomic.Uint64 // appends that were refused for lack of room

	mu      sync.Mutex
	head    []byte
	batches []eventlog.Stored // ascending
	grown   chan struct{}
	line    []eventlog.Waiter // ascending places; never changed in place
	place   uint64            // the last one
	hearing []*Backend        // those that hear news
	told    uint64            // the number of the last news
	values  map[string]*[]byte
}

// Batches returns all that is stored, ascending.
func (s *Store) Batches() []eventlog.Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batches[:len(s.batches):len(s.batches)]
}

// Tamper changes what is stored without a transaction, as damage would.
func (s *Store) Tamper(change func(head []byte, batches []eventlog.Stored) ([]byte, []eventlog.Stored)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head, s.batches = change(s.head, slices.Clone(s.batches))
}

// Open returns a backend for a replica. A nil schedule means no faults and no latency.
func (s *Store) Open(schedule Schedule) *Backend {
	if schedule == nil {
		schedule = func(Op) Fault { return Fault{} }
	}
	b := &Backend{store: s, schedule: schedule, closed: make(chan struct{}), changed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hearing = append(s.hearing, b)
	return b
}

// Backend is one replica's access to a store. Closing it is like a crash of the replica: requests that it
// has sent still arrive.
type Backend struct {
	store    *Store
	schedule Schedule
	once     sync.Once
	closed   chan struct{}

	mu      sync.Mutex
	heard   []eventlog.Stored // the newest batches of which the store has told
	line    []eventlog.Waiter
	asOf    uint64        // the number of the news or answer that has told of the line
	changed chan struct{} // closed by the next news
}

var _ eventlog.Backend = (*Backend)(nil)

// Append implements [eventlog.Backend].
func (b *Backend) Append(ctx context.Context, p eventlog.Proposal) (eventlog.Answer, error) {
	if max := b.Limits().Value; len(p.Value) > max {
		return eventlog.Answer{}, fmt.Errorf("%w: %d bytes, limit is %d", eventlog.ErrTooLarge, len(p.Value), max)
	}
	if err := b.full(p); err != nil && !p.Again {
		b.store.refused.Add(1)
		return eventlog.Answer{}, err
	}
	p.Value = bytes.Clone(p.Value)
	type told struct {
		answer eventlog.Answer
		news   news
	}
	t, err := call(ctx, b, Append, func() told {
		answer, news := b.store.append(p)
		return told{answer, news}
	})
	if err == nil {
		b.hear(t.news)
	}
	return t.answer, err
}

// Leave implements [eventlog.Backend].
func (b *Backend) Leave(ctx context.Context, writer eventlog.ID) error {
	_, err := call(ctx, b, Leave, func() struct{} { b.store.leave(writer); return struct{}{} })
	return err
}

// News implements [eventlog.Backend].
func (b *Backend) News(from uint64) eventlog.News {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := eventlog.News{Line: b.line, Changed: b.changed}
	for i, s := range b.heard {
		if s.First == from {
			n.Batches = b.heard[i:len(b.heard):len(b.heard)]
			break
		}
	}
	return n
}

// news is what the store tells all backends after a change.
type news struct {
	batch *eventlog.Stored // nil for none
	line  []eventlog.Waiter
	asOf  uint64
}

// hear takes in news, or the line of an answer.
func (b *Backend) hear(n news) {
	const most = 16
	b.mu.Lock()
	defer b.mu.Unlock()
	if n.asOf > b.asOf {
		b.line, b.asOf = n.line, n.asOf
	}
	if n.batch != nil {
		b.heard = append(b.heard[max(0, len(b.heard)+1-most):len(b.heard):len(b.heard)], *n.batch)
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// Read implements [eventlog.Backend].
func (b *Backend) Read(ctx context.Context, from uint64) (eventlog.Answer, error) {
	return call(ctx, b, Read, func() eventlog.Answer { return b.store.read(from) })
}

// ReadBack implements [eventlog.Backend].
func (b *Backend) ReadBack(ctx context.Context, from uint64, max int) ([]eventlog.Stored, error) {
	return call(ctx, b, ReadBack, func() []eventlog.Stored { return b.store.readBack(from, max) })
}

// Wait implements [eventlog.Backend].
func (b *Backend) Wait(ctx context.Context, from uint64) error {
	f := b.schedule(Wait)
	if f.LoseRequest || f.LoseAnswer || f.Linger {
		return nil // a hint may be wrong
	}
	for {
		there, grown := b.store.reaches(from)
		if there {
			return sleep(ctx, b.closed, f.Answer)
		}
		select {
		case <-grown:
		case <-b.closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Trim implements [eventlog.Backend].
func (b *Backend) Trim(ctx context.Context, upto uint64) error {
	_, err := call(ctx, b, Trim, func() struct{} { b.store.trim(upto); return struct{}{} })
	return err
}

// full returns an error if there is no room for a proposal.
func (b *Backend) full(p eventlog.Proposal) error {
	if p.Frees {
		return b.Usage().FullForFreeing()
	}
	return b.Usage().Full()
}

// Usage implements [eventlog.Backend].
func (b *Backend) Usage() eventlog.Usage {
	used, room := b.store.used(), b.store.Room.Load()
	return eventlog.Usage{Used: used, Allocated: used, Limit: room, FreeingLimit: room / 8 * 9, Refused: b.store.refused.Load()}
}

// Limits implements [eventlog.Backend].
func (b *Backend) Limits() eventlog.Limits {
	if b.store.MaxValue > 0 {
		return eventlog.Limits{Value: b.store.MaxValue}
	}
	return eventlog.Limits{Value: 8 << 20}
}

// Close implements [eventlog.Backend].
func (b *Backend) Close() error {
	b.once.Do(func() {
		close(b.closed)
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		b.store.hearing = slices.DeleteFunc(b.store.hearing, func(other *Backend) bool { return other == b })
	})
	return nil
}

// call sends a request to the store and returns the answer, with the faults of the schedule. A request
// that was sent arrives even if the caller gives up.
func call[T any](ctx context.Context, b *Backend, op Op, act func() T) (T, error) {
	var zero T
	select {
	case <-b.closed:
		return zero, ErrClosed
	default:
	}
	f := b.schedule(op)
	if f.Refuse != nil {
		return zero, f.Refuse
	}
	answered := make(chan T, 1)
	travel := func() {
		time.Sleep(f.Request)
		answer := act()
		time.Sleep(f.Answer)
		answered <- answer
	}
	switch {
	case f.LoseRequest:
		if err := sleep(ctx, b.closed, f.Request); err != nil {
			return zero, err
		}
		return zero, ErrLost
	case f.Linger:
		go travel()
		return zero, ErrLost
	case f.Request+f.Answer == 0:
		travel()
	default:
		go travel()
	}
	select {
	case answer := <-answered:
		if f.LoseAnswer {
			return zero, ErrLost
		}
		return answer, nil
	case <-b.closed:
		return zero, ErrClosed
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

func sleep(ctx context.Context, closed <-chan struct{}, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// append does a transaction, and tells all backends of it. It also returns the line for the answer.
func (s *Store) append(p eventlog.Proposal) (eventlog.Answer, news) {
	answer, n := s.apply(p)
	s.tell(n)
	return answer, news{line: n.line, asOf: n.asOf}
}

func (s *Store) apply(p eventlog.Proposal) (eventlog.Answer, news) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.search(p.At)
	if !bytes.Equal(s.head, p.From) || i < len(s.batches) && s.batches[i].First == p.At {
		if p.Writer != (eventlog.ID{}) && !s.waits(p.Writer) {
			s.lineUp(p)
		}
		return s.readLocked(p.At), s.news(nil)
	}
	s.head = p.To
	batch := eventlog.Stored{First: p.At, Value: p.Value}
	if i == len(s.batches) {
		s.batches = append(s.batches, batch) // past what any reader holds
	} else {
		s.batches = slices.Insert(slices.Clone(s.batches), i, batch)
	}
	if s.grown != nil {
		close(s.grown)
		s.grown = nil
	}
	s.remove(append(p.Skipped, p.Writer)...)
	if p.Stays {
		s.lineUp(p)
	}
	return eventlog.Answer{Applied: true}, s.news(&batch)
}

func (s *Store) leave(writer eventlog.ID) {
	s.mu.Lock()
	s.remove(writer)
	n := s.news(nil)
	s.mu.Unlock()
	s.tell(n)
}

// Line returns all writers that wait to append.
func (s *Store) Line() []eventlog.Waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.line
}

func (s *Store) waits(writer eventlog.ID) bool {
	return slices.ContainsFunc(s.line, func(w eventlog.Waiter) bool { return w.Writer == writer })
}

func (s *Store) lineUp(p eventlog.Proposal) {
	s.place++
	s.line = append(slices.Clone(s.line), eventlog.Waiter{Writer: p.Writer, RoundTrip: p.RoundTrip, Place: s.place})
}

func (s *Store) remove(writers ...turns.ID) {
	s.line = slices.DeleteFunc(slices.Clone(s.line), func(w eventlog.Waiter) bool { return slices.Contains(writers, w.Writer) })
}

// news numbers the state after a change. The caller holds s.mu.
func (s *Store) news(batch *eventlog.Stored) news {
	s.told++
	return news{batch, s.line, s.told}
}

// tell tells all backends of a change, each after the latency of its answers.
func (s *Store) tell(n news) {
	s.mu.Lock()
	hearing := slices.Clone(s.hearing)
	s.mu.Unlock()
	for _, b := range hearing {
		f := b.schedule(Wait)
		switch {
		case f.Refuse != nil || f.LoseRequest || f.LoseAnswer || f.Linger: // it never hears
		case f.Answer == 0:
			b.hear(n)
		default:
			time.AfterFunc(f.Answer, func() { b.hear(n) })
		}
	}
}

func (s *Store) read(from uint64) eventlog.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readLocked(from)
}

func (s *Store) readLocked(from uint64) eventlog.Answer {
	max := s.MaxBatches
	max = cmp.Or(max, 100)
	i := s.search(from)
	j := min(len(s.batches), i+max)
	return eventlog.Answer{Head: s.head, Batches: s.batches[i:j:j]}
}

func (s *Store) readBack(from uint64, max int) []eventlog.Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	var back []eventlog.Stored
	for i := s.indexBehind(from) - 1; i >= 0 && len(back) < max; i-- {
		back = append(back, s.batches[i])
	}
	return back
}

// trim removes the batches with 1 < First <= upto, except for the newest.
func (s *Store) trim(upto uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, j := s.search(2), min(s.indexBehind(upto), len(s.batches)-1)
	if i < j {
		s.batches = slices.Delete(slices.Clone(s.batches), i, j)
	}
}

// used returns the bytes of all values.
func (s *Store) used() (sum int64) {
	for _, b := range s.Batches() {
		sum += int64(len(b.Value))
	}
	return sum
}

// reaches reports whether there is a batch at the revision or after it. If not, the channel is closed when
// the store grows.
func (s *Store) reaches(revision uint64) (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.search(revision) < len(s.batches) {
		return true, nil
	}
	if s.grown == nil {
		s.grown = make(chan struct{})
	}
	return false, s.grown
}

// search returns the index of the first batch at the revision or after it.
func (s *Store) search(revision uint64) int {
	return sort.Search(len(s.batches), func(i int) bool { return s.batches[i].First >= revision })
}

// indexBehind returns the index of the first batch that begins after the revision.
func (s *Store) indexBehind(revision uint64) int {
	return sort.Search(len(s.batches), func(i int) bool { return s.batches[i].First > revision })
}
