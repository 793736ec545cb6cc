package flow_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/load/flow"
	"stele.dev/stele/limits/fairqueue"
	"stele.dev/stele/policy"
)

func TestARequestTakesSeatsOfItsLevelUntilItEnds(t *testing.T) {
	c := newControl(100)
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
	r := taken(t, c, requestOf(tip, "alice"))
	if r.Flow.Schema.Name != "alice" || r.Flow.Distinguisher != "alice" {
		t.Errorf("the flow is %s of %s", r.Flow.Distinguisher, r.Flow.Schema.Name)
	}
	h := r.W.Header()
	if got, want := h.Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID), policy.UIDOf("flowcontrol.apiserver.k8s.io", "flowschemas", "", "alice"); got != want {
		t.Errorf("the flow schema in the header is %q, want %q", got, want)
	}
	if got, want := h.Get(flowcontrol.ResponseHeaderMatchedPriorityLevelConfigurationUID), policy.UIDOf("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "own"); got != want {
		t.Errorf("the priority level in the header is %q, want %q", got, want)
	}
	if l := stateOf(c, "own"); l.Queues.Executing != 1 || l.Queues.Taken != 1 {
		t.Errorf("the level is %+v, want one request", l.Queues)
	}
	r.ReleaseSeats()
	r.ReleaseSeats()
	r.EndFlow()
	r.EndFlow()
	if l := stateOf(c, "own"); !l.Queues.Idle() || l.Queues.Dispatched != 1 {
		t.Errorf("the level is %+v, want it idle", l.Queues)
	}
}

func TestAServerHasSeatsWhateverItIsTold(t *testing.T) {
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
	for _, seats := range []int{-1, 0, 1} {
		taken(t, newControl(seats), requestOf(tip, "alice"))
	}
}

func TestExemptRequestsPassAlways(t *testing.T) {
	c := newControl(1, func(o *flow.Options) { o.Cost = func(*call.Call) fairqueue.Work { return fairqueue.Work{Seats: 50} } })
	tip := tipOf(t, 1, policy.Flow{})
	for range 200 {
		if r := taken(t, c, requestOf(tip, "root", policy.MastersGroup)); r.Flow.Schema.Name != "exempt" {
			t.Fatalf("the flow schema is %s", r.Flow.Schema.Name)
		}
	}
	if l := stateOf(c, "exempt"); l.Queues.Executing != 200 || l.Queues.Taken != 200*50 {
		t.Errorf("the level is %+v", l.Queues)
	}
}

func TestSeatsOfARequestAreBoundedByItsLevel(t *testing.T) {
	c := newControl(100, func(o *flow.Options) {
		o.Cost = func(*call.Call) fairqueue.Work { return fairqueue.Work{Seats: 90, FinalSeats: 80, After: time.Second} }
	})
	l := level("own", 1_000_000)
	l.Queuing.HandSize = 6
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{l}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
	taken(t, c, requestOf(tip, "alice"))
	if got := stateOf(c, "own"); got.PerRequest != 75 || got.Queues.Taken != 75 {
		t.Errorf("a request takes %d of at most %d seats, want 75", got.Queues.Taken, got.PerRequest)
	}
}

// Without queues, a request that takes more seats than its level has would be refused while any other runs, and would keep all
// others out.
func TestSeatsOfARequestAreBoundedInALevelWithoutQueues(t *testing.T) {
	c := newControl(20, func(o *flow.Options) {
		o.Cost = func(r *call.Call) fairqueue.Work {
			if r.User.GetName() == "alice" {
				return fairqueue.Work{Seats: 100}
			}
			return fairqueue.Work{Seats: 1}
		}
	})
	l := level("own", 1_000_000)
	l.Queuing = nil
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{l}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own"), schemaFor("bob", "own")}})
	taken(t, c, requestOf(tip, "bob"))
	taken(t, c, requestOf(tip, "alice"))
	taken(t, c, requestOf(tip, "bob"))
}

// TestRequestsThatWaitTakeTheSeatsOfTheirTurn has wide requests that wait while their level borrows seats: then each takes as
// many as if it arrived now, and they still run one by one.
func TestRequestsThatWaitTakeTheSeatsOfTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(1000, func(o *flow.Options) { o.Cost = func(*call.Call) fairqueue.Work { return fairqueue.Work{Seats: 100} } })
		ctx, stop := context.WithCancel(t.Context())
		go c.Run(ctx)
		lends := level("lends", 900)
		lends.LendablePercent = 90
		tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 20), lends}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
		first := taken(t, c, requestOf(tip, "alice"))
		before := stateOf(c, "own")
		if before.Queues.Taken >= 100 || before.Queues.Taken != before.PerRequest {
			t.Fatalf("the first takes %d seats, at most %d, want fewer than 100", before.Queues.Taken, before.PerRequest)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				r := requestOf(tip, "alice")
				if err := c.Take(ctx, r); err == nil {
					time.Sleep(time.Second)
					r.EndFlow()
				}
			})
		}
		synctest.Wait()
		if got := stateOf(c, "own").Queues; got.Executing != 1 || got.Waiting != 8 {
			t.Fatalf("%d run and %d wait, want 1 and 8", got.Executing, got.Waiting)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		after := stateOf(c, "own")
		if after.Seats.Current < 5*before.Seats.Current || after.PerRequest < 100 && after.PerRequest <= 5*before.PerRequest {
			t.Fatalf("the level has %d seats, %d for a request, and had %d", after.Seats.Current, after.PerRequest, before.Seats.Current)
		}
		each := min(after.PerRequest, 100)
		fit := (after.Seats.Current - before.Queues.Taken) / each
		if got := after.Queues; got.Executing != 1+fit || got.Taken != before.Queues.Taken+fit*each {
			t.Errorf("with %d seats, %d requests take %d, want %d that take %d each beside the first", after.Seats.Current, got.Executing, got.Taken, fit, each)
		}
		first.EndFlow()
		stop()
		all.Wait()
	})
}

// fill takes all seats of a level.
func fill(t *testing.T, c *flow.Control, level string, request func() *call.Call) (holders []*call.Call) {
	t.Helper()
	for {
		if l := stateOf(c, level); l != nil && l.Queues.Taken >= l.Seats.Current {
			return holders
		}
		holders = append(holders, taken(t, c, request()))
	}
}

func TestARequestWaitsAQuarterOfItsTime(t *testing.T) {
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
	for name, x := range map[string]struct {
		timeout, age, want time.Duration
		watch              bool
	}{
		"a quarter of its timeout": {timeout: time.Minute, want: 15 * time.Second},
		"from its arrival":         {timeout: time.Minute, age: 5 * time.Second, want: 10 * time.Second},
		"a minute at most":         {timeout: time.Hour, want: time.Minute},
		"a watch":                  {watch: true, want: 15 * time.Second},
		"not longer than it has":   {timeout: time.Minute, age: 40 * time.Second, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newControl(10)
				fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
				r := requestOf(tip, "alice")
				if x.watch {
					r = watchOf(tip, "alice")
				}
				ctx := t.Context()
				if r.Received = time.Now().Add(-x.age); x.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithDeadline(ctx, r.Received.Add(x.timeout))
					defer cancel()
				}
				start := time.Now()
				err := refusedOf(t, ctx, c, r)
				if waited := time.Since(start); waited.Round(time.Millisecond) != x.want {
					t.Errorf("it waited %s, want %s", waited, x.want)
				}
				if !strings.Contains(err.Error(), "waited too long") || err.ErrStatus.Details.Causes[0].Type != "time-out" {
					t.Errorf("refusal: %v, %v", err, err.ErrStatus.Details)
				}
				if got := r.W.Header().Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID); got == "" {
					t.Error("a refusal has no header with the flow schema")
				}
				if fs := c.Flows(); len(fs) != 1 || fs[0].Refused.Total() != 1 || fs[0].Watches != 0 || fs[0].Waiting != 0 {
					t.Errorf("flows: %+v", fs)
				}
			})
		})
	}
}

func TestAWaitingRequestGetsTheSeatsThatBecomeFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(10)
		tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
		holders := fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
		var got error
		var waited time.Duration
		go func() {
			start := time.Now()
			got = c.Take(context.Background(), requestOf(tip, "alice"))
			waited = time.Since(start)
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if fs := c.Flows(); len(fs) != 1 || fs[0].Waiting != 1 || fs[0].Waits != 2*time.Second {
			t.Errorf("flows: %+v, want one request that has waited 2 s", fs)
		}
		holders[0].EndFlow()
		synctest.Wait()
		if got != nil || waited != 2*time.Second {
			t.Errorf("it got %v after %s", got, waited)
		}
	})
}

func TestACanceledRequestLeavesItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(10)
		tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
		fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		err := refusedOf(t, ctx, c, requestOf(tip, "alice"))
		if cause := err.ErrStatus.Details.Causes[0]; cause.Type != "cancelled" {
			t.Errorf("cause %+v", cause)
		}
		if l := stateOf(c, "own"); l.Queues.Waiting != 0 || l.Refused != (flow.Counts{0, 0, 0, 1, 0}) {
			t.Errorf("level: %+v, refused %v", l.Queues, l.Refused)
		}
	})
}

func TestARefusalNamesItsFlowSchemaAndItsLine(t *testing.T) {
	without := level("own", 1000)
	without.Queuing = nil
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{without}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
	c := newControl(10)
	fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
	err := refusedOf(t, t.Context(), c, watchOf(tip, "alice"))
	want := `too many requests of user "alice" in flow schema "alice" (flows.cue:12): all seats of priority level "own" are taken, and it has no queues; try again later, or raise nominalConcurrencyShares of the priority level`
	if err.ErrStatus.Message != want {
		t.Errorf("message %q\nwant    %q", err.ErrStatus.Message, want)
	}
	d := err.ErrStatus.Details
	if d.RetryAfterSeconds != 1 || d.Group != "apps.example" || d.Kind != "widgets" || len(d.Causes) != 1 || d.Causes[0].Type != "concurrency-limit" || d.Causes[0].Field != "flows.cue:12" {
		t.Errorf("details %+v", d)
	}
	if l := stateOf(c, "own"); l.Refused != (flow.Counts{0, 1, 0, 0, 0}) {
		t.Errorf("refused %v", l.Refused)
	}
}

func TestAFullQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(10)
		l := level("own", 1000)
		l.Queuing = &policy.Queuing{Queues: 1, HandSize: 1, QueueLengthLimit: 3}
		tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{l}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
		holders := fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				r := requestOf(tip, "alice")
				if err := c.Take(context.Background(), r); err != nil {
					t.Errorf("a request in the queue gets %v", err)
				}
				r.EndFlow()
			})
		}
		synctest.Wait()
		err := refusedOf(t, t.Context(), c, requestOf(tip, "alice"))
		if !strings.Contains(err.Error(), `wait for seats of priority level "own"`) {
			t.Error(err)
		}
		for _, h := range holders {
			h.EndFlow()
		}
		all.Wait()
	})
}

// The numbers of refused requests and the values are those that kube-apiserver has.
func TestRetryAfterRisesWhileManyAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		without, other := level("own", 1000), level("other", 1000)
		without.Queuing, other.Queuing = nil, nil
		tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{without, other}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own"), schemaFor("bob", "other")}})
		c := newControl(10)
		fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
		fill(t, c, "other", func() *call.Call { return requestOf(tip, "bob") })
		start := time.Now()
		for _, x := range []struct {
			at, refuse int
			want       int32
		}{{0, 5, 1}, {1, 11, 2}, {2, 1, 2}, {3, 11, 4}, {4, 1, 4}, {7, 1, 8}, {11, 1, 8}, {15, 1, 7}, {17, 1, 6}, {21, 14, 5}, {22, 1, 10}} {
			time.Sleep(time.Until(start.Add(time.Duration(x.at) * time.Second)))
			var got int32
			for range x.refuse {
				got = refusedOf(t, t.Context(), c, requestOf(tip, "alice")).ErrStatus.Details.RetryAfterSeconds
			}
			if got != x.want {
				t.Errorf("after %d s: Retry-After %d, want %d", x.at, got, x.want)
			}
			if l := stateOf(c, "own"); l.RetryAfter != int64(got) {
				t.Errorf("the level shows Retry-After %d, not %d", l.RetryAfter, got)
			}
		}
		if got := refusedOf(t, t.Context(), c, requestOf(tip, "bob")).ErrStatus.Details.RetryAfterSeconds; got != 1 {
			t.Errorf("another level has Retry-After %d, want 1", got)
		}
	})
}

func TestWatchesOfAFlowAreLimited(t *testing.T) {
	s := schemaFor("alice", "own")
	s.Subjects, s.Watches = append(s.Subjects, policy.Subject{User: "bob"}), 2
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}, FlowSchemas: []policy.FlowSchema{s}})
	c := newControl(100)
	first, second := taken(t, c, watchOf(tip, "alice")), taken(t, c, watchOf(tip, "alice"))
	first.ReleaseSeats()
	second.ReleaseSeats()
	err := refusedOf(t, t.Context(), c, watchOf(tip, "alice"))
	want := `limited to 2 watches for each user by flow schema "alice" (flows.cue:12); close some, or raise watches in the flow schema`
	if err.ErrStatus.Message != want || err.ErrStatus.Details.Causes[0].Type != "watch-limit" {
		t.Errorf("refusal %q, details %+v\nwant %q", err.ErrStatus.Message, err.ErrStatus.Details, want)
	}
	taken(t, c, watchOf(tip, "bob")).EndFlow()
	taken(t, c, requestOf(tip, "alice")).EndFlow()
	if fs := c.Flows(); len(fs) != 1 || fs[0].Watches != 2 || fs[0].Executing != 0 || fs[0].Refused.Total() != 1 {
		t.Errorf("flows: %+v", fs)
	}

	// A new policy counts them as before.
	s.Watches = 3
	tip = tipOf(t, 2, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}, FlowSchemas: []policy.FlowSchema{s}})
	third := taken(t, c, watchOf(tip, "alice"))
	refusedOf(t, t.Context(), c, watchOf(tip, "alice"))
	first.EndFlow()
	taken(t, c, watchOf(tip, "alice")).EndFlow()
	second.EndFlow()
	third.EndFlow()
	if fs := c.Flows(); len(fs) != 1 || fs[0].Watches != 0 {
		t.Errorf("flows: %+v, want no watches", fs)
	}
}

func TestAWatchThatGetsNoSeatsIsNotCounted(t *testing.T) {
	s := schemaFor("alice", "own")
	s.Watches = 1
	without := level("own", 1000)
	without.Queuing = nil
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{without}, FlowSchemas: []policy.FlowSchema{s}})
	c := newControl(10)
	holders := fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
	refusedOf(t, t.Context(), c, watchOf(tip, "alice"))
	holders[0].EndFlow()
	taken(t, c, watchOf(tip, "alice"))
}

func TestANewPolicyChangesLevelsWhileRequestsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(10)
		f := policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}}
		former := tipOf(t, 1, f)
		fill(t, c, "own", func() *call.Call { return requestOf(former, "alice") })
		var got error
		done := false
		go func() {
			got = c.Take(context.Background(), requestOf(former, "alice"))
			done = true
		}()
		synctest.Wait()
		before := stateOf(c, "own").Seats.Current

		// Another policy that changes nothing of the flows.
		same := tipOf(t, 2, f)
		taken(t, c, requestOf(same, "root", policy.MastersGroup))
		if l := stateOf(c, "own"); l.Seats.Current != before || l.Queues.Waiting != 1 {
			t.Errorf("the level is %+v with %d seats, want %d", l.Queues, l.Seats.Current, before)
		}
		// One that gives the level no queues, and half of the seats: who waits keeps waiting.
		less := level("own", 1000)
		less.Queuing = nil
		taken(t, c, requestOf(tipOf(t, 3, policy.Flow{PriorityLevels: []policy.PriorityLevel{less, level("new", 1000)}, FlowSchemas: f.FlowSchemas}), "root", policy.MastersGroup))
		if l := stateOf(c, "own"); l.Queues.Waiting != 1 || l.Seats.Nominal > before {
			t.Errorf("the level is %+v, %+v", l.Queues, l.Seats)
		}
		// One with more seats.
		more := tipOf(t, 4, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1_000_000)}, FlowSchemas: f.FlowSchemas})
		c2 := requestOf(more, "root", policy.MastersGroup)
		taken(t, c, c2)
		synctest.Wait()
		if !done || got != nil {
			t.Errorf("the request that waited: %v, %v, with %+v", done, got, stateOf(c, "own").Seats)
		}
	})
}

func TestRequestsOfTwoPoliciesAreMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(100)
		go c.Run(t.Context())
		former := tipOf(t, 7, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("one", 1000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "one")}})
		newest := tipOf(t, 9, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("two", 3000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "two")}})
		taken(t, c, requestOf(newest, "alice")).EndFlow()
		seats := stateOf(c, "two").Seats
		for range 50 {
			if r := taken(t, c, requestOf(newest, "alice")); r.Flow.Schema.Level.Name != "two" {
				t.Fatalf("a request of the newest policy is of level %s", r.Flow.Schema.Level.Name)
			} else {
				r.EndFlow()
			}
			if r := taken(t, c, requestOf(former, "alice")); r.Flow.Schema.Level.Name != "one" {
				t.Fatalf("a request of the former policy is of level %s", r.Flow.Schema.Level.Name)
			} else {
				r.EndFlow()
			}
			if got := stateOf(c, "two").Seats; got != seats {
				t.Fatalf("the seats change from %+v to %+v", seats, got)
			}
		}
		if l := stateOf(c, "one"); l != nil {
			t.Errorf("the former policy has brought its level back: %+v", l)
		}
	})
}

func TestALevelThatIsGoneDrainsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(100)
		go c.Run(t.Context())
		former := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("one", 1000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "one")}})
		long := taken(t, c, requestOf(former, "alice"))
		newest := tipOf(t, 2, policy.Flow{})
		taken(t, c, requestOf(newest, "alice")).EndFlow()
		// A request that was pinned to the former policy finds its level.
		taken(t, c, requestOf(former, "alice")).EndFlow()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if l := stateOf(c, "one"); l == nil || !l.Draining || l.Seats.Current == 0 || l.Queues.Executing != 1 {
			t.Fatalf("the level with a request: %+v, want it draining", l)
		}
		long.EndFlow()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if l := stateOf(c, "one"); l != nil {
			t.Errorf("the level without requests is still there: %+v", l.Queues)
		}
		// The level comes back as a new one.
		taken(t, c, requestOf(tipOf(t, 3, former.Policy.Form().Flow), "alice"))
		if l := stateOf(c, "one"); l == nil || l.Draining {
			t.Errorf("the level that has come back: %+v", l)
		}
	})
}

// Policies follow each other while requests are held. There are always the levels of the newest policy, and those with
// requests, and each request is of the level that its own policy says.
func TestLevelsFollowPolicies(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			g := rand.New(rand.NewPCG(seed, 3))
			c := newControl(1000)
			go c.Run(t.Context())
			held := map[string][]*call.Call{}
			for revision := range uint64(20) {
				var f policy.Flow
				want := map[string]bool{}
				for i := range 8 {
					if g.IntN(2) == 0 {
						continue
					}
					l := level(fmt.Sprint("level", i), 100+g.IntN(1000))
					if g.IntN(3) == 0 {
						l.Queuing = nil
					}
					l.LendablePercent = g.IntN(90)
					f.PriorityLevels = append(f.PriorityLevels, l)
					f.FlowSchemas = append(f.FlowSchemas, schemaFor(fmt.Sprint("user", i), l.Name))
					want[l.Name] = true
				}
				tip := tipOf(t, revision+1, f)
				taken(t, c, requestOf(tip, "root", policy.MastersGroup)).EndFlow()
				for i := range 8 {
					r := taken(t, c, requestOf(tip, fmt.Sprint("user", i)))
					l := r.Flow.Schema.Level.Name
					if own := fmt.Sprint("level", i); want[own] && l != own || !want[own] && l != "global-default" {
						t.Fatalf("seed %d: user%d is of level %s", seed, i, l)
					}
					if held[l] = append(held[l], r); g.IntN(2) == 0 {
						for _, r := range held[l] {
							r.EndFlow()
						}
						delete(held, l)
					}
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				seats := 0
				for _, l := range c.Levels() {
					name := l.Name
					seats += l.Seats.Current
					switch {
					case l.Builtin:
					case want[name] == l.Draining:
						t.Fatalf("seed %d: level %s is draining: %v, wanted: %v", seed, name, l.Draining, want[name])
					case !want[name] && held[name] == nil:
						t.Fatalf("seed %d: level %s is not wanted and has no requests, but is still there", seed, name)
					}
					if l.Queues.Executing != len(held[name]) {
						t.Fatalf("seed %d: level %s has %d requests, want %d", seed, name, l.Queues.Executing, len(held[name]))
					}
					delete(want, name)
				}
				if len(want) > 0 {
					t.Fatalf("seed %d: missing levels %v", seed, want)
				}
				if seats < 980 || seats > 1030 { // nominal seats are rounded up
					t.Fatalf("seed %d: the levels have %d seats of 1000", seed, seats)
				}
			}
		})
	}
}

// Two levels have 12 seats each. 24 clients of the one and 6 of the other have requests all the time. After the first
// adjustment, the one runs 16 at a time: as many as the other lends, or as it may borrow itself.
func TestSeatsAreBorrowed(t *testing.T) {
	for name, limits := range map[string][2][2]int{
		"the lender's limit":   {{50, 67}, {33, 50}},
		"the borrower's limit": {{50, 33}, {67, 50}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newControl(24)
				ctx, cancel := context.WithCancel(t.Context())
				go c.Run(ctx)
				f := policy.Flow{PriorityLevels: suggested()}
				var running [2]int
				var sums [2]time.Duration
				var mu sync.Mutex
				counting := false
				for i, x := range limits {
					l := level(fmt.Sprint("level", i), 10_000)
					l.LendablePercent, l.BorrowingLimitPercent = x[0], &x[1]
					l.Queuing = &policy.Queuing{Queues: 10, HandSize: 2, QueueLengthLimit: 10}
					f.PriorityLevels = append(f.PriorityLevels, l)
					f.FlowSchemas = append(f.FlowSchemas, schemaFor(fmt.Sprint("user", i), l.Name))
				}
				tip := tipOf(t, 1, f)
				var all sync.WaitGroup
				for i, clients := range []int{24, 6} {
					for range clients {
						all.Go(func() {
							for ctx.Err() == nil {
								r := requestOf(tip, fmt.Sprint("user", i))
								if c.Take(ctx, r) != nil {
									continue
								}
								time.Sleep(250 * time.Millisecond)
								mu.Lock()
								if counting {
									sums[i] += 250 * time.Millisecond
								}
								mu.Unlock()
								r.EndFlow()
							}
						})
					}
				}
				_ = running
				time.Sleep(11 * time.Second)
				mu.Lock()
				counting = true
				mu.Unlock()
				time.Sleep(15 * time.Second)
				mu.Lock()
				counting = false
				mu.Unlock()
				cancel()
				all.Wait()
				for i, want := range []float64{16, 6} {
					if got := sums[i].Seconds() / 15; got < want-0.6 || got > want+0.3 {
						t.Errorf("level %d runs %.2f requests at a time, want %g", i, got, want)
					}
				}
			})
		})
	}
}

func TestAnExplainedRequestTakesNothing(t *testing.T) {
	c := newControl(10)
	tip := tipOf(t, 5, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
	r := requestOf(tip, "alice")
	c.Classify(r)
	if r.Flow.Schema.Name != "alice" || r.Flow.Taken != nil || r.W.Header().Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID) == "" {
		t.Errorf("flow %+v", r.Flow)
	}
	if levels := c.Levels(); len(levels) != 0 {
		t.Errorf("an explained policy has come into force: %v", levels)
	}
}

func TestFlowsAreListedWhileTheyMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(10)
		without := level("own", 1000)
		without.Queuing = nil
		s := schemaFor("alice", "own")
		s.Subjects = []policy.Subject{{Group: "system:authenticated"}}
		tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{without}, FlowSchemas: []policy.FlowSchema{s}})
		holders := fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
		for i := range 3000 {
			refusedOf(t, t.Context(), c, requestOf(tip, fmt.Sprint("user", i)))
		}
		fs := c.Flows()
		if len(fs) != 1001 || !slices.ContainsFunc(fs, func(f flow.FlowState) bool {
			return f.Distinguisher == "alice" && f.Taken == len(holders) && f.Level == "own"
		}) {
			t.Errorf("%d flows are listed, want alice and 1000 that were refused", len(fs))
		}
		time.Sleep(11 * time.Minute)
		for _, h := range holders {
			h.EndFlow()
		}
		if fs := c.Flows(); len(fs) != 0 {
			t.Errorf("%d flows are listed, want none", len(fs))
		}
	})
}

// Names of files are for users who are known. Others see the name of the flow schema, as in the response headers.
func TestAnonymousUsersDoNotSeeFiles(t *testing.T) {
	anonymous := schemaFor("system:anonymous", "narrow")
	anonymous.Name, anonymous.ID = "anonymous", "flow/flowSchemas/anonymous"
	anonymous.Watches = 1
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: append(suggested(), level("narrow", 10)), FlowSchemas: []policy.FlowSchema{anonymous}})
	c := newControl(10)
	taken(t, c, watchOf(tip, "system:anonymous"))
	for _, groups := range [][]string{{user.AllAuthenticated}, {user.AllUnauthenticated}} {
		r := watchOf(tip, "system:anonymous")
		r.User = &user.DefaultInfo{Name: "system:anonymous", Groups: groups}
		err := refusedOf(t, t.Context(), c, r)
		known := groups[0] == user.AllAuthenticated
		if all := fmt.Sprint(err.ErrStatus.Message, err.ErrStatus.Details); strings.Contains(all, "flows.cue") != known || !strings.Contains(all, `flow schema "anonymous"`) {
			t.Errorf("in %v: %s", groups, all)
		}
	}
}
