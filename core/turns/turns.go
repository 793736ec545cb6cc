// Package turns lets contending work wait in order: [Turns] bounds work that keeps processors busy, [ByObject] orders
// writes of the same object.
package turns

import (
	"context"
	"runtime"
	"sync"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
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

// ByObject makes writes of the same object that have met a conflict take turns, in the order of their conflicts.
// Without turns, many clients that change one object would all decide again after each commit, and some might never
// succeed. It is safe for concurrent use; the zero value is ready.
type ByObject struct {
	mu    sync.Mutex
	turns map[commit.Key]*turn
}

// turn is the turn at one object.
type turn struct {
	held   chan struct{} // full while the turn is taken; waiting goroutines are served in order
	wanted int           // number of writes that hold the turn or wait for it
}

// Take waits for the turn at an object, which lasts until done is called. It fails if the context ends first.
func (t *ByObject) Take(ctx context.Context, k commit.Key) (done func(), err error) {
	t.mu.Lock()
	if t.turns == nil {
		t.turns = map[commit.Key]*turn{}
	}
	at := t.turns[k]
	if at == nil {
		at = &turn{held: make(chan struct{}, 1)}
		t.turns[k] = at
	}
	at.wanted++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if at.wanted--; at.wanted == 0 {
			delete(t.turns, k)
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

// Wanted reports whether a write holds the turn at an object, or waits for it.
func (t *ByObject) Wanted(k commit.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.turns[k] != nil
}
