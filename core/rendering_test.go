package core_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

// Bundles that differ from the usual one in what they make of widgets.
var (
	// graded has another field, with a default, by which can be selected.
	graded = withSpec(`grade: *"a" | "b"`, `[".spec.color", ".spec.grade"]`)
	// regraded has another default.
	regraded = withSpec(`grade: *"b" | "a"`, `[".spec.color", ".spec.grade"]`)
	// colorless does not know the color.
	colorless = strings.NewReplacer(`color:  *"blue" | "red" | "green"`, ``, `[".spec.color"]`, `[]`).Replace(bundle)
)

func withSpec(field, selectable string) string {
	return strings.NewReplacer(`owner?:`, field+"\n\t\towner?:", `[".spec.color"]`, selectable).Replace(bundle)
}

func (r *replica) activate(t testing.TB, text string) {
	t.Helper()
	if _, err := activation.ActivateCompiled(t.Context(), r.committer, planetest.Compile(t, text), "test"); err != nil {
		t.Fatal(err)
	}
}

func TestNewDefaultsCountForOldObjects(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 0)
	p.bootstrap(t, bundle)
	before := p.must(t, 201, "POST", widgetsPath, widget("w", 1))
	written := p.committer.Tip().Revision()
	p.activate(t, graded)
	activated := p.committer.Tip().Revision()

	got := p.must(t, 200, "GET", widgetsPath+"/w", "")
	if got.field("spec", "grade") != "a" {
		t.Errorf("get shows %s", got)
	}
	for _, unchanged := range []string{"resourceVersion", "generation", "uid"} {
		if was, is := before.field("metadata", unchanged), got.field("metadata", unchanged); was != is {
			t.Errorf("metadata.%s was %v and is %v", unchanged, was, is)
		}
	}
	list := p.must(t, 200, "GET", widgetsPath+"?fieldSelector=spec.grade%3Da", "")
	if !strings.Contains(string(list.body), strings.TrimSpace(string(got.body))) {
		t.Errorf("a list by the new field shows %s", list)
	}
	batches, err := p.log.CatchUp(t.Context(), p.log.Start())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		for _, e := range b.Events {
			if o := e.Meta.GetObject(); o != nil && e.Revision > written {
				t.Errorf("revision %d is an event about %v", e.Revision, o)
			}
		}
	}
	if a := p.must(t, 200, "PUT", widgetsPath+"/w", string(got.body)); string(a.body) != string(got.body) || p.committer.Tip().Revision() != activated {
		t.Errorf("a write of what was read is answered %s, at revision %d", a, p.committer.Tip().Revision())
	}
	if again := start(t, store.Open(nil), 0).must(t, 200, "GET", widgetsPath, ""); string(again.body) != string(p.must(t, 200, "GET", widgetsPath, "").body) {
		t.Errorf("after a restart: %s", again)
	}
}

func TestADefaultThatIsTakenBackIsGone(t *testing.T) {
	p := newPlane(t)
	before := p.must(t, 201, "POST", widgetsPath, widget("w", 1))
	p.activate(t, graded)
	p.activate(t, regraded)
	if got := p.must(t, 200, "GET", widgetsPath+"/w", ""); got.field("spec", "grade") != "b" {
		t.Errorf("under another default: %s", got)
	}
	p.activate(t, bundle)
	if got := p.must(t, 200, "GET", widgetsPath+"/w", ""); string(got.body) != string(before.body) {
		t.Errorf("it was %s\nand is %s", before, got)
	}
}

func TestWhatAMistakenSchemaPrunesIsBackWhenItIsMended(t *testing.T) {
	p := newPlane(t)
	before := p.must(t, 201, "POST", widgetsPath, widget("w", 1))
	p.activate(t, colorless)
	if got := p.must(t, 200, "GET", widgetsPath+"/w", ""); got.field("spec", "color") != nil {
		t.Errorf("without color: %s", got)
	}
	p.activate(t, bundle)
	if got := p.must(t, 200, "GET", widgetsPath+"/w", ""); string(got.body) != string(before.body) {
		t.Errorf("it was %s\nand is %s", before, got)
	}
}

// What is written is what was shown: then it stays.
func TestAWriteKeepsWhatIsShown(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("w", 1))
	p.activate(t, graded)
	p.must(t, 200, "PATCH", widgetsPath+"/w", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	p.activate(t, regraded)
	if got := p.must(t, 200, "GET", widgetsPath+"/w", ""); got.field("spec", "grade") != "a" {
		t.Errorf("%s", got)
	}
}

func TestWatchersAreShownNewDefaults(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	p.must(t, 201, "POST", widgetsPath, widget("b", 1))
	p.must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"p"}}`)
	before := p.committer.Tip().Revision()
	watch := func(from uint64, more string) *watching {
		return p.watch(t, fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d%s", widgetsPath, from, more))
	}
	expect := func(w *watching, what string, events ...string) {
		t.Helper()
		for _, want := range events {
			if e := w.next(t); e.String() != want {
				t.Errorf("%s: %v, want %s", what, e, want)
			}
		}
	}
	revision := func(name string) string {
		return p.must(t, 200, "GET", widgetsPath+"/"+name, "").field("metadata", "resourceVersion").(string)
	}
	open := watch(before, "")
	p.activate(t, colorless)
	at := p.committer.Tip().Revision()
	shown := []string{"MODIFIED a@" + revision("a"), "MODIFIED b@" + revision("b"), fmt.Sprint("BOOKMARK <nil>@", at)}
	expect(open, "open", shown...)
	expect(watch(before, ""), "resumed from before", shown...)
	later := watch(at, "")
	p.must(t, 201, "POST", widgetsPath, widget("c", 1))
	expect(later, "resumed from the activation", "ADDED c@"+revision("c"))

	// By a field that changes, objects come into sight and leave it.
	p.activate(t, graded)
	from := p.committer.Tip().Revision()
	as, bs := watch(from, "&fieldSelector=spec.grade%3Da"), watch(from, "&fieldSelector=spec.grade%3Db")
	p.activate(t, regraded)
	at = p.committer.Tip().Revision()
	// Who goes on from the revision of one that left must be told of the others.
	expect(as, "of another grade", fmt.Sprint("DELETED a@", at-1), fmt.Sprint("DELETED b@", at-1), fmt.Sprint("DELETED c@", at-1), fmt.Sprint("BOOKMARK <nil>@", at))
	expect(bs, "of that grade", "ADDED a@"+revision("a"), "ADDED b@"+revision("b"), "ADDED c@"+revision("c"), fmt.Sprint("BOOKMARK <nil>@", at))
}

// Paged lists that began before show what was there then.
func TestThePastIsShownAsItWas(t *testing.T) {
	p := newPlane(t)
	for _, name := range []string{"a", "b", "c"} {
		p.must(t, 201, "POST", widgetsPath, widget(name, 1))
	}
	first := p.must(t, 200, "GET", widgetsPath+"?limit=1", "")
	at := p.committer.Tip().Revision()
	p.activate(t, graded)
	rest := p.must(t, 200, "GET", widgetsPath+"?limit=5&continue="+first.field("metadata", "continue").(string), "")
	exact := p.must(t, 200, "GET", fmt.Sprintf("%s?resourceVersionMatch=Exact&resourceVersion=%d", widgetsPath, at), "")
	for what, a := range map[string]answer{"page": rest, "exact": exact} {
		if strings.Contains(string(a.body), "grade") || !strings.Contains(string(a.body), `"name":"c"`) {
			t.Errorf("%s: %s", what, a)
		}
	}
}

// requests counts what a client asks for.
type requests struct {
	http.RoundTripper
	lists, watches atomic.Int64
}

func (r *requests) RoundTrip(q *http.Request) (*http.Response, error) {
	switch v := q.URL.Query(); {
	case q.Method != "GET":
	case v.Get("watch") == "" || v.Get("sendInitialEvents") == "true":
		r.lists.Add(1)
	default:
		r.watches.Add(1)
	}
	return r.RoundTripper.RoundTrip(q)
}

func dynamicClient(t *testing.T, host string, r *requests) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{Host: host, BearerToken: "admin-token", QPS: -1, WarningHandler: rest.NoWarnings{}, WrapTransport: func(rt http.RoundTripper) http.RoundTripper {
		if r == nil {
			return rt
		}
		r.RoundTripper = rt
		return r
	}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func unstructuredWidget(version, name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/" + version, "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": size},
	}}
}

func TestInformersNeedNoListForNewDefaults(t *testing.T) {
	p := newPlane(t)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	asked := &requests{}
	client := dynamicClient(t, server.URL, asked)
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	widgets := client.Resource(gvr).Namespace("default")
	for i := range 3 {
		if _, err := widgets.Create(t.Context(), unstructuredWidget("v1", fmt.Sprint("w", i), 1), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(gvr)
	added := make(chan string, 100)
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { added <- o.(metav1.Object).GetName() }}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.Informer().RunWithContext(ctx) })
	defer running.Wait()
	defer cancel()
	cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced)
	lists := asked.lists.Load()

	p.activate(t, graded)
	// What comes behind the activation comes behind what that changed.
	if _, err := widgets.Create(t.Context(), unstructuredWidget("v1", "last", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name := ""; name != "last"; {
		name = <-added
	}
	for i := range 3 {
		o, err := informer.Lister().ByNamespace("default").Get(fmt.Sprint("w", i))
		if err != nil {
			t.Fatal(err)
		}
		if grade, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "spec", "grade"); grade != "a" {
			t.Errorf("the informer has %v", o)
		}
	}
	if n := asked.lists.Load(); n != lists {
		t.Errorf("it has listed %d times more", n-lists)
	}
}

// P2: whatever is written and whatever policies come in force, one who follows and one who
// starts from the log serve the same bytes.
func TestRenderingIsAFoldOfTheLog(t *testing.T) {
	bundles := []string{bundle, graded, regraded, colorless}
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var store memlog.Store
		p := start(t, store.Open(nil), 0)
		p.bootstrap(t, bundle)
		w := p.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", widgetsPath, p.committer.Tip().Revision()))
		for range 60 {
			path := widgetsPath + "/" + pick(rng, "a", "b", "c", "d")
			switch rng.IntN(8) {
			case 0, 1, 2:
				p.do("POST", widgetsPath, widget(path[len(widgetsPath)+1:], 1+rng.IntN(3)))
			case 3:
				p.do("PATCH", path, fmt.Sprintf(`{"spec":{"size":%d}}`, 1+rng.IntN(3)), "Content-Type", "application/merge-patch+json")
			case 4:
				p.do("PATCH", path, `{"spec":{"color":"red","grade":"b"}}`, "Content-Type", "application/merge-patch+json")
			case 5:
				p.do("DELETE", path, "")
			default:
				next := planetest.Compile(t, pick(rng, bundles...))
				if _, err := activation.ActivateCompiled(t.Context(), p.committer, next, "test"); err != nil && !strings.Contains(err.Error(), "in force already") {
					t.Fatal(err)
				}
			}
		}
		p.must(t, 201, "POST", widgetsPath, widget("last", 1))
		live := p.must(t, 200, "GET", widgetsPath, "")
		rebuilt := start(t, store.Open(nil), 0).must(t, 200, "GET", widgetsPath, "")
		if string(live.body) != string(rebuilt.body) {
			t.Fatalf("seed %d: live\n%s\nrebuilt\n%s", seed, live, rebuilt)
		}
		seen := map[string]map[string]any{}
		for {
			e := w.next(t)
			name := e.Object["metadata"].(map[string]any)["name"].(string)
			if seen[name] = e.Object; e.Type == "DELETED" {
				delete(seen, name)
			}
			if name == "last" {
				break
			}
		}
		for _, item := range live.field("items").([]any) {
			name := item.(map[string]any)["metadata"].(map[string]any)["name"].(string)
			if got, want := fmt.Sprint(seen[name]), fmt.Sprint(item); got != want {
				t.Errorf("seed %d: a watch has seen\n%s\nwant\n%s", seed, got, want)
			}
			delete(seen, name)
		}
		if len(seen) > 0 {
			t.Errorf("seed %d: a watch has seen %v, which are not there", seed, seen)
		}
		w.stop()
	}
}

// A replica that only follows renders as one that activates.
func TestFollowersRenderToo(t *testing.T) {
	var store memlog.Store
	p, follower := start(t, store.Open(nil), 0), start(t, store.Open(nil), 0)
	p.bootstrap(t, bundle)
	p.must(t, 201, "POST", widgetsPath, widget("w", 1))
	p.activate(t, graded)
	a, b := p.must(t, 200, "GET", widgetsPath, ""), follower.must(t, 200, "GET", widgetsPath, "")
	if string(a.body) != string(b.body) || !strings.Contains(string(a.body), `"grade":"a"`) {
		t.Errorf("%s\n%s", a, b)
	}
}

// An object that is no JSON, which no client can have written, is shown as it is.
func TestWhatCannotBeRenderedStays(t *testing.T) {
	var store memlog.Store
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	held := objects.New(0)
	c := commit.New(commit.Options{
		Log: log, Objects: held, Logger: slog.New(slog.NewTextHandler(&said, nil)),
		Load: func(p *policies.Proposal) (*policy.Policy, error) { return probes.Load(p.Form) },
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	activate := func(text string) {
		t.Helper()
		if _, err := activation.ActivateCompiled(ctx, c, planetest.Compile(t, text), "test"); err != nil {
			t.Fatal(err)
		}
	}
	activate(bundle)
	for name, spec := range map[string]string{"good": `{"size":1}`, "bad": `{"size":1`} {
		e := &eventlog.Event{Meta: &logpb.Metadata{
			Type:   logpb.Type_TYPE_CREATED,
			Object: &logpb.Object{Group: "example.com", Resource: "widgets", Namespace: "default", Name: name, Uid: "u"},
		}}
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT},
			fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"default","uid":"u"},"spec":%s}`, name, spec))
		entry, err := eventlog.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Commit(ctx, &commit.Proposal{Entry: entry, Checks: commit.Checks{PolicyRevision: c.Tip().PolicyRevision()}}); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string) *objects.Object { return c.Tip().Objects.Get(widgetsResource, "default", name) }
	bad := get("bad")
	activate(graded)
	if get("bad").UID != bad.UID || string(get("bad").JSON) != string(bad.JSON) {
		t.Errorf("it was %s and is %s", bad.JSON, get("bad").JSON)
	}
	if !strings.Contains(string(get("good").JSON), `"grade":"a"`) {
		t.Errorf("the other one is %s", get("good").JSON)
	}
	stop()
	running.Wait()
	if !strings.Contains(said.String(), "widgets.example.com") {
		t.Errorf("the log says %q", said.String())
	}
}

// BenchmarkActivation measures what writers notice of a policy that changes the form of a
// kind with 10,000 objects: the longest that one of them has waited.
func BenchmarkActivation(b *testing.B) {
	const n = 10_000
	var store memlog.Store
	r := start(b, store.Open(nil), 0)
	r.bootstrap(b, bundle)
	fillInBulk(b, r, n)
	for _, text := range []string{graded, regraded} {
		planetest.Compile(b, text)
	}
	var longest, usual, took []time.Duration
	for i := 0; b.Loop(); i++ {
		ctx, stop := context.WithCancel(b.Context())
		var mu sync.Mutex
		var waits []time.Duration
		var writers sync.WaitGroup
		for w := range 2 {
			path := widgetsPath + fmt.Sprintf("/w%06d", w)
			writers.Go(func() {
				for size := 1; ctx.Err() == nil; size++ {
					began := time.Now()
					r.do("PATCH", path, fmt.Sprintf(`{"spec":{"size":%d}}`, 1+size%1000), "Content-Type", "application/merge-patch+json")
					mu.Lock()
					waits = append(waits, time.Since(began))
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		r.activate(b, []string{graded, regraded}[i%2])
		took = append(took, time.Since(began))
		time.Sleep(50 * time.Millisecond)
		stop()
		writers.Wait()
		slices.Sort(waits)
		longest, usual = append(longest, waits[len(waits)-1]), append(usual, waits[len(waits)/2])
	}
	ms := func(d []time.Duration) float64 { return float64(slices.Max(d).Microseconds()) / 1000 }
	b.ReportMetric(ms(longest), "ms-longest-write")
	b.ReportMetric(ms(usual), "ms-median-write")
	b.ReportMetric(ms(took), "ms-activation")
}

func fillInBulk(b *testing.B, r *replica, n int) {
	b.Helper()
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := w; i < n; i += 8 {
				if a := r.do("POST", widgetsPath, bigWidget(fmt.Sprintf("w%06d", i), i)); a.code != 201 {
					b.Error(a)
				}
			}
		})
	}
	writers.Wait()
}
