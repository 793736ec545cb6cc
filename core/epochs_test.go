package core_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"stele.dev/stele/eventlog/memlog"
)

// restored is a control plane that was restored from a backup: revisions from lost up to
// next, that one excluded, had been issued and are in no history any more.
type restored struct {
	*replica
	store      memlog.Store
	lost, next uint64
	token      string // of a page of before
}

func newRestored(t testing.TB) *restored {
	t.Helper()
	p := &restored{}
	p.replica = start(t, p.store.Open(nil), 0)
	p.bootstrap(t, bundle)
	fill(t, p.replica, 2)
	page := p.must(t, 200, "GET", widgetsPath+"?limit=1", "")
	p.token, _ = page.field("metadata", "continue").(string)
	p.startEpoch(t, 50)
	return p
}

// startEpoch declares as many revisions lost.
func (p *restored) startEpoch(t testing.TB, n uint64) {
	t.Helper()
	tip := p.committer.Tip().Head
	p.lost, p.next = tip.Revision+1, tip.Revision+1+n
	if started, newer, err := p.log.StartEpoch(t.Context(), tip, p.lost, p.next); err != nil || started == nil {
		t.Fatal(started, newer, err)
	}
}

// each runs a test on the replica that saw the epoch begin, and on one that starts later.
func (p *restored) each(t *testing.T, run func(*testing.T, *replica)) {
	t.Run("a replica that follows", func(t *testing.T) { run(t, p.replica) })
	t.Run("a replica that starts", func(t *testing.T) { run(t, start(t, p.store.Open(nil), 0)) })
}

func TestRevisionsGoOnAboveWhatWasLost(t *testing.T) {
	p := newRestored(t)
	p.each(t, func(t *testing.T, r *replica) {
		tip := revision(t, r.must(t, 200, "GET", widgetsPath, ""))
		if tip < p.next {
			t.Fatalf("lists are of revision %d, the epoch began at %d", tip, p.next)
		}
		name := fmt.Sprint("after-", tip)
		if got := revision(t, r.must(t, 201, "POST", widgetsPath, widget(name, 1))); got != tip+1 {
			t.Errorf("the first write has revision %d, want %d", got, tip+1)
		}
		// What was there stays, at the revisions of before.
		if got := revision(t, r.must(t, 200, "GET", widgetsPath+"/w00", "")); got >= p.lost {
			t.Errorf("an object of before is at revision %d", got)
		}
	})
}

// Who names a revision that was lost hears that it is gone, and can begin anew, as with one
// that is too old; that of an object which changed there is another one's.
func TestLostRevisionsAreGone(t *testing.T) {
	p := newRestored(t)
	roles := "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	p.each(t, func(t *testing.T, r *replica) {
		for _, lost := range []uint64{p.lost, p.lost + 1, p.next - 1} {
			for _, query := range []string{
				widgetsPath + "?resourceVersion=%d",
				widgetsPath + "?resourceVersion=%d&limit=1",
				widgetsPath + "?resourceVersion=%d&resourceVersionMatch=Exact",
				widgetsPath + "?resourceVersion=%d&resourceVersionMatch=NotOlderThan",
				widgetsPath + "/w00?resourceVersion=%d",
				roles + "?resourceVersion=%d",
				roles + "?resourceVersion=%d&resourceVersionMatch=Exact",
				roles + "/reader?resourceVersion=%d",
			} {
				path := fmt.Sprintf(query, lost)
				a := r.do("GET", path, "")
				if a.code != 410 || a.field("reason") != "Expired" || !strings.Contains(fmt.Sprint(a.field("message")), fmt.Sprintf("from %d on", p.next)) {
					t.Errorf("%s: %s; want 410, and where history goes on", path, a)
				}
			}
			for _, query := range []string{
				widgetsPath + "?watch=1&resourceVersion=%d",
				widgetsPath + "?watch=1&resourceVersion=%d&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
				roles + "?watch=1&resourceVersion=%d",
			} {
				path := fmt.Sprintf(query, lost)
				if e := r.watch(t, path).next(t); what([]watchEvent{e}) != "ERROR 410" {
					t.Errorf("%s: %v, want ERROR 410", path, e)
				}
			}
			if a := r.do("GET", fmt.Sprintf("/apis/log.stele.dev/v1/changes/%d", lost), ""); a.code != 404 {
				t.Errorf("change %d: %s, want 404", lost, a)
			}
			body := fmt.Sprintf(`{"metadata":{"name":"w00","resourceVersion":"%d"},"spec":{"size":9}}`, lost)
			if a := r.do("PUT", widgetsPath+"/w00", body); a.code != 409 {
				t.Errorf("an update of what was at revision %d: %s, want 409", lost, a)
			}
		}
	})
}

// Around what was lost all is as ever: exact, current, and what has not been issued.
func TestAroundWhatWasLost(t *testing.T) {
	p := newRestored(t)
	p.each(t, func(t *testing.T, r *replica) {
		tip := revision(t, r.must(t, 200, "GET", widgetsPath, ""))
		for _, row := range []struct {
			revision uint64
			match    string
			code     int
		}{
			{p.lost - 1, "NotOlderThan", 200}, {p.lost - 1, "Exact", 200},
			{p.next, "NotOlderThan", 200}, {p.next, "Exact", 200},
			{tip + 1, "NotOlderThan", 504}, {tip + 1, "Exact", 504},
		} {
			path := fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=%s", widgetsPath, row.revision, row.match)
			if a := r.do("GET", path, ""); a.code != row.code {
				t.Errorf("%s: %s, want %d", path, a, row.code)
			}
		}
	})
}

// A page of the last revision before is gone on with: it was not lost. A token of a revision
// that was is answered with one that goes on.
func TestPagesAcrossAnEpoch(t *testing.T) {
	p := newRestored(t)
	a := p.must(t, 200, "GET", widgetsPath+"?limit=1&continue="+url.QueryEscape(p.token), "")
	if got := strings.Join(a.names(), " "); got != "w01" || revision(t, a) != p.lost-1 {
		t.Errorf("the second page: %s at %d, want w01 at %d", got, revision(t, a), p.lost-1)
	}
	lost := token(fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"w00\u0000"}`, p.lost))
	a = p.must(t, 410, "GET", widgetsPath+"?limit=1&continue="+lost, "")
	next, _ := a.field("metadata", "continue").(string)
	a = p.must(t, 200, "GET", widgetsPath+"?limit=1&continue="+url.QueryEscape(next), "")
	if got := strings.Join(a.names(), " "); got != "w01" || revision(t, a) < p.next {
		t.Errorf("the page after: %s at %d, want w01 at %d or later", got, revision(t, a), p.next)
	}
}

// Watches see nothing of an epoch but that revisions jump.
func TestWatchesGoOnAcrossEpochs(t *testing.T) {
	p := newRestored(t)
	follower := start(t, p.store.Open(nil), 0)
	running := follower.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", widgetsPath, p.lost-1))
	changes := follower.watch(t, fmt.Sprintf("/apis/log.stele.dev/v1/changes?watch=1&resourceVersion=%d", p.lost-1))
	before := p.next
	p.must(t, 201, "POST", widgetsPath, widget("between", 1))
	p.startEpoch(t, 7)
	p.must(t, 201, "POST", widgetsPath, widget("later", 1))
	resumed := follower.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", widgetsPath, before-51))
	for name, w := range map[string]*watching{"one that runs": running, "one that resumes": resumed} {
		if got := what([]watchEvent{w.next(t), w.next(t)}); got != "ADDED between, ADDED later" {
			t.Errorf("%s: %s", name, got)
		}
	}
	var seen []string
	for range 4 {
		e := changes.next(t)
		seen = append(seen, fmt.Sprint(e.Object["revision"], " ", e.Object["type"]))
	}
	want := fmt.Sprintf("%d EpochStarted, %d Created, %d EpochStarted, %d Created", before, before+1, p.next, p.next+1)
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("the log is seen as %s, want %s", got, want)
	}
}

// The log reads backwards across the gap.
func TestChangesAcrossAnEpoch(t *testing.T) {
	p := newRestored(t)
	p.must(t, 201, "POST", widgetsPath, widget("later", 1))
	want := fmt.Sprintf("%d %d %d", p.next+1, p.next, p.lost-1)
	if got := strings.Join(p.must(t, 200, "GET", "/apis/log.stele.dev/v1/changes?limit=3", "").names(), " "); got != want {
		t.Errorf("the newest changes are %s, want %s", got, want)
	}
}

// A policy comes in force in an epoch, and one that was before stays.
func TestPoliciesAcrossEpochs(t *testing.T) {
	p := newRestored(t)
	editor := []string{"Authorization", "Bearer editor-token"}
	p.must(t, 201, "POST", widgetsPath, widget("by-an-editor", 1), editor...)
	p.startEpoch(t, 3)
	p.activate(t, lockedOut)
	p.each(t, func(t *testing.T, r *replica) {
		r.must(t, http.StatusForbidden, "POST", widgetsPath, widget("by-an-editor-again", 1), editor...)
		if got := r.must(t, 200, "GET", widgetsPath+"/w00", "").field("spec", "grade"); got != "a" {
			t.Errorf("the new policy's default is %v", got)
		}
	})
}
