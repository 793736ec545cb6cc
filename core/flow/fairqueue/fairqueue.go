// Package fairqueue shares the seats of a priority level among flows, as API priority and fairness in Kubernetes does
// (KEP-1040): a request takes one or more seats while it runs, and waits in a queue while there are none. Each flow has few
// queues of many, and queues take turns by the seats and the time that their requests have used.
package fairqueue

import (
	"context"
	"sync"
	"time"
)

// Config configures a [Set].
type Config struct {
	// Seats is how many seats may be taken at a time.
	Seats int
	// Queues, HandSize and QueueLength say how requests wait: a flow has HandSize of the Queues, and a queue holds QueueLength
	// requests. Without queues, requests that find no seats are refused.
	Queues, HandSize, QueueLength int
	// Exempt is set if requests always run. Seats are only counted then.
	Exempt bool
}

// Work is what a request costs.
type Work struct {
	// Seats is how many seats the request takes while it runs; at least 1.
	Seats int
	// FinalSeats is how many seats it holds for After once it has ended, for work that it leaves behind.
	FinalSeats int
	After      time.Duration
}

// Flow is the flow that a request is part of.
type Flow struct {
	// Hash chooses the queues of the flow.
	Hash uint64
	// Schema and Distinguisher name the flow, for [Set.State].
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
	mu     sync.Mutex
	config Config
	taken  int
	freed  chan struct{} // closed when seats are freed
}

// New returns a set.
func New(c Config) *Set { return &Set{config: c, freed: make(chan struct{})} }

// Configure changes the configuration. Requests that wait stay in their queues.
func (s *Set) Configure(c Config) {
	s.mu.Lock()
	s.config = c
	s.wake()
	s.mu.Unlock()
}

func (s *Set) wake() {
	close(s.freed)
	s.freed = make(chan struct{})
}

// Ticket holds the seats of a request.
type Ticket struct {
	set  *Set
	work Work
	once sync.Once
}

// Take takes seats for a request. If there are none, it waits until there are, the context ends, or the request is refused
// with a [*RefusedError]. queued, if not nil, is called when the request enters a queue.
func (s *Set) Take(ctx context.Context, f Flow, w Work, queued func()) (*Ticket, error) {
	for {
		s.mu.Lock()
		if s.config.Exempt || s.taken == 0 || s.taken+w.Seats <= s.config.Seats {
			s.taken += w.Seats
			s.mu.Unlock()
			return &Ticket{set: s, work: w}, nil
		}
		freed := s.freed
		none := s.config.Queues == 0
		s.mu.Unlock()
		if none {
			return nil, &RefusedError{ConcurrencyLimit}
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, &RefusedError{TimeOut}
		}
	}
}

// Release ends the request: its seats are free, or are held for a while as final seats. Later calls do nothing.
func (t *Ticket) Release() {
	t.once.Do(func() {
		t.set.mu.Lock()
		t.set.taken -= t.work.Seats
		t.set.wake()
		t.set.mu.Unlock()
	})
}

// State is what a set does at a moment.
type State struct {
	Config
	// Taken is the number of seats that are taken, also as final seats.
	Taken int
	// Executing and Waiting are the numbers of requests.
	Executing, Waiting int
}

// State returns what the set does now.
func (s *Set) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Config: s.config, Taken: s.taken}
}
