package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/history"
)

// running is a store that follows a log.
type running struct {
	*history.Store
	stop func()
	logs *logs
}

// logs are the lines of a logger. It is safe for concurrent use.
type logs struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.String(), text)
}

func run(t testing.TB, dir string, log eventlog.Reader, start eventlog.Head) *running {
	t.Helper()
	r := &running{logs: new(logs)}
	var err error
	if r.Store, err = history.Open(history.Options{Dir: dir, Log: log, Start: start, Logger: slog.New(slog.NewTextHandler(r.logs, nil))}); err != nil {
		t.Fatal(err)
	}
	r.begin(t)
	return r
}

// begin runs the store until stop is called.
func (r *running) begin(t testing.TB) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
}

// follow runs a store up to the tape's tip.
func follow(t testing.TB, dir string, log *tape) *running {
	t.Helper()
	r := run(t, dir, log, log.start())
	r.reach(t, log.tip.Revision)
	return r
}

func (r *running) reach(t testing.TB, revision uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Wait(ctx, revision); err != nil {
		t.Fatalf("%v; at revision %d; health: %v", err, r.Revision(), r.Health())
	}
}

func collect(t testing.TB, changes iter.Seq2[*history.Change, error]) (all []*history.Change) {
	t.Helper()
	for c, err := range changes {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

func same(a, b *history.Change) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Revision == b.Revision && a.Time.Equal(b.Time) && a.Previous == b.Previous && a.Deleted == b.Deleted && proto.Equal(a.Meta, b.Meta) && proto.Equal(a.Object, b.Object) && (a.Object == nil) == (b.Object == nil) &&
		bytes.Equal(a.Payload, b.Payload) && (a.Payload == nil) == (b.Payload == nil) && bytes.Equal(a.Request, b.Request) && (a.Request == nil) == (b.Request == nil) && bytes.Equal(a.Kept, b.Kept)
}

func mustBeSame(t *testing.T, what string, got, want []*history.Change) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d changes, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !same(got[i], want[i]) {
			t.Fatalf("%s: change %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// ask compares the answers of the store and the model to random queries.
func (a *author) ask(t *testing.T, s *history.Store, questions int) {
	t.Helper()
	ctx := t.Context()
	for range questions {
		p := a.places[a.IntN(len(a.places))]
		at, from := a.Uint64N(a.tip.Revision+3), a.Uint64N(a.tip.Revision+3)
		namespace := []string{"", p.namespace}[a.IntN(2)]
		filter := []history.Filter{{}, {Resource: p.GroupResource}, {Namespace: p.namespace}, {Resource: p.GroupResource, Name: p.name}, {Resource: p.GroupResource, Namespace: p.namespace, Name: p.name}}[a.IntN(5)]

		got, err := s.Get(ctx, p.GroupResource, p.namespace, p.name, at)
		if err != nil {
			t.Fatal(err)
		}
		versions := a.model.versions(p, at)
		if versions = versions[:min(1, len(versions))]; len(versions) == 0 || erased(versions[0]) {
			versions = []*history.Change{nil}
		}
		mustBeSame(t, fmt.Sprint("Get ", p, at), []*history.Change{got}, versions)
		mustBeSame(t, fmt.Sprint("Versions ", p, at), collect(t, s.Versions(ctx, p.GroupResource, p.namespace, p.name, at)), a.model.versions(p, at))
		mustBeSame(t, fmt.Sprint("List ", p.GroupResource, namespace, at), collect(t, s.List(ctx, p.GroupResource, namespace, at)), a.model.list(p.GroupResource, namespace, at))
		mustBeSame(t, fmt.Sprint("After ", filter, from, at), collect(t, s.After(ctx, filter, from, at)), a.model.selected(filter, from, at))
		before := collect(t, s.Before(ctx, filter, at))
		for i, c := range a.model.selected(filter, 0, at) {
			if j := len(before) - 1 - i; j < 0 || !same(before[j], c) {
				t.Fatalf("Before %v %d: differs at revision %d", filter, at, c.Revision)
			}
		}
		change, err := s.At(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		mustBeSame(t, fmt.Sprint("At ", at), []*history.Change{change}, []*history.Change{a.model.at(at)})
		a.askTimes(t, s, at)
	}
}

func (a *author) askTimes(t *testing.T, s *history.Store, at uint64) {
	t.Helper()
	got, err := s.Time(t.Context(), at)
	if changes := upTo(a.model.changes, at); len(changes) == 0 {
		if !errors.Is(err, history.ErrNone) {
			t.Fatalf("Time %d: %v, %v", at, got, err)
		}
	} else if want := changes[len(changes)-1].Time; err != nil || !got.Equal(want) {
		t.Fatalf("Time %d: %v, %v, want %v", at, got, err, want)
	}
	first := a.model.changes[0].Time
	moment := first.Add(time.Duration(a.Int64N(int64(a.tape.now.Sub(first)+10*time.Second))) - 4*time.Second)
	revision, err := s.RevisionAt(t.Context(), moment)
	if want := a.model.revisionAt(moment); revision != want || errors.Is(err, history.ErrNone) != (want == 0) || want != 0 && err != nil {
		t.Fatalf("RevisionAt %v: %d, %v, want %d", moment, revision, err, want)
	}
	epoch, lost := s.Lost(at)
	if wantEpoch, want := a.model.lost(at); epoch != wantEpoch || lost != want {
		t.Fatalf("Lost %d: %v, %v, want %v, %v", at, epoch, lost, wantEpoch, want)
	}
}

// seeds returns the number of seeds for random tests.
func seeds() uint64 {
	if testing.Short() {
		return 1
	}
	return 3
}

func TestAnswersAreThoseOfAModelThatKeepsEverything(t *testing.T) {
	for seed := range seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a := newAuthor(newTape(1), seed)
			for range 4 { // each is a start of the process
				s := run(t, dir, a.tape, a.start())
				for range 3 {
					a.writes(60)
					s.reach(t, a.tip.Revision)
					a.ask(t, s.Store, 6)
				}
				s.stop()
				if said := s.logs.count("level="); said != 0 {
					t.Errorf("it said: %s", s.logs)
				}
			}
		})
	}
}

func TestReadersSeeAPrefixWhileItGrows(t *testing.T) {
	a := newAuthor(newTape(1), 7)
	a.writes(300)
	fixed := a.tip.Revision
	want := a.model.list(a.places[0].GroupResource, "", fixed)
	s := follow(t, t.TempDir(), a.tape)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				i := 0
				for c, err := range s.List(t.Context(), a.places[0].GroupResource, "", fixed) {
					if i == len(want) || err != nil || !same(c, want[i]) {
						t.Errorf("List has %v, %v as item %d", c, err, i)
						return
					}
					i++
				}
				last := uint64(0)
				known := s.Revision()
				for c := range s.After(t.Context(), history.Filter{}, fixed, 1<<62) {
					if c.Revision <= last {
						t.Errorf("revision %d after %d", c.Revision, last)
					}
					last = c.Revision
				}
				if last < known && known > fixed {
					t.Errorf("changes up to revision %d, it had come to %d", last, known)
				}
			}
		})
	}
	a.writes(600)
	s.reach(t, a.tip.Revision)
	close(done)
	readers.Wait()
	a.ask(t, s.Store, 5)
}

func TestARebuiltHistoryHasTheSameKeys(t *testing.T) {
	a := newAuthor(newTape(1), 3)
	live := t.TempDir()
	s := run(t, live, a.tape, a.start())
	for range 40 {
		a.writes(25)
		s.reach(t, a.tip.Revision)
		if a.IntN(10) == 0 {
			s.stop()
			s = run(t, live, a.tape, a.start())
		}
	}
	s.reach(t, a.tip.Revision)
	again := a.tape.cut(len(a.batches))
	again.atOnce = 7
	rebuilt := follow(t, t.TempDir(), again)
	if history.Sum(t, s.Store) != history.Sum(t, rebuilt.Store) {
		t.Error("the keys differ")
	}
}

func TestALogOfTheRealKind(t *testing.T) {
	var store memlog.Store
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := log.CatchUp(t.Context(), log.Start())
	if err != nil {
		t.Fatal(err)
	}
	tip := first[0].Head()
	dir := t.TempDir()
	s := run(t, dir, log, log.Start())
	for i := range 50 {
		e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_UPDATED, PreviousRevision: tip.Revision, Object: &logpb.Object{Resource: "pods", Namespace: "ns", Name: "a"}}}
		if i == 0 {
			e.Meta.Type, e.Meta.PreviousRevision = logpb.Type_TYPE_CREATED, 0
		}
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, fmt.Append(nil, strings.Repeat("x", 5000), i))
		entry, err := eventlog.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		won, _, err := log.Append(t.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{entry}))
		if err != nil {
			t.Fatal(err)
		}
		tip = won.Head()
	}
	s.reach(t, tip.Revision)
	s.stop()
	s = run(t, dir, log, log.Start())
	s.reach(t, tip.Revision)
	versions := collect(t, s.Versions(t.Context(), schema.GroupResource{Resource: "pods"}, "ns", "a", tip.Revision))
	if len(versions) != 50 {
		t.Fatalf("%d versions", len(versions))
	}
	for i, c := range versions {
		if want := fmt.Sprint(strings.Repeat("x", 5000), 49-i); string(c.Payload) != want {
			t.Errorf("version %d is …%.10s", i, c.Payload[5000:])
		}
	}
}

// Waiting for a store that does not reach a revision fails: at once if the store has ended, and after a
// while if it is still working.
func TestNobodyWaitsForWhatDoesNotCome(t *testing.T) {
	a := newAuthor(newTape(1), 23)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := history.Open(history.Options{Dir: dir, Log: a.tape, Start: a.tape.start()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		began := time.Now()
		if err := s.Reach(t.Context(), a.tip.Revision); !errors.Is(err, history.ErrBehind) || s.Health() != nil {
			t.Errorf("of one that is on its way: %v; health: %v", err, s.Health())
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("that was told after %v", took)
		}
		waiting := make(chan error)
		go func() { waiting <- s.Reach(t.Context(), a.tip.Revision) }()
		synctest.Wait()
		began = time.Now()
		ended, end := context.WithCancel(t.Context())
		end()
		if err := s.Run(ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for what, err := range map[string]error{"who waited": <-waiting, "who asks then": s.Reach(t.Context(), a.tip.Revision)} {
			if !errors.Is(err, history.ErrBehind) {
				t.Errorf("%s hears %v", what, err)
			}
		}
		if took := time.Since(began); took != 0 || s.Health() == nil {
			t.Errorf("that was told after %v; health: %v", took, s.Health())
		}
	})
}
