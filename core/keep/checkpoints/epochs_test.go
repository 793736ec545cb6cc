package checkpoints_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// each runs a test on the replica that saw the epoch begin, and on one that starts later.
func each(p *planetest.Restored, t *testing.T, run func(*testing.T, *planetest.Replica)) {
	t.Run("a replica that follows", func(t *testing.T) { run(t, p.Replica) })
	t.Run("a replica that starts", func(t *testing.T) { run(t, planetest.StartReplica(t, p.Store.Open(nil), 0)) })
}

func TestRevisionsGoOnAboveWhatWasLost(t *testing.T) {
	p := planetest.NewRestored(t)
	each(p, t, func(t *testing.T, r *planetest.Replica) {
		tip := planetest.Revision(t, r.Must(t, 200, "GET", planetest.WidgetsPath, ""))
		if tip < p.Next {
			t.Fatalf("lists are of revision %d, the epoch began at %d", tip, p.Next)
		}
		name := fmt.Sprint("after-", tip)
		if got := planetest.Revision(t, r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(name, 1))); got != tip+1 {
			t.Errorf("the first write has revision %d, want %d", got, tip+1)
		}
		// What was there stays, at the revisions of before.
		if got := planetest.Revision(t, r.Must(t, 200, "GET", planetest.WidgetsPath+"/w00", "")); got >= p.Lost {
			t.Errorf("an object of before is at revision %d", got)
		}
	})
}

// Who names a revision that was lost hears that it is gone, and can begin anew, as with one
// that is too old; that of an object which changed there is another one's.
func TestLostRevisionsAreGone(t *testing.T) {
	p := planetest.NewRestored(t)
	roles := "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	each(p, t, func(t *testing.T, r *planetest.Replica) {
		for _, lost := range []uint64{p.Lost, p.Lost + 1, p.Next - 1} {
			for _, query := range []string{
				planetest.WidgetsPath + "?resourceVersion=%d",
				planetest.WidgetsPath + "?resourceVersion=%d&limit=1",
				planetest.WidgetsPath + "?resourceVersion=%d&resourceVersionMatch=Exact",
				planetest.WidgetsPath + "?resourceVersion=%d&resourceVersionMatch=NotOlderThan",
				planetest.WidgetsPath + "/w00?resourceVersion=%d",
				roles + "?resourceVersion=%d",
				roles + "?resourceVersion=%d&resourceVersionMatch=Exact",
				roles + "/reader?resourceVersion=%d",
			} {
				path := fmt.Sprintf(query, lost)
				a := r.Do("GET", path, "")
				if a.Code != 410 || a.Field("reason") != "Expired" || !strings.Contains(fmt.Sprint(a.Field("message")), fmt.Sprintf("from %d on", p.Next)) {
					t.Errorf("%s: %s; want 410, and where history goes on", path, a)
				}
			}
			for _, query := range []string{
				planetest.WidgetsPath + "?watch=1&resourceVersion=%d",
				planetest.WidgetsPath + "?watch=1&resourceVersion=%d&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
				roles + "?watch=1&resourceVersion=%d",
			} {
				path := fmt.Sprintf(query, lost)
				if e := r.Watch(t, path).Next(t); planetest.What([]planetest.WatchEvent{e}) != "ERROR 410" {
					t.Errorf("%s: %v, want ERROR 410", path, e)
				}
			}
			if a := r.Do("GET", fmt.Sprintf("/apis/log.stele.dev/v1/changes/%d", lost), ""); a.Code != 404 {
				t.Errorf("change %d: %s, want 404", lost, a)
			}
			body := fmt.Sprintf(`{"metadata":{"name":"w00","resourceVersion":"%d"},"spec":{"size":9}}`, lost)
			if a := r.Do("PUT", planetest.WidgetsPath+"/w00", body); a.Code != 409 {
				t.Errorf("an update of what was at revision %d: %s, want 409", lost, a)
			}
		}
	})
}

// Around what was lost all is as ever: exact, current, and what has not been issued.
func TestAroundWhatWasLost(t *testing.T) {
	p := planetest.NewRestored(t)
	each(p, t, func(t *testing.T, r *planetest.Replica) {
		tip := planetest.Revision(t, r.Must(t, 200, "GET", planetest.WidgetsPath, ""))
		for _, row := range []struct {
			revision uint64
			match    string
			code     int
		}{
			{p.Lost - 1, "NotOlderThan", 200}, {p.Lost - 1, "Exact", 200},
			{p.Next, "NotOlderThan", 200}, {p.Next, "Exact", 200},
			{tip + 1, "NotOlderThan", 504}, {tip + 1, "Exact", 504},
		} {
			path := fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=%s", planetest.WidgetsPath, row.revision, row.match)
			if a := r.Do("GET", path, ""); a.Code != row.code {
				t.Errorf("%s: %s, want %d", path, a, row.code)
			}
		}
	})
}

// A page of the last revision before is gone on with: it was not lost. A token of a revision
// that was is answered with one that goes on.
func TestPagesAcrossAnEpoch(t *testing.T) {
	p := planetest.NewRestored(t)
	a := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=1&continue="+url.QueryEscape(p.Token), "")
	if got := strings.Join(a.Names(), " "); got != "w01" || planetest.Revision(t, a) != p.Lost-1 {
		t.Errorf("the second page: %s at %d, want w01 at %d", got, planetest.Revision(t, a), p.Lost-1)
	}
	lost := planetest.Token(fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"w00\u0000"}`, p.Lost))
	a = p.Must(t, 410, "GET", planetest.WidgetsPath+"?limit=1&continue="+lost, "")
	next, _ := a.Field("metadata", "continue").(string)
	a = p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=1&continue="+url.QueryEscape(next), "")
	if got := strings.Join(a.Names(), " "); got != "w01" || planetest.Revision(t, a) < p.Next {
		t.Errorf("the page after: %s at %d, want w01 at %d or later", got, planetest.Revision(t, a), p.Next)
	}
}

// Watches see nothing of an epoch but that revisions jump.
func TestWatchesGoOnAcrossEpochs(t *testing.T) {
	p := planetest.NewRestored(t)
	follower := planetest.StartReplica(t, p.Store.Open(nil), 0)
	running := follower.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", planetest.WidgetsPath, p.Lost-1))
	changes := follower.Watch(t, fmt.Sprintf("/apis/log.stele.dev/v1/changes?watch=1&resourceVersion=%d", p.Lost-1))
	before := p.Next
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("between", 1))
	p.StartEpoch(t, 7)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("later", 1))
	resumed := follower.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", planetest.WidgetsPath, before-51))
	for name, w := range map[string]*planetest.Watching{"one that runs": running, "one that resumes": resumed} {
		if got := planetest.What([]planetest.WatchEvent{w.Next(t), w.Next(t)}); got != "ADDED between, ADDED later" {
			t.Errorf("%s: %s", name, got)
		}
	}
	var seen []string
	for range 4 {
		e := changes.Next(t)
		seen = append(seen, fmt.Sprint(e.Object["revision"], " ", e.Object["type"]))
	}
	want := fmt.Sprintf("%d EpochStarted, %d Created, %d EpochStarted, %d Created", before, before+1, p.Next, p.Next+1)
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("the log is seen as %s, want %s", got, want)
	}
}

// The log reads backwards across the gap.
func TestChangesAcrossAnEpoch(t *testing.T) {
	p := planetest.NewRestored(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("later", 1))
	want := fmt.Sprintf("%d %d %d", p.Next+1, p.Next, p.Lost-1)
	if got := strings.Join(p.Must(t, 200, "GET", "/apis/log.stele.dev/v1/changes?limit=3", "").Names(), " "); got != want {
		t.Errorf("the newest changes are %s, want %s", got, want)
	}
}

// A policy comes in force in an epoch, and one that was before stays.
func TestPoliciesAcrossEpochs(t *testing.T) {
	p := planetest.NewRestored(t)
	editor := []string{"Authorization", "Bearer editor-token"}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("by-an-editor", 1), editor...)
	p.StartEpoch(t, 3)
	p.Activate(t, planetest.LockedOut)
	each(p, t, func(t *testing.T, r *planetest.Replica) {
		r.Must(t, http.StatusForbidden, "POST", planetest.WidgetsPath, planetest.Widget("by-an-editor-again", 1), editor...)
		if got := r.Must(t, 200, "GET", planetest.WidgetsPath+"/w00", "").Field("spec", "grade"); got != "a" {
			t.Errorf("the new policy's default is %v", got)
		}
	})
}
