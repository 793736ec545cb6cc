package cost_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/load/cost"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/read/views"
	"stele.dev/stele/core/resources/changes"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/core/serve/nonresource"
	"stele.dev/stele/limits/fairqueue"
	"stele.dev/stele/projections/objects"
)

const bundle = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		kinds: "widgets.example.com": {
			group: "example.com"
			names: {kind: "Widget", plural: "widgets"}
			storageVersion: "v1"
			versions: v1: {#schema: {spec?: {text?: string, color?: string}}, selectableFields: [".spec.color"]}
		}
		views: {
			"red-widgets": {kind: "widgets.example.com", version: "v1", filter: "object.spec.color == 'red'", columns: color: {expression: "object.spec.color", type: "string"}}
			"widget-colors": {kind: "widgets.example.com", version: "v1", groupBy: ["color"], columns: color: {expression: "object.spec.color", type: "string"}}
		}
	}
}
`

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// server is a control plane in memory with widgets, and its estimator.
type server struct {
	*planetest.Plane
	costs *cost.Estimator
	views *views.Service
}

// all is the number of widgets: half of them in the namespace a, the others in b. One, named large, is in a, too.
const all = 4000

func start(t testing.TB) *server {
	t.Helper()
	s := &server{Plane: planetest.Start(t, planetest.Options{Bundle: bundle})}
	for _, ns := range []string{"a", "b", "empty"} {
		s.must(t, "POST", "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, ns))
	}
	for i := range all {
		s.create(t, []string{"a", "b"}[i%2], fmt.Sprintf("w%05d", i), 300)
	}
	s.create(t, "a", "large", 1<<20)
	s.views = views.New(views.Options{Committer: s.Committer})
	s.costs = cost.New(cost.Options{
		Objects: s.Committer.Objects(), Views: s.views, Table: catalog.NewTable(changes.New(nil)), Seats: 0,
		Route: func(path string) *nonresource.Route {
			if path == "/log/verify" {
				return &nonresource.Route{Cost: func(*call.Call) time.Duration { return time.Minute }}
			}
			return nil
		},
	})
	return s
}

func (s *server) create(t testing.TB, ns, name string, size int) {
	t.Helper()
	s.must(t, "POST", "/apis/example.com/v1/namespaces/"+ns+"/widgets", fmt.Sprintf(
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"color":"red","text":%q}}`, name, strings.Repeat("x", size)))
}

func (s *server) must(t testing.TB, method, path, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, request(method, path, body))
	if w.Code > 299 {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
}

func request(method, path, body string, header ...string) *http.Request {
	q := httptest.NewRequest(method, path, strings.NewReader(body))
	q.Header.Set("Authorization", "Bearer admin-token")
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	return q
}

// call returns a call as the stage flow has it.
func (s *server) call(t testing.TB, q *http.Request) *call.Call {
	t.Helper()
	c := &call.Call{HTTP: q, W: call.NewDiscard(), Tip: s.Committer.Tip()}
	if err := read.CutMoment(c); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.Info, err = call.RequestInfo(c.HTTP); err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *server) of(t testing.TB, q *http.Request) fairqueue.Work { return s.costs.Of(s.call(t, q)) }

const (
	inA = "/apis/example.com/v1/namespaces/a/widgets"
	inB = "/apis/example.com/v1/namespaces/b/widgets"
	any = "/apis/example.com/v1/widgets"
)

// A list by a selector costs less once it has an index.
func TestListsByAnIndexTakeFewSeats(t *testing.T) {
	s := start(t)
	s.must(t, "POST", inB, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"special","labels":{"app":"special"}},"spec":{"color":"blue"}}`)
	for _, query := range []string{"?labelSelector=app%3Dspecial", "?fieldSelector=spec.color%3Dblue"} {
		before := s.of(t, request("GET", any+query, "")).Seats
		for range 2 { // a label gets its index when it is asked for again
			s.must(t, "GET", any+query, "")
		}
		if after := s.of(t, request("GET", any+query, "")).Seats; before < 4 || after != 1 {
			t.Errorf("%s takes %d seats, and then %d", query, before, after)
		}
		if past := s.of(t, request("GET", "/at/100"+any+query, "")).Seats; past < 2 {
			t.Errorf("%s of the past takes %d seats", query, past)
		}
	}
	// Selectors that select much, or are invalid, look at all objects.
	for _, query := range []string{"?fieldSelector=spec.color%3Dred", "?labelSelector=%3D%3D", "?fieldSelector=a%3Db%3Dc"} {
		_ = s.of(t, request("GET", any+query, ""))
		if seats := s.of(t, request("GET", any+query, "")).Seats; seats < 5 {
			t.Errorf("%s takes %d seats", query, seats)
		}
	}
}

// Lists and watches of views take seats by their rows; reads of the past, by the objects of which the rows are computed.
func TestReadsOfViewsTakeSeatsByTheirRows(t *testing.T) {
	s := start(t)
	tip := s.Committer.Tip()
	now := tip.Revision()
	const red, colors = "/apis/views.stele.dev/v1/red-widgets", "/apis/views.stele.dev/v1/widget-colors"
	if seats := s.of(t, request("GET", red, "")).Seats; seats < 6 {
		t.Errorf("a list of a view that is being computed takes %d seats", seats)
	}
	for _, rows := range tip.Policy.Views() {
		if _, err := s.views.State(t.Context(), tip, rows.Versions[0]); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, path  string
		least, most int
	}{
		{"list", red, 6, 14},
		{"list of a namespace", "/apis/views.stele.dev/v1/namespaces/b/red-widgets", 3, 7},
		{"page", red + "?limit=100", 1, 1},
		{"list by a label", red + "?labelSelector=a%3Db", 4, 10},
		{"list of groups", colors, 1, 1},
		{"get", "/apis/views.stele.dev/v1/namespaces/a/red-widgets/w00000", 1, 1},
		{"watch with initial events", red + "?watch=1", 10, 24},
		{"watch from now", fmt.Sprintf("%s?watch=1&resourceVersion=%d", red, now), 1, 1},
		{"list below /at", fmt.Sprintf("/at/%d%s", now-100, red), 80, 100},
		{"groups below /at", fmt.Sprintf("/at/%d%s", now-100, colors), 80, 100},
		{"group of an older revision", fmt.Sprintf("%s/red?resourceVersion=%d&resourceVersionMatch=Exact", colors, now-100), 80, 100},
		{"watch below /at", fmt.Sprintf("/at/%d%s?watch=1&resourceVersion=%d", now-50, red, now-100), 80, 100},
	} {
		if seats := s.of(t, request("GET", c.path, "")).Seats; seats < c.least || seats > c.most {
			t.Errorf("%s: %d seats, want %d to %d", c.name, seats, c.least, c.most)
		}
	}
}

// The seats of requests: the bounds leave room for other times, but not for another order.
func TestRequestsTakeSeatsByTheirWork(t *testing.T) {
	s := start(t)
	now := s.Committer.Tip().Revision()
	old := now - 100
	token, err := storage.EncodeContinue("/w00010\x00", "/", int64(now))
	if err != nil {
		t.Fatal(err)
	}
	oldToken, err := storage.EncodeContinue("/w00010\x00", "/", int64(1))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name        string
		q           *http.Request
		least, most int
	}{
		{"get", request("GET", inA+"/w00000", ""), 1, 1},
		{"get of a large object", request("GET", inA+"/large", ""), 5, 10},
		{"get of a large object as YAML", request("GET", inA+"/large", "", "Accept", "application/yaml"), 100, 100},
		{"get of an object that does not exist", request("GET", inA+"/none", ""), 1, 1},
		{"get in the past", request("GET", "/at/3"+inA+"/w00000", ""), 2, 4},
		{"list of a namespace", request("GET", inB, ""), 6, 14},
		{"list of all", request("GET", any, ""), 18, 35},
		{"list of all, compressed", request("GET", any, "", "Accept-Encoding", "gzip"), 80, 100},
		{"list of all, indented", request("GET", any+"?pretty=true", ""), 80, 100},
		{"list of all as a table", request("GET", any, "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"), 70, 100},
		{"list of all as CBOR", request("GET", any, "", "Accept", "application/cbor"), 100, 100},
		{"list of an empty namespace", request("GET", "/apis/example.com/v1/namespaces/empty/widgets", ""), 1, 1},
		{"list of a namespace that does not exist", request("GET", "/apis/example.com/v1/namespaces/none/widgets", ""), 1, 1},
		{"page", request("GET", inB+"?limit=100", ""), 1, 1},
		{"page with an escaped name", request("GET", inB+"?%6cimit=100", ""), 1, 1},
		{"the first limit counts", request("GET", inB+"?limit=100&limit=5000", ""), 1, 1},
		{"a limit is ignored with resourceVersion=0", request("GET", inB+"?limit=100&resourceVersion=0", ""), 6, 14},
		{"page from a token", request("GET", inB+"?limit=100&continue="+token, ""), 1, 2},
		{"page from an old token", request("GET", inB+"?limit=100&continue="+oldToken, ""), 100, 100},
		{"page from a broken token", request("GET", inB+"?limit=100&continue=%%%", ""), 1, 1},
		{"list by labels", request("GET", inB+"?labelSelector=a%3Db", ""), 4, 9},
		{"list by one name", request("GET", inB+"?fieldSelector=metadata.name%3Dw00001", ""), 1, 1},
		{"list by one name in all namespaces", request("GET", any+"?fieldSelector=metadata.name%3Dw00001", ""), 1, 1},
		{"list of a recent revision", request("GET", fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", inB, old), ""), 6, 14},
		{"list of a recent revision below /at", request("GET", fmt.Sprintf("/at/%d%s", old, inB), ""), 7, 16},
		{"list of a time", request("GET", "/at/2026-01-01T00:00:00Z"+inB, ""), 100, 100},
		{"watch from now", request("GET", fmt.Sprintf("%s?watch=1&resourceVersion=%d", inB, now), ""), 1, 1},
		{"watch with initial events", request("GET", inB+"?watch=1", ""), 8, 20},
		{"watch list", request("GET", inB+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", ""), 8, 20},
		{"watch of one name", request("GET", inB+"?watch=1&fieldSelector=metadata.name%3Dw00001", ""), 1, 1},
		{"watch from a recent revision", request("GET", fmt.Sprintf("%s?watch=1&resourceVersion=%d", inB, now-1000), ""), 2, 6},
		{"create", request("POST", inB, `{}`), 1, 1},
		{"create of a large object", request("POST", inB, text), 45, 70},
		{"update of a small object", request("PUT", inB+"/w00001", `{}`), 1, 1},
		{"patch of a small object", request("PATCH", inB+"/w00001", `{}`), 1, 1},
		{"patch of a large object", request("PATCH", inA+"/large", `{}`, "Content-Type", "application/merge-patch+json"), 45, 70},
		{"apply to a large object", request("PATCH", inA+"/large", `{}`, "Content-Type", "application/apply-patch+yaml"), 100, 100},
		{"status of a large object", request("PATCH", inA+"/large/status", `{}`, "Content-Type", "application/merge-patch+json"), 45, 70},
		{"delete of a large object", request("DELETE", inA+"/large", ""), 1, 1},
		{"deletecollection", request("DELETE", inB, ""), 100, 100},
		{"deletecollection of an empty namespace", request("DELETE", "/apis/example.com/v1/namespaces/empty/widgets", ""), 1, 1},
		{"a resource that is not served", request("GET", "/apis/example.com/v1/gadgets", ""), 1, 1},
		{"page of changes", request("GET", "/apis/log.stele.dev/v1/changes?limit=10", ""), 2, 4},
		{"all changes", request("GET", "/apis/log.stele.dev/v1/changes", ""), 100, 100},
		{"metrics", request("GET", "/metrics", ""), 5, 10},
		{"health", request("GET", "/readyz", ""), 1, 1},
		{"discovery", request("GET", "/apis", ""), 1, 1},
		{"a route", request("GET", "/log/verify", ""), 100, 100},
	} {
		w := s.of(t, c.q)
		if w.Seats < c.least || w.Seats > c.most {
			t.Errorf("%s: %d seats, want %d to %d", c.name, w.Seats, c.least, c.most)
		}
		if w.FinalSeats != 0 || w.After != 0 {
			t.Errorf("%s: %d final seats for %v, and there are no watchers", c.name, w.FinalSeats, w.After)
		}
	}
}

// A body whose size the client does not say is not free.
func TestABodyOfUnknownSizeCosts(t *testing.T) {
	s := start(t)
	q := request("POST", inB, "{}")
	q.ContentLength = -1
	if w := s.of(t, q); w.Seats < 2 {
		t.Errorf("%d seats", w.Seats)
	}
}

// Writes keep final seats for the watchers that they reach, and for no others.
func TestWritesKeepSeatsForTheirWatchers(t *testing.T) {
	s := start(t)
	watch := func(n int, sel objects.Selection) {
		for range n {
			w, err := s.Committer.Objects().Watch(widgets, sel, s.Committer.Tip().Revision())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Stop)
		}
	}
	watch(20, objects.Selection{Namespace: "b"})
	if w := s.of(t, request("POST", inB, "{}")); w.FinalSeats != 0 {
		t.Errorf("20 watchers: %+v", w)
	}
	watch(980, objects.Selection{Namespace: "b"})
	w := s.of(t, request("POST", inB, "{}"))
	if w.Seats != 1 || w.FinalSeats != 10 || w.After < 20*time.Millisecond || w.After > 200*time.Millisecond {
		t.Errorf("1,000 watchers: %+v", w)
	}
	if w := s.of(t, request("POST", inA, "{}")); w.FinalSeats != 0 {
		t.Errorf("no watchers in this namespace: %+v", w)
	}
	if w := s.of(t, request("GET", inB+"/w00001", "")); w.FinalSeats != 0 {
		t.Errorf("a read: %+v", w)
	}
	watch(9000, objects.Selection{})
	if w := s.of(t, request("DELETE", inB+"/w00001", "")); w.FinalSeats != 10 || w.After < 200*time.Millisecond || w.After > time.Second {
		t.Errorf("10,000 watchers: %+v", w)
	}
}

func BenchmarkOf(b *testing.B) {
	s := start(b)
	for _, c := range []struct {
		name string
		q    *http.Request
	}{
		{"get", request("GET", inB+"/w00001", "")},
		{"get=beside-large", request("GET", inA+"/w00000", "")},
		{"create", request("POST", inB, `{}`)},
		{"update", request("PUT", inB+"/w00001", `{}`)},
		{"list", request("GET", inB, "", "Accept-Encoding", "gzip")},
		{"list=page", request("GET", inB+"?limit=500&resourceVersion=0", "")},
		{"watch", request("GET", inB+"?allowWatchBookmarks=true&resourceVersion=20&timeoutSeconds=300&watch=true", "")},
	} {
		b.Run(c.name, func(b *testing.B) {
			x := s.call(b, c.q.WithContext(context.Background()))
			b.ReportAllocs()
			for b.Loop() {
				s.costs.Of(x)
			}
		})
	}
}
