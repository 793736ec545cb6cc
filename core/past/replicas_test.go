package past_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// Replicas write at random, over slow connections and by clocks that differ. What one of them says of a moment, all say for ever.
func TestAMomentIsTheSameOnAllReplicas(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { askMoments(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func askMoments(t *testing.T, rng *rand.Rand) {
	var store memlog.Store
	keys := filepath.Join(t.TempDir(), "sa.key")
	if _, err := planetest.WriteKeys(keys); err != nil {
		t.Fatal(err)
	}
	var all []*planetest.Replica
	for _, behind := range []time.Duration{0, 0, 2 * time.Minute} {
		connection := rand.New(rand.NewPCG(rng.Uint64(), 0))
		var mu sync.Mutex
		r, err := planetest.OpenReplicaWith(t.Context(), store.Open(func(op memlog.Op) (f memlog.Fault) {
			mu.Lock()
			defer mu.Unlock()
			f.Request = time.Duration(connection.IntN(3)) * time.Millisecond
			if op == memlog.Append && connection.IntN(4) == 0 { // the replica is paused when it has stamped its batch
				f.Request = time.Duration(connection.IntN(2000)) * time.Millisecond
			}
			return f
		}), planetest.Options{
			KeyFile: keys, Clock: func() time.Time { return time.Now().Add(-behind) },
			Config: plane.Config{Replicas: plane.Replicas{Every: replicas.DefaultEvery}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.CloseInBubble()
		if len(all) == 0 {
			r.Bootstrap(t, planetest.Bundle)
		}
		all = append(all, r)
	}

	var writers sync.WaitGroup
	defer writers.Wait()
	time.Sleep(time.Second)
	until := time.Now().Add(30 * time.Second)
	for i, r := range all {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
		writers.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				time.Sleep(time.Duration(rng.IntN(800)) * time.Millisecond)
				r.Do("POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprintf("w%d-%d", i, n), 1))
			}
		})
	}
	said := map[string]string{}
	ask := func(r *planetest.Replica, moment string) (string, int) {
		a := r.Do("GET", planetest.BelowAt(moment, planetest.WidgetsPath+"?limit=1"), "")
		return a.Header.Get("Stele-Revision"), a.Code
	}
	for time.Now().Before(until) {
		time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
		moment := time.Now().Add(-time.Duration(rng.IntN(500)) * time.Millisecond).UTC().Format(time.RFC3339Nano)
		revision, code := ask(all[rng.IntN(len(all))], moment)
		switch code {
		case http.StatusOK:
			said[moment] = revision
		case http.StatusBadRequest, http.StatusServiceUnavailable: // it is in the future of that replica, or not certain yet
		default:
			t.Fatalf("%s: code %d", moment, code)
		}
	}
	writers.Wait()
	time.Sleep(10 * time.Second)
	if len(said) < 5 {
		t.Errorf("only %d moments were answered", len(said))
	}
	for moment, revision := range said {
		for i, r := range all {
			if now, code := ask(r, moment); now != revision {
				t.Errorf("%s was revision %s; replica %d says %s now (code %d)", moment, revision, i, now, code)
			}
		}
	}
}

// Of a moment that may still change, the error names the newest revision, which can be read.
func TestAMomentThatMayStillChangeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		config := plane.Config{Replicas: plane.Replicas{Every: replicas.DefaultEvery}}
		a, err := planetest.OpenReplicaWith(t.Context(), store.Open(nil), planetest.Options{Config: config})
		if err != nil {
			t.Fatal(err)
		}
		defer a.CloseInBubble()
		a.Bootstrap(t, planetest.Bundle)
		time.Sleep(time.Minute)

		// An idle log gets an event for it.
		moment := time.Now().Add(-time.Millisecond).UTC().Format(time.RFC3339Nano)
		before := time.Now()
		a.Must(t, 200, "GET", planetest.BelowAt(moment, planetest.WidgetsPath), "")
		if took := time.Since(before); took > 2*time.Second {
			t.Errorf("the answer took %v", took)
		}

		store.Room.Store(1) // no append is possible
		time.Sleep(time.Minute)
		moment = time.Now().Add(-time.Millisecond).UTC().Format(time.RFC3339Nano)
		tip := a.Committer.Tip().Revision()
		refused := a.Must(t, 503, "GET", planetest.BelowAt(moment, planetest.WidgetsPath), "")
		refused.Refuses(t, 503, "is not certain yet", fmt.Sprintf("read revision %d, the newest one", tip))
		if refused.Header.Get("Retry-After") == "" {
			t.Error("the answer does not say when to try again")
		}
		a.Must(t, 200, "GET", planetest.BelowAt(tip, planetest.WidgetsPath), "")
		store.Room.Store(0)
	})
}
