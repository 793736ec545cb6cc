package host_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"stele.dev/stele/plugins/host"
)

func TestTheSameQuestionInFlightIsAskedOnce(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec())
	answers := make([]host.Answer, 16)
	var callers sync.WaitGroup
	for i := range answers {
		callers.Go(func() { answers[i] = ask(b, "eve", "slow") })
	}
	callers.Wait()
	most := 0
	for _, a := range answers {
		n, err := strconv.Atoi(a.Reason)
		must(t, err)
		most = max(most, n)
	}
	require.Equal(t, 16.0, float64(most)+f.metric("coalesced_total"))
	require.Less(t, most, 16)
}

func TestWhoGivesUpDoesNotFailTheOthers(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec())
	ctx, giveUp := context.WithCancel(context.Background())
	first := make(chan host.Answer, 1)
	go func() { first <- b.Authorize(ctx, "plugin", question("alice", "slow")) }()
	eventually(t, "the question is asked", func() bool { return f.metric("in_flight") == 1 })
	second := make(chan host.Answer, 1)
	go func() { second <- ask(b, "alice", "slow") }()
	eventually(t, "the other one joins", func() bool { return f.metric("coalesced_total") == 1 })
	giveUp()
	require.Equal(t, deny, (<-first).Decision)
	require.Equal(t, host.Answer{Decision: allow, Reason: "1"}, <-second)
}

func TestAQuestionThatNobodyWaitsForIsGivenUp(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec(func(s *host.Spec) { s.Timeout = time.Hour }))
	ctx, giveUp := context.WithCancel(context.Background())
	answer := make(chan host.Answer, 1)
	go func() { answer <- b.Authorize(ctx, "plugin", question("alice", "hang")) }()
	eventually(t, "the question is asked", func() bool { return f.metric("in_flight") == 1 })
	giveUp()
	require.True(t, (<-answer).Failed)
	eventually(t, "it is in flight no more", func() bool { return f.metric("in_flight") == 0 })
}

func TestAnAnswerTakesNoLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec(func(s *host.Spec) { s.Timeout = 50 * time.Millisecond }))
	a := ask(b, "alice", "hang")
	require.Equal(t, deny, a.Decision)
	require.Equal(t, "no answer within 50ms", a.Detail)
	require.Equal(t, 1.0, f.metric("failures_total", "timeout"))
}

func TestTheCircuitOpensWhenAPluginIsSilentAndClosesWhenItAnswers(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec()) // of the same process
	hasty := f.bind(f.spec(func(s *host.Spec) { s.Timeout = 50 * time.Millisecond }))
	for range 5 {
		ask(hasty, "alice", "hang")
	}
	require.Equal(t, 2.0, f.metric("circuit_state"))
	require.ErrorContains(t, f.Health(), "plugin plugin: it does not answer in time")
	a := ask(b, "alice", "get")
	require.Equal(t, deny, a.Decision)
	require.Equal(t, 1.0, f.metric("failures_total", "circuit"))
	eventually(t, "it is ready to try, though nobody asks", func() bool { return f.Health() == nil })
	require.Equal(t, 1.0, f.metric("circuit_state"))
	require.Equal(t, allow, ask(b, "alice", "get").Decision)
	require.Equal(t, 0.0, f.metric("circuit_state"))
	must(t, f.Health())
}

func TestErrorsOfAPluginDoNotOpenTheCircuit(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bind(f.spec())
	for range 40 {
		require.Contains(t, ask(b, "mallory", "error").Detail, "the ticket system is down")
	}
	require.Equal(t, allow, ask(b, "alice", "get").Decision, "who can provoke errors must not shut others out")
}

func TestMoreQuestionsThanThereIsRoomForWait(t *testing.T) {
	t.Parallel()
	f := newHost(t, func(o *host.Options) { o.MaxInFlight = 2 })
	b := f.bind(f.spec())
	hasty := f.bind(f.spec(func(s *host.Spec) { s.Timeout = 50 * time.Millisecond }))
	ctx, giveUp := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for i := range 2 {
		callers.Go(func() { b.Authorize(ctx, "plugin", question(fmt.Sprint("user-", i), "hang")) })
	}
	eventually(t, "both are asked", func() bool { return f.metric("in_flight") == 2 })
	a := ask(hasty, "alice", "get")
	require.True(t, a.Failed)
	require.Equal(t, 1.0, f.metric("failures_total", "busy"))
	require.Equal(t, 2.0, f.metric("in_flight"))
	giveUp()
	callers.Wait()
	require.Equal(t, allow, ask(b, "alice", "get").Decision)
}

// However many slow questions one user has, another user's question is asked at once.
func TestAUserWhoFloodsDoesNotKeepOthersFromBeingAnswered(t *testing.T) {
	t.Parallel()
	f := newHost(t, func(o *host.Options) { o.MaxInFlight = 8 })
	b := f.bind(f.spec(func(s *host.Spec) { s.Timeout = time.Hour }))
	ctx, giveUp := context.WithCancel(context.Background())
	var flood sync.WaitGroup
	for i := range 100 {
		flood.Go(func() {
			q := question("mallory", "hang")
			q.GetResource().Name = fmt.Sprint(i)
			b.Authorize(ctx, "plugin", q)
		})
	}
	eventually(t, "the flood has all that it gets", func() bool { return f.metric("in_flight") == 4 })
	late, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for range 10 {
		require.Equal(t, allow, b.Authorize(late, "plugin", question("alice", "get")).Decision)
	}
	require.Equal(t, 4.0, f.metric("in_flight"))
	giveUp()
	flood.Wait()
}

func TestAnswersAreKeptForTheShorterOfTwoTimes(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	spec := f.spec(func(s *host.Spec) { s.CacheTTL = time.Hour })
	b := f.bind(spec)
	require.Equal(t, host.Answer{Decision: noOpinion, Reason: "1"}, ask(b, "eve", "count"))
	require.Equal(t, host.Answer{Decision: noOpinion, Reason: "1", Cached: true}, ask(b, "eve", "count"))
	require.Equal(t, "2", ask(b, "bob", "count").Reason, "of another user")
	require.Equal(t, "3", ask(b, "eve", "count-uncached").Reason)
	require.Equal(t, "4", ask(b, "eve", "count-uncached").Reason, "for this request only")
	require.Equal(t, 1.0, f.metric("cache_hits_total"))

	next := f.bind(spec)
	require.Equal(t, "5", ask(next, "eve", "count").Reason, "another policy keeps its own")
	for _, verb := range []string{"error", "unknown"} {
		require.True(t, ask(b, "alice", verb).Failed)
		require.False(t, ask(b, "alice", verb).Cached, "failures are not kept")
	}
	none := f.bind(f.spec())
	require.NotEqual(t, ask(none, "eve", "count").Reason, ask(none, "eve", "count").Reason, "the policy keeps none")
}

func TestBindingsShareAProcess(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	spec := f.spec(func(s *host.Spec) { s.Config = []byte(`{"generation":"1"}`) })
	a := f.bind(spec)
	spec.Timeout, spec.FailurePolicy, spec.CacheTTL = 3*time.Second, "NoOpinion", time.Second
	b := f.bind(spec)
	require.Equal(t, pid(t, a), pid(t, b))
	a.Release()
	require.Equal(t, noOpinion, ask(b, "eve", "get").Decision)
	spec.Config = []byte(`{"generation":"2"}`)
	c := f.bind(spec)
	require.NotEqual(t, pid(t, b), pid(t, c))
	require.Equal(t, 2.0, f.metric("up"))
}

// TestUpgrade activates new generations of a plugin under load: no allowed user may be refused.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	f := newHost(t, func(o *host.Options) { o.Linger = 100 * time.Millisecond })
	generation := func(n int) *host.Binding {
		spec := f.spec(func(s *host.Spec) { s.Config = fmt.Appendf(nil, `{"generation":"%d"}`, n) })
		must(t, f.Check(context.Background(), spec)) // as before a push
		b := f.Bind([]host.Spec{spec})
		b.Use()
		return b
	}
	var mu sync.RWMutex
	current := generation(0)
	first := pid(t, current)
	var callers sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for i := range 8 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				mu.RLock()
				b := current
				mu.RUnlock()
				q := question("alice", []string{"get", "slow"}[n%2])
				q.GetResource().Name = fmt.Sprint(i, "-", n)
				if a := b.Authorize(context.Background(), "plugin", q); a.Decision != allow {
					t.Errorf("%+v", a)
					return
				}
			}
		})
	}
	for n := range 5 {
		next := generation(n + 1)
		mu.Lock()
		old := current
		current = next
		mu.Unlock()
		old.Release()
		require.Equal(t, fmt.Sprint(n+1), ask(next, "eve", "generation").Reason)
	}
	stop()
	callers.Wait()
	eventually(t, "the older ones are gone", func() bool { return f.metric("up") == 1 && !alive(first) })
	must(t, f.Health())
	last := pid(t, current)
	current.Release()
	eventually(t, "so is what no policy has", func() bool { return !alive(last) })
	eventually(t, "and its metrics", func() bool { return f.metric("decisions_total") == 0 })
}

func TestHealthIsThatOfThePolicyInForce(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	broken := f.spec(func(s *host.Spec) { s.Name = "plugin-exits" })
	b := f.Bind([]host.Spec{broken})
	defer b.Release()
	require.Error(t, f.Check(context.Background(), broken))
	must(t, f.Health())
	b.Use()
	require.ErrorContains(t, f.Health(), "plugin plugin-exits: it exited (exit status 3)")
	b.Release()
	must(t, f.Health())
	b.Use()
	must(t, f.Health())

	shadow := f.Bind([]host.Spec{f.spec(func(s *host.Spec) { s.Name, s.Shadow = "plugin-exits", true })})
	defer shadow.Release()
	shadow.Use()
	must(t, f.Health())
}
