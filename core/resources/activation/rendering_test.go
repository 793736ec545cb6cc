package activation_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
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

func TestNewDefaultsCountForOldObjects(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Bundle)
	before := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	written := p.Committer.Tip().Revision()
	p.Activate(t, planetest.Graded)
	activated := p.Committer.Tip().Revision()

	got := p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", "")
	if got.Field("spec", "grade") != "a" {
		t.Errorf("get shows %s", got)
	}
	for _, unchanged := range []string{"resourceVersion", "generation", "uid"} {
		if was, is := before.Field("metadata", unchanged), got.Field("metadata", unchanged); was != is {
			t.Errorf("metadata.%s was %v and is %v", unchanged, was, is)
		}
	}
	list := p.Must(t, 200, "GET", planetest.WidgetsPath+"?fieldSelector=spec.grade%3Da", "")
	if !strings.Contains(string(list.Body), strings.TrimSpace(string(got.Body))) {
		t.Errorf("a list by the new field shows %s", list)
	}
	batches, err := p.Log.CatchUp(t.Context(), p.Log.Start())
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
	if a := p.Must(t, 200, "PUT", planetest.WidgetsPath+"/w", string(got.Body)); string(a.Body) != string(got.Body) || p.Committer.Tip().Revision() != activated {
		t.Errorf("a write of what was read is answered %s, at revision %d", a, p.Committer.Tip().Revision())
	}
	if again := planetest.StartReplica(t, store.Open(nil), 0).Must(t, 200, "GET", planetest.WidgetsPath, ""); string(again.Body) != string(p.Must(t, 200, "GET", planetest.WidgetsPath, "").Body) {
		t.Errorf("after a restart: %s", again)
	}
}

func TestADefaultThatIsTakenBackIsGone(t *testing.T) {
	p := planetest.NewPlane(t)
	before := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	p.Activate(t, planetest.Graded)
	p.Activate(t, planetest.Regraded)
	if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", ""); got.Field("spec", "grade") != "b" {
		t.Errorf("under another default: %s", got)
	}
	p.Activate(t, planetest.Bundle)
	if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", ""); string(got.Body) != string(before.Body) {
		t.Errorf("it was %s\nand is %s", before, got)
	}
}

func TestWhatAMistakenSchemaPrunesIsBackWhenItIsMended(t *testing.T) {
	p := planetest.NewPlane(t)
	before := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	p.Activate(t, planetest.Colorless)
	if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", ""); got.Field("spec", "color") != nil {
		t.Errorf("without color: %s", got)
	}
	p.Activate(t, planetest.Bundle)
	if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", ""); string(got.Body) != string(before.Body) {
		t.Errorf("it was %s\nand is %s", before, got)
	}
}

// What is written is what was shown: then it stays.
func TestAWriteKeepsWhatIsShown(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	p.Activate(t, planetest.Graded)
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	p.Activate(t, planetest.Regraded)
	if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", ""); got.Field("spec", "grade") != "a" {
		t.Errorf("%s", got)
	}
}

func TestWatchersAreShownNewDefaults(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
	p.Must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"p"}}`)
	before := p.Committer.Tip().Revision()
	watch := func(from uint64, more string) *planetest.Watching {
		return p.Watch(t, fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d%s", planetest.WidgetsPath, from, more))
	}
	expect := func(w *planetest.Watching, what string, events ...string) {
		t.Helper()
		for _, want := range events {
			if e := w.Next(t); e.String() != want {
				t.Errorf("%s: %v, want %s", what, e, want)
			}
		}
	}
	revision := func(name string) string {
		return p.Must(t, 200, "GET", planetest.WidgetsPath+"/"+name, "").Field("metadata", "resourceVersion").(string)
	}
	open := watch(before, "")
	p.Activate(t, planetest.Colorless)
	at := p.Committer.Tip().Revision()
	shown := []string{"MODIFIED a@" + revision("a"), "MODIFIED b@" + revision("b"), fmt.Sprint("BOOKMARK <nil>@", at)}
	expect(open, "open", shown...)
	expect(watch(before, ""), "resumed from before", shown...)
	later := watch(at, "")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("c", 1))
	expect(later, "resumed from the activation", "ADDED c@"+revision("c"))

	// By a field that changes, objects come into sight and leave it.
	p.Activate(t, planetest.Graded)
	from := p.Committer.Tip().Revision()
	as, bs := watch(from, "&fieldSelector=spec.grade%3Da"), watch(from, "&fieldSelector=spec.grade%3Db")
	p.Activate(t, planetest.Regraded)
	at = p.Committer.Tip().Revision()
	// Who goes on from the revision of one that left must be told of the others.
	expect(as, "of another grade", fmt.Sprint("DELETED a@", at-1), fmt.Sprint("DELETED b@", at-1), fmt.Sprint("DELETED c@", at-1), fmt.Sprint("BOOKMARK <nil>@", at))
	expect(bs, "of that grade", "ADDED a@"+revision("a"), "ADDED b@"+revision("b"), "ADDED c@"+revision("c"), fmt.Sprint("BOOKMARK <nil>@", at))
}

// Paged lists that began before show what was there then.
func TestThePastIsShownAsItWas(t *testing.T) {
	p := planetest.NewPlane(t)
	for _, name := range []string{"a", "b", "c"} {
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(name, 1))
	}
	first := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=1", "")
	at := p.Committer.Tip().Revision()
	p.Activate(t, planetest.Graded)
	rest := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=5&continue="+first.Field("metadata", "continue").(string), "")
	exact := p.Must(t, 200, "GET", fmt.Sprintf("%s?resourceVersionMatch=Exact&resourceVersion=%d", planetest.WidgetsPath, at), "")
	for what, a := range map[string]planetest.Answer{"page": rest, "exact": exact} {
		if strings.Contains(string(a.Body), "grade") || !strings.Contains(string(a.Body), `"name":"c"`) {
			t.Errorf("%s: %s", what, a)
		}
	}
}

func TestInformersNeedNoListForNewDefaults(t *testing.T) {
	p := planetest.NewPlane(t)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	asked := &planetest.Requests{}
	client := planetest.DynamicClient(t, server.URL, asked)
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	widgets := client.Resource(gvr).Namespace("default")
	for i := range 3 {
		if _, err := widgets.Create(t.Context(), planetest.UnstructuredWidget("v1", fmt.Sprint("w", i), 1), metav1.CreateOptions{}); err != nil {
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
	lists := asked.Lists.Load()

	p.Activate(t, planetest.Graded)
	// What comes behind the activation comes behind what that changed.
	if _, err := widgets.Create(t.Context(), planetest.UnstructuredWidget("v1", "last", 1), metav1.CreateOptions{}); err != nil {
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
	if n := asked.Lists.Load(); n != lists {
		t.Errorf("it has listed %d times more", n-lists)
	}
}

// P2: whatever is written and whatever policies come in force, one who follows and one who
// starts from the log serve the same bytes.
func TestRenderingIsAFoldOfTheLog(t *testing.T) {
	bundles := []string{planetest.Bundle, planetest.Graded, planetest.Regraded, planetest.Colorless}
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var store memlog.Store
		p := planetest.StartReplica(t, store.Open(nil), 0)
		p.Bootstrap(t, planetest.Bundle)
		w := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", planetest.WidgetsPath, p.Committer.Tip().Revision()))
		for range 60 {
			path := planetest.WidgetsPath + "/" + planetest.Pick(rng, "a", "b", "c", "d")
			switch rng.IntN(8) {
			case 0, 1, 2:
				p.Do("POST", planetest.WidgetsPath, planetest.Widget(path[len(planetest.WidgetsPath)+1:], 1+rng.IntN(3)))
			case 3:
				p.Do("PATCH", path, fmt.Sprintf(`{"spec":{"size":%d}}`, 1+rng.IntN(3)), "Content-Type", "application/merge-patch+json")
			case 4:
				p.Do("PATCH", path, `{"spec":{"color":"red","grade":"b"}}`, "Content-Type", "application/merge-patch+json")
			case 5:
				p.Do("DELETE", path, "")
			default:
				next := planetest.Compile(t, planetest.Pick(rng, bundles...))
				if _, err := activation.ActivateCompiled(t.Context(), p.Committer, next, "test"); err != nil && !strings.Contains(err.Error(), "in force already") {
					t.Fatal(err)
				}
			}
		}
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("last", 1))
		live := p.Must(t, 200, "GET", planetest.WidgetsPath, "")
		rebuilt := planetest.StartReplica(t, store.Open(nil), 0).Must(t, 200, "GET", planetest.WidgetsPath, "")
		if string(live.Body) != string(rebuilt.Body) {
			t.Fatalf("seed %d: live\n%s\nrebuilt\n%s", seed, live, rebuilt)
		}
		seen := map[string]map[string]any{}
		for {
			e := w.Next(t)
			name := e.Object["metadata"].(map[string]any)["name"].(string)
			if seen[name] = e.Object; e.Type == "DELETED" {
				delete(seen, name)
			}
			if name == "last" {
				break
			}
		}
		for _, item := range live.Field("items").([]any) {
			name := item.(map[string]any)["metadata"].(map[string]any)["name"].(string)
			if got, want := fmt.Sprint(seen[name]), fmt.Sprint(item); got != want {
				t.Errorf("seed %d: a watch has seen\n%s\nwant\n%s", seed, got, want)
			}
			delete(seen, name)
		}
		if len(seen) > 0 {
			t.Errorf("seed %d: a watch has seen %v, which are not there", seed, seen)
		}
		w.Stop()
	}
}

// A replica that only follows renders as one that activates.
func TestFollowersRenderToo(t *testing.T) {
	var store memlog.Store
	p, follower := planetest.StartReplica(t, store.Open(nil), 0), planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Bundle)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	p.Activate(t, planetest.Graded)
	a, b := p.Must(t, 200, "GET", planetest.WidgetsPath, ""), follower.Must(t, 200, "GET", planetest.WidgetsPath, "")
	if string(a.Body) != string(b.Body) || !strings.Contains(string(a.Body), `"grade":"a"`) {
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
		Load: func(p *policies.Proposal) (*policy.Policy, error) { return probes.Load(p.Form.Bytes()) },
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
	activate(planetest.Bundle)
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
	get := func(name string) *objects.Object {
		return c.Tip().Objects.Get(planetest.WidgetsResource, "default", name)
	}
	bad := get("bad")
	activate(planetest.Graded)
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
	r := planetest.StartReplica(b, store.Open(nil), 0)
	r.Bootstrap(b, planetest.Bundle)
	fillInBulk(b, r, n)
	for _, text := range []string{planetest.Graded, planetest.Regraded} {
		planetest.Compile(b, text)
	}
	var longest, usual, took []time.Duration
	for i := 0; b.Loop(); i++ {
		ctx, stop := context.WithCancel(b.Context())
		var mu sync.Mutex
		var waits []time.Duration
		var writers sync.WaitGroup
		for w := range 2 {
			path := planetest.WidgetsPath + fmt.Sprintf("/w%06d", w)
			writers.Go(func() {
				for size := 1; ctx.Err() == nil; size++ {
					began := time.Now()
					r.Do("PATCH", path, fmt.Sprintf(`{"spec":{"size":%d}}`, 1+size%1000), "Content-Type", "application/merge-patch+json")
					mu.Lock()
					waits = append(waits, time.Since(began))
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		r.Activate(b, []string{planetest.Graded, planetest.Regraded}[i%2])
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

func fillInBulk(b *testing.B, r *planetest.Replica, n int) {
	b.Helper()
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := w; i < n; i += 8 {
				if a := r.Do("POST", planetest.WidgetsPath, planetest.BigWidget(fmt.Sprintf("w%06d", i), i)); a.Code != 201 {
					b.Error(a)
				}
			}
		})
	}
	writers.Wait()
}
