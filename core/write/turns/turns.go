// Package turns lets contending work wait in order: [Turns] bounds work that keeps processors busy, [ByKey] orders
// writes that conflict with each other.
package turns

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"stele.dev/stele/core/call"
)

// Turns bounds how much work that keeps a processor busy runs at a time. It is safe for concurrent use.
type Turns chan struct{}

// New returns turns for half of the processors, at least one, so that other work makes progress.
func New() Turns { return make(Turns, max(1, runtime.GOMAXPROCS(0)/2)) }

// Take waits for a turn, which lasts until done is called. It fails if the context ends first.
func (t Turns) Take(ctx context.Context) (done func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TakeAside is Take for work that may take minutes. A call that has to wait for its turn gives back its seats, which would
// otherwise keep other requests waiting; from then on its turn alone limits its work.
func (t Turns) TakeAside(ctx context.Context, c *call.Call) (done func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	default:
		c.ReleaseSeats()
		return t.Take(ctx)
	}
}

// ByKey makes writes with the same key that have met a conflict take turns, in the order of their conflicts: writes of the same
// object, or writes that depend on the same objects. Without turns, many clients that change one object would all decide again
// after each commit, and some might never succeed. It is safe for concurrent use; the zero value is ready.
type ByKey[K comparable] struct {
	mu    sync.Mutex
	turns map[K]*turn
	n     atomic.Int32 // len(turns)
}

// turn is the turn at one key.
type turn struct {
	held   chan struct{} // full while the turn is taken; waiting goroutines are served in order
	wanted int           // number of writes that hold the turn or wait for it
}

// Take waits for the turn at a key, which lasts until done is called. It fails if the context ends first.
func (t *ByKey[K]) Take(ctx context.Context, k K) (done func(), err error) {
	t.mu.Lock()
	if t.turns == nil {
		t.turns = map[K]*turn{}
	}
	at := t.turns[k]
	if at == nil {
		at = &turn{held: make(chan struct{}, 1)}
		t.turns[k] = at
		t.n.Add(1)
	}
	at.wanted++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if at.wanted--; at.wanted == 0 {
			delete(t.turns, k)
			t.n.Add(-1)
		}
	}
	select {
	case at.held <- struct{}{}:
		return func() { <-at.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// Idle reports whether nobody holds a turn, or waits for one.
func (t *ByKey[K]) Idle() bool { return t.n.Load() == 0 }

// Wanted reports whether a write holds the turn at a key, or waits for it.
func (t *ByKey[K]) Wanted(k K) bool {
	if t.Idle() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.turns[k] != nil
}
