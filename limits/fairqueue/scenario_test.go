package fairqueue_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/limits/fairqueue"
)

// The scenarios assert what those of kube-apiserver's queues assert, with the same clients.

// client is some threads that each send one request after the other.
type client struct {
	hash           uint64
	threads, calls int
	run            time.Duration
	think          time.Duration // between requests; negative to send one before the last has ended
	pad            time.Duration // how long final seats are held
	seats, final   int
	split          bool // only half of the threads run in the first half of the scenario
}

func newClient(hash uint64, threads, calls int, run, think time.Duration) client {
	return client{hash: hash, threads: threads, calls: calls, run: run, think: think, seats: 1, final: 1}
}

func (c client) wide(seats int) client { c.seats = seats; return c }

func (c client) padded(final int, pad time.Duration) client { c.final, c.pad = final, pad; return c }

func (c client) splitted() client { c.split = true; return c }

// scenario says how many seats clients get on average, while all want more than their share.
type scenario struct {
	config  fairqueue.Config
	clients []client
	length  time.Duration
	// fair and margin say, for each half if a client is split, whether all averages are within the margin of the fair share.
	fair   []bool
	margin []float64
	want   []float64 // instead of the fair shares
	refuse string    // the reason for which some requests are refused; none if empty
	seats  int       // for the fair shares, if they are not the limit
}

// meter integrates a number over time.
type meter struct {
	mu          sync.Mutex
	value       int
	last, since time.Time
	sum, square float64
}

func newMeter() *meter { return &meter{last: time.Now(), since: time.Now()} }

func (m *meter) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, v := float64(time.Since(m.last)), float64(m.value)
	m.sum += v * d
	m.square += v * v * d
	m.last = time.Now()
	m.value += n
}

// reset returns the average and the standard deviation.
func (m *meter) reset() (average, deviation float64) {
	m.add(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	d := float64(time.Since(m.since))
	average = m.sum / d
	deviation = math.Sqrt(max(0, m.square/d-average*average))
	m.sum, m.square, m.since = 0, 0, time.Now()
	return average, deviation
}

// play is a scenario that runs.
type play struct {
	scenario
	t                  *testing.T
	set                *fairqueue.Set
	executed           []*meter // seats of each client
	demand             *meter
	calls              sync.WaitGroup
	dispatched, failed atomic.Int64
}

func (s scenario) test(t *testing.T) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &play{scenario: s, t: t, set: fairqueue.New(s.config), demand: newMeter()}
		if p.seats == 0 {
			p.seats = s.config.Seats
		}
		split := false
		for range s.clients {
			p.executed = append(p.executed, newMeter())
		}
		for i, c := range s.clients {
			split = split || c.split
			for j := range c.threads {
				// No two threads begin in the same nanosecond.
				delay, calls := time.Duration(90*j+20*i), c.calls
				if c.split && j >= c.threads/2 {
					delay, calls = delay+s.length/2, calls/2
				}
				p.calls.Go(func() {
					time.Sleep(delay)
					p.call(i, j, 0, calls)
				})
			}
		}
		if split {
			time.Sleep(s.length / 2)
			p.evaluate(0, true)
			time.Sleep(s.length / 2)
		} else {
			time.Sleep(s.length)
		}
		p.evaluate(len(s.fair)-1, false)
		p.calls.Wait()
		p.review()
	})
}

// call sends request k of a thread.
func (p *play) call(i, j, k, calls int) {
	if k >= calls {
		return
	}
	c := p.clients[i]
	name := fmt.Sprintf("%d:%d:%d", i, j, k)
	ticket := &fairqueue.Ticket{Details: name}
	width := max(c.seats, c.final)
	p.demand.add(width)
	f := fairqueue.Flow{Schema: fmt.Sprintf("client%d", i), Distinguisher: "all"}
	err := p.set.Take(context.Background(), ticket, f, fairqueue.Work{Seats: c.seats, FinalSeats: c.final, After: c.pad}, 0, nil)
	if err != nil {
		p.failed.Add(1)
		p.demand.add(-width)
		if p.refuse == "" || err.(*fairqueue.RefusedError).Reason != p.refuse {
			p.t.Errorf("request %s: %v", name, err)
		}
		return
	}
	p.dispatched.Add(1)
	p.executed[i].add(c.seats)
	p.calls.Go(func() {
		time.Sleep(c.run + c.think)
		p.call(i, j, k+1, calls)
	})
	if k%100 == 0 && !slices.ContainsFunc(p.set.Requests(), func(r fairqueue.Request) bool { return r.Details == name }) {
		p.t.Errorf("request %s is not listed while it runs", name)
	}
	time.Sleep(c.run)
	p.executed[i].add(-c.seats)
	ticket.Release()
	p.calls.Go(func() {
		time.Sleep(c.pad)
		p.demand.add(-width)
	})
}

// evaluate checks the averages of a half of the scenario.
func (p *play) evaluate(half int, first bool) {
	p.t.Helper()
	synctest.Wait()
	demands, averages := make([]float64, len(p.clients)), make([]float64, len(p.clients))
	for i, c := range p.clients {
		threads := c.threads
		if c.split && first {
			threads /= 2
		}
		demands[i] = float64(threads*c.seats) * float64(c.run) / float64(c.run+c.think)
		averages[i], _ = p.executed[i].reset()
	}
	want := p.want
	if want == nil {
		want = fairShares(demands, float64(p.seats))
	}
	for i := range p.clients {
		off := math.Abs(averages[i] - want[i])
		if want[i] > 0 {
			off /= want[i]
		}
		if fair := off <= p.margin[half]+1e-9; fair != p.fair[half] {
			p.t.Errorf("half %d, client %d: got %v seats on average, want %v: within %v is %v", half, i, averages[i], want[i], p.margin[half], p.fair[half])
		}
	}
	average, deviation := p.demand.reset()
	if d := p.set.Demand(); math.Abs(d.Average-average) > 1e-6 || math.Abs(d.Deviation-deviation) > 1e-6 || float64(d.Max) < d.Average {
		p.t.Errorf("half %d: got %+v, want an average of %v and a deviation of %v", half, d, average, deviation)
	}
}

// review checks the counts when all requests have ended.
func (p *play) review() {
	p.t.Helper()
	synctest.Wait()
	if refused := p.failed.Load() > 0; refused != (p.refuse != "") {
		p.t.Errorf("%d requests were refused", p.failed.Load())
	}
	s := p.set.State()
	if !s.Idle() || s.WaitingSeats != 0 || s.Dispatched != uint64(p.dispatched.Load()) || s.Refused.Total() != uint64(p.failed.Load()) {
		p.t.Errorf("at the end: %+v, %d ran, %d were refused", s, p.dispatched.Load(), p.failed.Load())
	}
	if q := p.set.Queues(); len(q) != 0 {
		p.t.Errorf("queues that are in use at the end: %+v", q)
	}
	for _, f := range p.set.Flows() {
		if f.Executing != 0 || f.Taken != 0 || f.Waiting != 0 || f.WaitingSeats != 0 || f.Waits != 0 {
			p.t.Errorf("at the end: %+v", f)
		}
		s.Dispatched -= f.Dispatched
		if p.refuse == fairqueue.ConcurrencyLimit {
			s.Refused.ConcurrencyLimit -= f.Refused.ConcurrencyLimit
		}
	}
	if s.Dispatched != 0 || s.Refused.Total() != 0 {
		p.t.Errorf("the counts of flows leave %d that ran and %+v", s.Dispatched, s.Refused)
	}
}

// fairShares returns the max-min fair shares of some seats.
func fairShares(demands []float64, seats float64) []float64 {
	shares := make([]float64, len(demands))
	left := make([]int, 0, len(demands))
	for i := range demands {
		left = append(left, i)
	}
	slices.SortFunc(left, func(i, j int) int {
		switch {
		case demands[i] < demands[j]:
			return -1
		case demands[i] > demands[j]:
			return 1
		}
		return i - j
	})
	for n, i := range left {
		shares[i] = min(demands[i], seats/float64(len(left)-n))
		seats -= shares[i]
	}
	return shares
}

func TestFairShares(t *testing.T) {
	for _, c := range []struct {
		demands []float64
		seats   float64
		want    []float64
	}{
		{[]float64{0, 0}, 42, []float64{0, 0}},
		{[]float64{47, 0}, 42, []float64{42, 0}},
		{[]float64{1, 47}, 42, []float64{1, 41}},
		{[]float64{3, 7, 9, 1}, 14, []float64{3, 5, 5, 1}},
		{[]float64{1, 9, 7, 3}, 21, []float64{1, 9, 7, 3}},
	} {
		if got := fairShares(c.demands, c.seats); !slices.Equal(got, c.want) {
			t.Errorf("%v of %v: got %v, want %v", c.demands, c.seats, got, c.want)
		}
	}
}

const second = time.Second

func TestScenarios(t *testing.T) {
	const quarter = 91 * 24 * time.Hour
	queues := func(seats, queues, length, hand int) fairqueue.Config {
		return fairqueue.Config{Seats: seats, Queues: queues, QueueLength: length, HandSize: hand}
	}
	yes, no := []bool{true}, []bool{false}
	for name, s := range map[string]scenario{
		"no restraint, no competition": {config: fairqueue.Config{Exempt: true}, seats: 10,
			clients: []client{newClient(1001001001, 5, 15, second, second), newClient(2002002002, 2, 15, second, second/2)},
			length:  18 * second, fair: yes, margin: []float64{0.001}},
		"no restraint, with competition": {config: fairqueue.Config{Exempt: true}, seats: 2,
			clients: []client{newClient(1001001001, 5, 15, second, second), newClient(2002002002, 2, 15, second, second/2)},
			length:  18 * second, fair: no, margin: []float64{0.25}},
		"baseline": {config: queues(1, 9, 8, 3),
			clients: []client{newClient(1001001001, 1, 21, second, 0)},
			length:  20 * second, fair: yes, margin: []float64{0}},
		"exempt, no seats": {config: fairqueue.Config{Exempt: true, QueueLength: 2, HandSize: 3},
			clients: []client{newClient(1001001001, 5, 20, second, second).wide(3)},
			length:  40 * second, fair: yes, margin: []float64{1e-8}, want: []float64{7.5}},
		"exempt, two seats": {config: fairqueue.Config{Exempt: true, Seats: 2, QueueLength: 2, HandSize: 3},
			clients: []client{newClient(1001001001, 5, 20, second, second).wide(3)},
			length:  40 * second, fair: yes, margin: []float64{1e-8}, want: []float64{7.5}},
		"uniform flows, hands of one queue": {config: queues(4, 9, 8, 1),
			clients: []client{newClient(1001001001, 8, 20, second, second-1), newClient(2002002002, 8, 20, second, second-1)},
			length:  50 * second, fair: yes, margin: []float64{0.01}},
		"uniform flows, hands of three queues": {config: queues(4, 8, 16, 3),
			clients: []client{newClient(400900100100, 8, 30, second, second-1), newClient(300900200200, 8, 30, second, second-1)},
			length:  60 * second, fair: yes, margin: []float64{0.03}},
		"different flows, equal shares": {config: queues(4, 9, 8, 1),
			clients: []client{newClient(1001001001, 8, 20, second, second), newClient(2002002002, 7, 30, second, second/2)},
			length:  40 * second, fair: yes, margin: []float64{0.01}},
		"the meter of progress is set back": {config: queues(2000, 9, 8, 1),
			clients: []client{newClient(1001001001, 8, 20, quarter, quarter).wide(500), newClient(2002002002, 7, 30, quarter, quarter/2).wide(500)},
			length:  40 * quarter, fair: yes, margin: []float64{0.01}},
		"different flows, one wants less than its share": {config: queues(3, 9, 6, 1),
			clients: []client{newClient(1001001001, 4, 20, second, second-1), newClient(2002002002, 2, 20, second, second-1)},
			length:  20 * second, fair: yes, margin: []float64{0.01}},
		"different widths": {config: queues(6, 64, 13, 7),
			clients: []client{newClient(10010010010010, 13, 10, second, second-1), newClient(20020020020020, 7, 10, second, second-1).wide(2)},
			length:  20 * second, fair: yes, margin: []float64{0.155}},
		"wider than the limit": {config: queues(6, 64, 35, 7),
			clients: []client{
				newClient(40040040040040, 15, 21, second, second-1).wide(2),
				newClient(50050050050050, 15, 21, second, second-1).wide(2),
				newClient(60060060060060, 15, 21, second, second-1).wide(2),
				newClient(70070070070070, 15, 21, second, second-1).wide(2),
				newClient(90090090090090, 15, 21, second, second-1).wide(7),
			}, length: 400 * second, fair: yes, margin: []float64{0.35}},
		// A flow that cannot use its share for a while gets some of it later, but not all.
		"windup, upper bound": {config: queues(3, 9, 6, 1),
			clients: []client{newClient(1001001001, 2, 40, second, -1), newClient(2002002002, 2, 40, second, -1).splitted()},
			length:  40 * second, fair: []bool{true, true}, margin: []float64{0.01, 0.26}},
		"windup, lower bound": {config: queues(3, 9, 6, 1),
			clients: []client{newClient(1001001001, 2, 40, second, -1), newClient(2002002002, 2, 40, second, -1).splitted()},
			length:  40 * second, fair: []bool{true, false}, margin: []float64{0.01, 0.1}},
		"different flows without queues": {config: fairqueue.Config{Seats: 4},
			clients: []client{newClient(1001001001, 6, 10, second, 57*time.Millisecond), newClient(2002002002, 4, 15, second, 750*time.Millisecond)},
			length:  13 * second, fair: no, margin: []float64{0.2}, refuse: fairqueue.ConcurrencyLimit},
	} {
		t.Run(name, s.test)
	}
}

// TestFinalSeats has clients that think, or leave final seats, or both.
func TestFinalSeats(t *testing.T) {
	half, third, quarter := []float64{0.5, 0.5}, []float64{1.0 / 3, 1.0 / 3}, []float64{0.25, 0.25}
	for _, c := range []struct {
		think, pad             time.Duration
		final, seats, nClients int
		want                   []float64 // if it is not the fair share
	}{
		{think: second, final: 1, seats: 1, nClients: 1},
		{think: second, final: 1, seats: 2, nClients: 1},
		{think: second, final: 2, seats: 2, nClients: 1},
		{think: second, final: 1, seats: 1, nClients: 2},
		{think: second, final: 1, seats: 2, nClients: 2},
		{think: second, final: 2, seats: 2, nClients: 2},
		{pad: second, final: 1, seats: 1, nClients: 1, want: half},
		{pad: second, final: 1, seats: 2, nClients: 1},
		{pad: second, final: 2, seats: 2, nClients: 1, want: half},
		{pad: second, final: 1, seats: 1, nClients: 2, want: quarter},
		{pad: second, final: 1, seats: 2, nClients: 2, want: half},
		{pad: second, final: 2, seats: 2, nClients: 2, want: quarter},
		{think: second, pad: second / 2, final: 1, seats: 1, nClients: 1},
		{think: second, pad: second / 2, final: 1, seats: 2, nClients: 1},
		{think: second, pad: second / 2, final: 2, seats: 2, nClients: 1},
		{think: second, pad: second / 2, final: 1, seats: 1, nClients: 2, want: third},
		{think: second, pad: second / 2, final: 1, seats: 2, nClients: 2},
		{think: second, pad: second / 2, final: 2, seats: 2, nClients: 2, want: third},
		{think: second / 2, pad: second, final: 1, seats: 1, nClients: 1, want: half},
		{think: second / 2, pad: second, final: 1, seats: 2, nClients: 1},
		{think: second / 2, pad: second, final: 2, seats: 2, nClients: 1, want: half},
		{think: second / 2, pad: second, final: 1, seats: 1, nClients: 2, want: quarter},
		{think: second / 2, pad: second, final: 1, seats: 2, nClients: 2, want: half},
		{think: second / 2, pad: second, final: 2, seats: 2, nClients: 2, want: quarter},
	} {
		t.Run(fmt.Sprintf("think %v, pad %v, final %d, seats %d, clients %d", c.think, c.pad, c.final, c.seats, c.nClients), func(t *testing.T) {
			scenario{config: fairqueue.Config{Seats: c.seats, Queues: 9, QueueLength: 8, HandSize: 3},
				clients: []client{
					newClient(1001001001, 1, 25, second, c.think).padded(c.final, c.pad),
					newClient(2002002002, 1, 25, second, c.think).padded(c.final, c.pad),
				}[:c.nClients],
				length: 24 * second, // a multiple of every period
				fair:   []bool{true}, margin: []float64{0}, want: c.want}.test(t)
		})
	}
}
