package read_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy"
)

// anotherPolicy asks outside as askingBundle does.
var anotherPolicy = strings.Replace(planetest.AskingBundle, "precious things stay", "they stay", 1)

// undecided has an authorizer let everybody go on until it holds those who watch.
type undecided struct {
	*planetest.Replica
	asks   chan struct{} // one for each watch that asks
	decide chan policy.Opinion
	most   atomic.Int64        // who asked at once
	byRole *planetest.Watching // by the policy itself
}

func newUndecided(t *testing.T, watches int) (*undecided, []*planetest.Watching) {
	t.Helper()
	u := &undecided{asks: make(chan struct{}, watches), decide: make(chan policy.Opinion)}
	var held atomic.Bool
	var now atomic.Int64
	o := &planetest.Outside{}
	u.Replica = planetest.NewAskingPlane(t, o, nil)
	o.Answer = func(r *policy.Request) policy.Opinion {
		if r.Verb != "watch" || !held.Load() {
			return policy.Opinion{Verdict: policy.Allows}
		}
		n := now.Add(1)
		defer now.Add(-1)
		for most := u.most.Load(); n > most && !u.most.CompareAndSwap(most, n); most = u.most.Load() {
		}
		u.asks <- struct{}{}
		return <-u.decide
	}
	list := make([]*planetest.Watching, watches)
	for i := range list {
		list[i] = u.Watch(t, planetest.WidgetsPath+"?watch=true", "Authorization", "Bearer nobody-token")
	}
	u.byRole = u.Watch(t, planetest.WidgetsPath+"?watch=true", "Authorization", "Bearer reader-token")
	held.Store(true)
	u.Activate(t, anotherPolicy)
	t.Cleanup(sync.OnceFunc(func() { close(u.decide) }))
	return u, list
}

// P3: between an activation and what the new policy decides of a watch, it is told nothing: what it must not see
// any more it does not see because somebody is slow.
func TestAWatchHearsNothingUntilTheNextPolicyHasDecided(t *testing.T) {
	for verdict, want := range map[policy.Verdict]string{policy.Denies: "ERROR", policy.Allows: "ADDED"} {
		t.Run(want, func(t *testing.T) {
			u, watches := newUndecided(t, 1)
			<-u.asks
			for n := range 3 {
				u.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprint("w", n), 1))
			}
			select {
			case e := <-watches[0].Events:
				t.Fatalf("while nobody has decided it hears %v", e)
			default:
			}
			u.decide <- policy.Opinion{Verdict: verdict}
			e := watches[0].Next(t)
			if e.Type != want {
				t.Errorf("it hears %v, want %s first", e, want)
			}
			if code := e.Object["code"]; want == "ERROR" && code != 403.0 {
				t.Errorf("it ends with %v", e)
			}
		})
	}
}

// All watches have to be asked about when another policy comes in force; those who ask meanwhile do not wait for
// them, nor do watches about which nobody has to be asked.
func TestFewWatchesAskAtOnceWhetherTheyGoOn(t *testing.T) {
	const watches, atOnce = 80, 32
	u, list := newUndecided(t, watches)
	for range atOnce {
		<-u.asks
	}
	u.Must(t, 200, "GET", planetest.WidgetsPath, "", "Authorization", "Bearer nobody-token")
	u.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	if e := u.byRole.Next(t); e.Type != "ADDED" {
		t.Errorf("a watch that a role allows hears %v", e)
	}
	for range watches {
		u.decide <- policy.Opinion{Verdict: policy.Allows}
	}
	for _, w := range list {
		if e := w.Next(t); e.Type != "ADDED" {
			t.Errorf("a watch that goes on hears %v", e)
		}
	}
	if most := u.most.Load(); most != atOnce {
		t.Errorf("%d asked at once, want %d", most, atOnce)
	}
}

// A server that stops does not wait for who decides.
func TestAWatchThatWaitsForADecisionEndsWithItsServer(t *testing.T) {
	const watches, atOnce = 40, 32
	u, list := newUndecided(t, watches)
	for range atOnce {
		<-u.asks
	}
	ended := make(chan *planetest.Watching, watches)
	for _, w := range list {
		go func() { <-w.Ended; ended <- w }()
	}
	u.Drain()
	for range watches - atOnce {
		if w := <-ended; len(w.Events) > 0 {
			t.Errorf("it ends with %v", <-w.Events)
		}
	}
}
