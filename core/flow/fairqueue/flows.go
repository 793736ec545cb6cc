package fairqueue

import (
	"strings"
	"time"
)

// remembered is how many flows without requests and seats a set remembers.
const remembered = 1000

// flowName names a flow.
type flowName struct{ schema, distinguisher string }

// flow counts the requests of a flow. Set.mu guards it.
type flow struct {
	name         flowName
	executing    int
	seats        int // also final seats
	waiting      int
	waitingSeats int
	longest      time.Duration
	dispatched   uint64
	refused      Refusals

	previous, next *flow // in flowTable.idle, while it has no requests and seats
}

// waited notes how long a request has waited.
func (f *flow) waited(d time.Duration) { f.longest = max(f.longest, d) }

// flowTable finds flows by name. It keeps those that have requests or seats, and some others.
type flowTable struct {
	named map[flowName]*flow
	idle  *flow // ring of the flows without requests and seats, from the one that is so for the shortest time; idle itself is no flow
	count int   // in the ring
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
		known = &flow{name: flowName{strings.Clone(f.Schema), strings.Clone(f.Distinguisher)}}
		t.named[known.name] = known
		return known
	}
	if known.next != nil {
		t.unlink(known)
	}
	return known
}

// rest puts a flow into the ring if it has no requests and seats, and forgets the oldest in it if there are too many.
func (t *flowTable) rest(f *flow) {
	if f.executing > 0 || f.waiting > 0 || f.seats > 0 || f.next != nil {
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
