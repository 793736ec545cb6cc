package objects_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/objects"
)

var totalNamespaces = []string{"", "a", "b", "c", "empty"}

// counted returns the totals that a scan of all objects finds.
func counted(s *objects.State, namespace string) (t objects.Total) {
	for o := range s.List(widgets, &objects.Selection{}, "", "") {
		if namespace == "" || o.Namespace == namespace {
			t.Objects++
			t.Bytes += int64(len(o.JSON))
			if len(o.JSON) >= objects.LargeObject {
				t.Large++
			}
		}
	}
	return t
}

func checkTotals(t *testing.T, what string, s *objects.State) {
	t.Helper()
	for _, namespace := range totalNamespaces {
		if got, want := s.Total(widgets, namespace), counted(s, namespace); got != want {
			t.Fatalf("%s: the total in %q is %+v, a scan finds %+v", what, namespace, got, want)
		}
	}
}

// exported returns the state that an importer makes of the export of a state.
func exported(t *testing.T, s *objects.State) *objects.State {
	t.Helper()
	var i objects.Importer
	err := s.Export(i.Kind, func(_ *objects.Object, record []byte) error {
		o, err := i.Object(record)
		if err != nil {
			return err
		}
		return i.Add(o)
	})
	if err != nil {
		t.Fatal(err)
	}
	return i.State(s.Revision)
}

// The totals are those of a scan after every write: creates, updates, deletes, deletes of many, new representations, and
// writes after a gap between revisions, in the current state, in older ones, and in one that was restored.
func TestTotalsAreThoseOfAScan(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		s := newStore(1 << 20)
		live := map[string]thing{}
		revision := uint64(1)
		var states []*objects.State
		for range 150 {
			before := maps.Clone(live)
			w := thing{namespace: totalNamespaces[rnd.IntN(4)], name: fmt.Sprintf("w%d", rnd.IntN(12)), color: "red", size: rnd.IntN(1e6)}
			if rnd.IntN(10) == 0 {
				w.color = strings.Repeat("red", objects.LargeObject/3)
			}
			id := w.namespace + "/" + w.name
			old, exists := live[id]
			tx := s.Begin()
			var e *eventlog.Event
			switch {
			case rnd.IntN(20) == 0 && len(live) > 0:
				e = bulkOf(live, rnd.IntN(len(live))+1)
			case exists && rnd.IntN(3) == 0:
				e = event(logpb.Type_TYPE_DELETED, old, old.revision)
				delete(live, id)
			case exists:
				e = event(logpb.Type_TYPE_UPDATED, w, old.revision)
			default:
				e = event(logpb.Type_TYPE_CREATED, w, 0)
			}
			if rnd.IntN(30) == 0 {
				revision += 1000 // as at an epoch
			}
			if err := tx.Apply(e, revision); err != nil {
				t.Fatal(err)
			}
			if kind := e.Meta.GetType(); kind == logpb.Type_TYPE_CREATED || kind == logpb.Type_TYPE_UPDATED {
				w.revision = revision
				live[id] = w
			}
			revision += e.Span()
			if rnd.IntN(10) == 0 {
				mark := fmt.Appendf(nil, `,"mark":"%0*d"}`, 1+rnd.IntN(9), 0)
				tx.SetKinds([]objects.Kind{{GroupResource: widgets, Render: func(payload []byte) []byte {
					return append(payload[:len(payload)-1:len(payload)-1], mark...)
				}}}, nil)
			}
			if rnd.IntN(8) == 0 {
				live = before // the scratch copy is dropped, as after a failed append
				continue
			}
			states = append(states, s.Publish(tx, revision-1))
			checkTotals(t, "current", s.State())
		}
		for _, old := range states {
			checkTotals(t, "kept", old)
			if past, err := s.At(widgets, old.Revision); err == nil {
				checkTotals(t, "undone", past)
			}
		}
		checkTotals(t, "restored", exported(t, s.State()))
	}
}

// bulkOf returns the event that deletes n objects, which it removes from live.
func bulkOf(live map[string]thing, n int) *eventlog.Event {
	b := &logpb.Bulk{}
	for id, w := range live {
		if len(b.Objects) == n {
			break
		}
		b.Objects = append(b.Objects, &logpb.BulkObject{PreviousRevision: w.revision, Object: &logpb.Object{
			Group: widgets.Group, Resource: widgets.Resource, Namespace: w.namespace, Name: w.name, Uid: "u-" + w.name}})
		delete(live, id)
	}
	return &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_BULK_DELETED, Span: uint32(n), Detail: &logpb.Metadata_Bulk{Bulk: b}}}
}

func TestWatchersAreCountedByWhatTheySelect(t *testing.T) {
	s := newStore(0)
	apply(t, s, 1, event(logpb.Type_TYPE_CREATED, thing{namespace: "a", name: "x", color: "red"}, 0))
	watch := func(sel objects.Selection) *objects.Watcher {
		w, err := s.Watch(widgets, sel, 1)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	named := func(namespace, name string) objects.Selection {
		return objects.Select(namespace, nil, fields.OneTermEqualSelector("metadata.name", name))
	}
	all := []*objects.Watcher{
		watch(objects.Selection{}), watch(objects.Selection{}),
		watch(objects.Selection{Namespace: "a"}), watch(objects.Selection{Namespace: "b"}),
		watch(named("a", "x")), watch(named("", "x")), watch(named("b", "x")),
		watch(objects.Select("", nil, fields.OneTermEqualSelector("spec.color", "red"))),
		watch(objects.Select("", nil, fields.OneTermEqualSelector("spec.color", "blue"))),
	}
	for _, c := range []struct {
		namespace, name string
		want            int
	}{
		{"a", "x", 2 + 1 + 2 + 1},
		{"a", "", 2 + 1 + 1},
		{"a", "y", 2 + 1 + 1},
		{"b", "x", 2 + 1 + 2 + 1},
		{"c", "x", 2 + 1 + 1},
		{"", "", 2 + 1},
	} {
		if got := s.Watchers(widgets, c.namespace, c.name); got != c.want {
			t.Errorf("%d watchers of %q in %q, want %d", got, c.name, c.namespace, c.want)
		}
	}
	if got := s.Watchers(schema.GroupResource{Resource: "others"}, "a", "x"); got != 0 {
		t.Errorf("%d watchers of another resource", got)
	}
	for _, w := range all {
		w.Stop()
	}
	if got := s.Watchers(widgets, "a", "x"); got != 0 {
		t.Errorf("%d watchers after all have stopped", got)
	}
}

func TestChangesAfterARevisionAreCounted(t *testing.T) {
	s := newStore(2000)
	last := uint64(0)
	for revision := uint64(1); revision <= 20; revision++ {
		kind := logpb.Type_TYPE_UPDATED
		if last == 0 {
			kind = logpb.Type_TYPE_CREATED
		}
		apply(t, s, revision, event(kind, thing{namespace: "a", name: "x", color: "red"}, last))
		last = revision
	}
	floor := uint64(0)
	for _, err := s.At(widgets, floor); err != nil; _, err = s.At(widgets, floor) {
		floor++
	}
	if floor < 2 || floor > 17 {
		t.Fatalf("the test needs changes that were dropped, and some that were not: they are dropped up to %d", floor)
	}
	for _, c := range []struct {
		revision uint64
		after    int
		kept     bool
	}{{18, 2, true}, {20, 0, true}, {99, 0, true}, {floor, int(20 - floor), true}, {1, 19, false}} {
		if n, kept := s.ChangesAfter(widgets, c.revision); n != c.after || kept != c.kept {
			t.Errorf("after %d: %d changes, in memory %t; want %d, %t", c.revision, n, kept, c.after, c.kept)
		}
		if n, kept := s.Undone(widgets, c.revision); kept != c.kept || kept && n != c.after {
			t.Errorf("at %d: %d changes are undone, in memory %t; want %d, %t", c.revision, n, kept, c.after, c.kept)
		}
	}
	s.Pin(s.State())
	apply(t, s, 21, event(logpb.Type_TYPE_UPDATED, thing{namespace: "a", name: "x", color: "red"}, last))
	if n, ok := s.Undone(widgets, 20); n != 0 || !ok {
		t.Errorf("at a pinned revision: %d changes are undone, in memory %t; want 0, true", n, ok)
	}
	if n, all := s.ChangesAfter(schema.GroupResource{Resource: "others"}, 1); n != 0 || !all {
		t.Errorf("of another resource: %d changes, all %t; want 0, true", n, all)
	}
}
