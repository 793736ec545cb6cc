package flow

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"stele.dev/stele/limits/fairqueue"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
)

// LevelState is what a priority level does at a moment.
type LevelState struct {
	*flows.Level
	// Draining is set if the policy in force does not have the level any more.
	Draining bool
	// Seats are its limits, its demand and the seats that it has.
	Seats SeatLevel
	// PerRequest is the maximum number of seats of one request; 0 for none.
	PerRequest int
	// Queues is what its queues do.
	Queues fairqueue.State
	// Refused counts refused requests since the server started.
	Refused Counts
	// RetryAfter is the Retry-After of refusals, in seconds.
	RetryAfter int64

	set *fairqueue.Set
}

// ListQueues returns the queues that have requests or seats.
func (l *LevelState) ListQueues() []fairqueue.QueueState { return l.set.Queues() }

// ListRequests returns the requests that wait or run. Their details are [*call.Asked].
func (l *LevelState) ListRequests() []fairqueue.Request { return l.set.Requests() }

// FlowState is what a flow does at a moment.
type FlowState struct {
	// Schema is the flow schema; only its name is set if no policy has it any more.
	Schema *flows.Schema
	// Level is the name of the level of which the flow has seats or waits for some.
	Level  string
	Exempt bool
	// FlowState is what its requests do.
	fairqueue.FlowState
	// Watches is the number of open watches.
	Watches int
	// Refused counts refused requests since First. Last is when the last one was refused.
	Refused     Counts
	First, Last time.Time
}

// Levels returns the priority levels by name.
func (c *Control) Levels() []LevelState {
	c.mu.Lock()
	defer c.mu.Unlock()
	states := make([]LevelState, 0, len(c.levels))
	for _, l := range c.ordered() {
		q := l.set.State()
		refused := Counts{int64(q.Refused.QueueFull), int64(q.Refused.ConcurrencyLimit), int64(q.Refused.TimeOut), int64(q.Refused.Cancelled), l.watchesRefused.Load()} // as in Reasons
		states = append(states, LevelState{Level: l.definition, Draining: l.draining, Seats: l.SeatLevel, PerRequest: l.perRequest(),
			Queues: q, Refused: refused, RetryAfter: l.backoff.current(), set: l.set})
	}
	return states
}

// Flows returns the flows that have requests or watches, or had requests refused of late, by schema and distinguisher.
func (c *Control) Flows() []FlowState {
	known := map[flowName]*FlowState{}
	get := func(n flowName) *FlowState {
		if known[n] == nil {
			known[n] = &FlowState{FlowState: fairqueue.FlowState{Schema: n.schema, Distinguisher: n.distinguisher}}
		}
		return known[n]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.levels {
		for _, f := range l.set.Flows() {
			if f.Executing == 0 && f.Waiting == 0 && f.Taken == 0 {
				continue
			}
			x := get(flowName{f.Schema, f.Distinguisher})
			x.Level, x.Exempt = l.name, l.exempt
			x.Taken, x.Executing, x.Waiting, x.WaitingSeats = x.Taken+f.Taken, x.Executing+f.Executing, x.Waiting+f.Waiting, x.WaitingSeats+f.WaitingSeats
			x.Waits, x.LongestWait = max(x.Waits, f.Waits), max(x.LongestWait, f.LongestWait)
		}
	}
	for schema, w := range c.watches {
		w.mu.Lock()
		for d, n := range w.open {
			get(flowName{schema, d}).Watches = n
		}
		w.mu.Unlock()
	}
	for n, r := range c.refused.all(time.Now()) {
		x := get(n)
		x.Refused, x.First, x.Last = r.counts, r.first, r.last
	}
	schemas := map[string]*flows.Schema{} // by name, of the newest policy that has it
	for _, x := range slices.Backward(*c.recent.Load()) {
		for s := range x.schemas {
			schemas[s.Name] = s
		}
	}
	states := make([]FlowState, 0, len(known))
	for n, x := range known {
		if x.Schema = schemas[n.schema]; x.Schema == nil {
			x.Schema = &flows.Schema{FlowSchema: policy.FlowSchema{Name: n.schema}}
		}
		if x.Level == "" && x.Schema.Level != nil {
			x.Level, x.Exempt = x.Schema.Level.Name, x.Schema.Level.Exempt
		}
		states = append(states, *x)
	}
	slices.SortFunc(states, func(a, b FlowState) int {
		return cmp.Or(strings.Compare(a.Schema.Name, b.Schema.Name), strings.Compare(a.Distinguisher, b.Distinguisher))
	})
	return states
}
