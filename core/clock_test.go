package core_test

import (
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// startAt starts a replica on a machine whose clock is off by so much.
func startAt(t *testing.T, store *memlog.Store, off *atomic.Int64) *replica {
	t.Helper()
	r, err := tryStartWith(t.Context(), store.Open(nil), planetest.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(off.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const year = 365 * 24 * time.Hour

func below(at time.Time) string { return "/at/" + url.PathEscape(at.UTC().Format(time.RFC3339Nano)) }

// A clock that was ahead for one write does not spoil the times of all that follow.
func TestLogTimeIsRightAgainOnceTheClockIs(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted=%v", restarted), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var store memlog.Store
				var off atomic.Int64
				r := startAt(t, &store, &off)
				r.bootstrap(t, bundle)
				time.Sleep(time.Hour)
				r.must(t, 201, "POST", widgetsPath, widget("before", 1))
				time.Sleep(time.Hour)
				between := time.Now()
				off.Store(int64(year))
				ahead := r.must(t, 201, "POST", widgetsPath, widget("ahead", 1))
				off.Store(0)
				if restarted {
					r.close()
					r = startAt(t, &store, &off)
				}
				defer r.close()
				time.Sleep(time.Minute)
				if a := r.must(t, 200, "GET", below(time.Now().Add(-time.Second))+widgetsPath+"/ahead", ""); a.field("metadata", "resourceVersion") != ahead.field("metadata", "resourceVersion") {
					t.Errorf("now there is %s", a)
				}
				r.must(t, 404, "GET", below(between.Add(-time.Second))+widgetsPath+"/ahead", "")
				r.must(t, 200, "GET", below(between.Add(-time.Second))+widgetsPath+"/before", "")
				r.must(t, 201, "POST", widgetsPath, widget("after", 1))
				if late := time.Until(r.committer.Tip().Time).Abs(); late > time.Second {
					t.Errorf("log time is off by %v", late)
				}
				if a := r.must(t, 200, "GET", "/readyz?verbose", ""); a.code != 200 {
					t.Errorf("%s", a)
				}
				time.Sleep(time.Minute)
				r.must(t, 200, "GET", below(time.Now().Add(-time.Second))+widgetsPath+"/after", "")
			})
		})
	}
}

// A clock that is behind is not taken for right: nobody can tell which of the log's times were.
func TestAClockThatIsBehindIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var off atomic.Int64
		r := startAt(t, &store, &off)
		defer func() { r.close() }()
		r.bootstrap(t, bundle)
		time.Sleep(time.Hour)
		off.Store(int64(-year))
		time.Sleep(time.Minute)
		r.must(t, 201, "POST", widgetsPath, widget("a", 1))
		if err := r.committer.ClockHealth(); err == nil {
			t.Error("the clock is healthy")
		}
		if a := r.do("GET", below(time.Now().Add(time.Duration(off.Load())))+widgetsPath, ""); a.code != http.StatusGone && a.code != http.StatusServiceUnavailable {
			t.Errorf("a year ago: %s", a)
		}
		off.Store(0)
		time.Sleep(time.Minute)
		if err := r.committer.ClockHealth(); err != nil {
			t.Error(err)
		}
		r.must(t, 201, "POST", widgetsPath, widget("b", 1))
		if late := time.Until(r.committer.Tip().Time).Abs(); late > time.Second {
			t.Errorf("log time is off by %v", late)
		}
	})
}

// A log that was begun with a clock that was ahead is set right by an operator's order.
func TestAnOperatorAcceptsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var off atomic.Int64
		off.Store(int64(year))
		r := startAt(t, &store, &off)
		r.bootstrap(t, bundle)
		r.must(t, 201, "POST", widgetsPath, widget("a", 1))
		r.close()
		off.Store(0)
		r = startAt(t, &store, &off)
		defer func() { r.close() }()
		time.Sleep(time.Minute)
		if r.committer.ClockHealth() == nil {
			t.Error("a clock that is a year behind is healthy")
		}
		if a := r.do("GET", below(time.Now().Add(-time.Second))+widgetsPath, ""); a.code != http.StatusGone && a.code != http.StatusServiceUnavailable {
			t.Errorf("now: %s", a)
		}
		r.close()
		r, err := tryStartWith(t.Context(), store.Open(nil), planetest.Options{Config: plane.Config{AcceptClock: true}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		time.Sleep(time.Minute)
		if err := r.committer.ClockHealth(); err != nil {
			t.Error(err)
		}
		r.must(t, 200, "GET", below(time.Now().Add(-time.Second))+widgetsPath+"/a", "")
	})
}
