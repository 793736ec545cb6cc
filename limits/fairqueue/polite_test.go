package fairqueue_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/util/flowcontrol/request"

	"stele.dev/stele/limits/fairqueue"
)

// suggested is like a suggested priority level of kube-apiserver.
var suggested = fairqueue.Config{Seats: 10, Queues: 128, HandSize: 6, QueueLength: 50}

// latencies returns how long requests of a polite client take, which run for 10 ms and come one every 47 ms, beside greedy
// clients that each have some requests open at all times, of 10 ms on average. serve runs a request, and reports whether it
// was not refused.
func latencies(t *testing.T, newServer func() func(client string, d time.Duration) bool, greedy, open int) []time.Duration {
	var all []time.Duration
	synctest.Test(t, func(t *testing.T) {
		serve := newServer()
		ctx, stop := context.WithCancel(context.Background())
		var clients sync.WaitGroup
		for i := range greedy {
			for j := range open {
				clients.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), uint64(j)))
					time.Sleep(time.Duration(i*open+j) * 7919 * time.Nanosecond)
					for ctx.Err() == nil {
						if !serve(fmt.Sprint("greedy-", i), 5*time.Millisecond+time.Duration(r.IntN(10_000_000))) {
							time.Sleep(time.Second) // as told by Retry-After
						}
					}
				})
			}
		}
		time.Sleep(2 * time.Second)
		for range 60 {
			begun := time.Now()
			if !serve("polite", 10*time.Millisecond) {
				t.Error("a request of the polite client was refused")
			}
			all = append(all, time.Since(begun))
			time.Sleep(47 * time.Millisecond)
		}
		stop()
		clients.Wait()
	})
	slices.Sort(all)
	return all
}

func oursForLatencies() func(client string, d time.Duration) bool {
	s := fairqueue.New(suggested)
	return func(client string, d time.Duration) bool {
		var ticket fairqueue.Ticket
		f := fairqueue.Flow{Schema: "users", Distinguisher: client}
		if s.Take(context.Background(), &ticket, f, fairqueue.Work{Seats: 1}, 0, nil) != nil {
			return false
		}
		time.Sleep(d)
		ticket.Release()
		return true
	}
}

func theirsForLatencies(t *testing.T) func() func(client string, d time.Duration) bool {
	return func() func(client string, d time.Duration) bool {
		s := theirSet(t, suggested)
		return func(client string, d time.Duration) bool {
			h := fnv.New64a()
			h.Write([]byte(client))
			hash := h.Sum64() * 0x9E3779B97F4A7C15
			r, _ := s.set.StartRequest(context.Background(), &request.WorkEstimate{InitialSeats: 1}, hash, client, "users", nil, nil, nil)
			if r == nil {
				return false
			}
			r.Finish(func() { time.Sleep(d) })
			return true
		}
	}
}

// TestPoliteClient has a client that uses less than its share beside fifty that want all there is. Its requests take at
// most twice as long as alone.
func TestPoliteClient(t *testing.T) {
	for _, open := range []int{1, 4, 20, 100} {
		alone := latencies(t, oursForLatencies, 0, 0)
		beside := latencies(t, oursForLatencies, 50, open)
		worst, limit := beside[len(beside)-1], 2*alone[len(alone)-1]
		if worst > limit {
			t.Errorf("beside 50 clients with %d open requests each: a request took %v, at most %v expected", open, worst, limit)
		}
		if *fairnessUpstream {
			theirs := latencies(t, theirsForLatencies(t), 50, open)
			t.Logf("beside 50 clients with %d open requests each: median %v, worst %v; kube-apiserver's queues: median %v, worst %v", open,
				beside[len(beside)/2], worst, theirs[len(theirs)/2], theirs[len(theirs)-1])
		}
	}
}

// A flow whose requests take most seats leaves some free that no further one of them fits. The meter must not count them as
// used, or the flow gets ahead of all that need few seats.
func TestRequestsOfManySeatsDoNotDelayThoseOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fairqueue.New(fairqueue.Config{Seats: 17, Queues: 64, HandSize: 6, QueueLength: 50})
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for ctx.Err() == nil {
					var ticket fairqueue.Ticket
					if s.Take(ctx, &ticket, fairqueue.Flow{Schema: "s", Distinguisher: "wide"}, fairqueue.Work{Seats: 12}, 0, nil) == nil {
						time.Sleep(25 * time.Millisecond)
						ticket.Release()
					}
				}
			})
		}
		for i := range 100 {
			time.Sleep(73 * time.Millisecond)
			var ticket fairqueue.Ticket
			began := time.Now()
			if err := s.Take(ctx, &ticket, fairqueue.Flow{Schema: "s", Distinguisher: "narrow"}, fairqueue.Work{Seats: 1}, 0, nil); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited > 0 && i > 0 { // the estimates before any request has ended are wrong
				t.Errorf("request %d waited %v, although seats were free", i, waited)
			}
			time.Sleep(time.Millisecond)
			ticket.Release()
		}
		stop()
		all.Wait()
	})
}

// TestBeginningIsNoAdvantage has a client that sends some requests at once, waits until all have ended, and begins anew,
// beside ten that always have some. It gets no more of the seats than if it had always some, too.
func TestBeginningIsNoAdvantage(t *testing.T) {
	for _, burst := range []int{2, 4, 8, 40} {
		t.Run(fmt.Sprint(burst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fairqueue.New(suggested)
				ctx, stop := context.WithCancel(context.Background())
				var mu sync.Mutex
				used := map[string]time.Duration{}
				var clients sync.WaitGroup
				request := func(name string, r *rand.Rand) {
					var ticket fairqueue.Ticket
					if s.Take(ctx, &ticket, fairqueue.Flow{Distinguisher: name}, fairqueue.Work{Seats: 1}, 0, nil) != nil {
						return
					}
					d := 5*time.Millisecond + time.Duration(r.IntN(10_000_000))
					time.Sleep(d)
					ticket.Release()
					mu.Lock()
					used[name] += d
					mu.Unlock()
				}
				for i := range 100 {
					clients.Go(func() {
						r := rand.New(rand.NewPCG(uint64(i), 7))
						for ctx.Err() == nil {
							request(fmt.Sprint("greedy-", i%10), r)
						}
					})
				}
				clients.Go(func() {
					for n := uint64(0); ctx.Err() == nil; n++ {
						var requests sync.WaitGroup
						for i := range burst {
							requests.Go(func() { request("bursts", rand.New(rand.NewPCG(n, uint64(i)))) })
						}
						requests.Wait()
						time.Sleep(100 * time.Microsecond)
					}
				})
				time.Sleep(20 * time.Second)
				stop()
				mu.Lock()
				if share := used["bursts"].Seconds() / 20 / (10.0 / 11); share > 1.05 || share < 0.95 {
					t.Errorf("with %d requests at once it got %.2f of its share", burst, share)
				}
				mu.Unlock()
				clients.Wait()
			})
		})
	}
}

// A request may run much longer than those before it, and what it uses is known only when it ends. Meanwhile the requests of
// its flow that wait for more seats than there are must not keep others from those that are free.
func TestALongRequestDoesNotDelayThoseOfOneSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fairqueue.New(fairqueue.Config{Seats: 17, Queues: 64, HandSize: 6, QueueLength: 50})
		ctx, stop := context.WithCancel(t.Context())
		take := func(name string, seats int, lasts time.Duration) (waited time.Duration) {
			var ticket fairqueue.Ticket
			began := time.Now()
			if s.Take(ctx, &ticket, fairqueue.Flow{Schema: "s", Distinguisher: name}, fairqueue.Work{Seats: seats}, 0, nil) == nil {
				waited = time.Since(began)
				time.Sleep(lasts)
				ticket.Release()
			}
			return waited
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { take("wide", 12, 10*time.Second) })
		}
		for i := range 50 {
			time.Sleep(73 * time.Millisecond)
			if waited := take("narrow", 1, time.Millisecond); waited > 0 {
				t.Errorf("request %d waited %v, although seats were free", i, waited)
			}
		}
		stop()
		all.Wait()
	})
}
