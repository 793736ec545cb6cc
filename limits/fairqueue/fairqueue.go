// Package fairqueue shares the seats of a priority level among flows, as API priority and fairness in Kubernetes does
// (KEP-1040): a request takes one or more seats while it runs, and waits while there are none. Flows take turns by the seats
// and the time that their requests have used.
//
// Fairness is computed in a virtual world in which all flows that have requests run at the same time, each at the same
// speed. The progress meter R says how many seat-seconds each of them has got since the start. It grows by
// min(seats, demand) / flows seat-seconds per second. A flow has the reading of R at which its next request starts in the
// virtual world. That grows by the work of each request that starts, which is an estimate, and is corrected by the real
// duration when the request ends. In the real world, the request that is first to end in the virtual world is the next to
// run.
//
// kube-apiserver computes the same for queues instead of flows: it chooses one of few queues of each flow by shuffle
// sharding. If flows share no queues, both give the same turns. If they do, a flow waits behind the requests of others there.
// Here each flow has a queue of its own.
package fairqueue

import (
	"context"
	"sync"
	"time"
)

// Config configures a [Set].
type Config struct {
	// Seats is how many seats may be taken at a time. With none, no request runs.
	Seats int
	// PerRequest is how many seats one request takes at most, whatever work it is; 0 for no maximum. It bounds requests that wait,
	// too: when it changes, they take as many as if they arrived now.
	PerRequest int
	// Queues, HandSize and QueueLength say how many requests can wait: Queues*QueueLength in all, and HandSize*QueueLength of
	// one flow, and fewer of it while many others wait. Without queues, requests that find no seats are refused. The set uses
	// at least one for HandSize and QueueLength, and at most Queues for HandSize.
	Queues, HandSize, QueueLength int
	// Exempt is set if requests always run. Seats are only counted then.
	Exempt bool
}

// Work is what a request costs.
type Work struct {
	// Seats is how many seats the request takes while it runs; at least 1.
	Seats int
	// FinalSeats is how many seats it holds for After once it has ended, for work that it leaves behind. If they are more than
	// Seats, the request takes so many while it runs, too.
	FinalSeats int
	After      time.Duration
}

// Flow is the flow that a request is part of.
type Flow struct {
	// Schema and Distinguisher name the flow.
	Schema, Distinguisher string
}

// The reasons why a request gets no seats, as in kube-apiserver's metric apiserver_flowcontrol_rejected_requests_total.
const (
	QueueFull        = "queue-full"
	ConcurrencyLimit = "concurrency-limit"
	TimeOut          = "time-out"
	Cancelled        = "cancelled"
)

// RefusedError is the error of a request that gets no seats.
type RefusedError struct{ Reason string }

// Error returns the reason.
func (e *RefusedError) Error() string { return "no seats: " + e.Reason }

// Set is the queues and seats of one priority level. It is safe for concurrent use.
type Set struct {
	start time.Time // other times are durations since start

	mu     sync.Mutex
	config Config
	last   time.Duration // when r and demand were last advanced

	r       progress // what each active flow has got, in the virtual world
	typical progress // moving average of the work of requests
	lead    progress // how much of it requests may begin before r; leadOfFlows
	active  int      // flows with requests that wait or run
	backlog backlog

	taken        int // seats taken by requests that run, or held as final seats
	waitingSeats int
	waiting      int
	executing    int
	running      *Ticket // list of requests that run
	dispatched   uint64
	refused      Refusals

	demand moments
	flows  flowTable
}

// New returns a set.
func New(c Config) *Set {
	s := &Set{start: time.Now(), lead: leadOfFlows, flows: newFlowTable()}
	s.configure(c)
	return s
}

// Configure changes the configuration. Requests that wait go on to wait, also if they are more than the new configuration
// allows. Requests that run keep their seats, also if they are more than the new limit.
func (s *Set) Configure(c Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.advance()
	s.configure(c)
	s.dispatch(now)
}

// SetSeats changes how many seats the set has, and how many one request takes at most; 0 for no maximum.
func (s *Set) SetSeats(seats, perRequest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.advance()
	c := s.config
	c.Seats, c.PerRequest = seats, perRequest
	s.configure(c)
	s.dispatch(now)
}

// configure takes a configuration over. mu is held, except in New.
func (s *Set) configure(c Config) {
	c.Seats, c.PerRequest, c.Queues = max(c.Seats, 0), max(c.PerRequest, 0), max(c.Queues, 0)
	if c.Queues > 0 {
		c.QueueLength, c.HandSize = max(c.QueueLength, 1), min(max(c.HandSize, 1), c.Queues)
	}
	bounded := s.config.PerRequest
	if s.config = c; c.PerRequest != bounded {
		s.bound()
	}
}

// The phases of a ticket.
const (
	unused = iota
	waiting
	running
	paused
	ended
)

// Ticket holds the seats of a request. Its zero value is ready for [Set.Take]. It must not be copied after that. It can be
// used again after [Ticket.Release], or if Take has returned an error.
type Ticket struct {
	// Details is what [Set.Requests] shows of the request. It must not be changed between Take and Release, nor what it points
	// to.
	Details any

	set *Set

	// The others are guarded by set.mu.
	phase     int
	flow      *flow
	previous  *Ticket
	next      *Ticket  // in the flow's queue while the request waits, in set.running while it runs
	wanted    Work     // without a maximum
	work      Work     // with it
	seats     int      // what it takes while it runs
	total     progress // estimate of all its work
	arrivedAt progress
	arrived   time.Duration
	started   time.Duration
	charged   time.Duration // how long the start of the flow counts it to run; estimate, or more once it has run longer
	ready     chan struct{} // closed when the request starts; nil if it starts at once
	length    int           // of the queue, when the request had entered it; 0 if it did not wait
}

// QueueLength returns how many requests waited in the queue of the request when it had entered it, with itself. It returns 0
// if the request did not wait. It is called after [Set.Take] has returned.
func (t *Ticket) QueueLength() int { return t.length }

// Seats returns how many seats the request takes, or would have taken if it was refused. It is called after [Set.Take] has
// returned.
func (t *Ticket) Seats() int { return t.seats }

// Take takes seats for a request, which t holds from then on. Without free seats the request waits: until there are some,
// until the context ends, or for the time wait at most; 0 is no limit. A request that gets no seats is refused with a
// [*RefusedError]. queued, if not nil, is called once if the request waits.
func (s *Set) Take(ctx context.Context, t *Ticket, f Flow, w Work, wait time.Duration, queued func()) error {
	s.mu.Lock()
	now := s.advance()
	*t = Ticket{Details: t.Details, set: s, flow: s.flows.get(f), wanted: w, arrived: now}
	reason := s.arrive(t, now)
	if reason != "" {
		s.refuse(t, reason)
	}
	waits := t.phase == waiting
	s.mu.Unlock()
	switch {
	case reason != "":
		return &RefusedError{reason}
	case !waits:
		return nil
	}
	if queued != nil {
		queued()
	}
	return s.await(ctx, t, wait)
}

// await waits until a request that is in a queue runs or is refused.
func (s *Set) await(ctx context.Context, t *Ticket, wait time.Duration) error {
	var late <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		late = timer.C
	}
	reason := TimeOut
	select {
	case <-t.ready:
		return nil
	case <-late:
	case <-ctx.Done():
		if ctx.Err() != context.DeadlineExceeded {
			reason = Cancelled
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase != waiting {
		return nil // it got its seats first
	}
	now := s.advance()
	s.leave(t)
	s.order(t.flow)
	s.settleFlow(t.flow)
	s.refuse(t, reason)
	s.dispatch(now) // what is behind it may need fewer seats
	return &RefusedError{reason}
}

// refuse ends a ticket that neither waits nor runs. mu is held.
func (s *Set) refuse(t *Ticket, reason string) {
	t.phase = ended
	s.refused.add(reason)
	t.flow.refused.add(reason)
	t.flow.waited(s.last - t.arrived)
	s.flows.settle(t.flow)
	t.flow = nil
}

// Pause gives back the seats of a request that runs, while it waits for somebody else than this server. It goes on with
// [Ticket.Resume], or ends with [Ticket.Release].
func (t *Ticket) Pause() {
	s := t.set
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase != running {
		return
	}
	now := s.advance()
	s.end(t, now)
	t.phase = paused
	s.free(t.flow, t.seats)
	s.dispatch(now)
}

// Resume takes the seats of a paused request again. It does not wait, because the request had its turn, and others could
// keep it waiting until its time is over: for a moment, more seats may be taken than there are. Until they are given back,
// no other request begins.
func (t *Ticket) Resume() {
	s := t.set
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase != paused {
		return
	}
	now := s.advance()
	name := t.flow.name
	t.flow = s.flows.get(Flow{Schema: name.schema, Distinguisher: name.distinguisher}) // the set may have forgotten it
	s.begin(t.flow)
	s.run(t, now)
	s.dispatched-- // it was counted when it began
	t.flow.dispatched--
}

// Release ends the request: its seats are free, or are held for a while as final seats. Later calls do nothing, as do those
// for a ticket that has no seats.
func (t *Ticket) Release() {
	s := t.set
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase != running {
		t.phase = ended // it may have been paused
		return
	}
	now := s.advance()
	s.end(t, now)
	f, free := t.flow, t.seats
	t.flow = nil
	if held := t.work.FinalSeats; held > 0 && t.work.After > 0 {
		free -= held
		time.AfterFunc(t.work.After, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			now := s.advance()
			s.free(f, held)
			s.dispatch(now)
		})
	}
	s.free(f, free)
	s.dispatch(now)
}
