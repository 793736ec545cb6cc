package fairqueue

import (
	"slices"
	"strings"
	"time"
)

// remembered is how many flows without requests and seats a set remembers.
const remembered = 1000

// flowName names a flow.
type flowName struct{ schema, distinguisher string }

// flow is the queue of a flow, and counts its requests. Set.mu guards it.
type flow struct {
	name   flowName
	number int

	start progress // when the next request starts in the virtual world; without meaning if the flow is not active
	turn  uint64   // Set.dispatched when it was served last
	place int      // in Set.backlog, while requests wait

	head, tail   *Ticket // those that wait
	waiting      int
	waitingSeats int
	waitingWork  progress

	executing int
	seats     int // of requests that run, and final seats

	longest    time.Duration
	dispatched uint64
	refused    Refusals

	previous, next *flow // in flowTable.idle, while it has no requests and seats
}

// active reports whether the flow has requests that wait or run.
func (f *flow) active() bool { return f.waiting > 0 || f.executing > 0 }

// bound keeps the first request that waits from starting before it arrived: what a flow could not use is not credited.
func (f *flow) bound() { f.start = max(f.start, f.head.arrivedAt) }

// waited notes how long a request has waited.
func (f *flow) waited(d time.Duration) { f.longest = max(f.longest, d) }

// flowTable finds flows by name. It keeps those that have requests or seats, and some others.
type flowTable struct {
	named map[flowName]*flow
	last  int // number of the newest flow
	// idle is the ring of the flows without requests and seats, the latest first. It is itself no flow.
	idle  *flow
	count int // in the ring
}

// newFlowTable returns a table without flows.
func newFlowTable() flowTable {
	ring := &flow{}
	ring.previous, ring.next = ring, ring
	return flowTable{named: map[flowName]*flow{}, idle: ring}
}

// get returns a flow, and takes it from the ring. The caller counts a request, or calls rest.
func (t *flowTable) get(f Flow) *flow {
	known := t.named[flowName{f.Schema, f.Distinguisher}]
	if known == nil {
		t.last++
		known = &flow{name: flowName{strings.Clone(f.Schema), strings.Clone(f.Distinguisher)}, number: t.last}
		t.named[known.name] = known
		return known
	}
	if known.next != nil {
		t.unlink(known)
	}
	return known
}

// settle puts a flow into the ring if it has no requests and seats, and forgets the oldest in it if there are too many.
func (t *flowTable) settle(f *flow) {
	if f.active() || f.seats > 0 || f.next != nil {
		return
	}
	f.previous, f.next = t.idle, t.idle.next
	f.next.previous, t.idle.next = f, f
	t.count++
	if t.count > remembered {
		oldest := t.idle.previous
		t.unlink(oldest)
		delete(t.named, oldest.name)
	}
}

// unlink takes a flow from the ring.
func (t *flowTable) unlink(f *flow) {
	f.previous.next, f.next.previous = f.next, f.previous
	f.previous, f.next = nil, nil
	t.count--
}

// busy returns the flows with requests or seats, by number.
func (t *flowTable) busy() []*flow {
	var busy []*flow
	for _, f := range t.named {
		if f.next == nil {
			busy = append(busy, f)
		}
	}
	slices.SortFunc(busy, func(a, b *flow) int { return a.number - b.number })
	return busy
}
