package objects_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/objects"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

func newStore(historyBytes int) *objects.Store {
	s := objects.New(historyBytes)
	tx := s.Begin()
	tx.SetKinds([]objects.Kind{{GroupResource: widgets, Fields: []string{"spec.color", "spec.size"}}}, nil)
	s.Publish(tx, 0)
	return s
}

// thing has the parts of an object that tests vary.
type thing struct {
	namespace, name, app, color string
	size                        int
	revision                    uint64
}

func (t thing) payload() string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"app":%q},"name":%q,"namespace":%q,"uid":"u-%s"},"spec":{"color":%q,"size":%d}}`,
		t.app, t.name, t.namespace, t.name, t.color, t.size)
}

func (t thing) json() string {
	return strings.Replace(t.payload(), `"metadata":{`, fmt.Sprintf(`"metadata":{"resourceVersion":"%d",`, t.revision), 1)
}

func event(kind logpb.Type, t thing, previous uint64) *eventlog.Event {
	e := &eventlog.Event{Meta: &logpb.Metadata{
		Type: kind, PreviousRevision: previous,
		Object: &logpb.Object{Group: widgets.Group, Resource: widgets.Resource, Namespace: t.namespace, Name: t.name, Uid: "u-" + t.name},
	}}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte(t.payload()))
	return e
}

func apply(t testing.TB, s *objects.Store, revision uint64, events ...*eventlog.Event) *objects.State {
	t.Helper()
	tx := s.Begin()
	for _, e := range events {
		if err := tx.Apply(e, revision); err != nil {
			t.Fatal(err)
		}
		revision += e.Span()
	}
	return s.Publish(tx, revision-1)
}

func TestAnObjectIsItsPayloadWithTheRevision(t *testing.T) {
	s := newStore(0)
	w := thing{"ns", "a", "x", "red", 7, 3}
	o := apply(t, s, 3, event(logpb.Type_TYPE_CREATED, w, 0)).Get(widgets, "ns", "a")
	if string(o.JSON) != w.json() {
		t.Errorf("JSON %s\nwant %s", o.JSON, w.json())
	}
	if string(o.Payload()) != w.payload() || !o.HasPayload([]byte(w.payload())) {
		t.Errorf("payload %s", o.Payload())
	}
	w.size++
	if o.HasPayload([]byte(w.payload())) {
		t.Error("HasPayload of another payload")
	}
	if o.Namespace != "ns" || o.Name != "a" || o.UID != "u-a" || o.Revision != 3 {
		t.Errorf("header %+v", o)
	}
}

func TestHeadersAreUnescaped(t *testing.T) {
	s := newStore(0)
	e := event(logpb.Type_TYPE_CREATED, thing{name: "a"}, 0)
	e.Contents[0] = []byte(`{"metadata":{"name":"a","uid":"u-a","labels":{"k\u0065y":"v\"\u00e9"}},"spec":{"color":"r\u0065d","size":1.5}}`)
	apply(t, s, 1, e)
	sel := objects.Select("", labels.SelectorFromValidatedSet(labels.Set{"key": "v\"é"}), fields.ParseSelectorOrDie("spec.color=red,spec.size=1.5"))
	if n := count(s.State(), sel); n != 1 {
		t.Errorf("%d objects", n)
	}
}

func count(s *objects.State, sel objects.Selection) (n int) {
	for range s.List(widgets, &sel, "", "") {
		n++
	}
	return n
}

func TestEventsThatDoNotFollowAreRefused(t *testing.T) {
	a := thing{"ns", "a", "x", "red", 1, 5}
	other := a
	other.name = "b"
	wrongPayload := event(logpb.Type_TYPE_UPDATED, a, 5)
	wrongPayload.Contents[0] = []byte(other.payload())
	wrongUID := event(logpb.Type_TYPE_UPDATED, a, 5)
	wrongUID.Meta.Object.Uid = "other"
	noPayload := event(logpb.Type_TYPE_UPDATED, a, 5)
	noPayload.Contents[0] = nil
	empty := event(logpb.Type_TYPE_CREATED, a, 0)
	empty.Meta.Object.Namespace, empty.Meta.Object.Name, empty.Meta.Object.Uid = "", "", ""
	empty.Contents[0] = []byte(`{"metadata":{ }}`)
	bulk := func(span uint32, previous ...uint64) *eventlog.Event {
		var gone []*logpb.BulkObject
		for _, p := range previous {
			gone = append(gone, &logpb.BulkObject{Object: event(logpb.Type_TYPE_DELETED, a, 0).Meta.Object, PreviousRevision: p})
		}
		return &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_BULK_DELETED, Span: span, Detail: &logpb.Metadata_Bulk{Bulk: &logpb.Bulk{Objects: gone}}}}
	}
	for name, e := range map[string]*eventlog.Event{
		"creation of what exists":            event(logpb.Type_TYPE_CREATED, a, 0),
		"creation with a previous revision":  event(logpb.Type_TYPE_CREATED, other, 5),
		"update of what does not exist":      event(logpb.Type_TYPE_UPDATED, other, 0),
		"update of another revision":         event(logpb.Type_TYPE_UPDATED, a, 4),
		"update of another uid":              wrongUID,
		"update with another object":         wrongPayload,
		"update without an object":           noPayload,
		"creation with empty metadata":       empty,
		"deletion of what does not exist":    event(logpb.Type_TYPE_DELETED, other, 3),
		"bulk with the wrong span":           bulk(2, 5),
		"bulk of the same object twice":      bulk(2, 5, 5),
		"bulk of what was changed meanwhile": bulk(1, 4),
	} {
		s := newStore(0)
		before := apply(t, s, 5, event(logpb.Type_TYPE_CREATED, a, 0))
		tx := s.Begin()
		if err := tx.Apply(e, 6); err == nil {
			t.Errorf("%s was applied", name)
		}
		if len(tx.Changes()) != 0 || s.State() != before {
			t.Errorf("%s left something behind", name)
		}
	}
}

func TestADroppedScratchCopyChangesNothing(t *testing.T) {
	s := newStore(0)
	a := thing{"ns", "a", "x", "red", 1, 1}
	before := apply(t, s, 1, event(logpb.Type_TYPE_CREATED, a, 0))
	tx := s.Begin()
	for i := range 100 {
		if err := tx.Apply(event(logpb.Type_TYPE_CREATED, thing{"ns", fmt.Sprint("b", i), "x", "red", 1, 0}, 0), uint64(i+2)); err != nil {
			t.Fatal(err)
		}
	}
	if count(tx.State(), objects.Selection{}) != 101 || count(before, objects.Selection{}) != 1 || count(s.State(), objects.Selection{}) != 1 {
		t.Errorf("scratch %d, before %d, store %d", count(tx.State(), objects.Selection{}), count(before, objects.Selection{}), count(s.State(), objects.Selection{}))
	}
}

func TestAnotherSelectableFieldCountsForOldObjects(t *testing.T) {
	s := newStore(0)
	apply(t, s, 1, event(logpb.Type_TYPE_CREATED, thing{"ns", "a", "x", "red", 7, 1}, 0))
	before := s.State()
	tx := s.Begin()
	tx.SetKinds([]objects.Kind{{GroupResource: widgets, Fields: []string{"metadata.labels.app"}}}, nil)
	s.Publish(tx, 2)
	byLabel := objects.Select("", nil, fields.ParseSelectorOrDie("metadata.labels.app=x"))
	byColor := objects.Select("", nil, fields.ParseSelectorOrDie("spec.color=red"))
	if count(s.State(), byLabel) != 1 || count(s.State(), byColor) != 0 {
		t.Error("the new field is not selectable, or the old one still is")
	}
	if count(before, byLabel) != 0 || count(before, byColor) != 1 {
		t.Error("a state changed after it was published")
	}
}

// An object whose representation does not change is shared, and one that is shown as it was written is that
// object again.
func TestOnlyWhatLooksOtherwiseIsHeldTwice(t *testing.T) {
	s := newStore(0)
	before := apply(t, s, 1,
		event(logpb.Type_TYPE_CREATED, thing{"ns", "green", "x", "green", 7, 1}, 0),
		event(logpb.Type_TYPE_CREATED, thing{"ns", "blue", "x", "blue", 7, 2}, 0))
	show := func(revision uint64, look func(string) string) *objects.State {
		tx := s.Begin()
		if err := tx.Apply(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_POLICY_ACTIVATED}}, revision); err != nil {
			t.Fatal(err)
		}
		tx.SetKinds([]objects.Kind{{GroupResource: widgets, Fields: []string{"spec.color", "spec.size"},
			Render: func(payload []byte) []byte { return []byte(look(string(payload))) }}}, nil)
		return s.Publish(tx, revision)
	}
	red := show(3, func(text string) string { return strings.Replace(text, `"color":"green"`, `"color":"red"`, 1) })
	if o := red.Get(widgets, "ns", "green"); string(o.JSON) != (thing{"ns", "green", "x", "red", 7, 1}).json() {
		t.Errorf("shown is %s", o.JSON)
	}
	if red.Get(widgets, "ns", "blue") != before.Get(widgets, "ns", "blue") {
		t.Error("another object for what looks as before")
	}
	if show(4, func(text string) string { return text }).Get(widgets, "ns", "green") != before.Get(widgets, "ns", "green") {
		t.Error("another object than was written")
	}
}

// There are more changes of one revision than a queue holds and than are taken at once. Each must be
// returned once, and the bookmark only after the last.
func TestManyChangesOfOneRevision(t *testing.T) {
	const n = 3000
	for _, historyBytes := range []int{0, 1} {
		s := newStore(historyBytes)
		ctx, cancel := context.WithCancel(t.Context())
		running := make(chan struct{})
		go func() { defer close(running); s.Run(ctx) }()
		for i := range uint64(n) {
			apply(t, s, i+1, event(logpb.Type_TYPE_CREATED, thing{"ns", fmt.Sprintf("o%04d", i), "x", pick(rand.New(rand.NewPCG(i, 0)), "red", "green"), 1, 0}, 0))
		}
		watch := func(selector string) *objects.Watcher {
			w, err := s.Watch(widgets, objects.Select("", nil, fields.ParseSelectorOrDie(selector)), n)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Stop)
			return w
		}
		watchers := map[string]*objects.Watcher{"": watch(""), "spec.color=red": watch("spec.color=red"), "spec.color=green": watch("spec.color=green"), "metadata.name=o0007": watch("metadata.name=o0007")}
		for _, w := range watchers {
			<-w.Ready()
			w.Take() // it is not behind any more
		}
		resumed := watch("")
		tx := s.Begin()
		if err := tx.Apply(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_POLICY_ACTIVATED}}, n+1); err != nil {
			t.Fatal(err)
		}
		tx.SetKinds([]objects.Kind{{GroupResource: widgets, Fields: []string{"spec.color", "spec.size"}, Render: func(payload []byte) []byte {
			return []byte(strings.NewReplacer(`"red"`, `"green"`, `"green"`, `"red"`).Replace(string(payload)))
		}}}, nil)
		s.Publish(tx, n+1)
		watchers["resumed"] = resumed
		for what, w := range watchers {
			seen := map[string]objects.EventType{}
			for bookmark := uint64(n); bookmark <= n; {
				<-w.Ready()
				for more := true; more; {
					var events []objects.Event
					var err error
					if events, bookmark, more, err = w.Take(); err != nil {
						if historyBytes == 1 && errors.Is(err, objects.ErrExpired) {
							bookmark, more = n+1, false // it has to list
							seen = nil
							break
						}
						t.Fatal(err)
					}
					for _, e := range events {
						if !e.Rendered || seen[e.Object.Name] != 0 || bookmark > n && more {
							t.Fatalf("%s: %+v, bookmark %d", what, e, bookmark)
						}
						seen[e.Object.Name] = e.Type
					}
				}
			}
			want := map[string]int{"": n, "resumed": n, "metadata.name=o0007": 1, "spec.color=red": n, "spec.color=green": n}[what]
			if len(seen) != want && seen != nil {
				t.Errorf("%s: %d objects, want %d", what, len(seen), want)
			}
		}
		if _, err := s.Watch(widgets, objects.Selection{}, n); (historyBytes == 1) != errors.Is(err, objects.ErrExpired) {
			t.Errorf("with %d bytes of history: %v", historyBytes, err)
		}
		cancel()
		<-running
	}
}

// world makes random changes in a store and records every state.
type world struct {
	t       testing.TB
	rng     *rand.Rand
	store   *objects.Store
	now     map[string]thing            // key -> object, as it is shown
	written map[string]thing            // as it was written
	look    int                         // how objects are shown, see looks
	history map[uint64]map[string]thing // at each revision
	last    uint64
}

// looks are functions with which policies may render objects.
var looks = []func(color string) string{
	func(color string) string { return color },
	func(color string) string { return strings.ReplaceAll(color, "green", "red") },
	func(color string) string { return strings.ReplaceAll(color, "red", "blue") },
}

func newWorld(t testing.TB, seed uint64, historyBytes int) *world {
	return &world{t: t, rng: rand.New(rand.NewPCG(seed, 0)), store: newStore(historyBytes),
		now: map[string]thing{}, written: map[string]thing{}, history: map[uint64]map[string]thing{0: {}}}
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// step applies one batch of random changes.
func (w *world) step() {
	tx := w.store.Begin()
	for range 1 + w.rng.IntN(4) {
		w.last++
		n := thing{
			namespace: pick(w.rng, "n1", "n2", "n3"), name: fmt.Sprint("o", w.rng.IntN(8)),
			app: pick(w.rng, "x", "y"), color: looks[w.look](pick(w.rng, "red", "blue", "green")), size: w.rng.IntN(3), revision: w.last,
		}
		key := n.namespace + "/" + n.name
		old, exists := w.now[key]
		var e *eventlog.Event
		switch {
		case !exists:
			e = event(logpb.Type_TYPE_CREATED, n, 0)
			w.now[key] = n
		case w.rng.IntN(3) == 0:
			e = event(logpb.Type_TYPE_DELETED, old, old.revision)
			delete(w.now, key)
		case w.rng.IntN(6) == 0:
			e = &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_BULK_DELETED, Span: 1, Detail: &logpb.Metadata_Bulk{Bulk: &logpb.Bulk{
				Objects: []*logpb.BulkObject{{Object: event(logpb.Type_TYPE_DELETED, old, 0).Meta.Object, PreviousRevision: old.revision}},
			}}}}
			delete(w.now, key)
		default:
			e = event(logpb.Type_TYPE_UPDATED, n, old.revision)
			w.now[key] = n
		}
		if err := tx.Apply(e, w.last); err != nil {
			w.t.Fatal(err)
		}
		if now, there := w.now[key]; there {
			w.written[key] = now
		} else {
			delete(w.written, key)
		}
		w.history[w.last] = maps.Clone(w.now)
	}
	if w.rng.IntN(8) == 0 { // an event that concerns no object
		w.last++
		w.history[w.last] = maps.Clone(w.now)
	}
	if w.rng.IntN(20) == 0 {
		w.change(tx, w.rng.IntN(len(looks)))
	}
	w.store.Publish(tx, w.last)
}

// change renders objects in another way from the next revision on. Sometimes some were rendered in advance,
// of which a few no longer exist.
func (w *world) change(tx *objects.Tx, look int) {
	w.last++
	if err := tx.Apply(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_POLICY_ACTIVATED}}, w.last); err != nil {
		w.t.Fatal(err)
	}
	kinds := []objects.Kind{{GroupResource: widgets, Fields: []string{"spec.color", "spec.size"}, Render: func(payload []byte) []byte {
		before, rest, _ := strings.Cut(string(payload), `"spec":{"color":"`)
		color, rest, _ := strings.Cut(rest, `"`)
		return []byte(before + `"spec":{"color":"` + looks[look](color) + `"` + rest)
	}}}
	var ahead objects.Rendered
	if w.rng.IntN(2) == 0 {
		ahead = w.store.State().Render(w.t.Context(), kinds)
	}
	tx.SetKinds(kinds, ahead)
	w.look = look
	for key := range w.now {
		shown := w.written[key]
		shown.color = looks[look](shown.color)
		w.now[key] = shown
	}
	w.history[w.last] = maps.Clone(w.now)
}

// query is a selection, and a function that computes the same naively.
type query struct {
	namespace, name, app, color string
}

func (w *world) query() query {
	return query{pick(w.rng, "", "n1", "n2"), pick(w.rng, "", "", "o1"), pick(w.rng, "", "", "x"), pick(w.rng, "", "", "red")}
}

func (q query) selection() objects.Selection {
	var l labels.Selector
	if q.app != "" {
		l = labels.SelectorFromSet(labels.Set{"app": q.app})
	}
	set := fields.Set{}
	if q.name != "" {
		set["metadata.name"] = q.name
	}
	if q.color != "" {
		set["spec.color"] = q.color
	}
	return objects.Select(q.namespace, l, fields.SelectorFromSet(set))
}

func (q query) matches(t thing) bool {
	return (q.namespace == "" || q.namespace == t.namespace) && (q.name == "" || q.name == t.name) &&
		(q.app == "" || q.app == t.app) && (q.color == "" || q.color == t.color)
}

func (q query) want(state map[string]thing) (want []string) {
	for _, k := range slices.Sorted(maps.Keys(state)) {
		if q.matches(state[k]) {
			want = append(want, state[k].json())
		}
	}
	return want
}

func list(s *objects.State, sel objects.Selection, ns, name string) (got []string) {
	for o := range s.List(widgets, &sel, ns, name) {
		got = append(got, string(o.JSON))
	}
	return got
}

func TestListsAreTheStateAtTheirRevision(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, seed, 0)
		for range 100 {
			w.step()
			q := w.query()
			if diff := cmp.Diff(q.want(w.now), list(w.store.State(), q.selection(), "", "")); diff != "" {
				t.Fatalf("seed %d revision %d, %+v (-want +got):\n%s", seed, w.last, q, diff)
			}
			past := w.rng.Uint64N(w.last + 1)
			state, err := w.store.At(widgets, past)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(q.want(w.history[past]), list(state, q.selection(), "", "")); diff != "" {
				t.Fatalf("seed %d: revision %d seen from %d, %+v (-want +got):\n%s", seed, past, w.last, q, diff)
			}
			if state.Revision != past {
				t.Fatalf("state at %d says %d", past, state.Revision)
			}
		}
	}
}

func TestPagesGoOnBehindAnyKey(t *testing.T) {
	w := newWorld(t, 1, 0)
	for range 50 {
		w.step()
	}
	for range 200 {
		q := w.query()
		ns, name := pick(w.rng, "", "n1", "n2", "n3"), pick(w.rng, "", "o3", "o7", "zz")
		var want []string
		for _, k := range slices.Sorted(maps.Keys(w.now)) {
			if o := w.now[k]; q.matches(o) && (o.namespace > ns || o.namespace == ns && o.name > name) {
				want = append(want, o.json())
			}
		}
		if diff := cmp.Diff(want, list(w.store.State(), q.selection(), ns, name)); diff != "" {
			t.Fatalf("%+v behind %s/%s (-want +got):\n%s", q, ns, name, diff)
		}
		in := q.namespace
		behind := list(w.store.State(), objects.Select(in, nil, nil), ns, name)
		if n := w.store.State().CountAfter(widgets, in, ns, name); n != len(behind) {
			t.Fatalf("CountAfter(%q) of %s/%s is %d, want %d", in, ns, name, n, len(behind))
		}
	}
}

// observer is a client: it lists, and then applies the events that it gets.
type observer struct {
	q       query
	watcher *objects.Watcher
	seen    map[string]string // key -> JSON
	at      uint64
}

func (w *world) observe(q query, from uint64) *observer {
	o := &observer{q: q, seen: map[string]string{}, at: from}
	for k, t := range w.history[from] {
		if q.matches(t) {
			o.seen[k] = t.json()
		}
	}
	watcher, err := w.store.Watch(widgets, q.selection(), from)
	if err != nil {
		w.t.Fatal(err)
	}
	o.watcher = watcher
	return o
}

// take applies events until there are none, and checks that each follows the rules of watches.
func (o *observer) take(w *world) {
	for more := true; more; {
		events, bookmark, again, err := o.watcher.Take()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range events {
			key := e.Object.Namespace + "/" + e.Object.Name
			_, had := o.seen[key]
			switch {
			case !e.Rendered && e.Object.Revision <= o.at:
				w.t.Fatalf("event at %d after %d", e.Object.Revision, o.at)
			case e.Rendered && e.Type == objects.Modified && o.seen[key] == string(e.Object.JSON):
				w.t.Fatalf("%s looks as before: %s", key, e.Object.JSON)
			case had != (e.Type != objects.Added):
				w.t.Fatalf("event %v of %s, which the observer had: %v", e.Type, key, had)
			}
			o.at = max(o.at, e.Object.Revision)
			if e.Type == objects.Deleted {
				delete(o.seen, key)
			} else {
				o.seen[key] = string(e.Object.JSON)
			}
		}
		if bookmark < o.at {
			w.t.Fatalf("bookmark %d after an event at %d", bookmark, o.at)
		}
		o.at, more = bookmark, again
	}
	want := map[string]string{}
	for k, t := range w.history[o.at] {
		if o.q.matches(t) {
			want[k] = t.json()
		}
	}
	if diff := cmp.Diff(want, o.seen); diff != "" {
		w.t.Fatalf("%+v at revision %d (-want +got):\n%s", o.q, o.at, diff)
	}
}

// For any selection, from any revision, with frequent or rare calls of Take: a watcher's events must add up
// to the state at its bookmark.
func TestWatchersSeeEveryChangeOnceInOrder(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, seed, 0)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.store.Run(ctx) }()
		var watching []*observer
		for i := range 600 {
			w.step()
			if i%20 == 0 {
				watching = append(watching, w.observe(w.query(), w.rng.Uint64N(w.last+1)))
			}
			for _, o := range watching {
				if w.rng.IntN(20) == 0 {
					o.take(w)
				}
			}
		}
		sleeper := watching[0]
		for i := 0; i < 3000; i++ {
			w.step()
		}
		sleeper.take(w)
		for _, o := range watching {
			o.take(w)
			if o.take(w); o.at > w.last {
				t.Fatalf("bookmark %d above %d", o.at, w.last)
			}
			o.watcher.Stop()
		}
		cancel()
		<-done
	}
}

func TestAWatcherIsWokenForWhatConcernsIt(t *testing.T) {
	s := newStore(0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go s.Run(ctx)
	apply(t, s, 1, event(logpb.Type_TYPE_CREATED, thing{"ns", "a", "x", "red", 1, 1}, 0))
	w, err := s.Watch(widgets, objects.Select("", nil, fields.ParseSelectorOrDie("spec.color=blue")), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	<-w.Ready()
	if events, _, _, _ := w.Take(); len(events) > 0 {
		t.Fatalf("events %v", events)
	}
	apply(t, s, 2, event(logpb.Type_TYPE_UPDATED, thing{"ns", "a", "x", "blue", 1, 2}, 1))
	<-w.Ready()
	if events, _, _, _ := w.Take(); len(events) != 1 || events[0].Type != objects.Added {
		t.Fatalf("events %v, want ADDED", events)
	}
	apply(t, s, 3, event(logpb.Type_TYPE_UPDATED, thing{"ns", "a", "x", "green", 1, 3}, 2))
	<-w.Ready()
	events, _, _, _ := w.Take()
	if len(events) != 1 || events[0].Type != objects.Deleted {
		t.Fatalf("events %v, want DELETED", events)
	}
	// An object that left the selection is shown as it was last seen, at the revision at which it left.
	if want := (thing{"ns", "a", "x", "blue", 1, 3}).json(); string(events[0].Object.JSON) != want {
		t.Errorf("left as %s, want %s", events[0].Object.JSON, want)
	}
}

func TestDroppedHistoryIsSaid(t *testing.T) {
	w := newWorld(t, 1, 4<<10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go w.store.Run(ctx)
	w.step()
	w.step()
	slow := w.observe(query{}, w.last)
	pinned := w.store.State()
	w.store.Pin(pinned)
	fast, err := w.store.Watch(widgets, objects.Selection{}, w.last)
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Stop()
	for range 1000 {
		w.step()
		for bookmark, more := uint64(0), true; more || bookmark < w.last; { // once offered, it may be dropped
			if _, bookmark, more, err = fast.Take(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for revision := range slices.Values([]uint64{0, 1, pinned.Revision}) {
		if _, err := w.store.At(widgets, revision); !errors.Is(err, objects.ErrExpired) {
			t.Errorf("At(%d) = %v, want ErrExpired", revision, err)
		}
		if _, err := w.store.Watch(widgets, objects.Selection{}, revision); !errors.Is(err, objects.ErrExpired) {
			t.Errorf("Watch(%d) = %v, want ErrExpired", revision, err)
		}
	}
	// The slow watcher has an old queue: it gets that, or an error.
	for {
		_, _, more, err := slow.watcher.Take()
		if errors.Is(err, objects.ErrExpired) {
			return
		}
		if !more {
			t.Fatal("the slow watcher was not told that it missed changes")
		}
	}
}

// A newer state must not keep older ones alive, or memory would hold the whole log.
func TestStatesThatNobodyReadsAreFreed(t *testing.T) {
	s := newStore(0)
	first := weak.Make(apply(t, s, 2, event(logpb.Type_TYPE_CREATED, thing{name: "a"}, 0)))
	for r := uint64(3); r < 6; r++ {
		apply(t, s, r, event(logpb.Type_TYPE_UPDATED, thing{name: "a", size: int(r)}, r-1))
	}
	runtime.GC()
	if first.Value() != nil {
		t.Error("the state of revision 2 is still in memory")
	}
	runtime.KeepAlive(s)
}

// There are no watchers while a log is replayed: the changes must not be kept for them.
func TestAReplayKeepsNoMoreThanTheBound(t *testing.T) {
	s := newStore(4 << 10)
	apply(t, s, 2, event(logpb.Type_TYPE_CREATED, thing{name: "a"}, 0))
	for r := uint64(3); r < 1000; r++ {
		apply(t, s, r, event(logpb.Type_TYPE_UPDATED, thing{name: "a", size: int(r)}, r-1))
	}
	if _, err := s.At(widgets, 500); !errors.Is(err, objects.ErrExpired) {
		t.Errorf("At(500) = %v, want ErrExpired", err)
	}
}

// A query for one resource must not return another.
func TestAPastStateIsOfItsResourceOnly(t *testing.T) {
	s := newStore(0)
	gadgets := schema.GroupResource{Group: "example.com", Resource: "gadgets"}
	apply(t, s, 2, event(logpb.Type_TYPE_CREATED, thing{name: "a"}, 0))
	apply(t, s, 3, event(logpb.Type_TYPE_CREATED, thing{name: "b"}, 0))
	past, err := s.At(gadgets, 2)
	if err != nil {
		t.Fatal(err)
	}
	s.Pin(past)
	if past, err = s.At(widgets, 2); err != nil || len(list(past, objects.Selection{}, "", "")) != 1 {
		t.Errorf("widgets at 2: %v, %v", past, err)
	}
}

// AtHand refuses to undo too many changes, unless the state is pinned or current.
func TestAStateIsAtHandIfFewChangesAreToBeUndone(t *testing.T) {
	s := newStore(0)
	apply(t, s, 2, event(logpb.Type_TYPE_CREATED, thing{name: "a"}, 0))
	begun := s.State()
	for r := uint64(3); r <= 12; r++ {
		apply(t, s, r, event(logpb.Type_TYPE_UPDATED, thing{name: "a", size: int(r)}, r-1))
	}
	for revision, want := range map[uint64]error{2: objects.ErrExpired, 8: objects.ErrExpired, 9: nil, 12: nil} {
		if _, err := s.AtHand(widgets, revision, 3); !errors.Is(err, want) {
			t.Errorf("AtHand(%d) = %v, want %v", revision, err, want)
		}
	}
	s.Pin(begun)
	if _, err := s.AtHand(widgets, 2, 3); err != nil {
		t.Errorf("the state that a list was begun with: %v", err)
	}
}

// A bounded number of states is pinned, however many lists begin, and none once the changes since have been
// dropped.
func TestPinnedStatesAreBounded(t *testing.T) {
	s := newStore(64 << 10)
	var states []weak.Pointer[objects.State]
	revision := uint64(0)
	change := func() {
		previous := revision
		revision++
		kind := logpb.Type_TYPE_UPDATED
		if previous == 0 {
			kind = logpb.Type_TYPE_CREATED
		}
		apply(t, s, revision, event(kind, thing{"ns", "a", "x", "red", 1, revision}, previous))
	}
	kept := func() (n int) {
		runtime.GC()
		for _, p := range states {
			if p.Value() != nil {
				n++
			}
		}
		return n
	}
	for range 400 {
		change()
		states = append(states, weak.Make(s.State()))
		s.Pin(s.State())
	}
	if n := kept(); n == 0 || n > 256 {
		t.Errorf("%d of 400 pinned states are kept", n)
	}
	for range 1000 {
		change()
	}
	if n := kept(); n > 0 {
		t.Errorf("%d pinned states outlive the changes since", n)
	}
}
