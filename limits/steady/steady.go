// Package steady keeps work in the background going until its context ends: it has pauses, periods, and the reason why the work
// fails at the moment.
package steady

import (
	"context"
	"io"
	"iter"
	"sync/atomic"
	"time"
)

// Wait waits. The error is that of the context if it ends first.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Every yields the time once in each period until the context ends, first after one period. A period in which the loop is
// still busy with an earlier one may be left out.
func Every(ctx context.Context, period time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case at := <-tick.C:
				if !yield(at) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// AtOnceAndEvery yields at once, also if the context has ended, and then like [Every].
func AtOnceAndEvery(ctx context.Context, period time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for at := time.Now(); yield(at); {
			select {
			case at = <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Reader returns a reader whose reads fail once the context has ended.
func Reader(ctx context.Context, r io.Reader) io.Reader { return &reader{ctx, r} }

type reader struct {
	ctx context.Context
	io.Reader
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// Health is why the last attempt at something failed. Its zero value is an attempt that succeeded. It is safe for
// concurrent use.
type Health struct{ problem atomic.Pointer[error] }

// Note records the outcome of an attempt, and reports whether it changed from success to failure or back.
func (h *Health) Note(err error) (changed bool) {
	if err == nil {
		return h.problem.Swap(nil) != nil
	}
	return h.problem.Swap(&err) == nil
}

// Err returns why the last attempt failed; nil if it succeeded.
func (h *Health) Err() error {
	if err := h.problem.Load(); err != nil {
		return *err
	}
	return nil
}
