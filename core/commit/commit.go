package commit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/projections/quotas"
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
	// confirmed is when the tip was last known to be the log's newest state, in nanoseconds since began.
	confirmed atomic.Int64
	began     time.Time
	// restored is the position of the checkpoint from which this committer started.
	restored eventlog.Head
	loaded   atomic.Int64 // objects that Restore has loaded
	folded   atomic.Int64 // bytes of the batches that were folded

	// grown is closed and replaced when the tip moves.
	grown   atomic.Pointer[chan struct{}]
	arrived chan []*eventlog.Batch // batches that the log has, for the goroutine that moves the tip

	mu       sync.Mutex
	queue    []*pending
	gone     int             // proposals that were withdrawn since the queue was cleaned
	askers   askers          // they wait for the next confirmation that begins
	settlers []chan struct{} // each is closed when no append is in progress
	stopped  error
	stopping chan struct{}
	wake     chan struct{} // with capacity 1: there are proposals or settlers
	asked    chan struct{} // with capacity 1: there are askers
}

// pending is a proposal that waits or was sent.
type pending struct {
	*Proposal
	state   atomic.Int32
	outcome chan outcome // with capacity 1
	// confirmed is set when the tip was confirmed after the proposal was made: if it is refused now, that is final.
	confirmed bool
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
		arrived:  make(chan []*eventlog.Batch),
		stopping: make(chan struct{}), wake: make(chan struct{}, 1), asked: make(chan struct{}, 1), began: time.Now(),
	}
	c.confirmed.Store(-int64(MaxUnconfirmed) - 1) // nothing is confirmed yet
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	changed, grown := make(chan struct{}), make(chan struct{})
	c.policyChanged.Store(&changed)
	c.grown.Store(&grown)
	c.tip.Store(&Tip{Head: o.Log.Start(), Objects: o.Objects.State(), Policies: &policies.State{}, Quotas: &quotas.State{}})
	return c
}

// Tip returns the newest state that this replica knows.
func (c *Committer) Tip() *Tip { return c.tip.Load() }

// Quotas returns the usage of resource quotas at the tip.
func (c *Committer) Quotas() *quotas.State { return c.Tip().Quotas }

// Grown returns a channel that is closed when the tip moves after the call.
func (c *Committer) Grown() <-chan struct{} { return *c.grown.Load() }

// PolicyChanged returns a channel that is closed when a policy comes in force that differs from that of any tip read
// after the call.
func (c *Committer) PolicyChanged() <-chan struct{} { return *c.policyChanged.Load() }

// Objects returns the projection of objects, which the committer updates.
func (c *Committer) Objects() *objects.Store { return c.objects }

// Replay folds the log: from the position of Restore on, or else from the beginning, and at least up to what was its
// tip when Replay was called. It must be called once, before Run.
func (c *Committer) Replay(ctx context.Context) error {
	begun := time.Now()
	newest, err := c.log.ReadHead(ctx)
	if err == nil {
		err = checkNewest(c.Tip().Head, newest)
	}
	for err == nil && c.Tip().Revision() < newest.Revision {
		var batches []*eventlog.Batch
		if batches, err = c.log.CatchUp(ctx, c.Tip().Head); err == nil {
			err = c.apply(batches)
		}
	}
	if err == nil {
		c.noteConfirmed(begun)
	}
	return err
}

// Commit proposes an event and waits for the outcome. It returns the tip with the event, and the event's revision. The
// package comment lists its errors.
func (c *Committer) Commit(ctx context.Context, p *Proposal) (*Tip, uint64, error) {
	w := &pending{Proposal: p, outcome: make(chan outcome, 1)}
	if err := c.enqueue(c.wake, func() { c.queue = append(c.queue, w) }); err != nil {
		return nil, 0, err
	}
	select {
	case o := <-w.outcome:
		return o.tip, o.revision, o.err
	case <-ctx.Done():
	}
	for {
		if w.state.CompareAndSwap(waiting, withdrawn) {
			c.cleanQueue()
			return nil, 0, fmt.Errorf("%w: %w", status.ErrNotSent, context.Cause(ctx))
		}
		if w.state.CompareAndSwap(sent, abandoned) {
			return nil, 0, fmt.Errorf("%w: %w", status.ErrUndecided, context.Cause(ctx))
		}
		if w.state.Load() == withdrawn { // the outcome was decided just now
			o := <-w.outcome
			return o.tip, o.revision, o.err
		} // else it was sent, or its append was lost, between the two
	}
}

// cleanQueue drops proposals that were withdrawn, once they are more than the others: an append whose outcome the log
// does not tell may hold up the queue for long, and they have the objects of writes.
func (c *Committer) cleanQueue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone++; 2*c.gone <= len(c.queue) {
		return
	}
	c.gone = 0
	c.queue = slices.DeleteFunc(c.queue, func(p *pending) bool { return p.state.Load() == withdrawn })
}

// enqueue adds something to what the committer has to do, and wakes the goroutine that does it.
func (c *Committer) enqueue(wake chan struct{}, add func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		return c.stopped
	}
	add()
	signal(wake)
	return nil
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Run commits proposals until the context ends or the log cannot be followed, which it returns as an error. Proposals
// that still wait then are refused as not sent.
func (c *Committer) Run(ctx context.Context) (err error) {
	defer func() { c.stop(err) }()
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return c.move(ctx) })
	if !c.log.Exclusive() {
		running.Go(func() error { return c.follow(ctx) })
		running.Go(func() error { return c.confirm(ctx) })
	}
	return running.Wait()
}

// move moves the tip: by the batches of other replicas, and by appending proposals. While others write, it appends in
// turns with them. Later proposals join the next batch meanwhile.
func (c *Committer) move(ctx context.Context) error {
	clock := time.NewTicker(clockEvery)
	defer clock.Stop()
	if err := c.checkClock(ctx); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil { // there may be proposals all the time
			return err
		}
		if err := c.apply(c.log.AtHand(c.Tip().Head)); err != nil {
			return err
		}
		work := c.settle()
		var turn <-chan time.Time
		var line <-chan struct{}
		if work {
			wait, changed := c.log.Turn()
			if wait == 0 {
				if err := c.nextRound().run(ctx); err != nil {
					return err
				}
				continue
			}
			turn, line = time.After(wait), changed
		}
		select {
		case <-c.wake:
		case <-turn:
		case <-line:
		case batches := <-c.arrived:
			if err := c.applyNew(batches); err != nil {
				return err
			}
		case <-clock.C:
			if err := c.checkClock(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle tells the settlers that no append is in progress, and reports whether there are proposals.
func (c *Committer) settle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, done := range c.settlers {
		close(done)
	}
	c.settlers = nil
	return len(c.queue) > 0
}

func (c *Committer) stop(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = fmt.Errorf("%w: %w", status.ErrStopped, err)
	for _, w := range append(c.queue, c.askers.refused...) {
		w.refuse(fmt.Errorf("%w: %w", status.ErrNotSent, c.stopped))
	}
	c.queue, c.askers = nil, askers{}
	close(c.stopping)
}

// follow brings the batches of other replicas.
func (c *Committer) follow(ctx context.Context) error {
	var last eventlog.Head // what it has brought
	var told time.Time
	pause := shortPause
	for {
		after := c.Tip().Head
		if last.Revision > after.Revision {
			after = last
		}
		batches, err := c.log.Next(ctx, after)
		switch {
		case ctx.Err() != nil || eventlog.IsFatal(err):
			return err
		case err != nil: // the backend is unreachable, or a KMS plugin; what they tell after that is not lost
			if key := (*eventlog.KeyError)(nil); errors.As(err, &key) && time.Since(told) >= time.Minute {
				told = time.Now()
				c.logger.Error("this replica does not follow the log: it cannot decrypt what another one has written; it is tried again", "error", err)
			}
			sleep(ctx, pause)
			pause = min(2*pause, longPause)
		default:
			if err := c.bring(ctx, batches); err != nil {
				return err
			}
			last, pause = batches[len(batches)-1].Head(), shortPause
		}
	}
}

// Pauses between attempts to reach the log grow from shortPause to longPause.
const (
	shortPause = time.Millisecond
	longPause  = time.Second
)

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// bring hands batches to the goroutine that moves the tip.
func (c *Committer) bring(ctx context.Context, batches []*eventlog.Batch) error {
	select {
	case c.arrived <- batches:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Encode encodes an event for a [Proposal]. Contents that are encrypted at rest are sealed.
func (c *Committer) Encode(ctx context.Context, e *eventlog.Event) (*eventlog.Entry, error) {
	return c.log.Encode(ctx, e)
}

// Stale reports whether an object is encrypted in another way than it would be now, so that a write that changes nothing of it stores it
// again, as kube-apiserver does. Only kinds that are encrypted are looked at, because it reads the log.
func (c *Committer) Stale(ctx context.Context, o *objects.Object) (bool, error) {
	keys, of := c.log.Keys(), kindOf(o)
	if keys == nil || !of.Sensitive && !keys.Seals(of) {
		return false, nil
	}
	stale, err := c.log.Stale(ctx, o.Revision)
	if !errors.As(err, new(*eventlog.KeyError)) {
		err = nil // what cannot be read is not known to be stale
	}
	return stale && err == nil, err
}
