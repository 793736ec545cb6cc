package objects_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/objects"
)

// content is what indexes can be about, of one object.
type content struct {
	labels labels.Set
	spec   map[string]any
}

// crowd is a store with so many objects that indexes are used. Its objects change at random.
type crowd struct {
	t     testing.TB
	rng   *rand.Rand
	store *objects.Store
	last  uint64
	// fields are the selectable ones of the kind.
	fields []string
	parsed map[string]content // by JSON
	used   int                // lists that were shorter than a scan
}

func newCrowd(t testing.TB, seed uint64, historyBytes, size int) *crowd {
	c := &crowd{t: t, rng: rand.New(rand.NewPCG(seed, 1)), store: objects.New(historyBytes), parsed: map[string]content{}}
	c.setKind(nil, "spec.tier", "spec.owner.name")
	tx := c.store.Begin()
	for i := range size {
		c.create(tx, fmt.Sprintf("n%d", i%3), fmt.Sprintf("o%d", i))
	}
	c.store.Publish(tx, c.last)
	return c
}

// setKind activates a policy in which the kind has these selectable fields.
func (c *crowd) setKind(render func([]byte) []byte, names ...string) {
	c.fields = names
	tx := c.store.Begin()
	c.apply(tx, &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_POLICY_ACTIVATED}})
	tx.SetKinds([]objects.Kind{c.kind(render)}, nil)
	c.store.Publish(tx, c.last)
}

func (c *crowd) kind(render func([]byte) []byte) objects.Kind {
	return objects.Kind{GroupResource: widgets, Fields: c.fields, Render: render}
}

// repaint renders objects with another label and another field.
func repaint(payload []byte) []byte {
	var o map[string]any
	if err := json.Unmarshal(payload, &o); err != nil {
		panic(err)
	}
	if l, ok := o["metadata"].(map[string]any)["labels"].(map[string]any); ok && l["app"] == "a" {
		l["app"] = "rare"
		o["spec"].(map[string]any)["tier"] = "gold"
	}
	rendered, _ := json.Marshal(o)
	return rendered
}

func (c *crowd) apply(tx *objects.Tx, e *eventlog.Event) {
	c.last++
	if err := tx.Apply(e, c.last); err != nil {
		c.t.Fatal(err)
	}
}

// payload returns random content. Most values are of few objects.
func (c *crowd) payload(ns, name string) string {
	l := map[string]string{}
	for key, values := range map[string][]string{
		"app": {"a", "a", "a", "b", "rare"}, "part": {"", "1", "2", "3", "4", "5", "6", "7", "8"}, "only": {"", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "yes"},
	} {
		if v := pick(c.rng, values...); v != "" {
			l[key] = v
		}
	}
	if c.rng.IntN(2) == 0 {
		l["name"] = name // a value of its own
	}
	if c.rng.IntN(4) == 0 {
		l["empty"] = ""
	}
	spec := map[string]any{"tier": pick(c.rng, "gold", "silver", "silver", "silver", "silver", "silver", "silver", "iron"), "size": c.rng.IntN(30)}
	if c.rng.IntN(3) == 0 {
		spec["owner"] = map[string]string{"name": pick(c.rng, "ann", "bob", "cy", "dee")}
	}
	text, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": name, "namespace": ns, "uid": "u", "labels": l}, "spec": spec})
	return string(text)
}

func (c *crowd) event(kind logpb.Type, ns, name, payload string, previous uint64) *eventlog.Event {
	e := &eventlog.Event{Meta: &logpb.Metadata{
		Type: kind, PreviousRevision: previous,
		Object: &logpb.Object{Group: widgets.Group, Resource: widgets.Resource, Namespace: ns, Name: name, Uid: "u"},
	}}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte(payload))
	return e
}

func (c *crowd) create(tx *objects.Tx, ns, name string) {
	c.apply(tx, c.event(logpb.Type_TYPE_CREATED, ns, name, c.payload(ns, name), 0))
}

// step applies a batch of changes: creates, updates of everything or of what no index is about, deletes and bulks.
func (c *crowd) step(most int) {
	tx := c.store.Begin()
	c.change(tx, most)
	c.store.Publish(tx, c.last)
}

// change applies changes to a scratch copy.
func (c *crowd) change(tx *objects.Tx, most int) {
	for range 1 + c.rng.IntN(most) {
		ns, name := fmt.Sprintf("n%d", c.rng.IntN(3)), fmt.Sprintf("o%d", c.rng.IntN(900))
		o := tx.State().Get(widgets, ns, name)
		switch {
		case o == nil:
			c.create(tx, ns, name)
		case c.rng.IntN(4) == 0:
			c.apply(tx, c.event(logpb.Type_TYPE_DELETED, ns, name, string(o.Payload()), o.Revision))
		case c.rng.IntN(8) == 0:
			c.apply(tx, &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_BULK_DELETED, Span: 1, Detail: &logpb.Metadata_Bulk{Bulk: &logpb.Bulk{
				Objects: []*logpb.BulkObject{{Object: c.event(logpb.Type_TYPE_DELETED, ns, name, "", 0).Meta.Object, PreviousRevision: o.Revision}},
			}}}})
		case c.rng.IntN(3) == 0:
			var content map[string]any
			_ = json.Unmarshal(o.Payload(), &content)
			content["status"] = map[string]any{"seen": c.last}
			text, _ := json.Marshal(content)
			c.apply(tx, c.event(logpb.Type_TYPE_UPDATED, ns, name, string(text), o.Revision))
		default:
			c.apply(tx, c.event(logpb.Type_TYPE_UPDATED, ns, name, c.payload(ns, name), o.Revision))
		}
	}
}

// selectors returns random selectors by labels and the named fields.
func (c *crowd) selectors(names []string) (l labels.Selector, f fields.Selector) {
	term := func() string {
		return pick(c.rng, "app=rare", "app=a", "app in (rare,b)", "part=3", "part in (1,2,none)", "part", "only", "only=yes", "name=o7", "name in (o1,o22,o333)",
			"name", "empty=", "empty", "app!=a", "app notin (a,b)", "!part", "part notin (1,2)", "part!=1", "only!=no", "part>7", "part<2", "none", "none=x")
	}
	text := ""
	for i := range c.rng.IntN(4) {
		if i > 0 {
			text += ","
		}
		text += term()
	}
	var err error
	if l, err = labels.Parse(text); err != nil {
		c.t.Fatal(err)
	}
	text = ""
	if c.rng.IntN(2) == 0 {
		for i := range 1 + c.rng.IntN(2) {
			if i > 0 {
				text += ","
			}
			switch pick(c.rng, names...) {
			case "spec.tier":
				text += pick(c.rng, "spec.tier=gold", "spec.tier=iron", "spec.tier=silver", "spec.tier!=gold", "spec.tier=none")
			case "spec.owner.name":
				text += pick(c.rng, "spec.owner.name=ann", "spec.owner.name=", "spec.owner.name!=bob")
			case "spec.size":
				text += fmt.Sprintf("spec.size=%d", c.rng.IntN(32))
			}
		}
	}
	if f, err = fields.ParseSelector(text); err != nil {
		c.t.Fatal(err)
	}
	return l, f
}

// want returns the objects of a state that selectors match, by looking at all.
func (c *crowd) want(s *objects.State, ns string, l labels.Selector, f fields.Selector) (want []string) {
	all := objects.Select(ns, nil, nil)
	for o := range s.List(widgets, &all, "", "") {
		text := string(o.JSON)
		is, known := c.parsed[text]
		if !known {
			var x struct {
				Metadata struct{ Labels labels.Set }
				Spec     map[string]any
			}
			if err := json.Unmarshal(o.JSON, &x); err != nil {
				c.t.Fatal(err)
			}
			is = content{x.Metadata.Labels, x.Spec}
			c.parsed[text] = is
		}
		owner := ""
		if o, ok := is.spec["owner"].(map[string]any); ok {
			owner = o["name"].(string)
		}
		set := fields.Set{"spec.tier": is.spec["tier"].(string), "spec.size": fmt.Sprint(is.spec["size"]), "spec.owner.name": owner}
		if l.Matches(is.labels) && f.Matches(set) {
			want = append(want, text)
		}
	}
	return want
}

// pages lists a state in pages.
func (c *crowd) pages(s *objects.State, sel objects.Selection, size int) (got []string) {
	ns, name := "", ""
	for {
		n := 0
		for o := range s.List(widgets, &sel, ns, name) {
			if n == size {
				break
			}
			got, n, ns, name = append(got, string(o.JSON)), n+1, o.Namespace, o.Name
		}
		if n < size {
			return got
		}
	}
}

// check compares a list in pages with a scan. The kind of the state had the fields names.
func (c *crowd) check(what string, s *objects.State, names ...string) {
	c.t.Helper()
	past := names == nil
	if past {
		names = c.fields
	}
	l, f := c.selectors(names)
	ns := pick(c.rng, "", "", "n1", "n9")
	sel := objects.Select(ns, l, f)
	if past {
		sel = sel.As(c.kind(nil))
	}
	size := pick(c.rng, 1, 7, 100, 10_000)
	want := c.want(s, ns, l, f)
	if diff := cmp.Diff(want, c.pages(s, sel, size)); diff != "" {
		c.t.Fatalf("%s at revision %d, newest %d: labels %q, fields %q in %q by %d (-want +got):\n%s", what, s.Revision, c.last, l, f, ns, size, diff)
	}
	all := s.Total(widgets, ns).Objects
	if scanned := s.Scanned(widgets, &sel); scanned < all {
		c.used++
	} else if scanned > all {
		c.t.Fatalf("%s: a list of %d objects looks at %d", what, all, scanned)
	}
}

// Lists by index are those of a scan: after any changes, by any selectors, in pages of any size, now, at recent revisions
// and of states that a client has kept.
func TestIndexedListsAreThoseOfAScan(t *testing.T) {
	for seed := range uint64(3) {
		c := newCrowd(t, seed, pick(rand.New(rand.NewPCG(seed, 0)), 40<<10, 200<<10, 0), 1200)
		type kept struct {
			state  *objects.State
			fields []string
		}
		all := []kept{{c.store.State(), c.fields}}
		for step := range 60 {
			c.step(pick(c.rng, 1, 4, 4, 600))
			switch c.rng.IntN(40) {
			case 0:
				c.setKind(nil, "spec.tier", "spec.size")
			case 1:
				c.setKind(nil, "spec.owner.name", "spec.tier")
			case 2:
				c.setKind(repaint, c.fields...)
			}
			now := c.store.State()
			c.check("now", now, c.fields...)
			c.check("now", now, c.fields...)
			past := c.last - min(c.last, c.rng.Uint64N(200))
			if s, err := c.store.At(widgets, past); err == nil {
				c.check("recent", s)
			}
			k := all[c.rng.IntN(len(all))]
			c.check("kept", k.state, k.fields...)
			if step%10 == 0 {
				c.store.Pin(now)
				all = append(all, kept{now, c.fields})
			}
		}
		if c.used < 40 {
			t.Errorf("seed %d: only %d lists used an index", seed, c.used)
		}
	}
}

// A scratch state is listed with the changes that are not published.
func TestAScratchStateIsListedWithItsChanges(t *testing.T) {
	c := newCrowd(t, 1, 0, 2000)
	sel := objects.Select("", labels.SelectorFromSet(labels.Set{"name": "new"}), nil)
	if got := list(c.store.State(), sel, "", ""); got != nil {
		t.Fatal(got)
	}
	tx := c.store.Begin()
	c.apply(tx, c.event(logpb.Type_TYPE_CREATED, "n1", "new", `{"metadata":{"name":"new","namespace":"n1","uid":"u","labels":{"name":"new"}}}`, 0))
	if got := list(tx.State(), sel, "", ""); len(got) != 1 {
		t.Error(got)
	}
	if got := list(c.store.State(), sel, "", ""); got != nil {
		t.Error(got)
	}
}

// Selective lists look at few objects, whichever requirement comes first, also after changes; others at all.
func TestListsLookAtFewObjects(t *testing.T) {
	c := newCrowd(t, 1, 0, 2000)
	for _, q := range []struct {
		labels, fields string
		most           int
	}{
		{"name=o7", "", 1},
		{"app=a,name=o7", "", 1},
		{"name=o7,app in (a,b)", "", 1},
		{"only", "", 150},
		{"part in (1,2),only=yes", "", 150},
		{"none", "", 0},
		{"", "spec.tier=gold", 350},
		{"", "spec.tier=gold,spec.owner.name=ann", 250},
		{"app=a", "", 2000},
		{"app!=a", "", 2000},
		{"!only", "", 2000},
		{"", "spec.tier!=gold", 2000},
	} {
		l, err := labels.Parse(q.labels)
		if err != nil {
			t.Fatal(err)
		}
		f := fields.ParseSelectorOrDie(q.fields)
		sel := objects.Select("", l, f)
		for range 3 { // each makes one index at most
			list(c.store.State(), sel, "", "")
		}
		if n := c.store.State().Scanned(widgets, &sel); n > q.most || q.most == 2000 && n < 2000 {
			t.Errorf("labels %q, fields %q: a list looks at %d objects, want at most %d", q.labels, q.fields, n, q.most)
		}
	}
	// Changes count until they are applied to the index.
	sel := objects.Select("", labels.SelectorFromSet(labels.Set{"name": "o7"}), nil)
	for range 1000 {
		c.step(1)
	}
	before := c.store.State().Scanned(widgets, &sel)
	list(c.store.State(), sel, "", "")
	if after := c.store.State().Scanned(widgets, &sel); before < 400 || after > 10 {
		t.Errorf("after 1000 changes a list looks at %d objects, and the next at %d", before, after)
	}
}

// Indexes do not keep objects for longer than the recent changes do.
func TestAnIndexGoesWithTheRecentChanges(t *testing.T) {
	c := newCrowd(t, 1, 20<<10, 1000)
	sel := objects.Select("", labels.SelectorFromSet(labels.Set{"name": "o7"}), nil)
	for range 2 { // an index of a label is made when it is asked for again
		list(c.store.State(), sel, "", "")
	}
	if n := c.store.State().Scanned(widgets, &sel); n > 1 {
		t.Fatalf("a list looks at %d objects", n)
	}
	first := weak.Make(c.store.State().Get(widgets, "n0", "o0"))
	tx := c.store.Begin()
	o := tx.State().Get(widgets, "n0", "o0")
	c.apply(tx, c.event(logpb.Type_TYPE_DELETED, "n0", "o0", string(o.Payload()), o.Revision))
	c.store.Publish(tx, c.last)
	for first.Value() != nil && c.last < 3000 {
		c.step(10)
		runtime.GC()
	}
	if first.Value() != nil {
		t.Error("a deleted object is still in memory")
	}
}

// Clients list while others write, at the newest state and at earlier ones.
func TestIndexesAreSafeForConcurrentUse(t *testing.T) {
	c := newCrowd(t, 3, 100<<10, 1500)
	var clients sync.WaitGroup
	done := make(chan struct{})
	for i := range 3 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 9))
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				l, _ := labels.Parse(pick(rng, "app=rare", "only", "part=3", "name=o7", "part in (1,2),only"))
				sel, all := objects.Select("", l, nil), objects.Selection{}
				s := c.store.State()
				if n%3 == 0 {
					if past, err := c.store.At(widgets, s.Revision-min(s.Revision, rng.Uint64N(50))); err == nil {
						s = past
					}
				}
				var want []string
				for o := range s.List(widgets, &all, "", "") {
					if sel.Matches(o) {
						want = append(want, string(o.JSON))
					}
				}
				if got := list(s, sel, "", ""); !slices.Equal(got, want) {
					t.Errorf("%q at %d: %d objects, want %d", l, s.Revision, len(got), len(want))
					return
				}
			}
		})
	}
	for i := range 150 {
		if c.step(30); i%50 == 49 {
			c.setKind(repaint, c.fields...)
		}
	}
	close(done)
	clients.Wait()
}

// Derived objects may be replaced without changes, so that their store has no indexes.
func TestDerivedObjectsHaveNoIndexes(t *testing.T) {
	s, k := objects.New(0), objects.NewKind(objects.Kind{GroupResource: widgets})
	replace := func(app string) {
		var all []*objects.Object
		for i := range 1000 {
			o, err := k.Derive([]byte(thing{namespace: "n", name: fmt.Sprint("o", i), app: app + fmt.Sprint(i%100)}.payload()), 1, "")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, o)
		}
		tx := s.Begin()
		tx.SetKinds([]objects.Kind{{GroupResource: widgets}}, nil)
		tx.Replace(k, all)
		s.Publish(tx, 1)
		s.Cut(widgets)
	}
	for _, app := range []string{"a", "b"} {
		replace(app)
		for range 2 {
			if got := list(s.State(), objects.Select("", labels.SelectorFromSet(labels.Set{"app": app + "7"}), nil), "", ""); len(got) != 10 {
				t.Errorf("%s: %d objects", app, len(got))
			}
		}
		if got := list(s.State(), objects.Select("", labels.SelectorFromSet(labels.Set{"app": "a7"}), nil), "", ""); app == "b" && len(got) != 0 {
			t.Errorf("%d objects that were replaced", len(got))
		}
	}
}

// A flood of selectors, each with a label that has a value of its own for every object, takes a bounded amount of memory, and
// so does one index that is too large. Selectors that nobody repeats make no index.
func TestIndexesTakeABoundedAmountOfMemory(t *testing.T) {
	store := objects.New(0)
	tx := store.Begin()
	tx.SetKinds([]objects.Kind{{GroupResource: widgets}}, nil)
	const size, keys = 2000, 40
	for i := range size {
		labels := make([]string, keys)
		for k := range labels {
			labels[k] = fmt.Sprintf(`"l%d":"v%d"`, k, i)
		}
		name := fmt.Sprintf("o%d", i)
		e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: &logpb.Object{Group: widgets.Group, Resource: widgets.Resource, Namespace: "n", Name: name, Uid: "u"}}}
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"n","uid":"u","labels":{%s}}}`, name, strings.Join(labels, ",")))
		if err := tx.Apply(e, uint64(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	state := store.Publish(tx, size)
	ask := func(key, times int) {
		for range times {
			sel := objects.Select("", labels.SelectorFromSet(labels.Set{fmt.Sprint("l", key): "v7"}), nil)
			n := 0
			for range state.List(widgets, &sel, "", "") {
				n++
			}
			if n != 1 {
				t.Fatalf("l%d: %d objects", key, n)
			}
		}
	}
	for key := range keys {
		ask(key, 1)
	}
	if bytes, n := store.IndexSize(); n != 0 {
		t.Errorf("selectors that nobody repeats have made %d indexes of %d bytes", n, bytes)
	}
	ask(0, 2)
	one, n := store.IndexSize()
	if n != 1 || one < 50*size || one > 200*size {
		t.Fatalf("%d indexes of %d bytes", n, one)
	}
	store.IndexBytes = 3 * one
	for key := range keys {
		ask(key, 3)
		if key%2 == 0 {
			ask(0, 1) // it is used all the time, and stays
		}
	}
	if bytes, n := store.IndexSize(); n == 0 || n > 3 || bytes > store.IndexBytes {
		t.Errorf("%d indexes of %d bytes", n, bytes)
	}
	store.IndexBytes = one
	ask(1, 4)
	ask(1, 4)
	if bytes, n := store.IndexSize(); bytes > 3*one || n > 3 {
		t.Errorf("an index that is too large is kept: %d of %d bytes", n, bytes)
	}
}
