package fairqueue

import (
	"math"
	"time"
)

// Refusals counts requests that got no seats, by reason.
type Refusals struct {
	QueueFull, ConcurrencyLimit, TimeOut, Cancelled uint64
}

// Total returns how many requests were refused.
func (r Refusals) Total() uint64 { return r.QueueFull + r.ConcurrencyLimit + r.TimeOut + r.Cancelled }

// add counts one more.
func (r *Refusals) add(reason string) {
	switch reason {
	case QueueFull:
		r.QueueFull++
	case ConcurrencyLimit:
		r.ConcurrencyLimit++
	case TimeOut:
		r.TimeOut++
	case Cancelled:
		r.Cancelled++
	}
}

// State is what a set does at a moment.
type State struct {
	Config
	// Taken is the number of seats that are taken, also as final seats.
	Taken int
	// Executing and Waiting are the numbers of requests.
	Executing, Waiting int
	// WaitingSeats is how many seats the requests that wait would take.
	WaitingSeats int
	// Dispatched and Refused count requests since the start of the set.
	Dispatched uint64
	Refused    Refusals
	// Progress is the reading of the meter R, in seat-seconds for each queue. It is set back now and then.
	Progress float64
}

// Idle reports whether no request waits or runs, and no seats are held as final seats.
func (s State) Idle() bool { return s.Executing == 0 && s.Waiting == 0 && s.Taken == 0 }

// State returns what the set does now.
func (s *Set) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	return State{Config: s.config, Taken: s.taken, Executing: s.executing, Waiting: s.waiting, WaitingSeats: s.waitingSeats,
		Dispatched: s.dispatched, Refused: s.refused, Progress: s.r.seconds()}
}

// Demand says how many seats were wanted over a time: those that were taken, and those that requests waited for.
type Demand struct {
	// Duration is the time.
	Duration time.Duration
	// Max is the high watermark.
	Max int
	// Average is weighted by time, and Deviation is the standard deviation. In no time, the average is the demand now.
	Average, Deviation float64
}

// Demand returns the demand for seats since the last call of Demand, or since the set was created.
func (s *Set) Demand() Demand {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	return s.demand.reset(s.taken + s.waitingSeats)
}

// moments are integrals of the demand over time.
type moments struct {
	duration    time.Duration
	sum, square float64 // of demand and its square, in nanoseconds
	max         int
}

// add adds a time of a constant demand.
func (m *moments) add(d time.Duration, demand int) {
	m.duration += d
	work := float64(demand) * float64(d)
	m.sum += work
	m.square += float64(demand) * work
}

// observe notes a new demand.
func (m *moments) observe(demand int) { m.max = max(m.max, demand) }

// reset returns the results and begins anew.
func (m *moments) reset(demand int) Demand {
	r := Demand{Duration: m.duration, Max: m.max, Average: float64(demand)}
	if m.duration > 0 {
		r.Average = m.sum / float64(m.duration)
		r.Deviation = math.Sqrt(max(0, m.square/float64(m.duration)-r.Average*r.Average))
	}
	*m = moments{max: demand}
	return r
}

// QueueState is what the queue of a flow does at a moment.
type QueueState struct {
	// Index is the number of the queue, from 1. It does not change while the set remembers the flow.
	Index                 int
	Schema, Distinguisher string
	// Start is the reading of the meter R at which the next request starts in the virtual world, in seat-seconds.
	Start float64
	// Taken is the number of seats that are taken, also as final seats.
	Taken int
	// Executing and Waiting are the numbers of requests.
	Executing, Waiting int
	// WaitingSeats is how many seats the requests that wait would take, and WaitingWork their estimated work in seat-seconds.
	WaitingSeats int
	WaitingWork  float64
}

// Queues returns what the queues do now, by number. A queue without requests and seats is not listed.
func (s *Set) Queues() []QueueState {
	s.mu.Lock()
	defer s.mu.Unlock()
	var states []QueueState
	for _, f := range s.flows.busy() {
		states = append(states, QueueState{Index: f.number, Schema: f.name.schema, Distinguisher: f.name.distinguisher,
			Start: f.start.seconds(), Taken: f.seats, Executing: f.executing, Waiting: f.waiting, WaitingSeats: f.waitingSeats,
			WaitingWork: f.waitingWork.seconds()})
	}
	return states
}

// Request is a request that waits or runs.
type Request struct {
	Schema, Distinguisher string
	// Queue is the number of its flow's queue. Position is its position among the requests that wait in it, from 0.
	Queue, Position int
	Work            Work
	// Arrived is when the request arrived. Started is when it got its seats; it is zero if it waits.
	Arrived, Started time.Time
	// Details are those of the [Ticket].
	Details any
}

// Requests returns the requests that wait, in the order of their queues, and then those that run, the latest first. It holds
// up the set for so long.
func (s *Set) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := make([]Request, 0, s.waiting+s.executing)
	for _, f := range s.flows.busy() {
		position := 0
		for t := f.head; t != nil; t = t.next {
			requests = append(requests, t.show(position))
			position++
		}
	}
	for t := s.running; t != nil; t = t.next {
		requests = append(requests, t.show(0))
	}
	return requests
}

// show returns what is shown of a request.
func (t *Ticket) show(position int) Request {
	r := Request{Schema: t.flow.name.schema, Distinguisher: t.flow.name.distinguisher, Queue: t.flow.number, Position: position,
		Work: t.work, Arrived: t.set.start.Add(t.arrived), Details: t.Details}
	if t.phase == running {
		r.Started = t.set.start.Add(t.started)
	}
	return r
}

// FlowState is what the requests of a flow do at a moment, and what was done with them as long as the set remembers it.
type FlowState struct {
	Schema, Distinguisher string
	// Taken is the number of seats that are taken, also as final seats.
	Taken int
	// Executing and Waiting are the numbers of requests.
	Executing, Waiting int
	// WaitingSeats is how many seats the requests that wait would take.
	WaitingSeats int
	// Waits is how long the oldest of the requests that wait has waited. LongestWait is how long any request has waited, also
	// those that run, have ended, or were refused.
	Waits, LongestWait time.Duration
	// Dispatched and Refused count requests since the set remembers the flow.
	Dispatched uint64
	Refused    Refusals
}

// Flows returns the flows that have requests or seats, and those that the set remembers from before, in no order. A set
// remembers the last thousand.
func (s *Set) Flows() []FlowState {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.advance()
	states := make([]FlowState, 0, len(s.flows.named))
	for _, f := range s.flows.named {
		var waits time.Duration
		if f.head != nil {
			waits = now - f.head.arrived
		}
		states = append(states, FlowState{Schema: f.name.schema, Distinguisher: f.name.distinguisher, Taken: f.seats,
			Executing: f.executing, Waiting: f.waiting, WaitingSeats: f.waitingSeats, Waits: waits,
			LongestWait: max(f.longest, waits), Dispatched: f.dispatched, Refused: f.refused})
	}
	return states
}
