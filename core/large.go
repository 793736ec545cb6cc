package core

import (
	"context"
	"runtime"
)

// What patches, and merges of what is applied, take to compute can grow with the square of how many
// fields an object has: for one of a megabyte that is seconds, which nothing interrupts. So large
// writes take turns, and leave half of the processors to all others.

// largeWrite is from how many bytes on a write takes a turn: those of its body, and of the object
// as it is.
const largeWrite = 256 << 10

// Questions of access take turns of their own: what they take grows with how many rules there are and how these
// overlap.

// workTurns are turns at what keeps a processor busy.
type workTurns chan struct{}

func newWorkTurns() workTurns { return make(workTurns, max(1, runtime.GOMAXPROCS(0)/2)) }

// large tells whether the request is a write that takes a turn.
func (r *Request) Large() bool {
	n := len(r.Body.Raw)
	if r.Old != nil && r.Body.Delete == nil {
		n += len(r.Old.JSON)
	}
	return n > largeWrite
}

// take waits for a turn, which is over when done is called.
func (t workTurns) take(ctx context.Context) (done func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
