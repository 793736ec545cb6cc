package views_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy/views"
	"stele.dev/stele/projections/objects"
)

// computing returns a world with three databases and the view big-databases, in which a policy with database-engines, too, has come
// into force. That view is computed once proceed is closed.
func computing(t *testing.T) (w *world, proceed chan struct{}) {
	t.Helper()
	first, second := load(t, fmt.Sprintf(bigFrom, 50)), load(t, fmt.Sprintf(bigFrom, 50)+engines)
	w = newWorld(t)
	w.activate(first, 50, false, false)
	for i, engine := range []string{"mysql", "postgres", "mysql"} {
		w.put(database{namespace: "a", name: fmt.Sprint("d", i), engine: engine, gigabytes: 10 * (i + 4)})
	}
	w.check()
	proceed = make(chan struct{})
	w.show = func(json []byte) []byte { <-proceed; return json }
	w.activate(second, 50, true, false)
	return w, proceed
}

func (w *world) rows(v *views.View) []string {
	w.t.Helper()
	state, err := w.State(w.t.Context(), w.snapshot(), v)
	if err != nil {
		w.t.Fatal(err)
	}
	return rowTexts(v, state)
}

// A page of one view keeps the rows of all. A view that is computed later at the same revision has its rows all the same.
func TestAPinnedStateIsNotOfAViewComputedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, proceed := computing(t)
		s, big, engines := w.snapshot(), w.view("big-databases"), w.view("database-engines")
		state, err := w.State(t.Context(), s, big)
		if err != nil {
			t.Fatal(err)
		}
		w.Pin(state)
		close(proceed)
		want := w.rows(engines)
		w.put(database{namespace: "a", name: "later", engine: "redis", gigabytes: 1})
		then, ok := w.Recent(w.snapshot(), engines, s.Revision)
		if !ok {
			t.Fatal("the rows are not in memory")
		}
		if d := gocmp.Diff(want, rowTexts(engines, then)); d != "" || len(want) != 2 {
			t.Errorf("the rows at the revision of the page (-want +got):\n%s", d)
		}
		if then, ok = w.Recent(w.snapshot(), big, s.Revision); !ok || len(rowTexts(big, then)) != 2 {
			t.Error("the pinned rows of the other view are gone")
		}
	})
}

// A read that waits for a view is answered although another policy with the same view has come into force meanwhile.
func TestAReadWaitsForAViewThroughAChangeOfPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, proceed := computing(t)
		s, v := w.snapshot(), w.view("database-engines")
		began := time.Now()
		waited := make(chan time.Duration)
		go func() {
			if _, err := w.State(t.Context(), s, v); err != nil {
				t.Error(err)
			}
			waited <- time.Since(began)
		}()
		synctest.Wait()
		w.activate(load(t, fmt.Sprintf(bigFrom, 50)+engines), 50, true, false)
		w.Advance(w.snapshot())
		synctest.Wait()
		close(proceed)
		if d := <-waited; d != 0 {
			t.Errorf("the read waited for %s", d)
		}
		w.check()
	})
}

// A write that changes nothing of a group leaves its row as it is, and watches of it get no event.
func TestAGroupThatStaysIsNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.activate(load(t, engines), 0, true, false)
		is := database{namespace: "a", name: "d", engine: "mysql", gigabytes: 10, owner: "ann"}
		w.put(is)
		v := w.view("database-engines")
		w.rows(v)
		s := w.snapshot()
		watcher, err := w.Watch(s, v, objects.Selection{}, s.Revision, false)
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Stop()
		is.owner = "bob" // the owners are counted, and not shown
		w.put(is)
		is.gigabytes = 11
		w.put(is)
		w.rows(v)
		events, bookmark, _, err := watcher.Take()
		if err != nil || len(events) != 1 || events[0].Object.Revision != w.snapshot().Revision || bookmark != w.snapshot().Revision {
			t.Errorf("the watch got %v up to revision %d, %v", events, bookmark, err)
		}
	})
}

// An expression may read a field, and another one the whole object.
func TestAViewOfWholeObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.activate(load(t, `"owners": {kind: "databases.data.example.com", version: "v1"
			columns: {engine: {expression: "object.spec.engine", type: "string"}, owner: {expression: "dyn(object).spec.owner", type: "string"}}}
`), 0, false, false)
		w.put(database{namespace: "a", name: "d", engine: "mysql", gigabytes: 10, owner: "ann"})
		if d := gocmp.Diff([]string{`a/d@2 {"engine":"mysql","owner":"ann"}`}, w.rows(w.view("owners"))); d != "" {
			t.Errorf("the rows (-want +got):\n%s", d)
		}
	})
}

// Rows, and their recent changes, keep nothing of past objects in memory.
func TestRowsKeepNoObjects(t *testing.T) {
	w := newWorld(t)
	w.was, w.store = nil, objects.New(3<<20)
	w.restart()
	w.activate(load(t, fmt.Sprintf(bigFrom, 0)+engines), 0, true, false)
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	is := database{namespace: "a", name: "d", engine: "mysql", gigabytes: 10}
	before := used()
	for i := range 40 {
		is.gigabytes, is.note = i, strings.Repeat("x", 1<<20)
		w.put(is)
		w.rows(w.view("big-databases"))
	}
	is.engine = ""
	w.put(is)
	w.rows(w.view("database-engines"))
	more := used() - before
	if int64(more) > 12<<20 {
		t.Errorf("after 40 writes of an object of 1 MiB, which is deleted, %d KiB are in use", more>>10)
	}
	runtime.KeepAlive(w)
}
