package fairqueue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/limits/fairqueue"
)

// TestFairness has flows that always have requests, of different widths and durations. Each gets the same part of the
// seat-seconds.
func TestFairness(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, 5, 6} {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			n, width := 2+r.IntN(12), 1+r.IntN(4)
			c := fairqueue.Config{Seats: n * width * (1 + r.IntN(2)), Queues: 64, HandSize: 4, QueueLength: 50}
			s := fairqueue.New(c)
			used := make([]int64, n)
			var mu sync.Mutex
			var clients sync.WaitGroup
			ctx, stop := context.WithCancel(context.Background())
			for i := range n {
				seats, mean := 1+r.IntN(width), 4+r.IntN(17)
				for j := range 4*c.Seats/seats/n + 4 {
					clients.Go(func() {
						r := rand.New(rand.NewPCG(seed, uint64(i*1000+j)))
						var ticket fairqueue.Ticket
						for ctx.Err() == nil {
							if s.Take(ctx, &ticket, fairqueue.Flow{Distinguisher: fmt.Sprint(i)}, fairqueue.Work{Seats: seats}, 0, nil) != nil {
								return
							}
							d := time.Duration(mean)*time.Millisecond/2 + time.Duration(r.IntN(mean*1_000_000))
							time.Sleep(d)
							mu.Lock()
							used[i] += int64(seats) * int64(d)
							mu.Unlock()
							ticket.Release()
						}
					})
				}
			}
			time.Sleep(20 * time.Second)
			stop()
			mu.Lock()
			var all int64
			for _, u := range used {
				all += u
			}
			for i, u := range used {
				if share := float64(u) / float64(all) * float64(n); share < 0.93 || share > 1.07 {
					t.Errorf("seed %d: flow %d of %d got %.3f of its share", seed, i, n, share)
				}
			}
			if part := float64(all) / float64(20*time.Second) / float64(c.Seats); part < 0.8 {
				t.Errorf("seed %d: only %.2f of the seats were used", seed, part)
			}
			mu.Unlock()
			clients.Wait()
		})
	}
}

// TestNoStarvation has a wide request beside flows that never end, and new flows all the time, that together want twice the
// seats there are. It waits for a bounded time. As long as new flows arrive, all places are taken: it gets the place that its
// predecessor's end makes free, because none of them arrives at the same moment.
func TestNoStarvation(t *testing.T) {
	for name, fresh := range map[string]bool{"old flows": false, "new flows": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const places = 16 * 50
				const between = 10*time.Millisecond + 137*time.Microsecond // others arrive at multiples of 500 µs
				s := fairqueue.New(fairqueue.Config{Seats: 10, Queues: 16, HandSize: 4, QueueLength: 50})
				ctx, stop := context.WithCancel(context.Background())
				var requests sync.WaitGroup
				requests.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						flow := fairqueue.Flow{Distinguisher: fmt.Sprint(i % 40)}
						if fresh {
							flow.Distinguisher = fmt.Sprint(i)
						}
						requests.Go(func() {
							var ticket fairqueue.Ticket
							if s.Take(ctx, &ticket, flow, fairqueue.Work{Seats: 1}, 0, nil) == nil {
								time.Sleep(10 * time.Millisecond)
								ticket.Release()
							}
						})
						time.Sleep(500 * time.Microsecond)
					}
				})
				time.Sleep(500 * time.Millisecond)
				for _, seats := range []int{1, 5, 10, 15} {
					var ticket fairqueue.Ticket
					begun := time.Now()
					if err := s.Take(ctx, &ticket, fairqueue.Flow{Distinguisher: "wide"}, fairqueue.Work{Seats: seats}, time.Minute, nil); err != nil {
						t.Errorf("%d seats: %v", seats, err)
						continue
					}
					waited := time.Since(begun)
					time.Sleep(between)
					ticket.Release()
					// The meter has to pass the estimate of the work, and by as much as new flows begin before it. It advances
					// by 10 seats for as many flows as have a place. Those that are before it then are served first, and seats have to
					// become free.
					limit := (time.Duration(seats)*3*time.Millisecond+4*10*time.Millisecond)*places/10 + places*10*time.Millisecond/10 + 100*time.Millisecond
					if waited > limit {
						t.Errorf("a request of %d seats waited %v, at most %v expected", seats, waited, limit)
					}
				}
				stop()
				requests.Wait()
			})
		})
	}
}

// modelled is a request of the random model.
type modelled struct {
	flow    int
	work    fairqueue.Work
	ticket  fairqueue.Ticket
	cancel  context.CancelFunc
	err     error
	ended   atomic.Bool
	arrived int
}

// model drives a set with random steps, and checks after each what must always be so.
type model struct {
	t       *testing.T
	r       *rand.Rand
	set     *fairqueue.Set
	config  fairqueue.Config
	open    []*modelled // they wait or run
	held    []hold      // final seats
	arrived int
	refused uint64
}

// hold is final seats that are held.
type hold struct {
	seats int
	until time.Time
}

// TestModel does random steps. Between them no time passes but in one kind of step.
func TestModel(t *testing.T) {
	for seed := *fairnessFrom; seed < *fairnessFrom+*fairnessSeeds; seed++ {
		synctest.Test(t, func(t *testing.T) {
			m := &model{t: t, r: rand.New(rand.NewPCG(seed, 1))}
			m.config = m.randomConfig()
			m.set = fairqueue.New(m.config)
			for step := 0; step < 150 && !t.Failed(); step++ {
				m.step()
				m.check(fmt.Sprintf("seed %d, step %d", seed, step))
			}
			for _, x := range m.open {
				x.cancel()
			}
			synctest.Wait()
			for _, x := range m.open {
				x.ticket.Release()
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if s := m.set.State(); !s.Idle() || s.WaitingSeats != 0 || len(m.set.Queues()) != 0 {
				t.Errorf("seed %d: at the end: %+v", seed, s)
			}
			for _, f := range m.set.Flows() {
				if f.Executing != 0 || f.Taken != 0 || f.Waiting != 0 || f.WaitingSeats != 0 {
					t.Errorf("seed %d: at the end: %+v", seed, f)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

func (m *model) randomConfig() fairqueue.Config {
	c := fairqueue.Config{Seats: m.r.IntN(8), Queues: m.r.IntN(6), QueueLength: 1 + m.r.IntN(5)}
	c.HandSize = 1 + m.r.IntN(max(c.Queues, 1))
	c.Exempt = m.r.IntN(12) == 0
	c.PerRequest = m.randomMaximum()
	return c
}

// randomMaximum returns a maximum for a request; often none.
func (m *model) randomMaximum() int { return max(0, m.r.IntN(8)-3) }

// seats returns how many seats a request takes if it begins now.
func (m *model) seats(w fairqueue.Work) int {
	seats := max(w.Seats, w.FinalSeats)
	if most := m.config.PerRequest; most > 0 {
		seats = min(seats, most)
	}
	return seats
}

func (m *model) step() {
	switch n := m.r.IntN(100); {
	case n < 45:
		m.arrive()
	case n < 75 && len(m.open) > 0:
		x := m.open[m.r.IntN(len(m.open))]
		if x.ended.Load() {
			m.release(x)
		} else {
			x.cancel()
		}
	case n < 95:
		time.Sleep(time.Duration(m.r.IntN(3_000_000)))
	case n < 98:
		m.config.Seats, m.config.PerRequest = m.r.IntN(8), m.randomMaximum()
		m.set.SetSeats(m.config.Seats, m.config.PerRequest)
	default:
		m.config = m.randomConfig()
		m.set.Configure(m.config)
	}
	synctest.Wait()
}

func (m *model) arrive() {
	x := &modelled{flow: m.r.IntN(5), work: fairqueue.Work{Seats: 1 + m.r.IntN(3)}, arrived: m.arrived}
	m.arrived++
	if m.r.IntN(8) == 0 {
		x.work.Seats = 1 + m.r.IntN(10)
	}
	if m.r.IntN(5) == 0 {
		x.work.FinalSeats, x.work.After = 1+m.r.IntN(4), time.Duration(1+m.r.IntN(4_000_000))
	}
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel, x.ticket.Details = cancel, x
	m.open = append(m.open, x)
	go func() {
		x.err = m.set.Take(ctx, &x.ticket, fairqueue.Flow{Schema: "model", Distinguisher: fmt.Sprint(x.flow)}, x.work, 0, nil)
		x.ended.Store(true)
	}()
}

// release ends a request that runs, and notes its final seats, as the set lists the request.
func (m *model) release(x *modelled) {
	for _, r := range m.set.Requests() {
		if r.Details == x && r.Work.FinalSeats > 0 && r.Work.After > 0 {
			m.held = append(m.held, hold{r.Work.FinalSeats, time.Now().Add(r.Work.After)})
		}
	}
	x.ticket.Release()
	x.cancel()
	m.open = slices.DeleteFunc(m.open, func(y *modelled) bool { return x == y })
}

// check checks the invariants.
func (m *model) check(at string) {
	t := m.t
	m.open = slices.DeleteFunc(m.open, func(x *modelled) bool {
		if x.ended.Load() && x.err != nil {
			m.refused++
			return true
		}
		return false
	})
	m.held = slices.DeleteFunc(m.held, func(h hold) bool { return !h.until.After(time.Now()) })
	s := m.set.State()
	taken, executing, waiting, waitingSeats := 0, 0, 0, 0
	oldest := map[int]*modelled{} // of each flow, of those that wait
	for _, x := range m.open {
		if !x.ended.Load() {
			waiting++
			waitingSeats += m.seats(x.work)
			if o := oldest[x.flow]; o == nil || x.arrived < o.arrived {
				oldest[x.flow] = x
			}
			continue
		}
		executing++
	}
	// Final seats may have been reduced when the request began.
	for _, r := range m.set.Requests() {
		if !r.Started.IsZero() {
			taken += max(r.Work.Seats, r.Work.FinalSeats)
		}
	}
	for _, h := range m.held {
		taken += h.seats
	}
	if s.Taken != taken || s.Executing != executing || s.Waiting != waiting || s.WaitingSeats != waitingSeats || s.Refused.Total() != m.refused {
		t.Errorf("%s: %+v, but %d seats are taken, %d requests run, %d wait for %d seats, %d were refused", at, s, taken, executing, waiting, waitingSeats, m.refused)
	}
	m.checkWakeups(at, s, oldest)
	m.checkOrder(at)
}

// checkWakeups asserts that no request waits that could run: with no seats for the first of some flow, that flow is the one
// whose turn it is.
func (m *model) checkWakeups(at string, s fairqueue.State, oldest map[int]*modelled) {
	if len(oldest) == 0 {
		return
	}
	if m.config.Exempt {
		m.t.Errorf("%s: requests wait in an exempt level", at)
		return
	}
	if s.Taken >= m.config.Seats {
		return
	}
	for _, x := range oldest {
		if seats := m.seats(x.work); seats > m.config.Seats && s.Executing > 0 || s.Taken+seats > m.config.Seats {
			return
		}
	}
	m.t.Errorf("%s: %d of %d seats are taken, and all requests that wait would fit", at, s.Taken, m.config.Seats)
}

// checkOrder asserts that the requests of a flow start in the order of their arrival, while there are queues.
func (m *model) checkOrder(at string) {
	if m.config.Queues == 0 || m.config.Exempt {
		for _, x := range m.open {
			x.arrived = -1 // they pass those that wait
		}
		return
	}
	for _, x := range m.open {
		for _, y := range m.open {
			if x.flow == y.flow && x.arrived < y.arrived && x.arrived >= 0 && !x.ended.Load() && y.ended.Load() {
				m.t.Errorf("%s: request %d of flow %d passed request %d", at, y.arrived, y.flow, x.arrived)
			}
		}
	}
}

// TestSeatLimit asserts that no more seats are taken than there are, but by one wide request alone, beside final seats.
func TestSeatLimit(t *testing.T) {
	for seed := *fairnessFrom; seed < *fairnessFrom+*fairnessSeeds; seed++ {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			c := fairqueue.Config{Seats: 1 + r.IntN(8), Queues: r.IntN(2) * 8, HandSize: 2, QueueLength: 10}
			s := fairqueue.New(c)
			var requests sync.WaitGroup
			for range 80 {
				at, lasts := time.Duration(r.IntN(20_000_000)), time.Duration(r.IntN(5_000_000))
				flow, work := fmt.Sprint(r.IntN(5)), fairqueue.Work{Seats: 1 + r.IntN(c.Seats+2)}
				if r.IntN(4) == 0 {
					work.FinalSeats, work.After = 1+r.IntN(c.Seats+2), time.Duration(r.IntN(3_000_000))
				}
				requests.Go(func() {
					time.Sleep(at)
					var ticket fairqueue.Ticket
					if s.Take(context.Background(), &ticket, fairqueue.Flow{Distinguisher: flow}, work, 0, nil) != nil {
						return
					}
					if now := s.State(); now.Taken > c.Seats && (now.Executing != 1 || max(work.Seats, work.FinalSeats) <= c.Seats) {
						t.Errorf("seed %d: %d of %d seats are taken by %d requests", seed, now.Taken, c.Seats, now.Executing)
					}
					time.Sleep(lasts)
					ticket.Release()
				})
			}
			requests.Wait()
			time.Sleep(time.Second)
		})
		if t.Failed() {
			return
		}
	}
}
