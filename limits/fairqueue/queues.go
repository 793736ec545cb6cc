package fairqueue

import (
	"container/heap"
	"math"
	"time"
)

// estimate is how long a request is expected to run, until it has ended. Any value would be right in the long run; this one
// is kube-apiserver's.
const estimate = 3 * time.Millisecond

// reserve is how much of the places of a set one flow can have: at most reserve times as many as are free. So flows that
// fill the set leave places for others, the more the fewer they are.
const reserve = 4

// leadOfFlows is by how much of the typical work of requests a request may begin before the present reading of the meter.
const leadOfFlows = 4

// progress is an amount of work, or a reading of the meter of it, in units of 10 ns of one seat. It is as exact as
// kube-apiserver's, so that both give the same turns.
type progress int64

// rewindAt is the reading at which all readings are reduced, so that none overflows.
const rewindAt progress = 1 << 61

// workOf returns the work of seats in a time. Seats may be a fraction.
func workOf(seats float64, d time.Duration) progress {
	return progress(math.Round(seats * float64(d) / 10))
}

// seconds returns seat-seconds.
func (p progress) seconds() float64 { return float64(p) / 1e8 }

// advance moves the meter of progress and the moments of demand to the present, and returns it, as the time since the start
// of the set. It is called before anything is changed. mu is held.
func (s *Set) advance() time.Duration {
	now := time.Since(s.start)
	d := now - s.last
	if d <= 0 {
		return now
	}
	s.last = now
	s.demand.add(d, s.taken+s.waitingSeats)
	if s.active > 0 {
		s.r += workOf(float64(min(s.used(), s.config.Seats))/float64(s.active), d)
		if s.r >= rewindAt {
			s.rewind()
		}
	}
	return now
}

// used returns the seats that move the meter: those that are taken.
//
// kube-apiserver adds those that requests wait for. But seats can be free while a request waits for more of them than there
// are. Counted as used, they would move the meter ahead of flows whose requests take many seats, and then these would go
// before a flow that needs one seat.
func (s *Set) used() int {
	if s.lead == 0 { // as in kube-apiserver
		return s.taken + s.waitingSeats
	}
	return s.taken
}

// rewind sets the meter to zero. It takes the same from all readings of it.
func (s *Set) rewind() {
	for _, f := range s.flows.named {
		f.start -= s.r
		for t := f.head; t != nil; t = t.next {
			t.arrivedAt -= s.r
		}
	}
	s.r = 0
}

// arrive lets a new request run or wait, or returns the reason why it is refused. mu is held.
func (s *Set) arrive(t *Ticket, now time.Duration) string {
	t.bound(s.config)
	f := t.flow
	switch {
	case (s.waiting == 0 || s.config.Queues == 0 || s.config.Exempt) && s.fits(t.seats):
		s.begin(f)
		s.run(t, now)
		return ""
	case s.config.Queues == 0:
		return ConcurrencyLimit
	case s.full(f):
		return QueueFull
	}
	s.enter(t)
	s.dispatch(now)
	if t.phase == waiting {
		t.ready, t.length = make(chan struct{}), t.flow.waiting
	}
	return ""
}

// bound sets the seats of a request that does not run yet, by the maximum for a request.
func (t *Ticket) bound(c Config) {
	w := t.wanted
	if w.Seats = max(w.Seats, 1); c.PerRequest > 0 {
		w.Seats, w.FinalSeats = min(w.Seats, c.PerRequest), min(w.FinalSeats, c.PerRequest)
	}
	t.work, t.seats = w, max(w.Seats, w.FinalSeats)
	t.total = workOf(float64(w.Seats), estimate) + workOf(float64(w.FinalSeats), w.After)
}

// bound sets the seats of the requests that wait, after the maximum has changed. mu is held.
func (s *Set) bound() {
	for _, f := range s.backlog {
		for t := f.head; t != nil; t = t.next {
			s.countWaiting(t, -1)
			t.bound(s.config)
			s.countWaiting(t, 1)
		}
	}
	heap.Init(&s.backlog)
	s.demand.observe(s.taken + s.waitingSeats)
}

// full reports whether no more requests of a flow can wait.
func (s *Set) full(f *flow) bool {
	c := s.config
	free := c.Queues*c.QueueLength - s.waiting
	return f.waiting >= c.HandSize*c.QueueLength || f.waiting >= reserve*free
}

// begin is called when a request of a flow arrives, and returns the reading at which it can start in the virtual world. With
// none before it in its queue, the flow starts no earlier.
//
// kube-apiserver takes the present reading of the meter. But the flows that always have requests have got that much on
// average, and many are behind: a flow that needs little would wait until they all have had a turn. So it begins at the
// reading of the flow whose turn is next. It cannot use that to get more than others, because its start counts all that it
// has used. And it cannot begin more than the typical work of few requests before the present, or new flows without end would
// keep others from ever having a turn.
func (s *Set) begin(f *flow) progress {
	at := s.r
	if len(s.backlog) > 0 {
		at = min(s.r, max(s.backlog[0].start, s.r-s.lead*s.typical))
	}
	if !f.active() {
		f.start = min(f.start, s.r) // what it used more than its share is forgotten, as in kube-apiserver
		s.active++
	}
	if f.waiting == 0 {
		f.start = max(f.start, at)
	}
	return at
}

// enter puts a request at the end of its flow's queue.
func (s *Set) enter(t *Ticket) {
	f := t.flow
	t.arrivedAt = s.begin(f)
	t.phase = waiting
	if t.previous = f.tail; f.tail == nil {
		f.head = t
	} else {
		f.tail.next = t
	}
	f.tail = t
	s.countWaiting(t, 1)
	s.demand.observe(s.taken + s.waitingSeats)
	if f.waiting == 1 {
		heap.Push(&s.backlog, f)
	}
}

// leave takes a request out of the queue. The caller calls order.
func (s *Set) leave(t *Ticket) {
	f := t.flow
	if t.previous == nil {
		f.head = t.next
	} else {
		t.previous.next = t.next
	}
	if t.next == nil {
		f.tail = t.previous
	} else {
		t.next.previous = t.previous
	}
	t.previous, t.next = nil, nil
	s.countWaiting(t, -1)
	if f.waiting == 0 {
		heap.Remove(&s.backlog, f.place)
	}
}

// order corrects the place of a flow in the backlog, after its first request or its start has changed.
func (s *Set) order(f *flow) {
	if f.waiting > 0 {
		f.bound()
		heap.Fix(&s.backlog, f.place)
	}
}

// countWaiting adds a request to those that wait, or with -1 removes it.
func (s *Set) countWaiting(t *Ticket, sign int) {
	seats := sign * t.seats
	s.waiting += sign
	s.waitingSeats += seats
	t.flow.waiting += sign
	t.flow.waitingSeats += seats
	t.flow.waitingWork += progress(sign) * t.total
}

// fits reports whether there are seats. A request that needs more than all seats runs when no other does.
func (s *Set) fits(seats int) bool {
	switch {
	case s.config.Exempt:
		return true
	case seats > s.config.Seats:
		return s.executing == 0 && s.taken < s.config.Seats
	}
	return s.taken+seats <= s.config.Seats
}

// dispatch lets as many requests run as possible. mu is held.
func (s *Set) dispatch(now time.Duration) {
	for s.waiting > 0 && (s.taken < s.config.Seats || s.config.Exempt) {
		f := s.backlog[0]
		t := f.head
		if !s.fits(t.seats) {
			if s.charge(f, now) && s.backlog[0] != f {
				continue
			}
			return // others do not pass it, or it would wait for ever
		}
		s.leave(t)
		s.run(t, now)
		s.order(f)
		if t.ready != nil {
			f.waited(now - t.arrived)
			close(t.ready)
		}
	}
}

// charge adds to the start of a flow that waits for what its requests have used longer than was expected, and reports whether
// there was any. Otherwise requests that run for long would let the next ones of their flow go before those of all others.
//
// kube-apiserver does that only when a request has ended.
func (s *Set) charge(f *flow, now time.Duration) (charged bool) {
	if s.lead == 0 || f.executing == 0 { // as in kube-apiserver
		return false
	}
	for t := s.running; t != nil; t = t.next {
		if ran := now - t.started; t.flow == f && ran > t.charged {
			f.start += workOf(float64(t.work.Seats), ran-t.charged)
			t.charged, charged = ran, true
		}
	}
	if charged {
		s.order(f)
	}
	return charged
}

// limitFinal reduces final seats to the limit, and holds them for longer, so that the work is the same.
func (t *Ticket) limitFinal(c Config) {
	w := &t.work
	if w.FinalSeats <= c.Seats || c.Exempt {
		return
	}
	w.After = time.Duration(float64(workOf(float64(w.FinalSeats), w.After)) / float64(c.Seats) * 10)
	w.FinalSeats = c.Seats
	t.seats = max(w.Seats, w.FinalSeats)
}

// run lets a request run that waits no more, of a flow that is active. mu is held.
func (s *Set) run(t *Ticket, now time.Duration) {
	t.limitFinal(s.config)
	t.phase, t.started, t.charged = running, now, estimate
	s.executing++
	s.dispatched++
	s.taken += t.seats
	s.demand.observe(s.taken + s.waitingSeats)
	f := t.flow
	f.executing++
	f.dispatched++
	f.seats += t.seats
	f.start += t.total
	f.turn = s.dispatched
	if t.next = s.running; t.next != nil {
		t.next.previous = t
	}
	s.running = t
}

// end takes a request from those that run, and corrects the estimate of its work. Its seats stay taken. mu is held.
func (s *Set) end(t *Ticket, now time.Duration) {
	t.phase = ended
	if t.previous == nil {
		s.running = t.next
	} else {
		t.previous.next = t.next
	}
	if t.next != nil {
		t.next.previous = t.previous
	}
	t.previous, t.next = nil, nil
	s.executing--
	f := t.flow
	f.executing--
	f.start -= workOf(float64(t.work.Seats), t.charged-(now-t.started))
	work := workOf(float64(t.work.Seats), now-t.started) + workOf(float64(t.work.FinalSeats), t.work.After)
	s.typical += (work - s.typical) / 16
	s.order(f)
	s.settleFlow(f)
}

// settleFlow is called when a request of an active flow ended or left: the flow may have no others.
func (s *Set) settleFlow(f *flow) {
	if !f.active() {
		s.active--
	}
}

// free gives seats back. mu is held.
func (s *Set) free(f *flow, seats int) {
	s.taken -= seats
	f.seats -= seats
	s.flows.settle(f)
}

// backlog is a heap of the flows with requests that wait.
type backlog []*flow

func (b backlog) Len() int { return len(b) }

// Less reports whether the first request of a flow is before that of another: the first to end in the virtual world. If both
// end at the same reading, the flow is before that was served longer ago.
func (b backlog) Less(i, j int) bool {
	x, y := b[i], b[j]
	xEnd, yEnd := x.start+x.head.total, y.start+y.head.total
	return xEnd < yEnd || xEnd == yEnd && (x.turn < y.turn || x.turn == y.turn && x.number < y.number)
}

func (b backlog) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].place, b[j].place = i, j
}

func (b *backlog) Push(f any) {
	f.(*flow).place = len(*b)
	*b = append(*b, f.(*flow))
}

func (b *backlog) Pop() any {
	last := len(*b) - 1
	f := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return f
}
