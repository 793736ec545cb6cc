package commit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

var (
	// ErrNotSent reports a proposal that was withdrawn before it was sent.
	ErrNotSent = errors.New("commit: not sent")
	// ErrUndecided reports a proposal that was sent, but whose outcome is unknown.
	ErrUndecided = errors.New("commit: outcome not known yet")
	// ErrStopped reports that the committer has stopped.
	ErrStopped = errors.New("commit: stopped")
)

// Proposal is an event to append to the log.
type Proposal struct {
	Entry  *eventlog.Entry
	Checks Checks
}

// Committer holds the tip of the log, and is the only way to move it. Its methods are safe for concurrent use.
type Committer struct {
	log     *eventlog.Log
	objects *objects.Store
	load    func(*policies.Proposal) (*policy.Policy, error)
	logger  *slog.Logger

	tip atomic.Pointer[Tip]
	// prepared is a policy that was prepared for the next activation; nil if there is none.
	prepared atomic.Pointer[prepared]
	// policyChanged is closed and replaced when another policy comes in force.
	policyChanged atomic.Pointer[chan struct{}]
	// clockTold is the last problem of the clock that was logged.
	clockTold string
	// confirmed is the time at which the tip was last known to be the log's newest state, in Unix nanoseconds.
	confirmed atomic.Int64
	// restored is the position of the checkpoint from which this committer started.
	restored eventlog.Head
	loaded   atomic.Int64 // objects that Restore has loaded
	folded   atomic.Int64 // bytes of the batches that were folded

	mu       sync.Mutex
	queue    []*pending
	waiters  []chan struct{} // closed by the next confirmation that begins
	stopped  error
	stopping chan struct{}
	wake     chan struct{} // with capacity 1
}

// pending is a proposal that waits or was sent.
type pending struct {
	*Proposal
	state   atomic.Int32
	outcome chan outcome // with capacity 1
}

// These are the states of a pending proposal. The committer changes waiting to sent, and back if the append lost. A
// proposer that gives up changes waiting to withdrawn, or sent to abandoned.
const (
	waiting int32 = iota
	sent
	withdrawn
	abandoned
)

type outcome struct {
	tip      *Tip
	revision uint64
	err      error
}

// Options are the options of [New].
type Options struct {
	Log     *eventlog.Log
	Objects *objects.Store
	// Load compiles a policy from its form. It is called once per activation, and by Prepare. It must be safe for
	// concurrent use.
	Load   func(*policies.Proposal) (*policy.Policy, error)
	Logger *slog.Logger
}

// New returns a committer at the start of the log. Call [Committer.Replay] to move it to the tip.
func New(o Options) *Committer {
	c := &Committer{
		log: o.Log, objects: o.Objects, load: o.Load, logger: o.Logger,
		stopping: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	changed := make(chan struct{})
	c.policyChanged.Store(&changed)
	c.tip.Store(&Tip{Head: o.Log.Start(), Objects: o.Objects.State(), Policies: &policies.State{}})
	return c
}

// Tip returns the newest state that this replica knows.
func (c *Committer) Tip() *Tip { return c.tip.Load() }

// PolicyChanged returns a channel that is closed when a policy comes in force that differs from that of any tip read
// after the call.
func (c *Committer) PolicyChanged() <-chan struct{} { return *c.policyChanged.Load() }

// Objects returns the projection of objects, which the committer updates.
func (c *Committer) Objects() *objects.Store { return c.objects }

// Unconfirmed returns how long ago the tip was last confirmed to be the log's.
func (c *Committer) Unconfirmed() time.Duration {
	if c.log.Exclusive() {
		return 0
	}
	return time.Since(time.Unix(0, c.confirmed.Load()))
}

// Replay folds the log up to its tip: from the position of Restore on, or else from the beginning. It must be called
// once, before Run.
func (c *Committer) Replay(ctx context.Context) error {
	for {
		batches, err := c.log.CatchUp(ctx, c.Tip().Head)
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			c.confirmed.Store(time.Now().UnixNano())
			return nil
		}
		if err := c.apply(batches); err != nil {
			return err
		}
	}
}

// Commit proposes an event and waits for the outcome. It returns the tip with the event, and the event's revision. The
// package comment lists its errors.
func (c *Committer) Commit(ctx context.Context, p *Proposal) (*Tip, uint64, error) {
	w := &pending{Proposal: p, outcome: make(chan outcome, 1)}
	if err := c.enqueue(func() { c.queue = append(c.queue, w) }); err != nil {
		return nil, 0, err
	}
	select {
	case o := <-w.outcome:
		return o.tip, o.revision, o.err
	case <-ctx.Done():
	}
	if w.state.CompareAndSwap(waiting, withdrawn) {
		return nil, 0, fmt.Errorf("%w: %w", ErrNotSent, context.Cause(ctx))
	}
	if w.state.CompareAndSwap(sent, abandoned) {
		return nil, 0, fmt.Errorf("%w: %w", ErrUndecided, context.Cause(ctx))
	}
	o := <-w.outcome // the outcome was decided just now
	return o.tip, o.revision, o.err
}

// Confirm returns a tip that was the log's newest state at some moment after the call.
func (c *Committer) Confirm(ctx context.Context) (*Tip, error) {
	if c.log.Exclusive() {
		return c.Tip(), nil
	}
	return c.Settle(ctx)
}

// Settle is like Confirm, but after all appends in progress at the time of the call. The tip contains every event that
// the caller has read from the log.
func (c *Committer) Settle(ctx context.Context) (*Tip, error) {
	done := make(chan struct{})
	if err := c.enqueue(func() { c.waiters = append(c.waiters, done) }); err != nil {
		return nil, err
	}
	select {
	case <-done:
		return c.Tip(), nil
	case <-c.stopping:
		return nil, c.stopped
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *Committer) enqueue(add func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		return c.stopped
	}
	add()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

// Run commits proposals until the context ends or the log cannot be followed, which it returns as an error. Proposals
// that still wait then are refused as not sent.
func (c *Committer) Run(ctx context.Context) (err error) {
	var followers sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer followers.Wait()
	defer cancel()
	defer func() { c.stop(err) }()
	if !c.log.Exclusive() {
		followers.Go(func() { c.follow(ctx) })
	}
	clock := time.NewTicker(clockEvery)
	defer clock.Stop()
	if err := c.checkClock(ctx); err != nil {
		return err
	}
	for {
		select {
		case <-c.wake:
		case <-clock.C:
			if err := c.checkClock(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		for {
			r := c.next()
			if r == nil {
				break
			}
			if err := r.run(ctx); err != nil {
				return err
			}
		}
	}
}

func (c *Committer) stop(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = fmt.Errorf("%w: %w", ErrStopped, err)
	for _, w := range c.queue {
		w.refuse(fmt.Errorf("%w: %w", ErrNotSent, c.stopped))
	}
	c.queue = nil
	close(c.stopping)
}

// confirmEvery is the interval at which an idle replica confirms its tip.
const confirmEvery = 10 * time.Second

// follow confirms the tip whenever the log may have grown, so that watchers see the writes of other replicas.
func (c *Committer) follow(ctx context.Context) {
	for ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, confirmEvery)
		_, err := c.log.Next(wait, c.Tip().Head)
		cancel()
		if _, err := c.Confirm(ctx); err != nil {
			return
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) { // the backend is unreachable
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

// MaxUnconfirmed is the longest time that a replica answers from memory without a confirmation from the log.
const MaxUnconfirmed = 30 * time.Second
