// Package turns lets work that contends wait in order: work that keeps processors busy ([Turns]), and writes of one
// object ([ByObject]).
package turns

import (
	"context"
	"runtime"
	"sync"

	"stele.dev/stele/core/commit"
)

// Turns are a number of turns at work that keeps a processor busy. They are safe for concurrent use.
type Turns chan struct{}

// New returns turns for half of the processors, at least one, so that others go on meanwhile.
func New() Turns { return make(Turns, max(1, runtime.GOMAXPROCS(0)/2)) }

// Take waits for a turn, which lasts until done is called. Its error is the context's.
func (t Turns) Take(ctx context.Context) (done func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ByObject are turns at writing an object, for writes that lost against another write of it: they go on one at a time,
// in the order in which they lost. Without turns, many clients that change one object would all decide anew whenever
// one of them has won, and some might never win. It is safe for concurrent use; the zero value is ready.
type ByObject struct {
	mu sync.Mutex
	of map[commit.Key]*turn
}

type turn struct {
	held   chan struct{} // full while the turn is taken; waiting goroutines are served in order
	wanted int           // by how many, with the one that has it
}

// Take waits for the turn at an object, which lasts until done is called. Its error is the context's.
func (t *ByObject) Take(ctx context.Context, k commit.Key) (done func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[commit.Key]*turn{}
	}
	at := t.of[k]
	if at == nil {
		at = &turn{held: make(chan struct{}, 1)}
		t.of[k] = at
	}
	at.wanted++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if at.wanted--; at.wanted == 0 {
			delete(t.of, k)
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

// Wanted reports whether a write has the turn at an object, or waits for it.
func (t *ByObject) Wanted(k commit.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[k] != nil
}
