package fairqueue

import (
	"math"
	"time"
)

// estimate is how long a request is expected to run, until it has ended. Any value would be right in the long run; this one
// is kube-apiserver's.
const estimate = 3 * time.Millisecond

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

// queue holds requests in order of arrival, and counts those that have left it to run.
type queue struct {
	index int
	start progress // when the next request starts in the virtual world; without meaning if the queue is not active

	head, tail   *Ticket
	waiting      int
	waitingSeats int
	waitingWork  progress
	place        int // in Set.backlog, while requests wait

	executing int
	seats     int // of requests that run, and final seats
}

// active reports whether the queue has requests that wait or run.
func (q *queue) active() bool { return q.waiting > 0 || q.executing > 0 }

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
		s.r += workOf(float64(min(s.queued+s.waitingSeats, s.config.Seats))/float64(s.active), d)
		if s.r >= rewindAt {
			s.rewind()
		}
	}
	return now
}

// rewind sets the meter to zero. It takes the same from all readings of it.
func (s *Set) rewind() {
	for _, q := range s.queues {
		if q == nil {
			continue
		}
		q.start -= s.r
		for t := q.head; t != nil; t = t.next {
			t.arrivedAt -= s.r
		}
	}
	s.r = 0
}

// arrive lets a new request run or wait, or returns the reason why it is refused. mu is held.
func (s *Set) arrive(t *Ticket, hash uint64, now time.Duration) string {
	w := &t.work
	w.Seats = max(w.Seats, 1)
	t.seats = max(w.Seats, w.FinalSeats)
	t.total = workOf(float64(w.Seats), estimate) + workOf(float64(w.FinalSeats), w.After)
	if s.dealer == nil || s.config.Exempt {
		if !s.fits(t.seats) {
			return ConcurrencyLimit
		}
		s.run(t, now)
		return ""
	}
	q := s.deal(hash)
	if q.waiting >= s.config.QueueLength {
		return QueueFull
	}
	s.enter(t, q)
	s.dispatch(now)
	if t.phase == waiting {
		t.ready, t.length = make(chan struct{}), q.waiting
	}
	return ""
}

// deal returns the queue for a request: of those of its flow, the one in which the least work waits.
func (s *Set) deal(hash uint64) *queue {
	var space [16]int
	hand := s.dealer.DealIntoHand(hash, space[:])
	// The hand is looked at from another card each time, so that no queue is preferred.
	first := int(s.dealt % uint64(len(hand)))
	s.dealt++
	var best *queue
	for i := range hand {
		at := first + i
		if at >= len(hand) {
			at -= len(hand)
		}
		q := s.queues[hand[at]]
		if q == nil {
			q = &queue{index: hand[at]}
			s.queues[hand[at]] = q
		}
		if q.waiting == 0 {
			return q
		}
		if best == nil || q.waitingWork < best.waitingWork {
			best = q
		}
	}
	return best
}

// enter puts a request at the end of a queue.
func (s *Set) enter(t *Ticket, q *queue) {
	if !q.active() {
		q.start = s.r
		s.active++
	}
	t.phase, t.queue, t.arrivedAt = waiting, q, s.r
	if t.previous = q.tail; q.tail == nil {
		q.head = t
		q.place = len(s.backlog)
		s.backlog = append(s.backlog, q)
	} else {
		q.tail.next = t
	}
	q.tail = t
	s.countWaiting(t, 1)
	s.demand.observe(s.taken + s.waitingSeats)
	s.bound(q)
}

// leave takes a request out of its queue.
func (s *Set) leave(t *Ticket) {
	q := t.queue
	if t.previous == nil {
		q.head = t.next
	} else {
		t.previous.next = t.next
	}
	if t.next == nil {
		q.tail = t.previous
	} else {
		t.next.previous = t.previous
	}
	t.previous, t.next = nil, nil
	s.countWaiting(t, -1)
	if q.waiting == 0 {
		last := len(s.backlog) - 1
		other := s.backlog[last]
		s.backlog[q.place], other.place = other, q.place
		s.backlog[last] = nil
		s.backlog = s.backlog[:last]
	}
}

// countWaiting adds a request to those that wait, or with -1 removes it.
func (s *Set) countWaiting(t *Ticket, sign int) {
	seats := sign * t.seats
	s.waiting += sign
	s.waitingSeats += seats
	t.queue.waiting += sign
	t.queue.waitingSeats += seats
	t.queue.waitingWork += progress(sign) * t.total
	t.flow.waiting += sign
	t.flow.waitingSeats += seats
}

// bound keeps a queue from having its next request start before it arrived: what a flow could not use is not credited.
func (s *Set) bound(q *queue) {
	if t := q.head; t != nil {
		q.start = max(q.start, t.arrivedAt)
	}
}

// rest is called when a request of an active queue ended or left: the queue may be idle now.
func (s *Set) rest(q *queue) {
	if !q.active() {
		s.active--
	}
	s.trim()
}

// trim removes the last queues that the configuration has no more, as far as nothing is in them.
func (s *Set) trim() {
	n := len(s.queues)
	for n > s.config.Queues && (s.queues[n-1] == nil || !s.queues[n-1].active() && s.queues[n-1].seats == 0) {
		n--
		s.queues[n] = nil
	}
	s.queues = s.queues[:n]
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
		q := s.choose()
		t := q.head
		if !s.fits(t.seats) {
			return // others do not pass it, or it would wait for ever
		}
		s.turn = q.index
		s.leave(t)
		t.limitFinal(s.config)
		s.run(t, now)
		s.bound(q)
		if t.ready != nil {
			t.flow.waited(now - t.arrived)
			close(t.ready)
		}
	}
}

// choose returns the queue whose first request is the first to end in the virtual world. If there are more of them, queues
// take turns. There is at least one request that waits.
func (s *Set) choose() *queue {
	best := s.backlog[0]
	end, distance := best.start+best.head.total, s.distance(best)
	for _, q := range s.backlog[1:] {
		e := q.start + q.head.total
		if e > end {
			continue
		}
		if d := s.distance(q); e < end || d < distance {
			best, end, distance = q, e, d
		}
	}
	return best
}

// distance returns how far a queue is from its turn.
func (s *Set) distance(q *queue) int {
	d := q.index - s.turn - 1
	if d < 0 {
		d += math.MaxInt32
	}
	return d
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

// run lets a request run that is in no queue any more. mu is held.
func (s *Set) run(t *Ticket, now time.Duration) {
	t.phase, t.started = running, now
	s.executing++
	s.dispatched++
	s.taken += t.seats
	s.demand.observe(s.taken + s.waitingSeats)
	t.flow.executing++
	t.flow.dispatched++
	t.flow.seats += t.seats
	if q := t.queue; q != nil {
		s.queued += t.seats
		q.executing++
		q.seats += t.seats
		q.start += t.total
	}
	if t.next = s.running; t.next != nil {
		t.next.previous = t
	}
	s.running = t
}

// end takes a request from those that run. Its seats stay taken. mu is held.
func (s *Set) end(t *Ticket, now time.Duration) {
	t.phase = ended
	s.executing--
	t.flow.executing--
	if t.previous == nil {
		s.running = t.next
	} else {
		t.previous.next = t.next
	}
	if t.next != nil {
		t.next.previous = t.previous
	}
	t.previous, t.next = nil, nil
	if q := t.queue; q != nil {
		q.executing--
		q.start -= workOf(float64(t.work.Seats), estimate-(now-t.started))
		s.bound(q)
		if !q.active() {
			s.active--
		}
	}
}

// free gives seats back. mu is held.
func (s *Set) free(f *flow, q *queue, seats int) {
	s.taken -= seats
	if q != nil {
		s.queued -= seats
		q.seats -= seats
		s.trim()
	}
	f.seats -= seats
	s.flows.rest(f)
}
