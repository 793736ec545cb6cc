package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/limits/fairqueue"
)

// level is a set whose requests are sent one by one, in a bubble of synctest.
type level struct {
	t *testing.T
	*fairqueue.Set
	started []string // requests, as they got seats
	mu      sync.Mutex
}

// sent is a request that was sent to a level.
type sent struct {
	name   string
	ticket fairqueue.Ticket
	err    error
	ended  atomic.Bool // Take has returned
	queued int         // how often it was told that it waits
	took   time.Duration
	cancel context.CancelFunc
}

// inLevel runs a test in a bubble. All seats must be free at its end.
func inLevel(t *testing.T, c fairqueue.Config, test func(l *level)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &level{t: t, Set: fairqueue.New(c)}
		test(l)
		time.Sleep(time.Hour) // final seats
		synctest.Wait()
		if s := l.State(); !s.Idle() || s.WaitingSeats != 0 || len(l.Requests()) != 0 || len(l.Queues()) != 0 {
			t.Errorf("at the end: %+v", s)
		}
	})
}

// send sends a request. Its name is the flow's, a dash, and more.
func (l *level) send(name string, w fairqueue.Work) *sent { return l.sendPatient(name, w, 0, 0) }

// sendPatient sends a request with a deadline of its context, and a longest wait.
func (l *level) sendPatient(name string, w fairqueue.Work, deadline, wait time.Duration) *sent {
	r := &sent{name: name}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	if deadline > 0 {
		ctx, r.cancel = context.WithTimeout(ctx, deadline)
	}
	f, _, _ := strings.Cut(name, "-")
	r.ticket.Details = name
	begun := time.Now()
	go func() {
		err := l.Take(ctx, &r.ticket, fairqueue.Flow{Schema: "schema", Distinguisher: f}, w, wait, func() { r.queued++ })
		l.mu.Lock()
		defer l.mu.Unlock()
		r.err, r.took = err, time.Since(begun)
		if err == nil {
			l.started = append(l.started, name)
		}
		r.ended.Store(true)
	}()
	synctest.Wait()
	return r
}

// expect checks what became of a request: "runs", "waits", or the reason why it was refused.
func (l *level) expect(r *sent, want string) {
	l.t.Helper()
	synctest.Wait()
	got := "waits"
	var refused *fairqueue.RefusedError
	switch {
	case !r.ended.Load():
	case r.err == nil:
		got = "runs"
	case errors.As(r.err, &refused):
		got = refused.Reason
	}
	if got != want {
		l.t.Errorf("%s: %s, want %s", r.name, got, want)
	}
}

// expectTaken checks the seats that are taken.
func (l *level) expectTaken(want int) {
	l.t.Helper()
	synctest.Wait()
	if got := l.State().Taken; got != want {
		l.t.Errorf("%d seats are taken, want %d", got, want)
	}
}

// release ends requests.
func (l *level) release(requests ...*sent) {
	for _, r := range requests {
		r.ticket.Release()
		r.cancel()
	}
	synctest.Wait()
}

// drain ends requests one after the other, as they get seats, and returns the names in that order.
func (l *level) drain(requests ...*sent) []string {
	l.mu.Lock()
	first := len(l.started)
	l.mu.Unlock()
	for range requests {
		time.Sleep(time.Millisecond) // final seats
		for _, r := range requests {
			if r.ended.Load() && r.ticket.Details != nil {
				r.ticket.Details = nil
				l.release(r)
				break
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started[first:]
}

func seats(n int) fairqueue.Work { return fairqueue.Work{Seats: n} }

func queued(seats, length int) fairqueue.Config {
	return fairqueue.Config{Seats: seats, Queues: 16, HandSize: 1, QueueLength: length}
}

func TestTicket(t *testing.T) {
	inLevel(t, queued(2, 5), func(l *level) {
		var unused fairqueue.Ticket
		unused.Release()
		a := l.send("a-1", seats(2))
		l.expect(a, "runs")
		if a.queued != 0 {
			t.Error("a request that found seats was told that it waits")
		}
		b := l.send("b-1", seats(1))
		l.expect(b, "waits")
		l.release(a)
		l.expect(b, "runs")
		l.release(a) // again
		l.expectTaken(1)
		if b.queued != 1 {
			t.Errorf("a request that waited was told so %d times", b.queued)
		}
		l.release(b)
		// A ticket can be used again, also after a refusal.
		for range 2 {
			if err := l.Take(context.Background(), &a.ticket, fairqueue.Flow{}, seats(1), 0, nil); err != nil {
				t.Fatal(err)
			}
			a.ticket.Release()
		}
		// Seats are freed when the handler panics.
		func() {
			defer func() { _ = recover() }()
			c := l.send("c-1", seats(2))
			defer c.ticket.Release()
			l.expectTaken(2)
			panic("handler")
		}()
		l.expectTaken(0)
		// A request takes one seat at least.
		d := l.send("d-1", seats(0))
		l.expectTaken(1)
		l.release(d)
	})
}

func TestOrderInQueue(t *testing.T) {
	inLevel(t, queued(1, 50), func(l *level) {
		first := l.send("a-0", seats(1))
		var waiting []*sent
		for i := range 6 {
			waiting = append(waiting, l.send(fmt.Sprintf("a-%d", i+1), fairqueue.Work{Seats: 1, FinalSeats: 1, After: time.Duration(i+1) * time.Microsecond}))
		}
		work := func() float64 { return math.Round(l.Queues()[0].WaitingWork * 1e6) } // microseconds
		if got := work(); got != 6*3000+21 {
			t.Errorf("%v us of work wait", got)
		}
		for _, i := range []int{2, 0, 5} { // in the middle, the first, the last
			waiting[i].cancel()
			l.expect(waiting[i], fairqueue.Cancelled)
		}
		if got := work(); got != 3*3000+2+4+5 {
			t.Errorf("%v us of work wait after three requests were cancelled", got)
		}
		var names []string
		for _, r := range l.Requests() {
			names = append(names, fmt.Sprint(r.Details, " ", r.Position, " ", r.Started.IsZero()))
		}
		if want := []string{"a-2 0 true", "a-4 1 true", "a-5 2 true", "a-0 0 false"}; !slices.Equal(names, want) {
			t.Errorf("got %q, want %q", names, want)
		}
		l.release(first)
		if got := l.drain(waiting[1], waiting[3], waiting[4]); !slices.Equal(got, []string{"a-4", "a-5"}) {
			t.Errorf("after a-2, %q ran", got)
		}
	})
}

// TestTurnsAtTies has flows that are equal in the virtual world: they take turns.
func TestTurnsAtTies(t *testing.T) {
	inLevel(t, queued(1, 50), func(l *level) {
		first := l.send("c-0", seats(1))
		var all []*sent
		for _, name := range []string{"a-1", "a-2", "b-1", "b-2", "c-1", "c-2", "d-1", "d-2"} {
			all = append(all, l.send(name, seats(1)))
		}
		l.release(first)
		for range all {
			for _, r := range all {
				if r.ended.Load() {
					l.release(r) // after no time at all
				}
			}
		}
		if got := strings.Join(l.started, " "); got != "c-0 a-1 b-1 d-1 c-1 a-2 b-2 d-2 c-2" {
			t.Errorf("got %s", got)
		}
	})
}

func TestLessUsedFlowIsFirst(t *testing.T) {
	inLevel(t, queued(1, 50), func(l *level) {
		first := l.send("a-1", seats(1))
		second, third := l.send("a-2", seats(1)), l.send("a-3", seats(1))
		time.Sleep(5 * time.Millisecond)
		other := l.send("b-1", seats(1))
		time.Sleep(5 * time.Millisecond)
		if got := l.drain(first, second, third, other); !slices.Equal(got, []string{"b-1", "a-2", "a-3"}) {
			t.Errorf("got %q", got)
		}
	})
}

// TestWide has requests of several seats: others do not pass one whose turn it is.
func TestWide(t *testing.T) {
	inLevel(t, queued(50, 50), func(l *level) {
		one, rest := l.send("a-1", seats(1)), l.send("b-1", seats(25))
		wide := l.send("c-1", seats(25))
		l.expect(wide, "waits")
		later := l.send("d-1", seats(26)) // ends later in the virtual world
		l.expect(later, "waits")
		l.expectTaken(26)
		l.release(one)
		l.expect(wide, "runs")
		l.expect(later, "waits")
		l.expectTaken(50)
		l.release(rest)
		l.expect(later, "waits")
		l.release(wide)
		l.expect(later, "runs")
		l.release(later)
	})
}

// TestWiderThanLimit has a request of more seats than there are: it runs when no other does.
func TestWiderThanLimit(t *testing.T) {
	inLevel(t, queued(6, 50), func(l *level) {
		a, b := l.send("a-1", seats(2)), l.send("a-2", seats(2))
		wide := l.send("b-1", seats(7))
		l.expect(wide, "waits")
		l.release(a)
		l.expect(wide, "waits")
		l.release(b)
		l.expect(wide, "runs")
		l.expectTaken(7)
		c := l.send("c-1", seats(1))
		l.expect(c, "waits")
		l.release(wide)
		l.expect(c, "runs")
		l.release(c)
	})
}

// TestCancelledWideRequest asserts that those that waited behind it run at once.
func TestCancelledWideRequest(t *testing.T) {
	inLevel(t, queued(4, 50), func(l *level) {
		a := l.send("a-1", seats(3))
		wide, behind := l.send("b-1", seats(4)), l.send("b-2", seats(1))
		l.expect(behind, "waits")
		wide.cancel()
		l.expect(wide, fairqueue.Cancelled)
		l.expect(behind, "runs")
		l.release(a, behind)
	})
}

func TestSeatsAfterTheEnd(t *testing.T) {
	inLevel(t, queued(10, 50), func(l *level) {
		more := l.send("a-1", fairqueue.Work{Seats: 1, FinalSeats: 10, After: time.Minute})
		l.expectTaken(10) // from the start
		waits := l.send("b-1", seats(1))
		l.release(more)
		if s := l.State(); s.Executing != 0 || s.Taken != 10 || s.Idle() {
			t.Errorf("after the end: %+v", s)
		}
		time.Sleep(time.Minute - 1)
		l.expect(waits, "waits")
		time.Sleep(time.Nanosecond)
		l.expect(waits, "runs")
		l.release(waits)

		fewer := l.send("a-2", fairqueue.Work{Seats: 5, FinalSeats: 2, After: time.Second})
		l.expectTaken(5)
		l.release(fewer)
		l.expectTaken(2)
		time.Sleep(time.Second)
		l.expectTaken(0)

		// More final seats than there are: all, for longer.
		l.SetSeats(4, 0)
		wide := l.send("a-3", fairqueue.Work{Seats: 1, FinalSeats: 8, After: time.Second})
		l.expectTaken(4)
		l.release(wide)
		time.Sleep(2*time.Second - 1)
		l.expectTaken(4)
		time.Sleep(time.Nanosecond)
		l.expectTaken(0)
	})
}

// TestGivingUp has requests that do not wait for ever.
func TestGivingUp(t *testing.T) {
	inLevel(t, queued(1, 50), func(l *level) {
		runs := l.send("a-1", seats(1))
		deadline := l.sendPatient("b-1", seats(1), 3*time.Second, 0)
		wait := l.sendPatient("c-1", seats(1), 0, 2*time.Second)
		cancelled := l.send("d-1", seats(1))
		time.Sleep(time.Second)
		cancelled.cancel()
		time.Sleep(time.Minute)
		l.expect(deadline, fairqueue.TimeOut)
		l.expect(wait, fairqueue.TimeOut)
		l.expect(cancelled, fairqueue.Cancelled)
		if deadline.took != 3*time.Second || wait.took != 2*time.Second || cancelled.took != time.Second {
			t.Errorf("they waited %v, %v and %v", deadline.took, wait.took, cancelled.took)
		}
		if s := l.State(); s.Waiting != 0 || s.Executing != 1 || s.Refused != (fairqueue.Refusals{TimeOut: 2, Cancelled: 1}) {
			t.Errorf("got %+v", s)
		}
		l.release(runs)
		// Who has seats keeps them, also if its context ends. Who finds some does not look at the context.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		var ticket fairqueue.Ticket
		if err := l.Take(ctx, &ticket, fairqueue.Flow{}, seats(1), 0, nil); err != nil {
			t.Error(err)
		}
		ticket.Release()
	})
}

func TestFull(t *testing.T) {
	inLevel(t, queued(1, 3), func(l *level) {
		all := []*sent{l.send("a-0", seats(1))}
		for i := range 3 {
			all = append(all, l.send(fmt.Sprintf("a-%d", i+1), seats(1)))
		}
		l.expect(l.send("a-5", seats(1)), fairqueue.QueueFull)
		other := l.send("b-1", seats(1))
		l.expect(other, "waits")
		if s := l.State(); s.Refused != (fairqueue.Refusals{QueueFull: 1}) {
			t.Errorf("got %+v", s)
		}
		l.drain(append(all, other)...)
		// The limit holds also while there are free seats that the first request does not fit into.
		l.SetSeats(4, 0)
		a, wide := l.send("a-1", seats(2)), l.send("b-1", seats(3))
		b, c := l.send("b-2", seats(1)), l.send("b-3", seats(1))
		l.expect(c, "waits")
		l.expect(l.send("b-4", seats(1)), fairqueue.QueueFull)
		l.release(a)
		l.release(wide, b, c)
	})
}

// TestPlacesForOthers has many flows that fill a level as far as they can. There is a place for others.
func TestPlacesForOthers(t *testing.T) {
	c := fairqueue.Config{Seats: 1, Queues: 10, HandSize: 5, QueueLength: 20}
	inLevel(t, c, func(l *level) {
		var all []*sent
		for round := range 100 {
			for i := range 8 {
				all = append(all, l.send(fmt.Sprintf("%c-%d", 'a'+i, round), seats(1)))
			}
		}
		s := l.State()
		if free := c.Queues*c.QueueLength - s.Waiting; free < 3 || s.Waiting < 180 {
			t.Errorf("%d requests wait, %d places are free", s.Waiting, free)
		}
		polite := l.send("z-1", seats(1))
		l.expect(polite, "waits")
		for _, r := range append(all, polite) {
			r.cancel()
		}
		synctest.Wait() // a request that still waits cannot be released
		l.release(all...)
		l.release(polite)
	})
	// One flow alone has as many as are in its hand.
	inLevel(t, c, func(l *level) {
		var all []*sent
		for i := range 101 {
			all = append(all, l.send(fmt.Sprint("a-", i), seats(1)))
		}
		l.expect(l.send("a-101", seats(1)), fairqueue.QueueFull)
		for _, r := range all {
			r.cancel()
		}
		synctest.Wait()
		l.release(all...)
	})
}

func TestWithoutQueues(t *testing.T) {
	inLevel(t, fairqueue.Config{Seats: 2}, func(l *level) {
		a := l.send("a-1", seats(2))
		l.expect(l.send("b-1", seats(1)), fairqueue.ConcurrencyLimit)
		l.release(a)
		wide := l.send("a-2", seats(3))
		l.expect(wide, "runs")
		l.expect(l.send("b-1", seats(3)), fairqueue.ConcurrencyLimit)
		l.release(wide)
		l.SetSeats(0, 0)
		l.expect(l.send("a-3", seats(1)), fairqueue.ConcurrencyLimit)
	})
}

// TestReconfiguring changes the configuration while requests run and wait.
func TestReconfiguring(t *testing.T) {
	fill := func(l *level) (runs []*sent, waits []*sent) {
		for i := range 2 {
			runs = append(runs, l.send(fmt.Sprintf("a-%d", i), seats(2)))
		}
		for i := range 2 {
			waits = append(waits, l.send(fmt.Sprintf("b-%d", i), seats(1)), l.send(fmt.Sprintf("c-%d", i), seats(1)))
		}
		for _, r := range runs {
			l.expect(r, "runs")
		}
		for _, r := range waits {
			l.expect(r, "waits")
		}
		return runs, waits
	}
	t.Run("fewer places", func(t *testing.T) {
		inLevel(t, queued(4, 50), func(l *level) {
			runs, waits := fill(l)
			l.Configure(fairqueue.Config{Seats: 4, Queues: 1, HandSize: 1, QueueLength: 1})
			l.expect(l.send("b-9", seats(1)), fairqueue.QueueFull)
			l.release(runs...)
			for _, r := range waits {
				l.expect(r, "runs")
			}
			l.release(waits...)
		})
	})
	t.Run("no queues", func(t *testing.T) {
		inLevel(t, queued(4, 50), func(l *level) {
			runs, waits := fill(l)
			l.Configure(fairqueue.Config{Seats: 4})
			l.expect(l.send("b-9", seats(1)), fairqueue.ConcurrencyLimit)
			l.release(runs[0])
			l.release(runs[1])
			for _, r := range waits {
				l.expect(r, "runs")
			}
			l.release(waits...)
		})
	})
	t.Run("exempt", func(t *testing.T) {
		inLevel(t, queued(4, 50), func(l *level) {
			runs, waits := fill(l)
			l.Configure(fairqueue.Config{Exempt: true})
			for _, r := range waits {
				l.expect(r, "runs")
			}
			l.expectTaken(8)
			// Back again: nothing runs until there are fewer.
			l.Configure(queued(4, 50))
			late := l.send("d-1", seats(1))
			l.release(waits...)
			l.expect(late, "waits")
			l.release(runs...)
			l.expect(late, "runs")
			l.release(late)
		})
	})
	t.Run("fewer seats", func(t *testing.T) {
		inLevel(t, queued(4, 50), func(l *level) {
			runs, waits := fill(l)
			l.SetSeats(2, 0)
			l.expectTaken(4) // no one loses them
			l.release(runs[0])
			l.expect(waits[0], "waits")
			l.expectTaken(2)
			l.release(runs[1])
			l.expectTaken(2)
			l.SetSeats(0, 0) // a jail
			for _, r := range waits {
				r.ticket.Release()
			}
			l.expectTaken(0)
			if s := l.State(); s.Waiting != 2 {
				t.Errorf("got %+v", s)
			}
			l.SetSeats(9, 0)
			l.expectTaken(2)
			l.release(waits...)
		})
	})
	t.Run("more seats", func(t *testing.T) {
		inLevel(t, queued(4, 50), func(l *level) {
			runs, waits := fill(l)
			l.SetSeats(7, 0)
			l.expectTaken(7)
			if s := l.State(); s.Waiting != 1 || s.Executing != 5 {
				t.Errorf("got %+v", s)
			}
			l.release(runs...)
			l.release(waits...)
		})
	})
	t.Run("nonsense", func(t *testing.T) {
		inLevel(t, fairqueue.Config{Seats: -5, Queues: 3, HandSize: 99, QueueLength: -1}, func(l *level) {
			if c := l.State().Config; c != (fairqueue.Config{Queues: 3, HandSize: 3, QueueLength: 1}) {
				t.Errorf("got %+v", c)
			}
		})
	})
}

// TestFlows lists what flows do and did, with bounded memory.
func TestFlows(t *testing.T) {
	inLevel(t, queued(1, 1), func(l *level) {
		flow := func(name string) fairqueue.FlowState {
			for _, f := range l.Flows() {
				if f.Distinguisher == name {
					return f
				}
			}
			return fairqueue.FlowState{}
		}
		a := l.send("a-1", seats(1))
		time.Sleep(time.Second)
		b, refused := l.send("b-1", seats(1)), l.send("b-2", seats(1))
		l.expect(refused, fairqueue.QueueFull)
		time.Sleep(2 * time.Second)
		if got, want := flow("b"), (fairqueue.FlowState{Schema: "schema", Distinguisher: "b", Waiting: 1, WaitingSeats: 1,
			Waits: 2 * time.Second, LongestWait: 2 * time.Second, Refused: fairqueue.Refusals{QueueFull: 1}}); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if q := l.Queues(); len(q) != 2 || q[1].Distinguisher != "b" || q[1].Waiting != 1 || q[0].Taken != 1 || q[0].Index == q[1].Index {
			t.Errorf("got %+v", q)
		}
		l.release(a)
		l.release(b)
		if got, want := flow("b"), (fairqueue.FlowState{Schema: "schema", Distinguisher: "b", Dispatched: 1,
			LongestWait: 2 * time.Second, Refused: fairqueue.Refusals{QueueFull: 1}}); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		c := l.send("c-1", seats(1)) // it stays
		var ticket fairqueue.Ticket
		l.SetSeats(2, 0)
		for i := range 3000 {
			if err := l.Take(context.Background(), &ticket, fairqueue.Flow{Schema: "many", Distinguisher: fmt.Sprint(i)}, seats(1), 0, nil); err != nil {
				t.Fatal(err)
			}
			ticket.Release()
		}
		if n := len(l.Flows()); n != 1001 || flow("c").Executing != 1 || flow("b").Dispatched != 0 || flow("2999").Dispatched != 1 {
			t.Errorf("%d flows are remembered", n)
		}
		l.release(c)
	})
}

func TestDemand(t *testing.T) {
	inLevel(t, queued(2, 50), func(l *level) {
		time.Sleep(time.Second)
		a, b := l.send("a-1", seats(2)), l.send("a-2", seats(2))
		time.Sleep(time.Second)
		l.release(a)
		time.Sleep(2 * time.Second)
		got, want := l.Demand(), fairqueue.Demand{Duration: 4 * time.Second, Max: 4, Average: 2, Deviation: math.Sqrt(2)}
		if math.Abs(got.Deviation-want.Deviation) > 1e-9 {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got.Deviation = want.Deviation; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got, want := l.Demand(), (fairqueue.Demand{Max: 2, Average: 2}); got != want {
			t.Errorf("in no time: got %+v, want %+v", got, want)
		}
		l.release(b)
		time.Sleep(time.Second)
		if got, want := l.Demand(), (fairqueue.Demand{Duration: time.Second, Max: 2}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestMaximumForARequest asserts that the maximum bounds requests when they begin, not when they arrive.
func TestMaximumForARequest(t *testing.T) {
	limited := func(seats, most int) fairqueue.Config {
		c := queued(seats, 10)
		c.PerRequest = most
		return c
	}
	t.Run("more", func(t *testing.T) {
		inLevel(t, limited(4, 3), func(l *level) {
			runs := l.send("a-1", seats(100))
			l.expectTaken(3)
			first, second := l.send("a-2", seats(100)), l.send("a-3", seats(100))
			if got := l.State().WaitingSeats; got != 6 {
				t.Errorf("requests wait for %d seats, want 6", got)
			}
			l.SetSeats(40, 30)
			l.expect(first, "runs") // beside the one that keeps its seats
			l.expectTaken(33)
			l.expect(second, "waits")
			if s := l.State(); s.WaitingSeats != 30 || first.ticket.Seats() != 30 || runs.ticket.Seats() != 3 {
				t.Errorf("%d and %d seats are taken, and %d waited for, want 3, 30 and 30", runs.ticket.Seats(), first.ticket.Seats(), s.WaitingSeats)
			}
			if d := l.Demand(); d.Max != 63 {
				t.Errorf("the maximum of the demand is %d, want 63", d.Max)
			}
			small := l.send("b-1", seats(2)) // is not behind the wide one
			l.expect(small, "runs")
			l.release(small)
			l.release(runs)
			l.expect(second, "waits")
			l.release(first)
			l.expect(second, "runs")
			l.expectTaken(30)
			l.release(second)
		})
	})
	t.Run("fewer", func(t *testing.T) {
		inLevel(t, limited(40, 30), func(l *level) {
			runs := l.send("a-1", seats(100))
			waits := l.send("a-2", fairqueue.Work{Seats: 100, FinalSeats: 20, After: time.Second})
			l.SetSeats(40, 10)
			l.expect(waits, "runs")
			l.expectTaken(40)
			l.release(runs)
			l.release(waits)
			l.expectTaken(10)
		})
	})
	t.Run("turns", func(t *testing.T) {
		// The request of b arrives first. It is wider than that of a, and so after it in the virtual world, unless both are bounded.
		for most, first := range map[int]string{0: "a-1", 9: "b-1"} {
			inLevel(t, limited(20, 0), func(l *level) {
				runs := l.send("c-1", seats(20))
				wide, narrow := l.send("b-1", seats(10)), l.send("a-1", seats(9))
				l.SetSeats(10, most)
				l.release(runs)
				if got := l.started[len(l.started)-1]; len(l.started) != 2 || got != first {
					t.Errorf("with a maximum of %d, %v started, want %s as the second", most, l.started, first)
				}
				l.release(narrow)
				l.release(wide)
				l.release(narrow)
			})
		}
	})
	t.Run("none", func(t *testing.T) {
		inLevel(t, limited(4, 3), func(l *level) {
			l.Configure(fairqueue.Config{Exempt: true})
			r := l.send("a-1", seats(100))
			l.expectTaken(100)
			l.release(r)
		})
	})
}
