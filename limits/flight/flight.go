// Package flight runs a function once for all callers that want the same result at the same time. Unlike
// golang.org/x/sync/singleflight, it lets each caller give up, and cancels the function when all have.
package flight

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// Group is the functions that are running, by key. It is safe for concurrent use, and its zero value is ready.
type Group[K comparable, V any] struct {
	// Most limits how many functions run at once; 0 means no limit.
	Most int

	mu    sync.Mutex
	calls map[K]*Call[K, V]
}

// Call is a running function, which several callers may wait for.
type Call[K comparable, V any] struct {
	group   *Group[K, V]
	key     K
	callers int // guarded by the group
	stop    context.CancelFunc
	done    chan struct{} // closed when the fields below are set
	value   V
	err     error
}

// Do returns the result of run for a key, which other callers may share. run gets the values of the context, and is
// cancelled when no caller waits.
func (g *Group[K, V]) Do(ctx context.Context, key K, run func(context.Context) (V, error)) (V, error) {
	c, _ := g.Join(context.WithoutCancel(ctx), key, run)
	return c.Wait(ctx)
}

// Join returns the call of a key, and whether it was running already. Otherwise it starts run, under the context. It
// returns nil if too many functions are running. The caller must wait for the call or leave it, or else it goes on
// until it ends by itself.
func (g *Group[K, V]) Join(ctx context.Context, key K, run func(context.Context) (V, error)) (call *Call[K, V], shared bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil {
		c.callers++
		return c, true
	}
	if g.Most > 0 && len(g.calls) >= g.Most {
		return nil, false
	}
	if g.calls == nil {
		g.calls = map[K]*Call[K, V]{}
	}
	c := &Call[K, V]{group: g, key: key, callers: 1, done: make(chan struct{})}
	ctx, c.stop = context.WithCancel(ctx)
	g.calls[key] = c
	go c.run(ctx, run)
	return c, false
}

func (c *Call[K, V]) run(ctx context.Context, run func(context.Context) (V, error)) {
	defer func() {
		if p := recover(); p != nil {
			c.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		c.stop()
		c.group.mu.Lock()
		c.forget()
		c.group.mu.Unlock()
		close(c.done)
	}()
	c.value, c.err = run(ctx)
}

// Done returns a channel that is closed when the call has a result.
func (c *Call[K, V]) Done() <-chan struct{} { return c.done }

// Wait returns the result. If the context ends first, it leaves the call.
func (c *Call[K, V]) Wait(ctx context.Context) (value V, err error) {
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		c.Leave()
		return value, context.Cause(ctx)
	}
}

// Leave gives up a call. When all callers have left, the call is cancelled, and later callers do not join it.
func (c *Call[K, V]) Leave() {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if c.callers--; c.callers == 0 {
		c.stop()
		c.forget()
	}
}

// forget prevents others from joining. The caller holds the group's lock.
func (c *Call[K, V]) forget() {
	if c.group.calls[c.key] == c {
		delete(c.group.calls, c.key)
	}
}
