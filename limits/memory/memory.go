// Package memory keeps the process below its memory limit. Requests take shares of one budget before they use much memory:
// for their bodies, their answers, watches and states of the past. A request whose share does not fit waits for its turn,
// and is refused with 429 if it waits for long.
//
// The budget is what the limit leaves beside the memory that the server holds itself, for objects, caches and the log.
// This is measured, so the budget shrinks when objects grow.
//
// Users take turns: the share that is granted next is that of the user who holds least of its kind, and a user leaves a part of
// what is free to others.
//
// All kinds of shares use the budget together. A request may take shares of several kinds, one after the other, but only in
// the order of the kinds. Each kind leaves room for the kinds after it, so requests that hold shares do not wait for each
// other in a circle: those that hold shares of the last kind wait for nothing, and give them back.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is what a share of the budget is for. A request takes shares in the order of the kinds.
type Kind uint8

const (
	// Watches are open watches and other streams. They are refused at once if others have taken what there is for watches,
	// because these stay open for long.
	Watches Kind = iota
	// Buffers hold the events that watches are sending. Watches do not wait for them: see [Guard.Try].
	Buffers
	// Arriving is for the parts of bodies that clients send before the server reads them: see [Guard.Arrive].
	Arriving
	// Questions is for work that takes much memory besides bodies and answers: policies, plans, blame.
	Questions
	// Reading is for bodies that are read.
	Reading
	// Decoding is for bodies that are decoded.
	Decoding
	// Past is for states of the past that are made from history.
	Past
	// Answers is for lists, and other large answers.
	Answers
	kinds
)

// about says for each kind how errors and metrics name it, and what a client can do if there is no room.
var about = [kinds]struct{ label, name, advice string }{
	Watches:   {"watches", "open watches", "close other watches, or use another server"},
	Buffers:   {"watch_buffers", "events of watches", "read watches faster"},
	Arriving:  {"arriving", "arriving request bodies", "send fewer bodies at once"},
	Reading:   {"reading", "request bodies", "send smaller or fewer bodies at once"},
	Decoding:  {"decoding", "decoded request bodies", "send smaller or fewer bodies at once"},
	Questions: {"questions", "policies and questions", "ask again later, or for less"},
	Past:      {"past", "states of the past", "list one namespace, or a revision that others list as well"},
	Answers:   {"answers", "answers", "list with a limit, or as JSON, which takes the least memory"},
}

// String returns the label of the kind in metrics.
func (k Kind) String() string { return about[k].label }

const (
	// patience is how long a request waits for a share, and watchPatience how long a watch waits.
	patience      = 30 * time.Second
	watchPatience = 5 * time.Second
	// again is how often the budget is computed anew while requests wait.
	again = 200 * time.Millisecond
	// retryAfter is after how many seconds a refused client should try again.
	retryAfter = 3
	// DefaultLimit is the limit of a [Guard] without one.
	DefaultLimit = 4 << 30
	// Small is the size up to which a body or an answer is not counted.
	Small = 16 << 10
)

// Guard is the budget of a process. It is safe for concurrent use.
type Guard struct {
	limit   int64
	maxBody int64
	window  int64
	usage   func() Usage
	reclaim func()
	collect func()

	mu      sync.Mutex
	budget  int64 // what all shares may take together
	own     int64 // bytes that the server holds beside the shares
	live    int64 // bytes that were in use at the last collection, shares included
	cycles  uint64
	read    time.Time // when usage was last called
	peak    int64     // the most that was taken since the last collection
	all     int64     // the sum of taken
	small   int64     // the part of all that small shares took
	taken   [kinds]int64
	large   [kinds]int64            // the part of taken that large shares took
	held    [kinds]map[string]int64 // the part of taken that each owner holds
	waiting [kinds][]*waiter        // in the order of their arrival
	refused [kinds][reasons]uint64
	waits   [kinds]uint64
	armed   bool      // a timer will compute the budget anew
	swept   time.Time // when a collection was last forced
	unsure  bool      // own may be too high: when it was measured, many shares were taken
	calm    time.Time // since when few shares are taken, and nothing was collected
}

// Options for [New].
type Options struct {
	// Limit is the soft limit of the process's memory in bytes; 0 for DefaultLimit.
	Limit int64
	// MaxBody is the maximum size of a body in bytes.
	MaxBody int64
	// Usage returns how much memory the process uses; nil for [Measure].
	Usage func() Usage
	// Reclaim is called when requests wait, and drops the states of the past that are only cached. It must not take shares.
	Reclaim func()
	// Window is how many bytes of a body a client of HTTP/2 may send before they are read; 0 for none.
	Window int64
	// Collect collects garbage and gives free memory back to the operating system; nil for [debug.FreeOSMemory].
	Collect func()
}

// New returns a guard.
func New(o Options) *Guard {
	if o.Usage == nil {
		o.Usage = Measure
	}
	if o.Reclaim == nil {
		o.Reclaim = func() {}
	}
	if o.Collect == nil {
		o.Collect = debug.FreeOSMemory
	}
	g := &Guard{limit: cmp.Or(o.Limit, DefaultLimit), maxBody: o.MaxBody, window: o.Window, usage: o.Usage, reclaim: o.Reclaim, collect: o.Collect, calm: time.Now()}
	g.mu.Lock()
	g.measure()
	g.mu.Unlock()
	return g
}

// Take takes a share of n bytes, or waits for it. The caller must call done once when it has freed the memory. The error is a
// Status with code 429 if there was no room for long, with code 413 if there never will be, or that of the context.
func (g *Guard) Take(ctx context.Context, k Kind, n int64) (done func(), err error) {
	return g.takeFor(ctx, "", k, n)
}

// takeFor is Take for an owner, who takes turns with others; "" for one who takes no turns.
func (g *Guard) takeFor(ctx context.Context, owner string, k Kind, n int64) (done func(), err error) {
	if err := g.acquire(ctx, owner, k, n); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.hold(k, owner, -n)
		g.free(k, n)
	}), nil
}

// acquire takes a share, or waits for it. The caller must give it back, and what the owner holds by it.
func (g *Guard) acquire(ctx context.Context, owner string, k Kind, n int64) error {
	g.mu.Lock()
	g.refresh()
	switch {
	case n > g.shareLimit(k, n):
		defer g.mu.Unlock()
		return g.never(k, n)
	case len(g.waiting[k]) == 0 && g.fitsTurn(k, owner, n) || g.mayOvertake(k, g.next(k), owner, n):
		g.add(k, n)
		g.hold(k, owner, n)
		g.mu.Unlock()
		return nil
	case k == Watches && !g.allows(k, n):
		defer g.mu.Unlock()
		return g.full(k, n)
	}
	w := &waiter{owner: owner, n: n, granted: make(chan struct{})}
	g.waiting[k] = append(g.waiting[k], w)
	g.waits[k]++
	if g.next(k) == w && g.fitsTurn(k, owner, n) {
		g.pick(k, w)
	}
	g.arm()
	g.mu.Unlock()
	return g.wait(ctx, k, w)
}

// Try takes a share of n bytes if there is room. The caller calls [Guard.Free] for it.
func (g *Guard) Try(k Kind, n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refresh()
	if len(g.waiting[k]) > 0 || !g.fits(k, n) {
		return false
	}
	g.add(k, n)
	return true
}

// Arrive takes the share of a body of which a client of HTTP/2 sends the first part before the server reads it. length is the
// announced length, or -1. That memory is used already, so the share does not wait for those of other kinds: the error is a
// Status with code 429 if too many such bodies wait. The caller must call done once when the body has been read.
func (g *Guard) Arrive(length int64) (done func(), err error) {
	n := g.window
	if length >= 0 {
		n = min(n, length)
	}
	if n == 0 || length >= 0 && length <= Small {
		return func() {}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refresh()
	if !g.allows(Arriving, n) {
		return nil, g.full(Arriving, n)
	}
	g.add(Arriving, n)
	return g.done(Arriving, n), nil
}

// Most returns the size of the largest share of a kind that can be granted now, if no others are taken.
func (g *Guard) Most(k Kind) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refresh()
	return g.shareLimit(k, math.MaxInt64)
}

// Hold takes a share of n bytes whether there is room or not, for memory that is used already. The caller calls
// [Guard.Free] for it.
func (g *Guard) Hold(k Kind, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.add(k, n)
}

// Free gives back n bytes.
func (g *Guard) Free(k Kind, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free(k, n)
}

func (g *Guard) done(k Kind, n int64) func() {
	return sync.OnceFunc(func() { g.Free(k, n) })
}

// waiter is a request that waits for a share.
type waiter struct {
	owner     string // "" for one who takes no turns
	n         int64
	overtaken int64         // bytes of smaller shares that were granted since
	granted   chan struct{} // closed when the share is taken
}

func (g *Guard) wait(ctx context.Context, k Kind, w *waiter) (err error) {
	long := patience
	if k == Watches {
		long = watchPatience
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.granted:
		if err == nil {
			return nil
		}
		g.hold(k, w.owner, -w.n)
		g.free(k, w.n)
		return err
	default:
	}
	g.leave(k, w)
	if err == nil {
		err = g.full(k, w.n)
	}
	return err
}

// never returns the error for a share that is larger than the budget.
func (g *Guard) never(k Kind, n int64) error {
	g.refused[k][tooLarge]++
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusRequestEntityTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge,
		Message: fmt.Sprintf("this request needs about %s of memory for %s, and the server has %s: %s, or give the server more memory (--memory)",
			bytes(n), about[k].name, bytes(g.shareLimit(k, n)), about[k].advice)}}
}

// full returns the error for a share for which there was no room.
func (g *Guard) full(k Kind, n int64) error {
	g.refused[k][noRoom]++
	most := Kind(0)
	for other := range kinds {
		if g.taken[other] > g.taken[most] {
			most = other
		}
	}
	return apierrors.NewTooManyRequests(fmt.Sprintf("the server's memory for %s is full: this request needs about %s, and %s of %s are taken, most of it by %s; %s, or try again later",
		about[k].name, bytes(n), bytes(g.all), bytes(g.shareLimit(k, n)), about[most].name, about[k].advice), retryAfter)
}

func bytes(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1<<10-1)>>10)
	}
	return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
}
