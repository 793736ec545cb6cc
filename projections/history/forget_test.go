package history_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/history"
)

// askSince compares the answers of the store and the model about a resource at revisions from a floor on.
func (a *author) askSince(t *testing.T, s *history.Store, r schema.GroupResource, floor uint64, questions int) {
	t.Helper()
	for range questions {
		at := floor + a.Uint64N(a.tip.Revision-floor+1)
		mustBeSame(t, fmt.Sprint("List ", r, at), collect(t, s.List(t.Context(), r, "", at)), a.model.list(r, "", at))
		p := a.places[a.IntN(len(a.places))]
		if p.GroupResource != r {
			continue
		}
		mustBeSame(t, fmt.Sprint("List ", p, at), collect(t, s.List(t.Context(), r, p.namespace, at)), a.model.list(r, p.namespace, at))
		f := history.Filter{Resource: r}
		mustBeSame(t, fmt.Sprint("After ", floor-1, at), collect(t, s.After(t.Context(), f, floor-1, at)), a.model.selected(f, floor-1, at))
		got, err := s.Get(t.Context(), r, p.namespace, p.name, at)
		want := a.model.versions(p, at)
		if err != nil || len(want) > 0 && !same(got, want[0]) && !(got == nil && (erased(want[0]) || want[0].Deleted && want[0].Revision < floor)) {
			t.Fatalf("Get %v %d: %v, %v", p, at, got, err)
		}
	}
}

func refused(t *testing.T, s *history.Store, r schema.GroupResource, at uint64) {
	t.Helper()
	for c, err := range s.List(t.Context(), r, "", at) {
		if errors.Is(err, history.ErrForgotten) {
			return
		}
		t.Fatalf("List of %v at %d, which is forgotten: %v, %v", r, at, c, err)
	}
	t.Errorf("List of %v at %d, which is forgotten, has nothing", r, at)
}

func TestWhatIsForgottenIsRefusedAndTheRestIsAsBefore(t *testing.T) {
	history.SmallMemory(t)
	for seed := range seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			a := newAuthor(newTape(1), 60+seed)
			a.writes(1500)
			dir := t.TempDir()
			s := follow(t, dir, a.tape)
			all := keysOf(t, s.Store)
			r := a.places[a.IntN(len(a.places))].GroupResource
			for _, part := range []uint64{2, 3, 4} {
				floor := a.tip.Revision - a.tip.Revision/part
				if err := s.Forget(t.Context(), r, history.Floors{Contents: floor, Changes: floor}); err != nil {
					t.Fatal(err)
				}
				if s.OldestOf(r) != floor || s.Oldest() != 1 {
					t.Errorf("the oldest is %d of %v, and %d of all", s.OldestOf(r), r, s.Oldest())
				}
				refused(t, s.Store, r, floor-1)
				a.askSince(t, s.Store, r, floor, 10)
				a.writes(300)
				s.reach(t, a.tip.Revision)
				a.askSince(t, s.Store, r, floor, 10)
				for _, p := range a.places { // the others
					if p.GroupResource != r {
						a.askSince(t, s.Store, p.GroupResource, 1, 1)
					}
				}
				s.stop()
				s = follow(t, dir, a.tape)
				if s.OldestOf(r) != floor {
					t.Errorf("after a start the oldest is %d", s.OldestOf(r))
				}
				a.askSince(t, s.Store, r, floor, 5)
			}
			for _, r := range resources(a) {
				if err := s.Forget(t.Context(), r, history.Floors{Contents: a.tip.Revision, Changes: a.tip.Revision}); err != nil {
					t.Fatal(err)
				}
			}
			if left := keysOf(t, s.Store); left > all/4 {
				t.Errorf("%d of %d keys are left", left, all)
			}
		})
	}
}

// A query that reads while something is forgotten is answered in full, or refused.
func TestReadersWhileSomethingIsForgotten(t *testing.T) {
	history.SmallMemory(t)
	a := newAuthor(newTape(1), 80)
	a.writes(2000)
	s := follow(t, t.TempDir(), a.tape)
	r := a.places[0].GroupResource
	want := map[uint64][]*history.Change{}
	for i := range uint64(40) {
		at := 1 + i*a.tip.Revision/40
		want[at] = a.model.list(r, "", at)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				for at, want := range want {
					select {
					case <-done:
						return
					default:
					}
					var got []*history.Change
					var failed error
					for c, err := range s.List(t.Context(), r, "", at) {
						if failed = err; err == nil {
							got = append(got, c)
						}
					}
					if errors.Is(failed, history.ErrForgotten) {
						continue
					}
					if failed != nil || !slices.EqualFunc(got, want, same) {
						t.Errorf("List at %d has %d changes, want %d; %v", at, len(got), len(want), failed)
						return
					}
				}
			}
		})
	}
	for i := range uint64(40) {
		floor := i * a.tip.Revision / 40
		if err := s.Forget(t.Context(), r, history.Floors{Contents: floor, Changes: floor}); err != nil {
			t.Error(err)
		}
	}
	close(done)
	readers.Wait()
}

// resources returns the resources that an author writes.
func resources(a *author) (all []schema.GroupResource) {
	for _, p := range a.places {
		if !slices.Contains(all, p.GroupResource) {
			all = append(all, p.GroupResource)
		}
	}
	return all
}

func keysOf(t *testing.T, s *history.Store) (n int) {
	t.Helper()
	if err := history.Keys(s, func(_, _ []byte) { n++ }); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAFloorOfContentsHoldsAtOnceAndKeepsTheChanges(t *testing.T) {
	a := newAuthor(newTape(1), 71)
	a.writes(300)
	s := follow(t, t.TempDir(), a.tape)
	r := a.places[0].GroupResource
	later := a.tip.Revision + 50
	for _, floor := range []uint64{100, later} {
		if err := s.Forget(t.Context(), r, history.Floors{Contents: floor}); err != nil {
			t.Fatal(err)
		}
		if s.OldestOf(r) != floor {
			t.Errorf("the oldest is %d", s.OldestOf(r))
		}
		refused(t, s.Store, r, min(floor-1, a.tip.Revision))
		f := history.Filter{Resource: r}
		mustBeSame(t, "After", collect(t, s.After(t.Context(), f, 0, a.tip.Revision)), a.model.selected(f, 0, a.tip.Revision))
	}
	a.writes(300)
	s.reach(t, a.tip.Revision)
	a.askSince(t, s.Store, r, later, 10)
}

func TestWhatSupersededAVersionIsKnown(t *testing.T) {
	a := newAuthor(newTape(1), 72)
	a.writes(300)
	s := follow(t, t.TempDir(), a.tape)
	for _, p := range a.places {
		next := uint64(0)
		for _, c := range a.model.versions(p, a.tip.Revision) {
			got, err := s.Superseded(t.Context(), p.GroupResource, p.namespace, p.name, c.Revision)
			if err != nil || got != next {
				t.Fatalf("after %d of %v comes %d, %v, want %d", c.Revision, p, got, err, next)
			}
			next = c.Revision
		}
	}
}

// While the index is made again, it knows of no version. That must not be taken for a version that is forgotten:
// retention would erase the present.
func TestAnIndexThatIsMadeAgainDoesNotSayThatAVersionIsForgotten(t *testing.T) {
	a := newAuthor(newTape(1), 76)
	a.writes(300)
	s, err := history.Open(history.Options{Dir: t.TempDir(), Log: a.tape, Start: a.tape.start()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := a.places[0]
	newest := a.model.versions(p, a.tip.Revision)[0]
	if at, err := s.Superseded(t.Context(), p.GroupResource, p.namespace, p.name, newest.Revision); !errors.Is(err, history.ErrBehind) {
		t.Errorf("the version of revision %d was superseded at %d, error %v", newest.Revision, at, err)
	}
}

// A log that has forgotten its oldest part is followed from what it keeps on.
func TestALogWithoutItsOldestPart(t *testing.T) {
	a := newAuthor(newTape(1), 73)
	a.writes(100)
	a.deleteAll()
	oldest := len(a.batches)
	a.writes(200)
	floor := a.forget(oldest)
	s := follow(t, t.TempDir(), a.tape)
	if s.Oldest() != floor {
		t.Errorf("the oldest is %d, want %d", s.Oldest(), floor)
	}
	mustBeSame(t, "After", collect(t, s.After(t.Context(), history.Filter{}, 0, a.tip.Revision)), a.model.selected(history.Filter{}, floor-1, a.tip.Revision))
	for _, r := range resources(a) {
		refused(t, s.Store, r, floor-1)
		a.askSince(t, s.Store, r, floor, 10)
	}
	if c, err := s.At(t.Context(), floor-1); err != nil || c != nil {
		t.Errorf("what was forgotten: %v, %v", c, err)
	}
	if at, err := s.Time(t.Context(), floor); err != nil || !at.Equal(a.model.at(floor).Time) {
		t.Errorf("the time of the oldest: %v, %v", at, err)
	}
	if _, err := s.RevisionAt(t.Context(), a.model.changes[0].Time); !errors.Is(err, history.ErrNone) && a.model.changes[0].Time.Before(a.model.at(floor).Time) {
		t.Errorf("the revision of a forgotten time: %v", err)
	}
	if s.logs.count("made again") != 0 {
		t.Errorf("it said: %s", s.logs)
	}
}

// A store that follows a log is told when that is about to forget its oldest part.
func TestForgettingTheOldestPart(t *testing.T) {
	history.SmallMemory(t)
	a := newAuthor(newTape(1), 74)
	a.writes(600)
	a.deleteAll()
	oldest := len(a.batches)
	a.writes(600)
	dir := t.TempDir()
	s := follow(t, dir, a.tape)
	floor := a.batches[oldest].First
	if err := s.ForgetAll(t.Context(), floor); err != nil {
		t.Fatal(err)
	}
	a.forget(oldest)
	for range 2 {
		if s.Oldest() != floor {
			t.Errorf("the oldest is %d, want %d", s.Oldest(), floor)
		}
		mustBeSame(t, "After", collect(t, s.After(t.Context(), history.Filter{}, 0, a.tip.Revision)), a.model.selected(history.Filter{}, floor-1, a.tip.Revision))
		for _, r := range resources(a) {
			refused(t, s.Store, r, floor-1)
			a.askSince(t, s.Store, r, floor, 10)
		}
		s.stop()
		s = follow(t, dir, a.tape)
	}
}

// A store that was not told finds out by a read. It can still be told.
func TestALogThatForgetsItsOldestPartUnasked(t *testing.T) {
	a := newAuthor(newTape(1), 77)
	a.writes(300)
	a.deleteAll()
	oldest := len(a.batches)
	a.writes(300)
	dir := t.TempDir()
	follow(t, dir, a.tape).stop()
	s := follow(t, dir, a.tape) // without events in memory
	floor := a.forget(oldest)
	if _, err := s.Time(t.Context(), floor-1); !errors.Is(err, history.ErrForgotten) {
		t.Errorf("the time of what is forgotten: %v", err)
	}
	if s.Oldest() != floor {
		t.Errorf("the oldest is %d, want %d", s.Oldest(), floor)
	}
	for _, r := range resources(a) {
		refused(t, s.Store, r, floor-1)
		a.askSince(t, s.Store, r, floor, 200)
	}
	if err := s.ForgetAll(t.Context(), floor); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if s = follow(t, dir, a.tape); s.Oldest() != floor {
		t.Errorf("after a start the oldest is %d, want %d", s.Oldest(), floor)
	}
}

// A history that is behind what the log keeps is made again from what is left.
func TestAHistoryThatIsBehindWhatTheLogKeeps(t *testing.T) {
	a := newAuthor(newTape(1), 75)
	a.writes(100)
	dir := settled(t, a)
	a.writes(50)
	a.deleteAll()
	oldest := len(a.batches)
	a.writes(100)
	floor := a.forget(oldest)
	s := follow(t, dir, a.tape)
	for _, r := range resources(a) {
		refused(t, s.Store, r, floor-1)
		a.askSince(t, s.Store, r, floor, 10)
	}
	if s.Oldest() != floor || s.logs.count("made again") != 1 {
		t.Errorf("the oldest is %d, want %d; it said: %s", s.Oldest(), floor, s.logs)
	}
}

// deleteAll deletes all objects, so that nothing of what follows needs what is before.
func (a *author) deleteAll() {
	for _, p := range a.places {
		if revision := a.living[p]; revision != 0 {
			a.commit(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_DELETED, Object: a.object(p), PreviousRevision: revision}})
		}
	}
}
