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
func startAt(t *testing.T, store *memlog.Store, off *atomic.Int64) *planetest.Replica {
	t.Helper()
	r, err := planetest.OpenReplicaWith(t.Context(), store.Open(nil), planetest.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(off.Load())) }})
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
				r.Bootstrap(t, planetest.Bundle)
				time.Sleep(time.Hour)
				r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("before", 1))
				time.Sleep(time.Hour)
				between := time.Now()
				off.Store(int64(year))
				ahead := r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("ahead", 1))
				off.Store(0)
				if restarted {
					r.Close()
					r = startAt(t, &store, &off)
				}
				defer r.Close()
				time.Sleep(time.Minute)
				if a := r.Must(t, 200, "GET", below(time.Now().Add(-time.Second))+planetest.WidgetsPath+"/ahead", ""); a.Field("metadata", "resourceVersion") != ahead.Field("metadata", "resourceVersion") {
					t.Errorf("now there is %s", a)
				}
				r.Must(t, 404, "GET", below(between.Add(-time.Second))+planetest.WidgetsPath+"/ahead", "")
				r.Must(t, 200, "GET", below(between.Add(-time.Second))+planetest.WidgetsPath+"/before", "")
				r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("after", 1))
				if late := time.Until(r.Committer.Tip().Time).Abs(); late > time.Second {
					t.Errorf("log time is off by %v", late)
				}
				if a := r.Must(t, 200, "GET", "/readyz?verbose", ""); a.Code != 200 {
					t.Errorf("%s", a)
				}
				time.Sleep(time.Minute)
				r.Must(t, 200, "GET", below(time.Now().Add(-time.Second))+planetest.WidgetsPath+"/after", "")
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
		defer func() { r.Close() }()
		r.Bootstrap(t, planetest.Bundle)
		time.Sleep(time.Hour)
		off.Store(int64(-year))
		time.Sleep(time.Minute)
		r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
		if err := r.Committer.ClockHealth(); err == nil {
			t.Error("the clock is healthy")
		}
		if a := r.Do("GET", below(time.Now().Add(time.Duration(off.Load())))+planetest.WidgetsPath, ""); a.Code != http.StatusGone && a.Code != http.StatusServiceUnavailable {
			t.Errorf("a year ago: %s", a)
		}
		off.Store(0)
		time.Sleep(time.Minute)
		if err := r.Committer.ClockHealth(); err != nil {
			t.Error(err)
		}
		r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
		if late := time.Until(r.Committer.Tip().Time).Abs(); late > time.Second {
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
		r.Bootstrap(t, planetest.Bundle)
		r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
		r.Close()
		off.Store(0)
		r = startAt(t, &store, &off)
		defer func() { r.Close() }()
		time.Sleep(time.Minute)
		if r.Committer.ClockHealth() == nil {
			t.Error("a clock that is a year behind is healthy")
		}
		if a := r.Do("GET", below(time.Now().Add(-time.Second))+planetest.WidgetsPath, ""); a.Code != http.StatusGone && a.Code != http.StatusServiceUnavailable {
			t.Errorf("now: %s", a)
		}
		r.Close()
		r, err := planetest.OpenReplicaWith(t.Context(), store.Open(nil), planetest.Options{Config: plane.Config{AcceptClock: true}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		time.Sleep(time.Minute)
		if err := r.Committer.ClockHealth(); err != nil {
			t.Error(err)
		}
		r.Must(t, 200, "GET", below(time.Now().Add(-time.Second))+planetest.WidgetsPath+"/a", "")
	})
}
