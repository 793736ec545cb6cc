package fairqueue_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	upstream "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/eventclock"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/apiserver/pkg/util/flowcontrol/request"

	"stele.dev/stele/limits/fairqueue"
)

var (
	fairnessFrom     = flag.Uint64("fairness-from", 1, "the first seed of the comparison with kube-apiserver's queues, and of the random model")
	fairnessUpstream = flag.Bool("fairness-upstream", false, "also measure a polite client with kube-apiserver's queues")
	fairnessSeeds    = flag.Uint64("fairness-seeds", 200, "how many seeds to run of each")
)

// arrival is a request of a comparison.
type arrival struct {
	at, lasts time.Duration
	hash      uint64
	work      fairqueue.Work
	patience  time.Duration // how long its context lives; 0 for ever
}

// comparison is what is given to both.
type comparison struct {
	config   fairqueue.Config
	arrivals []arrival
	resize   []fairqueue.Config // configurations that follow, one each 5 ms
}

// fate is what became of a request: the time when it started or was refused.
type fate struct {
	at      time.Duration
	refused string
}

// TestSameTurns compares with kube-apiserver's queues: the same requests start, or are refused, in the same nanosecond. The
// cases leave out where this package differs on purpose, see docs/OVERLOAD.md.
func TestSameTurns(t *testing.T) {
	for _, kind := range []struct {
		name   string
		random func(r *rand.Rand) comparison
	}{
		{"one seat", narrow}, {"many seats", wide}, {"no queues", unqueued},
	} {
		t.Run(kind.name, func(t *testing.T) {
			same := 0
			for seed := *fairnessFrom; seed < *fairnessFrom+*fairnessSeeds; seed++ {
				c := kind.random(rand.New(rand.NewPCG(seed, 0)))
				if compare(t, c, fmt.Sprintf("%s, seed %d", kind.name, seed)) {
					same++
				}
			}
			if same < int(*fairnessSeeds)*9/10 {
				t.Errorf("only %d of %d seeds were without two events in the same nanosecond", same, *fairnessSeeds)
			}
		})
	}
}

// narrow returns requests of one seat, some of which do not wait for long, and queues that overflow.
func narrow(r *rand.Rand) comparison {
	c := comparison{config: fairqueue.Config{Seats: 1 + r.IntN(6), Queues: 9 + r.IntN(9), QueueLength: 1 + r.IntN(12), HandSize: 1}}
	hashes := flowsOf(r)
	for range 60 + r.IntN(200) {
		a := arrivalOf(r, hashes)
		a.work.Seats = 1
		if r.IntN(5) == 0 {
			a.patience = randomTime(r, 8*time.Millisecond)
		}
		c.arrivals = append(c.arrivals, a)
	}
	for next := c.config; r.IntN(3) > 0; {
		next.Seats = 1 + r.IntN(6)
		c.resize = append(c.resize, next)
	}
	return c
}

// wide returns requests of up to more than all seats, some with final seats, in queues that do not overflow.
func wide(r *rand.Rand) comparison {
	c := comparison{config: fairqueue.Config{Seats: 2 + r.IntN(9), Queues: 9 + r.IntN(9), QueueLength: 1000, HandSize: 1}}
	hashes := flowsOf(r)
	widest := make([]int, len(hashes))
	for i := range widest {
		widest[i] = 1 + r.IntN(c.config.Seats+2)
	}
	for range 60 + r.IntN(140) {
		a := arrivalOf(r, hashes)
		a.work.Seats = 1 + r.IntN(widest[slices.Index(hashes, a.hash)])
		if r.IntN(4) == 0 {
			a.work.FinalSeats, a.work.After = a.work.Seats+r.IntN(4), randomTime(r, 3*time.Millisecond)
		}
		c.arrivals = append(c.arrivals, a)
	}
	return c
}

// unqueued returns requests for a level without queues, or that is exempt.
func unqueued(r *rand.Rand) comparison {
	c := comparison{config: fairqueue.Config{Seats: 1 + r.IntN(9), Exempt: r.IntN(4) == 0}}
	hashes := flowsOf(r)
	for range 60 + r.IntN(60) {
		a := arrivalOf(r, hashes)
		a.work.Seats = 1 + r.IntN(3)
		c.arrivals = append(c.arrivals, a)
	}
	return c
}

func flowsOf(r *rand.Rand) []uint64 {
	hashes := make([]uint64, 1+r.IntN(8))
	for i := range hashes {
		hashes[i] = uint64(i) // for another queue each
	}
	return hashes
}

func arrivalOf(r *rand.Rand, hashes []uint64) arrival {
	// Flows are not equally busy.
	hash := hashes[min(r.IntN(len(hashes)), r.IntN(len(hashes)))]
	return arrival{at: randomTime(r, 25*time.Millisecond), lasts: randomTime(r, 4*time.Millisecond), hash: hash}
}

func randomTime(r *rand.Rand, most time.Duration) time.Duration {
	return 1 + time.Duration(r.Int64N(int64(most)))
}

// compare runs a comparison. It reports whether no two events happened in the same nanosecond, when either order is right.
func compare(t *testing.T, c comparison, name string) bool {
	t.Helper()
	distinct := true
	synctest.Test(t, func(t *testing.T) {
		theirs, ours := theirSet(t, c.config), fairqueue.New(c.config)
		ours.StartAtPresent()
		integrator := theirs.demand
		theirFates, ourFates := make([]fate, len(c.arrivals)), make([]fate, len(c.arrivals))
		start := time.Now()
		var running sync.WaitGroup
		for i, a := range c.arrivals {
			running.Go(func() {
				time.Sleep(a.at)
				ctx, cancel := a.context()
				defer cancel()
				theirFates[i] = theirs.serve(ctx, a, start, c.config)
			})
			running.Go(func() {
				time.Sleep(a.at)
				ctx, cancel := a.context()
				defer cancel()
				ourFates[i] = serve(ctx, ours, a, start)
			})
		}
		for _, next := range c.resize {
			time.Sleep(5 * time.Millisecond)
			synctest.Wait()
			theirs.configure(t, next)
			ours.Configure(next)
		}
		running.Wait()
		time.Sleep(time.Minute) // final seats
		synctest.Wait()
		if s := ours.State(); !s.Idle() || s.WaitingSeats != 0 {
			t.Errorf("%s: at the end: %+v", name, s)
		}
		if distinct = c.distinct(ourFates, theirFates); !distinct {
			return
		}
		for i := range ourFates {
			if ourFates[i] != theirFates[i] {
				t.Fatalf("%s: request %d of %d (%+v) with %+v: got %+v, kube-apiserver's queues %+v", name, i, len(c.arrivals), c.arrivals[i],
					c.config, ourFates[i], theirFates[i])
			}
		}
		c.compareDemand(t, name, ours.Demand(), integrator.GetResults())
	})
	return distinct
}

// compareDemand compares the moments of demand. Theirs lose count of a request with more final seats than there are seats.
func (c comparison) compareDemand(t *testing.T, name string, got fairqueue.Demand, want upstream.IntegratorResults) {
	for _, a := range c.arrivals {
		if a.work.FinalSeats > c.config.Seats {
			return
		}
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
	if !near(got.Duration.Seconds(), want.Duration) || !near(got.Average, want.Average) || !near(got.Deviation, want.Deviation) || float64(got.Max) != want.Max {
		t.Errorf("%s: demand: got %+v, kube-apiserver's %+v", name, got, want)
	}
}

// distinct reports whether arrivals, ends, and losses of patience are at different times.
func (c comparison) distinct(fates ...[]fate) bool {
	for _, one := range fates {
		seen := map[time.Duration]bool{}
		for i := range c.resize {
			seen[time.Duration(i+1)*5*time.Millisecond] = true
		}
		for i, a := range c.arrivals {
			var times []time.Duration
			times = append(times, a.at)
			if one[i].refused == "" {
				times = append(times, one[i].at+a.lasts)
				if a.work.After > 0 {
					times = append(times, one[i].at+a.lasts+a.work.After)
				}
			}
			if a.patience > 0 {
				times = append(times, a.at+a.patience)
			}
			for _, at := range times {
				if seen[at] {
					return false
				}
				seen[at] = true
			}
		}
	}
	return true
}

func (a arrival) context() (context.Context, context.CancelFunc) {
	if a.patience > 0 {
		return context.WithTimeout(context.Background(), a.patience)
	}
	return context.WithCancel(context.Background())
}

func serve(ctx context.Context, s *fairqueue.Set, a arrival, start time.Time) fate {
	var ticket fairqueue.Ticket
	f := fairqueue.Flow{Schema: "schema", Distinguisher: fmt.Sprint(a.hash)}
	if err := s.Take(ctx, &ticket, f, a.work, 0, nil); err != nil {
		return fate{time.Since(start), err.(*fairqueue.RefusedError).Reason}
	}
	began := time.Since(start)
	time.Sleep(a.lasts)
	ticket.Release()
	return fate{at: began}
}

// theirs is a queue set of kube-apiserver.
type theirs struct {
	set    upstream.QueueSet
	demand upstream.Integrator
}

func queuing(c fairqueue.Config) (upstream.QueuingConfig, upstream.DispatchingConfig) {
	queues := c.Queues
	if c.Exempt {
		queues = -1
	}
	return upstream.QueuingConfig{Name: "level", DesiredNumQueues: queues, QueueLengthLimit: c.QueueLength, HandSize: c.HandSize},
		upstream.DispatchingConfig{ConcurrencyLimit: c.Seats, ConcurrencyDenominator: max(c.Seats, 1)}
}

func theirSet(t testing.TB, c fairqueue.Config) theirs {
	clock := eventclock.Real{}
	demand := upstream.NewNamedIntegrator(clock, "demand")
	queues, seats := queuing(c)
	completer, err := queueset.NewQueueSetFactory(clock).BeginConstruction(queues,
		metrics.RatioedGaugePair{RequestsWaiting: noGauge{}, RequestsExecuting: noGauge{}}, noGauge{}, demand)
	if err != nil {
		t.Fatal(err)
	}
	return theirs{completer.Complete(seats), demand}
}

func (s theirs) configure(t *testing.T, c fairqueue.Config) {
	queues, seats := queuing(c)
	completer, err := s.set.BeginConfigChange(queues)
	if err != nil {
		t.Fatal(err)
	}
	completer.Complete(seats)
}

func (s theirs) serve(ctx context.Context, a arrival, start time.Time, c fairqueue.Config) fate {
	estimate := request.WorkEstimate{InitialSeats: uint64(a.work.Seats), FinalSeats: uint64(a.work.FinalSeats), AdditionalLatency: a.work.After}
	r, _ := s.set.StartRequest(ctx, &estimate, a.hash, "", "schema", nil, nil, nil)
	if r == nil {
		if c.Queues == 0 {
			return fate{time.Since(start), fairqueue.ConcurrencyLimit}
		}
		return fate{time.Since(start), fairqueue.QueueFull}
	}
	f := fate{refused: fairqueue.TimeOut}
	r.Finish(func() {
		f = fate{at: time.Since(start)}
		time.Sleep(a.lasts)
	})
	if f.refused != "" {
		f.at = time.Since(start)
	}
	return f
}

// noGauge records nothing.
type noGauge struct{}

func (noGauge) Set(float64)            {}
func (noGauge) Inc()                   {}
func (noGauge) Dec()                   {}
func (noGauge) Add(float64)            {}
func (noGauge) SetToCurrentTime()      {}
func (noGauge) SetDenominator(float64) {}
