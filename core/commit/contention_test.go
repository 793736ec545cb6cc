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
	// forwards is set if the writer hands its events to the first one, which is as far away as the log.
	forwards bool
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
		var first *commit.Committer
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
			run := c.Run
			running.Go(func() { _ = run(ctx) })
			if i == 0 {
				first = c
			}
			if w.forwards {
				c = first
			}
			for j := range w.callers {
				callers.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						begun := time.Now()
						p := &commit.Proposal{Entry: create(t, fmt.Sprintf("w%d-%d-%d", i, j, n))}
						if w.forwards {
							time.Sleep(w.oneWay)
						}
						if _, _, err := c.Commit(ctx, p); err != nil {
							return
						}
						if w.forwards {
							time.Sleep(w.oneWay)
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
		mu.Lock()
		lost = appends - len(store.Batches())
		mu.Unlock()
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
		{"two, equally far", []writer{{oneWay: ms, callers: 8}, {oneWay: ms, callers: 8}}, 0.95, 8 * ms},
		{"three, equally far", []writer{{oneWay: ms, callers: 8}, {oneWay: ms, callers: 8}, {oneWay: ms, callers: 8}}, 0.95, 12 * ms},
		{"five, equally far", []writer{{oneWay: ms, callers: 8}, {oneWay: ms, callers: 8}, {oneWay: ms, callers: 8}, {oneWay: ms, callers: 8}, {oneWay: ms, callers: 8}}, 0.95, 20 * ms},
		{"one is a hundred times as far", []writer{{oneWay: ms / 10, callers: 8}, {oneWay: 10 * ms, callers: 8}}, 0.9, 45 * ms},
		{"one of three is a hundred times as far", []writer{{oneWay: ms / 10, callers: 8}, {oneWay: ms / 10, callers: 8}, {oneWay: 10 * ms, callers: 8}}, 0.9, 45 * ms},
		{"one is a hundred times as far, and callers come back late", []writer{{oneWay: ms / 10, callers: 8, think: ms}, {oneWay: 10 * ms, callers: 8, think: ms}}, 0.5, 100 * ms},
		{"callers come back late", []writer{{oneWay: ms, callers: 8, think: 5 * ms}, {oneWay: ms, callers: 8, think: 5 * ms}, {oneWay: ms, callers: 8, think: 5 * ms}}, 0.9, 20 * ms},
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
	did, _ := compete(t, time.Second, writer{oneWay: ms, callers: 1, think: 50 * ms}, writer{oneWay: ms, callers: 8})
	if did[0].slowest > 8*ms || did[0].events < 8 {
		t.Errorf("the rare writer: %+v", did[0])
	}
}

// Together, several writers append as much as one with the callers of one of them, and more.
func TestSeveralWritersAppendNoLessThanOne(t *testing.T) {
	const ms = time.Millisecond
	one, _ := compete(t, 600*ms, writer{oneWay: ms, callers: 8})
	three, _ := compete(t, 600*ms, writer{oneWay: ms, callers: 8}, writer{oneWay: ms, callers: 8}, writer{oneWay: ms, callers: 8})
	if sum := three[0].events + three[1].events + three[2].events; sum < one[0].events {
		t.Errorf("three append %d events, one %d", sum, one[0].events)
	}
}

// A writer whose process ends while it stands in the line holds up the others once, and for a moment.
func TestADeadWriterIsSkippedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		ctx, stop := context.WithCancel(t.Context())
		c := replicaOf(t, store.Open(slow(time.Millisecond)))
		var running sync.WaitGroup
		running.Go(func() { _ = c.Run(ctx) })
		dead := store.Open(slow(time.Millisecond))
		answer, err := dead.Append(t.Context(), eventlog.Proposal{To: []byte("another head"), At: 1, Value: []byte("x"), Writer: eventlog.ID{'d'}, RoundTrip: 2 * time.Millisecond})
		if err != nil || answer.Applied || len(store.Line()) != 1 {
			t.Fatal(answer, err, store.Line())
		}
		time.Sleep(time.Second)
		var took [4]time.Duration
		for i := range took {
			begun := time.Now()
			if _, _, err := c.Commit(ctx, &commit.Proposal{Entry: create(t, fmt.Sprint("w", i))}); err != nil {
				t.Fatal(err)
			}
			took[i] = time.Since(begun)
		}
		time.Sleep(time.Second) // it leaves the line itself
		if took[0] < 5*time.Millisecond || took[0] > 25*time.Millisecond || took[1] != 2*time.Millisecond || took[3] != 2*time.Millisecond || len(store.Line()) != 0 {
			t.Errorf("the writes took %v, and the line is %v", took, store.Line())
		}
		stop()
		running.Wait()
		time.Sleep(time.Minute)
	})
}

// Forwarding to one writer is the alternative to turns. It appends more if all callers wait for their answers, because
// fewer batches have more events, and no more for a writer that is far away. Turns must come close to it.
func TestTurnsComparedWithForwarding(t *testing.T) {
	const ms = time.Millisecond
	together := func(writers ...writer) (sum int) {
		did, lost := compete(t, 600*ms, writers...)
		for _, w := range did {
			sum += w.events
		}
		t.Log(writers, did, "lost", lost)
		return sum
	}
	at := func(oneWay time.Duration, callers int) writer { return writer{oneWay: oneWay, callers: callers} }
	forwards := func(oneWay time.Duration, callers int) writer {
		return writer{oneWay: oneWay, callers: callers, forwards: true}
	}
	one, turns, forwarding := together(at(ms, 24)), together(at(ms, 8), at(ms, 8), at(ms, 8)), together(at(ms, 8), forwards(ms, 8), forwards(ms, 8))
	if float64(turns) < 0.6*float64(one) || float64(turns) < 0.6*float64(forwarding) {
		t.Errorf("one writer appends %d events, three in turns %d, three with forwarding %d", one, turns, forwarding)
	}
	together(at(ms/10, 8), at(10*ms, 8))
	together(at(ms/10, 8), forwards(10*ms, 8))
}
