package core_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/eventlog/memlog"
)

// largeWidgets returns the bundle with a view of the widgets from a size on.
func largeWidgets(size int) string {
	return strings.Replace(bundle, `kinds: "plains.example.com"`, fmt.Sprintf(`views: "large-widgets": {kind: "widgets.example.com", version: "v1", filter: "object.spec.size >= %d"
			columns: size: {expression: "object.spec.size", type: "integer"}}
		kinds: "plains.example.com"`, size), 1)
}

// Reads of a view that is being computed wait for it, up to 10 seconds, and get 503 then. Watches of a view end with 410 when its
// definition changes.
func TestReadsOfAViewThatIsBeingComputed(t *testing.T) {
	const rows = "/apis/views.stele.dev/v1/large-widgets"
	synctest.Test(t, func(t *testing.T) {
		p := start(t, new(memlog.Store).Open(nil), 0)
		computed := make(chan struct{})
		p.HoldViews(computed)
		p.bootstrap(t, bundle)
		p.must(t, 201, "POST", widgetsPath, widget("small", 1))
		p.must(t, 201, "POST", widgetsPath, widget("large", 100))
		p.activate(t, largeWidgets(50))

		for _, query := range []string{"", "?watch=1", fmt.Sprintf("?watch=1&resourceVersion=%d", p.committer.Tip().Revision())} {
			began := time.Now()
			a := p.must(t, 503, "GET", rows+query, "")
			if waited := time.Since(began); waited != 10*time.Second || a.header.Get("Retry-After") == "" || !strings.Contains(a.String(), "the view large-widgets is being computed") {
				t.Errorf("after %s: %s %v", waited, a, a.header)
			}
		}
		answers := make(chan answer, 1)
		go func() { answers <- p.do("GET", rows, "") }()
		watches := make(chan *watching, 1)
		go func() {
			w, refused := p.tryWatch(t, rows+"?watch=1")
			if w == nil {
				t.Errorf("the watch: %s", refused)
			}
			watches <- w
		}()
		time.Sleep(5 * time.Second)
		close(computed)
		if a := <-answers; a.code != 200 || strings.Join(a.names(), " ") != "large" {
			t.Errorf("the list: %s", a)
		}
		w := <-watches
		if w == nil {
			return
		}
		if e := w.next(t); !strings.HasPrefix(e.String(), "ADDED large@") {
			t.Errorf("the first event: %s", e)
		}

		// A policy with the same view does not end the watch, and its rows stay; another definition does.
		p.activate(t, strings.Replace(largeWidgets(50), "readers", "others", 1))
		p.must(t, 201, "POST", widgetsPath, widget("more", 60))
		if e := w.next(t); !strings.HasPrefix(e.String(), "ADDED more@") {
			t.Errorf("after a policy with the same view: %s", e)
		}
		since := p.committer.Tip().Revision()
		p.activate(t, largeWidgets(70))
		if e := w.next(t); e.Type != "ERROR" || e.Object["code"] != 410.0 || e.Object["reason"] != "Expired" {
			t.Errorf("after another definition: %v", e)
		}
		<-w.ended
		if a := p.must(t, 200, "GET", rows, ""); strings.Join(a.names(), " ") != "large" {
			t.Errorf("the list by the new definition: %s", a)
		}
		again := p.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", rows, since))
		if e := again.next(t); e.Type != "ERROR" || e.Object["code"] != 410.0 {
			t.Errorf("a watch from before the change: %v", e)
		}
		<-again.ended
	})
}

// A list of a view of 10,000 objects, beside a list of the objects. A row has about half the bytes of its object.
func BenchmarkListOfAView(b *testing.B) {
	var store memlog.Store
	r := start(b, store.Open(nil), 0)
	r.bootstrap(b, largeWidgets(0))
	for i := range 10_000 {
		if a := r.do("POST", widgetsPath, widget(fmt.Sprintf("w%06d", i), 1+i%1000)); a.code != 201 {
			b.Fatal(a)
		}
	}
	for _, of := range []struct{ name, path string }{{"kind", widgetsPath}, {"view", "/apis/views.stele.dev/v1/namespaces/default/large-widgets"}} {
		for _, query := range []string{"", "?limit=500"} {
			b.Run(of.name+query, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					w := &discard{header: http.Header{}}
					if r.ServeHTTP(w, request("GET", of.path+query, "")); w.code != http.StatusOK {
						b.Fatal(w.code)
					}
					b.SetBytes(int64(w.n))
				}
			})
		}
	}
}

// A view that a new policy does not have is not served any more, and its watches end.
func TestAViewGoesAway(t *testing.T) {
	const rows = "/apis/views.stele.dev/v1/large-widgets"
	p := start(t, new(memlog.Store).Open(nil), 0)
	p.bootstrap(t, largeWidgets(50))
	p.must(t, 201, "POST", widgetsPath, widget("large", 100))
	w := p.watch(t, rows+"?watch=1")
	if e := w.next(t); !strings.HasPrefix(e.String(), "ADDED large@") {
		t.Errorf("the first event: %s", e)
	}
	p.activate(t, bundle)
	if e := w.next(t); e.Type != "ERROR" || e.Object["code"] != 410.0 && e.Object["code"] != 404.0 {
		t.Errorf("the watch: %v", e)
	}
	<-w.ended
	for _, path := range []string{rows, rows + "?watch=1", "/apis/views.stele.dev/v1/namespaces/default/large-widgets/large"} {
		p.must(t, 404, "GET", path, "")
	}
}
