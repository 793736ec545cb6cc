package quotas_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	rules "stele.dev/stele/policy/quotas"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/quotas"
	"stele.dev/stele/schemas"
)

var databases = schema.GroupResource{Group: "example.com", Resource: "databases"}
var caches = schema.GroupResource{Group: "example.com", Resource: "caches"}

// forms are two policies; they differ in what they sum and in a scope.
var forms = []rules.Form{
	{
		Resources: []rules.Resource{{Name: "storage.example.com", Sums: []rules.Sum{
			{Kind: "databases.example.com", Path: ".spec.storage"}, {Kind: "databases.example.com", Path: ".spec.disks[*].size"}, {Kind: "caches.example.com", Path: ".spec.storage"},
		}}},
		Scopes: []rules.Scope{
			{Name: "Gold", Kinds: []string{"databases.example.com"}, Fields: []rules.FieldValue{{Path: ".spec.tier", Value: json.RawMessage(`"gold"`)}}},
			{Name: "Ours", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
			{Name: "Tier", Kinds: []string{"databases.example.com"}, ValueField: ".spec.tier"},
		},
	},
	{
		Resources: []rules.Resource{{Name: "storage.example.com", Sums: []rules.Sum{{Kind: "databases.example.com", Path: ".spec.disks[*].size"}}}},
		Scopes: []rules.Scope{
			{Name: "Gold", Kinds: []string{"databases.example.com"}, Fields: []rules.FieldValue{{Path: ".spec.tier", Value: json.RawMessage(`"silver"`)}}},
			{Name: "Tier", ValueLabel: "team"},
		},
	},
}

func load(t testing.TB, f *rules.Form) *rules.Rules {
	t.Helper()
	r, err := rules.New(f, []schemas.Kind{
		{Group: "example.com", Plural: "databases", Namespaced: true}, {Group: "example.com", Plural: "caches", Namespaced: true},
		{Plural: "resourcequotas", Namespaced: true}, {Plural: "namespaces"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// world is a log of objects, its projection, and the usage that follows from it.
type world struct {
	t     testing.TB
	store *objects.Store
	rules *rules.Rules
	usage *quotas.State
	live  map[string]string // payloads by resource/namespace/name
	form  int
	// render is what the policy in force adds to objects.
	render string
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, store: objects.New(0), live: map[string]string{}, usage: &quotas.State{}}
	w.activate(0, "")
	return w
}

func (w *world) revision() uint64 { return w.store.State().Revision + 1 }

// fold applies an event.
func (w *world) fold(tx *objects.Tx, e *eventlog.Event, revision uint64) {
	w.t.Helper()
	n := len(tx.Changes())
	if err := tx.Apply(e, revision); err != nil {
		w.t.Fatal(err)
	}
	w.usage = w.usage.Apply(tx.Changes()[n:], tx.State(), nil)
}

func (w *world) activate(form int, render string) {
	w.form, w.render = form, render
	w.rules = load(w.t, &forms[form])
	tx := w.store.Begin()
	shown := func(payload []byte) []byte {
		return []byte(strings.Replace(string(payload), `"spec":{`, `"spec":{`+render, 1))
	}
	kinds := []objects.Kind{{GroupResource: databases, Render: shown}, {GroupResource: caches}, {GroupResource: rules.Quotas}}
	tx.SetKinds(kinds, nil)
	if w.rules.Same(w.usage.Rules()) {
		w.usage = w.usage.Apply(tx.Changes(), tx.State(), nil)
	} else {
		w.usage = quotas.New(w.rules, tx.State())
	}
	w.store.Publish(tx, w.revision())
}

func object(r schema.GroupResource, namespace, name, label, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"X","metadata":{"labels":{"team":%q},"name":%q,"namespace":%q,"uid":"u-%s"},"spec":{%s}}`, label, name, namespace, name, spec)
}

// put creates or updates an object, or deletes it if the payload is "".
func (w *world) put(tx *objects.Tx, r schema.GroupResource, namespace, name, payload string, revision uint64) {
	before := tx.State().Get(r, namespace, name)
	kind, previous := logpb.Type_TYPE_CREATED, uint64(0)
	if before != nil {
		kind, previous = logpb.Type_TYPE_UPDATED, before.Revision
	}
	key := r.String() + "/" + namespace + "/" + name
	if payload == "" {
		if before == nil {
			return
		}
		kind, payload = logpb.Type_TYPE_DELETED, w.live[key]
		delete(w.live, key)
	} else {
		w.live[key] = payload
	}
	e := &eventlog.Event{Meta: &logpb.Metadata{Type: kind, PreviousRevision: previous,
		Object: &logpb.Object{Group: r.Group, Resource: r.Resource, Namespace: namespace, Name: name, Uid: "u-" + name}}}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte(payload))
	w.fold(tx, e, revision)
}

// set is put in a batch of its own.
func (w *world) set(r schema.GroupResource, namespace, name, payload string) {
	w.t.Helper()
	tx, revision := w.store.Begin(), w.revision()
	w.put(tx, r, namespace, name, payload, revision)
	w.store.Publish(tx, revision)
}

// texts returns the usage as text, one quota a line.
func texts(s *quotas.State) (lines []string) {
	s.All(func(q *quotas.Quota) bool {
		line := q.ID()
		for _, l := range q.Lines {
			if l.Tracked() {
				line += fmt.Sprintf(" %s=%s/%s", l.Name, l.Used.Text(l.Format), l.Hard.Text(l.Format))
			}
		}
		lines = append(lines, line)
		return true
	})
	return lines
}

// recomputed is the usage by the plainest code there is: every object is decoded, for every quota.
func (w *world) recomputed() (lines []string) {
	type decoded struct {
		Metadata struct {
			Name, Namespace string
			Labels          map[string]string
		}
		Spec struct {
			Storage *resource.Quantity
			Disks   []struct{ Size resource.Quantity }
			Tier    string
			Hard    map[string]resource.Quantity
			Scopes  []string
			Select  struct {
				MatchExpressions []struct {
					ScopeName, Operator string
					Values              []string
				}
			} `json:"scopeSelector"`
		}
	}
	all := map[string][]decoded{}
	for _, r := range []schema.GroupResource{databases, caches, rules.Quotas} {
		for object := range w.store.State().List(r, &objects.Selection{}, "", "") {
			var o decoded
			if err := json.Unmarshal(object.JSON, &o); err != nil {
				w.t.Fatal(err)
			}
			all[r.String()] = append(all[r.String()], o)
		}
	}
	in := func(r string, o *decoded, scope, operator string, values []string) bool {
		value, has := "", false
		switch {
		case scope == "Gold" && r == databases.String():
			has = o.Spec.Tier == []string{"gold", "silver"}[w.form]
		case scope == "Ours" && w.form == 0:
			has = o.Metadata.Labels["team"] == "a"
		case scope == "Tier" && w.form == 0 && r == databases.String():
			value, has = o.Spec.Tier, o.Spec.Tier != ""
		case scope == "Tier" && w.form == 1:
			value, has = o.Metadata.Labels["team"], true
		default:
			return false
		}
		switch operator {
		case "In":
			return slices.Contains(values, value)
		case "NotIn":
			return !slices.Contains(values, value)
		}
		return has == (operator == "Exists")
	}
	for _, q := range all[rules.Quotas.String()] {
		line := "resourcequotas/" + q.Metadata.Namespace + "/" + q.Metadata.Name
		for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
			hard := q.Spec.Hard[name]
			used := resource.Quantity{Format: hard.Format}
			tracked := name == "resourcequotas"
			for r, list := range all {
				for _, o := range list {
					counted := o.Metadata.Namespace == q.Metadata.Namespace
					for _, scope := range q.Spec.Scopes {
						counted = counted && in(r, &o, scope, "Exists", nil)
					}
					for _, e := range q.Spec.Select.MatchExpressions {
						counted = counted && in(r, &o, e.ScopeName, e.Operator, e.Values)
					}
					switch {
					case !counted:
					case name == "count/"+r, name == r && r == "resourcequotas":
						used.Add(resource.MustParse("1"))
					case name == "storage.example.com" && (w.form == 0 || r == databases.String()):
						if w.form == 0 && o.Spec.Storage != nil {
							used.Add(*o.Spec.Storage)
						}
						for _, d := range o.Spec.Disks {
							if r == databases.String() {
								used.Add(d.Size)
							}
						}
					}
				}
			}
			if tracked || name != "count/gone.example.com" {
				used.Format = hard.Format
				line += fmt.Sprintf(" %s=%s/%s", name, used.String(), hard.String())
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func (w *world) check(what string) {
	w.t.Helper()
	got := texts(w.usage)
	slices.Sort(got)
	if d := cmp.Diff(w.recomputed(), got); d != "" {
		w.t.Fatalf("%s: the usage is not that of the objects (-recomputed +projection):\n%s", what, d)
	}
	if d := cmp.Diff(texts(quotas.New(w.rules, w.store.State())), texts(w.usage)); d != "" {
		w.t.Fatalf("%s: a start computes another usage (-start +projection):\n%s", what, d)
	}
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// random returns a random payload of a resource.
func random(rng *rand.Rand, r schema.GroupResource, namespace, name string) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch r {
	case rules.Quotas:
		var hard []string
		for _, n := range []string{"count/databases.example.com", "count/caches.example.com", "count/resourcequotas", "resourcequotas", "storage.example.com", "count/gone.example.com"} {
			if rng.IntN(2) == 0 {
				hard = append(hard, fmt.Sprintf(`%q:%q`, n, pick(rng, "0", "5", "10Gi", "1500m")))
			}
		}
		add(`"hard":{%s}`, strings.Join(hard, ","))
		switch rng.IntN(6) {
		case 0:
			add(`"scopes":[%s]`, pick(rng, `"Gold"`, `"Ours"`, `"Gold","Ours"`, `"BestEffort"`))
		case 1:
			add(`"scopeSelector":{"matchExpressions":[{"scopeName":"Tier","operator":%s}]}`, pick(rng, `"Exists"`, `"DoesNotExist"`, `"In","values":["gold","a"]`, `"NotIn","values":["gold"]`))
		}
	default:
		if rng.IntN(3) > 0 {
			add(`"storage":%s`, pick(rng, `5`, `"1Gi"`, `"1500m"`, `"8Ei"`, `"0.5"`, `"1e3"`))
		}
		if rng.IntN(2) == 0 {
			add(`"disks":[{"size":%s},{"size":%s}]`, pick(rng, `1`, `"2Gi"`), pick(rng, `"3Mi"`, `7`))
		}
		if rng.IntN(3) > 0 {
			add(`"tier":%q`, pick(rng, "gold", "silver"))
		}
		add(`"end":0`)
	}
	return object(r, namespace, name, pick(rng, "a", "b"), strings.Join(parts, ","))
}

// TestUsageIsThatOfTheObjects folds random histories, in batches of which some are dropped, with policies that come into force
// in between, and compares the usage at each revision with what two other ways of computing it give.
func TestUsageIsThatOfTheObjects(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t)
		for step := range 120 {
			what := fmt.Sprintf("seed %d step %d", seed, step)
			if rng.IntN(12) == 0 {
				w.activate(rng.IntN(2), pick(rng, "", `"x":1,`, `"storage":"1Gi","y":`+fmt.Sprint(step)+`,`))
				w.dropDoubles()
				w.check(what)
				continue
			}
			usage, live := w.usage, maps.Clone(w.live)
			tx, revision := w.store.Begin(), w.revision()
			for range 1 + rng.IntN(4) {
				r := pick(rng, databases, databases, caches, rules.Quotas)
				namespace, name := pick(rng, "x", "y"), pick(rng, "a", "b", "c")
				payload := random(rng, r, namespace, name)
				if w.render != "" && r == databases {
					payload = withoutStorage(payload)
				}
				if rng.IntN(4) == 0 {
					payload = ""
				}
				w.put(tx, r, namespace, name, payload, revision)
				revision++
			}
			if rng.IntN(6) == 0 { // the append was lost
				w.usage, w.live = usage, live
				w.check(what)
				continue
			}
			w.store.Publish(tx, revision)
			w.check(what)
		}
	}
}

// dropDoubles removes the databases that the policy would give a second storage, which the test cannot decode.
func (w *world) dropDoubles() {
	if !strings.Contains(w.render, "storage") {
		return
	}
	for key, payload := range maps.Clone(w.live) {
		parts := strings.Split(key, "/")
		if parts[0] == databases.String() && strings.Contains(payload, `"storage"`) {
			w.set(databases, parts[1], parts[2], "")
		}
	}
}

func withoutStorage(payload string) string {
	return strings.Replace(payload, `"storage":`, `"none":`, 1)
}

func TestExpiredObjectsAreNotCountedAnyMore(t *testing.T) {
	w := newWorld(t)
	w.set(rules.Quotas, "x", "q", object(rules.Quotas, "x", "q", "", `"hard":{"count/databases.example.com":"5","storage.example.com":"10Gi"}`))
	bulk := &logpb.Bulk{}
	for _, name := range []string{"a", "b", "c"} {
		w.set(databases, "x", name, object(databases, "x", name, "", `"storage":"1Gi"`))
	}
	for _, name := range []string{"a", "c"} {
		o := w.store.State().Get(databases, "x", name)
		bulk.Objects = append(bulk.Objects, &logpb.BulkObject{PreviousRevision: o.Revision, Object: &logpb.Object{Group: databases.Group, Resource: databases.Resource, Namespace: "x", Name: name, Uid: "u-" + name}})
		delete(w.live, databases.String()+"/x/"+name)
	}
	tx := w.store.Begin()
	w.fold(tx, &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_BULK_DELETED, Span: 2, Detail: &logpb.Metadata_Bulk{Bulk: bulk}}}, w.revision())
	w.store.Publish(tx, w.revision()+1)
	w.check("after the bulk")
	if got := texts(w.usage); !slices.Equal(got, []string{"resourcequotas/x/q count/databases.example.com=1/5 storage.example.com=1Gi/10Gi"}) {
		t.Errorf("%q", got)
	}
}

func TestWhatFits(t *testing.T) {
	w := newWorld(t)
	quota := func(name, spec string) {
		w.set(rules.Quotas, "x", name, object(rules.Quotas, "x", name, "", spec))
	}
	quota("many", `"hard":{"count/databases.example.com":"3","storage.example.com":"4Gi"}`)
	quota("gold", `"hard":{"count/databases.example.com":"1"},"scopes":["Gold"]`)
	w.set(databases, "x", "a", object(databases, "x", "a", "", `"storage":"3Gi","tier":"gold"`))
	w.set(databases, "x", "b", object(databases, "x", "b", "", `"storage":"1Gi"`))
	for name, tc := range map[string]struct{ of, spec, want string }{
		"a create within":                   {"n", ``, ""},
		"a create of another tier":          {"n", `"tier":"silver"`, ""},
		"a create that is too large":        {"n", `"storage":"1"`, "exceeded quota: many, requested: storage.example.com=1, used: storage.example.com=4Gi, limited: storage.example.com=4Gi"},
		"one for two quotas":                {"n", `"storage":"1Gi","tier":"gold"`, "exceeded quota: gold, requested: count/databases.example.com=1, used: count/databases.example.com=1, limited: count/databases.example.com=1"},
		"an update that adds nothing":       {"b", `"storage":"1024Mi"`, ""},
		"an update that takes away":         {"b", `"storage":"1Mi"`, ""},
		"an update that moves into a scope": {"b", `"storage":"1Gi","tier":"gold"`, "exceeded quota: gold, requested: count/databases.example.com=1, used: count/databases.example.com=1, limited: count/databases.example.com=1"},
		"an update that adds":               {"b", `"storage":"1025Mi"`, "exceeded quota: many, requested: storage.example.com=1Mi, used: storage.example.com=4Gi, limited: storage.example.com=4Gi"},
		"no quantity":                       {"n", `"storage":"much"`, `failed quota: many: storage.example.com: "much": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`},
		"a negative one":                    {"b", `"storage":"-1Gi"`, "failed quota: many: storage.example.com: -1Gi is negative"},
	} {
		got := ""
		if x := w.usage.Check(databases, "x", w.store.State().Get(databases, "x", tc.of), []byte(object(databases, "x", tc.of, "", tc.spec))); x != nil {
			got = x.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if x := w.usage.Check(databases, "y", nil, []byte(object(databases, "y", "n", "", `"storage":"9Ti"`))); x != nil {
		t.Errorf("in a namespace without quotas: %v", x)
	}
	if x := w.usage.Check(databases, "x", w.store.State().Get(databases, "x", "a"), nil); x != nil {
		t.Errorf("a delete: %v", x)
	}
	// A quota below what is there: what adds nothing goes on.
	quota("many", `"hard":{"count/databases.example.com":"1","storage.example.com":"1Gi"}`)
	if x := w.usage.Check(databases, "x", w.store.State().Get(databases, "x", "a"), []byte(object(databases, "x", "a", "", `"storage":"2Gi","tier":"gold"`))); x != nil {
		t.Errorf("an update that takes away, above the quota: %v", x)
	}
	if x := w.usage.Check(databases, "x", nil, []byte(object(databases, "x", "n", "", ``))); x == nil || x.Quota.ID() != "resourcequotas/x/many" {
		t.Errorf("a create above the quota: %v", x)
	}
}

// BenchmarkWrite is what a write costs: deciding whether it fits, and counting it.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{0, 1, 3} {
		b.Run(fmt.Sprintf("quotas=%d", n), func(b *testing.B) {
			w := newWorld(b)
			for i := range n {
				name := fmt.Sprint("q", i)
				w.set(rules.Quotas, "x", name, object(rules.Quotas, "x", name, "", `"hard":{"count/databases.example.com":"500","count/caches.example.com":"5","storage.example.com":"400Ti"}`))
			}
			for i := range 1000 { // other namespaces with quotas
				w.set(rules.Quotas, fmt.Sprint("n", i), "q", object(rules.Quotas, fmt.Sprint("n", i), "q", "", `"hard":{"count/databases.example.com":"5"}`))
			}
			spec := `"color":"` + strings.Repeat("x", 700) + `","storage":"1Gi"`
			w.set(databases, "x", "a", object(databases, "x", "a", "t", spec))
			before := w.store.State().Get(databases, "x", "a")
			after := []byte(object(databases, "x", "a", "t", strings.Replace(spec, "1Gi", "2Gi", 1)))
			tx := w.store.Begin()
			w.put(tx, databases, "x", "a", string(after), w.revision())
			changes, state := tx.Changes(), tx.State()
			w.usage = quotas.New(w.rules, w.store.State())
			b.ReportAllocs()
			for b.Loop() {
				x, measured := w.usage.Fits(databases, "x", before, after)
				if x != nil {
					b.Fatal(x)
				}
				w.usage.Apply(changes, state, measured)
			}
		})
	}
}
