package commit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/objects"
)

// writer is a replica that writes, at a distance of the log.
type writer struct {
	oneWay  time.Duration // half of a round trip
	callers int           // each writes again when it has its answer
	think   time.Duration // the pause of each caller before that
}

// wrote is what a writer achieved.
type wrote struct {
	events  int
	slowest time.Duration
}

// replicaOf starts a committer on a backend.
func replicaOf(t testing.TB, backend eventlog.Backend) *commit.Committer {
	t.Helper()
	log, err := eventlog.Open(t.Context(), backend, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := commit.New(commit.Options{Log: log, Objects: objects.New(1 << 20)})
	if err := c.Replay(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func slow(oneWay time.Duration) memlog.Schedule {
	return func(memlog.Op) memlog.Fault { return memlog.Fault{Request: oneWay, Answer: oneWay} }
}

// create returns an event that creates an object.
func create(t testing.TB, name string) *eventlog.Entry {
	t.Helper()
	e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: &logpb.Object{Resource: "tests", Namespace: "n", Name: name, Uid: name, Version: "v1", Kind: "Test"}}}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Test","metadata":{"name":%q,"namespace":"n","uid":%q}}`, name, name))
	entry, err := eventlog.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// compete lets writers write to one log for a while, and returns what each achieved, and the number of lost appends.
func compete(t *testing.T, during time.Duration, writers ...writer) (did []wrote, lost int) {
	did = make([]wrote, len(writers))
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		ctx, stop := context.WithCancel(t.Context())
		var running, callers sync.WaitGroup
		appends := 0
		from := time.Now().Add(during / 2) // the shares are settled
		var mu sync.Mutex
		for i, w := range writers {
			backend := store.Open(func(op memlog.Op) memlog.Fault {
				if op == memlog.Append {
					mu.Lock()
					appends++
					mu.Unlock()
				}
				return memlog.Fault{Request: w.oneWay, Answer: w.oneWay}
			})
			c := replicaOf(t, backend)
			running.Go(func() { _ = c.Run(ctx) })
			for j := range w.callers {
				callers.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						begun := time.Now()
						p := &commit.Proposal{Entry: create(t, fmt.Sprintf("w%d-%d-%d", i, j, n))}
						if _, _, err := c.Commit(ctx, p); err != nil {
							return
						}
						if begun.After(from) {
							mu.Lock()
							did[i].events++
							did[i].slowest = max(did[i].slowest, time.Since(begun))
							mu.Unlock()
						}
						time.Sleep(w.think)
					}
				})
			}
		}
		time.Sleep(during)
		lost = appends - len(store.Batches())
		stop()
		callers.Wait()
		running.Wait()
		time.Sleep(time.Minute)
	})
	return did, lost
}

// Writers that go on writing append in turns: each has an equal share of the log, at any distance, and hardly any append
// is lost.
func TestWritersTakeTurns(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name    string
		writers []writer
		apart   float64       // the least share of the equal share
		slowest time.Duration // write
	}{
		{"two, equally far", []writer{{ms, 8, 0}, {ms, 8, 0}}, 0.95, 8 * ms},
		{"three, equally far", []writer{{ms, 8, 0}, {ms, 8, 0}, {ms, 8, 0}}, 0.95, 12 * ms},
		{"five, equally far", []writer{{ms, 8, 0}, {ms, 8, 0}, {ms, 8, 0}, {ms, 8, 0}, {ms, 8, 0}}, 0.95, 20 * ms},
		{"one is a hundred times as far", []writer{{ms / 10, 8, 0}, {10 * ms, 8, 0}}, 0.9, 45 * ms},
		{"one of three is a hundred times as far", []writer{{ms / 10, 8, 0}, {ms / 10, 8, 0}, {10 * ms, 8, 0}}, 0.9, 45 * ms},
		{"one is a hundred times as far, and callers come back late", []writer{{ms / 10, 8, ms}, {10 * ms, 8, ms}}, 0.5, 100 * ms},
		{"callers come back late", []writer{{ms, 8, 5 * ms}, {ms, 8, 5 * ms}, {ms, 8, 5 * ms}}, 0.9, 20 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			did, lost := compete(t, 600*ms, tc.writers...)
			sum := 0
			for _, w := range did {
				sum += w.events
			}
			for i, w := range did {
				if share := float64(w.events*len(did)) / float64(sum); share < tc.apart || w.slowest > tc.slowest {
					t.Errorf("writer %d had %.2f of its share, %d events, and its slowest write took %v", i, share, w.events, w.slowest)
				}
			}
			if tc.writers[0].think == 0 && lost > 8*len(did) {
				t.Errorf("%d appends were lost", lost)
			}
			t.Log(did, lost)
		})
	}
}

// A writer that writes now and then is served beside one that always writes.
func TestARareWriterIsServed(t *testing.T) {
	const ms = time.Millisecond
	did, _ := compete(t, time.Second, writer{ms, 1, 50 * ms}, writer{ms, 8, 0})
	if did[0].slowest > 8*ms || did[0].events < 8 {
		t.Errorf("the rare writer: %+v", did[0])
	}
}

// Together, several writers append as much as one with the callers of one of them, and more.
func TestSeveralWritersAppendNoLessThanOne(t *testing.T) {
	const ms = time.Millisecond
	one, _ := compete(t, 600*ms, writer{ms, 8, 0})
	three, _ := compete(t, 600*ms, writer{ms, 8, 0}, writer{ms, 8, 0}, writer{ms, 8, 0})
	if sum := three[0].events + three[1].events + three[2].events; sum < one[0].events {
		t.Errorf("three append %d events, one %d", sum, one[0].events)
	}
}
