package core_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"stele.dev/stele/core/keep/expiry"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/objects"
)

const eventsPath = "/api/v1/namespaces/default/events"

var eventsResource = schema.GroupResource{Resource: "events"}

// pair is a log with two replicas: one remembers everything, the other as good as nothing.
type pair struct {
	*planetest.Replica // remembers
	forgets            *planetest.Replica
}

func newPair(t testing.TB) *pair {
	t.Helper()
	var store memlog.Store
	p := &pair{Replica: planetest.StartReplica(t, store.Open(nil), 0)}
	p.Bootstrap(t, planetest.Bundle)
	p.forgets = planetest.StartReplica(t, store.Open(nil), 1)
	return p
}

// agree waits until the replica that forgets knows what the other does.
func (p *pair) agree(t testing.TB) {
	t.Helper()
	if _, err := p.forgets.Committer.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// remembered tells whether a watch from a revision can do without history.
func remembered(r *planetest.Replica, t testing.TB, resource schema.GroupResource, revision uint64) bool {
	t.Helper()
	w, err := r.Committer.Objects().Watch(resource, objects.Selection{}, revision)
	if err == nil {
		w.Stop()
	} else if !errors.Is(err, objects.ErrExpired) {
		t.Fatal(err)
	}
	return err == nil
}

// written does something at random to one of a few objects. Some of it is refused.
func (p *pair) written(t testing.TB, rng *rand.Rand, bundles []string) {
	t.Helper()
	namespace, name := planetest.Pick(rng, "default", "kube-system"), planetest.Pick(rng, "a", "b", "c", "d")
	path := "/apis/example.com/v1/namespaces/" + namespace + "/widgets"
	merge := func(path, patch string) {
		p.Do("PATCH", path, patch, "Content-Type", "application/merge-patch+json")
	}
	event := fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":%q,"namespace":"default","labels":{"env":%q}},"involvedObject":{"kind":"Pod","namespace":"default","name":%q},"reason":%q,"type":"Normal"}`,
		name, planetest.Pick(rng, "dev", "prod"), name, planetest.Pick(rng, "Started", "Stopped"))
	switch rng.IntN(14) {
	case 0, 1, 2:
		p.Do("POST", path, fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"env":%q}},"spec":{"size":%d,"color":%q}}`, name, planetest.Pick(rng, "dev", "prod"), 1+rng.IntN(9), planetest.Pick(rng, "red", "blue")))
	case 3, 4:
		merge(path+"/"+name, fmt.Sprintf(`{"spec":{"size":%d,"color":%q,"grade":%q}}`, 1+rng.IntN(9), planetest.Pick(rng, "red", "blue"), planetest.Pick(rng, "a", "b")))
	case 5, 6:
		merge(path+"/"+name, fmt.Sprintf(`{"metadata":{"labels":{"env":%s}}}`, planetest.Pick(rng, `"dev"`, `"prod"`, "null")))
	case 7, 8:
		p.Do("DELETE", path+"/"+name, "")
	case 9, 10:
		p.Do("POST", eventsPath, event)
	case 11:
		later := func() time.Time { return time.Now().Add(time.Hour) }
		if rng.IntN(3) > 0 {
			return
		}
		if _, err := expiry.New(expiry.Options{Committer: p.Committer, Log: p.Log, TTL: time.Minute, Now: later}).Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
	default:
		if _, err := activation.ActivateCompiled(t.Context(), p.Committer, planetest.Compile(t, planetest.Pick(rng, bundles...)), "test"); err != nil && !strings.Contains(err.Error(), "in force already") {
			t.Fatal(err)
		}
	}
}

// A watch from any revision tells what a watch that remembers everything tells: the same
// events with the same objects in the same order, whatever it selects by.
func TestWatchesFromHistoryTellWhatLiveOnesTold(t *testing.T) {
	bundles := []string{planetest.Bundle, planetest.Graded, planetest.Regraded, planetest.Colorless, strings.Replace(planetest.Bundle, `[".spec.color"]`, `[]`, 1)}
	fromHistory, seeds := 0, 12
	if testing.Short() {
		seeds = 3
	}
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 7))
		p := newPair(t)
		first := p.Committer.Tip().Revision()
		for range 120 {
			p.written(t, rng, bundles)
		}
		p.Do("DELETE", planetest.WidgetsPath+"/a", "")
		p.Do("DELETE", eventsPath+"/a", "")
		before := p.Committer.Tip().Revision()
		if _, err := activation.ActivateCompiled(t.Context(), p.Committer, planetest.Compile(t, planetest.Graded), "test"); err != nil && !strings.Contains(err.Error(), "in force already") {
			t.Fatal(err)
		}
		// What all the watches below select is where they end.
		lastWidget := planetest.Revision(t, p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","labels":{"env":"dev"}},"spec":{"size":1,"color":"red"}}`))
		lastEvent := planetest.Revision(t, p.Must(t, 201, "POST", eventsPath, `{"apiVersion":"v1","kind":"Event","metadata":{"name":"a","namespace":"default","labels":{"env":"dev"}},"involvedObject":{"kind":"Pod","namespace":"default","name":"a"},"reason":"Started","type":"Normal"}`))
		p.agree(t)
		for range 10 {
			path, resource, last := planetest.Pick(rng, planetest.WidgetsPath, "/apis/example.com/v1/widgets"), planetest.WidgetsResource, lastWidget
			query := url.Values{"watch": {"1"}}
			switch rng.IntN(6) {
			case 0:
				query.Set("labelSelector", "env=dev")
			case 1:
				query.Set("fieldSelector", planetest.Pick(rng, "spec.color=red", "spec.grade=a", "spec.color!=blue", "spec.grade!=b,spec.color=red"))
			case 2:
				query.Set("fieldSelector", "metadata.name=a")
			case 3:
				path, resource, last = planetest.Pick(rng, "/api/v1/events", "/apis/events.k8s.io/v1/namespaces/default/events"), eventsResource, lastEvent
				if rng.IntN(2) == 0 {
					query.Set("labelSelector", "env=dev")
				}
			}
			if rng.IntN(2) == 0 {
				query.Set("allowWatchBookmarks", "true")
			}
			from := first + uint64(rng.IntN(int(before-first)))
			query.Set("resourceVersion", fmt.Sprint(from))
			if !remembered(p.forgets, t, resource, from) {
				fromHistory++
			}
			told := func(r *planetest.Replica) (events []planetest.WatchEvent) {
				w := r.Watch(t, path+"?"+query.Encode())
				defer w.Stop()
				for _, e := range w.Until(t, fmt.Sprint(last)) {
					if e.Type != "BOOKMARK" {
						events = append(events, e)
					}
				}
				return events
			}
			if diff := cmp.Diff(told(p.Replica), told(p.forgets)); diff != "" {
				t.Fatalf("seed %d, %s?%s (-remembered +from history):\n%s", seed, path, query.Encode(), diff)
			}
		}
		p.forgets.Close()
		p.Close()
	}
	if fromHistory < 5*seeds {
		t.Errorf("only %d watches had to read history", fromHistory)
	}
}

// What an activation shows otherwise is more than is read at once, and comes once each, in
// order, with a bookmark behind it and none within.
func TestActivationsComeFromHistoryInParts(t *testing.T) {
	p := newPair(t)
	const n = 700
	for i := range n {
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprintf("w%03d", i), 1))
	}
	from := p.Committer.Tip().Revision()
	p.Activate(t, planetest.Graded)
	activated := p.Committer.Tip().Revision()
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w000", "")
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"churn"}}`)
	p.agree(t)
	planetest.WaitFor(t, func() bool { return !remembered(p.forgets, t, planetest.WidgetsResource, activated) })
	w := p.forgets.Watch(t, fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d", planetest.WidgetsPath, from))
	for i := range n {
		e := w.Next(t)
		if got, want := planetest.What([]planetest.WatchEvent{e}), fmt.Sprintf("MODIFIED w%03d", i); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		if grade := e.Object["spec"].(map[string]any)["grade"]; grade != "a" {
			t.Fatalf("%v", e)
		}
	}
	if got := planetest.What([]planetest.WatchEvent{w.Next(t)}); got != "DELETED w000" {
		t.Errorf("then %s", got)
	}
	if e := w.Next(t); e.Type != "BOOKMARK" || e.String() < fmt.Sprint("BOOKMARK <nil>@", activated) {
		t.Errorf("then %v", e)
	}
}

// Who does not read is waited for: all that happened meanwhile comes once, in order, however
// much more that is than memory holds, and what waits for such clients is bounded.
func TestSlowWatchersMissNothing(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 64<<10)
	p.Bootstrap(t, planetest.Bundle)
	for i := range 300 {
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprintf("w%03d", i), 1))
	}
	slow, changes := 4, 4000
	if testing.Short() {
		changes = 1000
	}
	from := fmt.Sprint(p.Committer.Tip().Revision())
	watches := make([]*planetest.Watching, slow)
	for i := range watches {
		watches[i] = p.Watch(t, planetest.WidgetsPath+"?watch=1&allowWatchBookmarks=true&resourceVersion="+from)
	}
	var want []string
	for i := range changes {
		if i == changes/2 { // in the middle, all objects look otherwise
			p.Activate(t, planetest.Graded)
			at := p.List(t)
			want = append(want, at...)
		}
		a := p.Patch(fmt.Sprintf("w%03d", i%300), "merge", fmt.Sprintf(`{"spec":{"size":%d,"limits":{"n":%d}}}`, 1+i%900, i))
		if a.Code != 200 {
			t.Fatal(a)
		}
		want = append(want, fmt.Sprintf("MODIFIED w%03d@%d", i%300, planetest.Revision(t, a)))
	}
	for n, w := range watches {
		for i := range want {
			e := w.Next(t)
			for e.Type == "BOOKMARK" {
				e = w.Next(t)
			}
			if e.String() != want[i] {
				t.Fatalf("watch %d, event %d: %s, want %s", n, i, e, want[i])
			}
		}
		w.Stop()
	}
}

// Chunks of history that clients do not take share a bound.
func TestWhatSlowWatchersHoldIsBounded(t *testing.T) {
	p := newPair(t)
	from := p.Committer.Tip().Revision()
	pad := strings.Repeat("x", 60<<10)
	for i := range 150 {
		p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%03d"},"data":{"pad":%q}}`, i, pad))
	}
	p.agree(t)
	for name, path := range map[string]string{"of objects": "/api/v1/configmaps", "of changes": planetest.ChangesPath} {
		t.Run(name, func(t *testing.T) {
			const clients = 40
			var stopped sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			responses := make([]*planetest.PipeResponse, clients)
			for i := range clients {
				r, w := io.Pipe()
				responses[i] = &planetest.PipeResponse{Headers: http.Header{}, Code: make(chan int, 1), W: w}
				stopped.Go(func() {
					defer w.Close()
					q := planetest.Request("GET", fmt.Sprintf("%s?watch=1&resourceVersion=%d", path, from), "").WithContext(ctx)
					p.forgets.ServeHTTP(responses[i], q)
				})
				first := make([]byte, 1)
				if _, err := r.Read(first); err != nil { // it has its chunk, and cannot get rid of it
					t.Fatal(err)
				}
				defer r.Close()
			}
			if held, most := p.forgets.Replaying(), int64(36<<20); held == 0 || held > most {
				t.Errorf("%d clients that do not read hold %d bytes, want at most %d", clients, held, most)
			}
			cancel()
			for _, r := range responses {
				r.W.CloseWithError(io.ErrClosedPipe)
			}
			stopped.Wait()
			if held := p.forgets.Replaying(); held != 0 {
				t.Errorf("once they are gone %d bytes are held", held)
			}
		})
	}
}

// An informer that was cut off for longer than memory goes back goes on, without a list.
func TestInformersResumeFromHistory(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 4<<10)
	p.Bootstrap(t, planetest.Bundle)
	planetest.Fill(t, p, 5)
	var shut atomic.Bool // no watch gets through
	opened := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Query().Get("watch") != "" && shut.Load() {
			<-opened
		}
		p.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	asked := &planetest.Requests{}
	client := planetest.DynamicClient(t, server.URL, asked)
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(gvr).Informer()
	added := make(chan string, 100)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { added <- o.(metav1.Object).GetName() }}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	defer server.CloseClientConnections()
	defer cancel()
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	until := func(want string) {
		for name := ""; name != want; {
			name = <-added
		}
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("first", 1)) // a watch that ends with nothing makes it list
	until("first")
	lists, from := asked.Lists.Load(), informer.LastSyncResourceVersion()

	shut.Store(true)
	server.CloseClientConnections()
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w01", "")
	for i := range 300 {
		p.Patch("w00", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 1+i))
	}
	at, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	planetest.WaitFor(t, func() bool { return !remembered(p, t, planetest.WidgetsResource, at) })
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("last", 1))
	close(opened)
	until("last")
	if diff := cmp.Diff((&planetest.Site{Replica: p, T: t}).Listed(planetest.WidgetsPath), planetest.Contents(t, informer.GetStore())); diff != "" {
		t.Errorf("(-server +informer):\n%s", diff)
	}
	if n := asked.Lists.Load(); n != lists {
		t.Errorf("it has listed %d times more", n-lists)
	}
}

// A watch by a field that became selectable on the way goes on from a list by that field of
// before: what that has is told to have gone, also where it was nothing to be selected by yet.
func TestFieldsThatBecomeSelectable(t *testing.T) {
	var store memlog.Store
	p := &pair{Replica: planetest.StartReplica(t, store.Open(nil), 0)}
	p.Bootstrap(t, strings.Replace(planetest.Bundle, `[".spec.color"]`, `[]`, 1))
	p.forgets = planetest.StartReplica(t, store.Open(nil), 1)
	color := func(name, color string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"size":1,"color":%q}}`, name, color)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, color("a", "red"))
	from := p.Must(t, 201, "POST", planetest.WidgetsPath, color("b", "blue")).Field("metadata", "resourceVersion").(string)
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"color":"blue"}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/b", `{"spec":{"color":"red"}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/b", "")
	p.Activate(t, planetest.Bundle)
	last := p.Must(t, 201, "POST", planetest.WidgetsPath, color("c", "red")).Field("metadata", "resourceVersion").(string)
	p.agree(t)
	for name, r := range map[string]*planetest.Replica{"remembered": p.Replica, "from history": p.forgets} {
		if names := r.Must(t, 200, "GET", planetest.WidgetsPath+"?fieldSelector=spec.color%3Dred&resourceVersionMatch=Exact&resourceVersion="+from, "").Names(); len(names) != 1 || names[0] != "a" {
			t.Fatalf("%s: the list has %v", name, names)
		}
		w := r.Watch(t, planetest.WidgetsPath+"?watch=1&fieldSelector=spec.color%3Dred&resourceVersion="+from)
		if got, want := planetest.What(w.Until(t, last)), "DELETED a, ADDED b, DELETED b"; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		w.Stop()
	}
}
