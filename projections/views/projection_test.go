package views_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/views"
	"stele.dev/stele/projections/objects"
	projection "stele.dev/stele/projections/views"
)

// bundle is a bundle with a kind. The views follow.
const bundle = `package test
import "stele.dev/policy"
bundle: policy.#Bundle & {
	cluster: "test"
	teams: data: {
		contact: "#data", groups: ["data.example.com"], namespaces: ["*"]
		kinds: "databases.data.example.com": {
			group: "data.example.com", names: {kind: "Database", plural: "databases"}, storageVersion: "v1"
			versions: v1: #schema: {spec!: {engine!: string, gigabytes!: int, price?: number, owner?: string, note?: string}, status?: {ready?: bool}}
		}
		views: VIEWS
	}
}
`

// bigFrom is a view of the databases from some gigabytes on, sorted by size. engines is one of groups.
const (
	bigFrom = `"big-databases": {kind: "databases.data.example.com", version: "v1", filter: "object.spec.gigabytes >= %d", sort: ["-gigabytes"]
		columns: {engine: {expression: "object.spec.engine", type: "string"}, gigabytes: {expression: "object.spec.gigabytes", type: "integer"}, owner: {expression: "object.spec.owner", type: "string"}}}
`
	engines = `"database-engines": {kind: "databases.data.example.com", version: "v1", groupBy: ["engine"]
		columns: engine: {expression: "object.spec.engine", type: "string"}
		aggregates: {n: function: "count", owned: {function: "count", expression: "has(object.spec.owner)"}, gigabytes: {function: "sum", expression: "object.spec.gigabytes"}
			price: {function: "sum", expression: "object.spec.price"}, least: {function: "min", expression: "object.spec.price"}, most: {function: "max", expression: "object.spec.gigabytes"}}}
`
)

func load(t testing.TB, ofViews string) *policy.Policy {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte(strings.Replace(bundle, "VIEWS", "{\n"+ofViews+"}", 1))},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	form, _ := compiled.Form.Encode()
	p, err := policy.New(form)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var databases = schema.GroupResource{Group: "data.example.com", Resource: "databases"}

// database is an object. A price or an owner that is empty is missing.
type database struct {
	namespace, name, engine string
	gigabytes               int
	price                   float64
	owner, note             string
	revision                uint64
}

func (d *database) payload() []byte {
	spec := map[string]any{"engine": d.engine, "gigabytes": d.gigabytes}
	if d.price != 0 {
		spec["price"] = d.price
	}
	if d.owner != "" {
		spec["owner"] = d.owner
	}
	if d.note != "" {
		spec["note"] = d.note
	}
	text, _ := json.Marshal(spec)
	return fmt.Appendf(nil, `{"apiVersion":"data.example.com/v1","kind":"Database","metadata":{"name":%q,"namespace":%q,"uid":"u-%s","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"engine":%q}},"spec":%s}`,
		d.name, d.namespace, d.name, d.engine, text)
}

// world is a store of databases, a policy, and what the rows must be.
type world struct {
	t      testing.TB
	store  *objects.Store
	policy *policy.Policy
	// least is the size from which databases are big; 0 if there is no such view. grouped says whether there is one of groups.
	least   int
	grouped bool
	is      map[string]database
	was     map[uint64]map[string]database // by revision
	// log is what was applied, from revision 1 on.
	log []logged
	// free is set while the policy in force shows databases without prices.
	free bool
	// show converts objects; nil if they are shown as they are.
	show func([]byte) []byte
	*projection.Projection
}

// logged is an event, and the kinds of the policy that it put in force.
type logged struct {
	*eventlog.Event
	kinds []objects.Kind
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, store: objects.New(0), is: map[string]database{}, was: map[uint64]map[string]database{}}
	w.restart()
	return w
}

// restart makes the projection anew.
func (w *world) restart() {
	changed := make(chan struct{})
	w.Projection = projection.New(projection.Options{Objects: w.store, Newest: w.snapshot, PolicyChanged: func() <-chan struct{} { return changed },
		Show: func(*policy.Version) func([]byte) []byte {
			return func(json []byte) []byte {
				if w.show != nil {
					return w.show(json)
				}
				return json
			}
		}})
}

// replay makes the store anew of the log.
func (w *world) replay() {
	w.t.Helper()
	log := w.log
	w.store, w.log = objects.New(0), nil
	for _, e := range log {
		w.fold(e)
	}
	w.restart()
}

// restore makes the store anew of a checkpoint. The policy must not be free, because checkpoints do not have what renders objects.
func (w *world) restore() {
	w.t.Helper()
	var i objects.Importer
	err := w.store.State().Export(i.Kind, func(_ *objects.Object, record []byte) error {
		o, err := i.Object(record)
		if err == nil {
			err = i.Add(o)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	revision := w.store.State().Revision
	w.store = objects.New(0)
	w.store.Restore(i.State(revision))
	w.restart()
}

func (w *world) snapshot() projection.Snapshot {
	s := w.store.State()
	return projection.Snapshot{Revision: s.Revision, Objects: s, Policy: w.policy}
}

func (w *world) apply(e *eventlog.Event, kinds []objects.Kind) {
	w.t.Helper()
	revision := w.fold(logged{e, kinds})
	if w.was != nil {
		w.was[revision] = maps.Clone(w.is)
	}
}

// fold applies an event to the store, at the next revision.
func (w *world) fold(e logged) (revision uint64) {
	w.t.Helper()
	tx := w.store.Begin()
	revision = w.store.State().Revision + 1
	if err := tx.Apply(e.Event, revision); err != nil {
		w.t.Fatal(err)
	}
	if e.kinds != nil {
		tx.SetKinds(e.kinds, nil)
	}
	w.store.Publish(tx, revision)
	if w.was != nil { // a benchmark needs no log
		w.log = append(w.log, e)
	}
	return revision
}

// put writes a database, or deletes it if it has no engine.
func (w *world) put(d database) {
	w.t.Helper()
	key := d.namespace + "/" + d.name
	before, exists := w.is[key]
	kind := logpb.Type_TYPE_UPDATED
	switch {
	case !exists && d.engine == "":
		return
	case !exists:
		kind = logpb.Type_TYPE_CREATED
	case d.engine == "":
		kind, d = logpb.Type_TYPE_DELETED, before
	}
	d.revision = w.store.State().Revision + 1
	w.is[key] = d
	if kind == logpb.Type_TYPE_DELETED {
		delete(w.is, key)
	}
	e := &eventlog.Event{Meta: &logpb.Metadata{Type: kind, PreviousRevision: before.revision, Object: &logpb.Object{Group: databases.Group, Resource: databases.Resource, Namespace: d.namespace, Name: d.name, Uid: "u-" + d.name}}}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, d.payload())
	w.apply(e, nil)
}

// activate puts a policy in force. If free is set, it shows every database without a price.
func (w *world) activate(p *policy.Policy, least int, grouped, free bool) {
	kind := objects.Kind{GroupResource: databases}
	if free {
		kind.Render = func(payload []byte) []byte {
			var o map[string]any
			if err := json.Unmarshal(payload, &o); err != nil {
				panic(err)
			}
			spec := o["spec"].(map[string]any)
			d := database{namespace: o["metadata"].(map[string]any)["namespace"].(string), name: o["metadata"].(map[string]any)["name"].(string), engine: spec["engine"].(string), gigabytes: int(spec["gigabytes"].(float64))}
			d.owner, _ = spec["owner"].(string)
			return d.payload()
		}
		for key, d := range w.is {
			d.price = 0
			w.is[key] = d
		}
	}
	w.apply(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_POLICY_ACTIVATED}}, []objects.Kind{kind})
	w.policy, w.least, w.grouped, w.free = p, least, grouped, free
}

// view returns a view of the policy; nil if there is none.
func (w *world) view(name string) *views.View {
	for _, k := range w.policy.Views() {
		if k.Plural == name {
			v, err := views.Of(k.Versions[0])
			if err != nil {
				w.t.Fatal(err)
			}
			return v
		}
	}
	return nil
}

// bigRows returns what the rows of big-databases must be at a revision, in their order.
func (w *world) bigRows(at uint64) []string {
	var found []database
	for _, d := range w.was[at] {
		if d.gigabytes >= w.least {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b database) int {
		return cmp.Or(b.gigabytes-a.gigabytes, strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
	rows := []string{}
	for _, d := range found {
		owner := "null"
		if d.owner != "" {
			owner = fmt.Sprintf("%q", d.owner)
		}
		rows = append(rows, fmt.Sprintf(`%s/%s@%d {"engine":%q,"gigabytes":%d,"owner":%s}`, d.namespace, d.name, d.revision, d.engine, d.gigabytes, owner))
	}
	return rows
}

// engineRows returns what the rows of database-engines must be at a revision.
func (w *world) engineRows(at uint64) []string {
	groups := map[string][]database{}
	for _, d := range w.was[at] {
		groups[d.engine] = append(groups[d.engine], d)
	}
	rows := []string{}
	for _, engine := range slices.Sorted(maps.Keys(groups)) {
		owned, gigabytes, most, quarters, least := 0, 0, 0, 0, "null"
		lowest := 1e9
		for _, d := range groups[engine] {
			gigabytes, most = gigabytes+d.gigabytes, max(most, d.gigabytes)
			if d.owner != "" {
				owned++
			}
			if d.price != 0 {
				quarters += int(d.price * 4)
				if d.price < lowest {
					lowest, least = d.price, fmt.Sprint(d.price)
				}
			}
		}
		rows = append(rows, fmt.Sprintf(`%s {"engine":%q,"n":%d,"owned":%d,"gigabytes":%d,"price":%v,"least":%s,"most":%d}`, engine, engine, len(groups[engine]), owned, gigabytes, float64(quarters)/4, least, most))
	}
	return rows
}

// rowText returns a row as the expectations have it.
func rowText(v *views.View, o *objects.Object) string {
	text := string(o.JSON)
	columns := strings.TrimSuffix(text[strings.Index(text, `"columns":`)+len(`"columns":`):], "}")
	if v.Grouped() {
		return o.Name + " " + columns
	}
	return fmt.Sprintf("%s/%s@%d %s", o.Namespace, o.Name, o.Revision, columns)
}

func rowTexts(v *views.View, s *objects.State) []string {
	rows := []string{}
	for o := range s.List(v.Resource, &objects.Selection{}, "", "") {
		rows = append(rows, rowText(v, o))
	}
	return rows
}

// follower applies what watches say to a list.
type follower struct {
	view string
	rows map[string]string // by key
	at   uint64
}

// follow brings a follower to the present by a new watch, and compares its rows with a list. It begins again if its place has
// expired.
func (w *world) follow(f *follower) {
	w.t.Helper()
	v := w.view(f.view)
	if v == nil {
		f.at = 0
		return
	}
	s := w.snapshot()
	state, err := w.State(w.t.Context(), s, v)
	if err != nil {
		w.t.Fatal(err)
	}
	list := map[string]string{}
	for o := range state.List(v.Resource, &objects.Selection{}, "", "") {
		list[o.Namespace+"/"+o.Name] = rowText(v, o)
	}
	watcher, err := w.Watch(s, v, objects.Selection{}, f.at, true)
	if errors.Is(err, objects.ErrExpired) {
		f.rows, f.at = list, s.Revision
		return
	} else if err != nil {
		w.t.Fatal(err)
	}
	defer watcher.Stop()
	for more := true; more; {
		var events []objects.Event
		if events, f.at, more, err = watcher.Take(); err != nil {
			w.t.Fatal(err)
		}
		for _, e := range events {
			if key := e.Object.Namespace + "/" + e.Object.Name; e.Type == objects.Deleted {
				delete(f.rows, key)
			} else {
				f.rows[key] = rowText(v, e.Object)
			}
		}
	}
	if f.at != s.Revision {
		w.t.Fatalf("the watch of %s came to revision %d, not %d", f.view, f.at, s.Revision)
	}
	if d := gocmp.Diff(list, f.rows); d != "" {
		w.t.Fatalf("the rows of %s by a watch, and by a list at revision %d (-list +watch):\n%s", f.view, s.Revision, d)
	}
}

// check compares the rows with what they must be, at the present and at recent revisions, and with those computed of all objects.
func (w *world) check() {
	w.t.Helper()
	s := w.snapshot()
	for name, rows := range map[string]func(uint64) []string{"big-databases": w.bigRows, "database-engines": w.engineRows} {
		v := w.view(name)
		if v == nil {
			continue
		}
		state, err := w.State(w.t.Context(), s, v)
		if err != nil {
			w.t.Fatal(err)
		}
		if d := gocmp.Diff(rows(s.Revision), rowTexts(v, state)); d != "" {
			w.t.Fatalf("the rows of %s at revision %d (-want +got):\n%s", name, s.Revision, d)
		}
		computed, err := projection.Compute(w.t.Context(), v, s.Objects, func(json []byte) []byte { return json }, "")
		if err != nil {
			w.t.Fatal(err)
		}
		if d := gocmp.Diff(rowTexts(v, computed), rowTexts(v, state)); d != "" {
			w.t.Fatalf("the rows of %s at revision %d (-computed +kept):\n%s", name, s.Revision, d)
		}
		for at := s.Revision; at > 0 && at+8 > s.Revision; at-- {
			if then, ok := w.Recent(s, v, at); ok {
				if d := gocmp.Diff(rows(at), rowTexts(v, then)); d != "" {
					w.t.Fatalf("the rows of %s at revision %d, read at %d (-want +got):\n%s", name, at, s.Revision, d)
				}
			}
		}
	}
}

// TestRowsFollowFromTheObjects writes at random, changes the policy, and makes the projection anew, also over a store that is replayed
// from the log or restored from a checkpoint. At every revision the rows are
// what a model says, and what computing them of all objects gives; and watches say the same as lists.
func TestRowsFollowFromTheObjects(t *testing.T) {
	type inForce struct {
		*policy.Policy
		least         int
		grouped, free bool
	}
	policies := []inForce{
		{load(t, fmt.Sprintf(bigFrom, 50)+engines), 50, true, false},
		{load(t, fmt.Sprintf(bigFrom, 50)+engines), 50, true, true}, // the same views of objects that are shown differently
		{load(t, fmt.Sprintf(bigFrom, 20)+engines), 20, true, false},
		{load(t, fmt.Sprintf(bigFrom, 50)), 50, false, false},
		{load(t, engines), 0, true, false},
	}
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t)
		w.activate(policies[0].Policy, policies[0].least, true, false)
		followers := []*follower{{view: "big-databases"}, {view: "database-engines"}}
		for range 250 {
			switch n := random.IntN(100); {
			case n < 2:
				p := policies[random.IntN(len(policies))]
				w.activate(p.Policy, p.least, p.grouped, p.free)
			case n < 4:
				w.restart()
			case n < 6:
				w.replay()
			case n < 8 && !w.free:
				w.restore()
			default:
				d := database{namespace: []string{"a", "b"}[random.IntN(2)], name: fmt.Sprint("d", random.IntN(12)), engine: []string{"mysql", "postgres", "redis", ""}[random.IntN(4)], gigabytes: random.IntN(100)}
				if random.IntN(2) == 0 {
					d.price = float64(1+random.IntN(40)) / 4
				}
				if random.IntN(2) == 0 {
					d.owner = "ann"
				}
				w.put(d)
			}
			if random.IntN(3) == 0 {
				w.check()
			}
			if random.IntN(5) == 0 {
				w.follow(followers[random.IntN(2)])
			}
		}
		w.check()
	}
}

// BenchmarkUpkeep measures what a write costs ten views of its kind, some of which have the object. The write changes the order of
// their rows. Writes are applied one by one, or some at once.
func BenchmarkUpkeep(b *testing.B) {
	for _, c := range [][2]int{{1, 1}, {1, 16}, {5, 1}, {5, 16}, {5, 64}} {
		have, batch := c[0], c[1]
		b.Run(fmt.Sprintf("have=%d/batch=%d", have, batch), func(b *testing.B) {
			var ofViews strings.Builder
			for i := range 10 {
				view := strings.Replace(fmt.Sprintf(bigFrom, 10*i), `"big-databases"`, fmt.Sprintf(`"big-%d"`, i), 1)
				ofViews.WriteString(view)
			}
			w := newWorld(b)
			w.was = nil
			w.activate(load(b, ofViews.String()), 0, false, false)
			const kept = 10_000
			for i := range kept {
				w.put(database{namespace: "a", name: fmt.Sprint("d", i), engine: "postgres", gigabytes: 10*(have-1) + i%10, owner: "ann"})
			}
			for i := range 10 {
				if _, err := w.State(b.Context(), w.snapshot(), w.view(fmt.Sprint("big-", i))); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.StopTimer()
			b.ResetTimer()
			spent := time.Duration(0) // of all goroutines, which does not depend on what else the machine does
			defer func() { b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "cpu-ns/op") }()
			for i := range b.N {
				name := fmt.Sprint("d", i*7919%kept)
				d := w.is["a/"+name]
				d.gigabytes = 10*(have-1) + (d.gigabytes+1+i)%10
				e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_UPDATED, PreviousRevision: d.revision, Object: &logpb.Object{Group: databases.Group, Resource: databases.Resource, Namespace: "a", Name: name, Uid: "u-" + name}}}
				e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, d.payload())
				tx, revision := w.store.Begin(), w.store.State().Revision+1
				if err := tx.Apply(e, revision); err != nil {
					b.Fatal(err)
				}
				w.store.Publish(tx, revision)
				d.revision = revision
				w.is["a/"+name] = d
				if i%batch == batch-1 {
					s := w.snapshot()
					b.StartTimer()
					before := cpuTime(b)
					w.Advance(s)
					spent += cpuTime(b) - before
					b.StopTimer()
				}
			}
		})
	}
}

// cpuTime returns the time that this process has computed.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
