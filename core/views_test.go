package core_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// Reads of a view that is being computed wait for it, up to 10 seconds, and get 503 then. Watches of a view end with 410 when its
// definition changes.
func TestReadsOfAViewThatIsBeingComputed(t *testing.T) {
	const rows = "/apis/views.stele.dev/v1/large-widgets"
	synctest.Test(t, func(t *testing.T) {
		p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
		computed := make(chan struct{})
		p.HoldViews(computed)
		p.Bootstrap(t, planetest.Bundle)
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("small", 1))
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("large", 100))
		p.Activate(t, planetest.LargeWidgets(50))

		for _, query := range []string{"", "?watch=1", fmt.Sprintf("?watch=1&resourceVersion=%d", p.Committer.Tip().Revision())} {
			began := time.Now()
			a := p.Must(t, 503, "GET", rows+query, "")
			if waited := time.Since(began); waited != 10*time.Second || a.Header.Get("Retry-After") == "" || !strings.Contains(a.String(), "the view large-widgets is being computed") {
				t.Errorf("after %s: %s %v", waited, a, a.Header)
			}
		}
		answers := make(chan planetest.Answer, 1)
		go func() { answers <- p.Do("GET", rows, "") }()
		watches := make(chan *planetest.Watching, 1)
		go func() {
			w, refused := p.TryWatch(t, rows+"?watch=1")
			if w == nil {
				t.Errorf("the watch: %s", refused)
			}
			watches <- w
		}()
		time.Sleep(5 * time.Second)
		close(computed)
		if a := <-answers; a.Code != 200 || strings.Join(a.Names(), " ") != "large" {
			t.Errorf("the list: %s", a)
		}
		w := <-watches
		if w == nil {
			return
		}
		if e := w.Next(t); !strings.HasPrefix(e.String(), "ADDED large@") {
			t.Errorf("the first event: %s", e)
		}

		// A policy with the same view does not end the watch, and its rows stay; another definition does.
		p.Activate(t, strings.Replace(planetest.LargeWidgets(50), "readers", "others", 1))
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("more", 60))
		if e := w.Next(t); !strings.HasPrefix(e.String(), "ADDED more@") {
			t.Errorf("after a policy with the same view: %s", e)
		}
		since := p.Committer.Tip().Revision()
		p.Activate(t, planetest.LargeWidgets(70))
		if e := w.Next(t); e.Type != "ERROR" || e.Object["code"] != 410.0 || e.Object["reason"] != "Expired" {
			t.Errorf("after another definition: %v", e)
		}
		<-w.Ended
		if a := p.Must(t, 200, "GET", rows, ""); strings.Join(a.Names(), " ") != "large" {
			t.Errorf("the list by the new definition: %s", a)
		}
		again := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", rows, since))
		if e := again.Next(t); e.Type != "ERROR" || e.Object["code"] != 410.0 {
			t.Errorf("a watch from before the change: %v", e)
		}
		<-again.Ended
	})
}

// A list of a view of 10,000 objects, beside a list of the objects. A row has about half the bytes of its object.
func BenchmarkListOfAView(b *testing.B) {
	var store memlog.Store
	r := planetest.StartReplica(b, store.Open(nil), 0)
	r.Bootstrap(b, planetest.LargeWidgets(0))
	for i := range 10_000 {
		if a := r.Do("POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprintf("w%06d", i), 1+i%1000)); a.Code != 201 {
			b.Fatal(a)
		}
	}
	for _, of := range []struct{ name, path string }{{"kind", planetest.WidgetsPath}, {"view", "/apis/views.stele.dev/v1/namespaces/default/large-widgets"}} {
		for _, query := range []string{"", "?limit=500"} {
			b.Run(of.name+query, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					w := &discard{header: http.Header{}}
					if r.ServeHTTP(w, planetest.Request("GET", of.path+query, "")); w.code != http.StatusOK {
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
	p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
	p.Bootstrap(t, planetest.LargeWidgets(50))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("large", 100))
	w := p.Watch(t, rows+"?watch=1")
	if e := w.Next(t); !strings.HasPrefix(e.String(), "ADDED large@") {
		t.Errorf("the first event: %s", e)
	}
	p.Activate(t, planetest.Bundle)
	if e := w.Next(t); e.Type != "ERROR" || e.Object["code"] != 410.0 && e.Object["code"] != 404.0 {
		t.Errorf("the watch: %v", e)
	}
	<-w.Ended
	for _, path := range []string{rows, rows + "?watch=1", "/apis/views.stele.dev/v1/namespaces/default/large-widgets/large"} {
		p.Must(t, 404, "GET", path, "")
	}
}
