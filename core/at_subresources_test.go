package core_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// everyMemory runs a test on a replica that remembers all, and on one that has it from history.
func everyMemory(t *testing.T, policy string, test func(t *testing.T, p *replica)) {
	t.Helper()
	for name, historyBytes := range map[string]int{"from memory": 0, "from history": 1} {
		t.Run(name, func(t *testing.T) {
			var store memlog.Store
			p := start(t, store.Open(nil), historyBytes)
			p.bootstrap(t, policy)
			test(t, p)
		})
	}
}

// expectThen holds that each path is answered for a revision as it was, at today's address and
// below /at.
func expectThen(t *testing.T, p *replica, revision uint64, was map[string]answer, header ...string) {
	t.Helper()
	for path, want := range was {
		for _, then := range []string{exactAt(path, revision), belowAt(revision, path)} {
			if got := p.must(t, 200, "GET", then, "", header...); string(got.body) != string(want.body) {
				t.Errorf("%s:\n%s\nwas\n%s", then, got.body, want.body)
			}
		}
	}
}

// What is said of an object at its subresources, is said of what it was.
func TestSubresourcesOfThen(t *testing.T) {
	otherPath := strings.Replace(scaled, `statusReplicasPath: ".status.replicas"`, `statusReplicasPath: ".status.others"`, 1)
	otherPath = strings.Replace(otherPath, "status?: {replicas?: int", "status?: {replicas?: int, others?: int", 1)
	everyMemory(t, bundle, func(t *testing.T, p *replica) {
		p.must(t, 201, "POST", widgetsPath, widget("plain", 1))
		unscaled := p.committer.Tip().Revision()
		p.activate(t, scaled)
		p.must(t, 201, "POST", widgetsPath, scaledWidget("a", `,"replicas":3`))
		p.must(t, 200, "PATCH", widgetsPath+"/a/status", `{"status":{"replicas":2,"selector":"app=a"}}`, "Content-Type", mergePatch)
		then := p.committer.Tip().Revision()
		was := map[string]answer{}
		for _, path := range []string{widgetsPath + "/a/status", widgetsPath + "/a/scale"} {
			was[path] = p.must(t, 200, "GET", path, "")
		}
		if n := was[widgetsPath+"/a/scale"]; n.field("kind") != "Scale" || n.field("spec", "replicas") != 3.0 || n.field("status", "replicas") != 2.0 {
			t.Fatalf("the scale is %s", n)
		}
		p.must(t, 200, "PATCH", widgetsPath+"/a/scale", `{"spec":{"replicas":9}}`, "Content-Type", mergePatch)
		p.must(t, 200, "PATCH", widgetsPath+"/a/status", `{"status":{"replicas":8}}`, "Content-Type", mergePatch)
		expectThen(t, p, then, was)

		// Below /at it is the policy of then that knows where the numbers stand, and whether there are any.
		p.activate(t, otherPath)
		for path, want := range was {
			if got := p.must(t, 200, "GET", belowAt(then, path), ""); string(got.body) != string(want.body) {
				t.Errorf("where the policy is another one today, %s\nwas %s", got, want)
			}
		}
		p.must(t, 404, "GET", belowAt(unscaled, widgetsPath+"/plain/scale"), "")
		p.must(t, 200, "GET", belowAt(unscaled, widgetsPath+"/plain/status"), "")
		p.activate(t, bundle)
		p.must(t, 404, "GET", exactAt(widgetsPath+"/a/scale", then), "")
		for path, want := range was {
			if got := p.must(t, 200, "GET", belowAt(then, path), ""); string(got.body) != string(want.body) {
				t.Errorf("where there is no scale today, %s\nwas %s", got, want)
			}
		}

		// An object that is gone is there, and one that came later is not.
		p.must(t, 200, "DELETE", widgetsPath+"/a", "")
		p.must(t, 404, "GET", widgetsPath+"/a/status", "")
		p.must(t, 200, "GET", exactAt(widgetsPath+"/a/status", then), "")
		p.must(t, 404, "GET", exactAt(widgetsPath+"/a/status", unscaled), "")
		p.must(t, 405, "PUT", belowAt(then, widgetsPath+"/a/scale"), string(was[widgetsPath+"/a/scale"].body))
	})
}

// The subresources of the past are read with today's permission for them, and no other.
func TestSubresourcesOfThenTakeTheirOwnPermission(t *testing.T) {
	p := newScaledPlane(t)
	p.must(t, 201, "POST", widgetsPath, scaledWidget("a", `,"replicas":3`))
	then := p.committer.Tip().Revision()
	p.must(t, 200, "PATCH", widgetsPath+"/a/scale", `{"spec":{"replicas":9}}`, "Content-Type", mergePatch)
	scaler := []string{"Impersonate-User", "sally", "Impersonate-Group", "scalers"}
	for _, of := range []func(string) string{func(path string) string { return exactAt(path, then) }, func(path string) string { return belowAt(then, path) }} {
		if a := p.must(t, 200, "GET", of(widgetsPath+"/a/scale"), "", scaler...); a.field("spec", "replicas") != 3.0 {
			t.Errorf("%s", a)
		}
		p.must(t, 403, "GET", of(widgetsPath+"/a"), "", scaler...)
		p.must(t, 403, "GET", of(widgetsPath+"/a/status"), "", scaler...)
	}
}

// Events are shown by both of their groups as each showed them then.
func TestBothFacesOfEventsOfThen(t *testing.T) {
	everyMemory(t, bundle, func(t *testing.T, p *replica) {
		p.must(t, 201, "POST", coreEvents, oldStyle)
		p.must(t, 201, "POST", newEvents, newStyle)
		then := p.committer.Tip().Revision()
		was := map[string]answer{}
		for _, path := range []string{
			coreEvents, newEvents, "/apis/events.k8s.io/v1/events", newEvents + "/new", newEvents + "/old", coreEvents + "/new",
			newEvents + "?fieldSelector=regarding.name=w,reportingController=example.com/sizer", coreEvents + "?fieldSelector=reportingComponent=example.com/sizer",
		} {
			was[path] = p.must(t, 200, "GET", path, "")
		}
		if got := was[newEvents+"/new"].field("note"); got != "it has a size" {
			t.Fatalf("the note is %q", got)
		}
		p.must(t, 200, "PATCH", coreEvents+"/new", `{"message":"it has none"}`, "Content-Type", mergePatch)
		p.must(t, 200, "DELETE", newEvents+"/old", "")
		expectThen(t, p, then, was)
		for _, selector := range []string{"involvedObject.name=w", "source=sizer"} {
			p.must(t, 400, "GET", belowAt(then, newEvents+"?fieldSelector="+selector), "")
		}
		w := p.watch(t, belowAt(then, newEvents+"?watch=1&timeoutSeconds=1&fieldSelector=reportingController=example.com/sizer"))
		if e := w.next(t); e.Type != "ADDED" || e.Object["note"] != "it has a size" {
			t.Errorf("a watch of then: %v", e)
		}
		w.stop()
		w = p.watch(t, newEvents+fmt.Sprintf("?watch=1&resourceVersion=%d", then))
		for _, want := range []string{"MODIFIED new it has none", "DELETED old it has a size"} {
			e := w.next(t)
			if got := fmt.Sprintf("%s %v %v", e.Type, e.Object["metadata"].(map[string]any)["name"], e.Object["note"]); got != want {
				t.Errorf("a watch from then: %s, want %s", got, want)
			}
		}
		w.stop()
	})
}

// What is printed of them is relative to then.
func TestTablesOfSubresourcesAndFacesOfThen(t *testing.T) {
	planetest.Compile(t, scaled)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := start(t, store.Open(nil), 1)
		p.bootstrap(t, scaled)
		p.must(t, 201, "POST", widgetsPath, scaledWidget("a", `,"replicas":3`))
		p.must(t, 201, "POST", newEvents, strings.Replace(newStyle, "2026-01-02T03:04:05.000006Z", time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"), 1))
		time.Sleep(90 * time.Second)
		p.must(t, 201, "POST", widgetsPath, scaledWidget("b", `,"replicas":4`))
		then := p.committer.Tip().Revision()
		was := map[string]answer{}
		for _, path := range []string{widgetsPath + "/a/scale", widgetsPath + "/a/status", newEvents, coreEvents} {
			was[path] = p.must(t, 200, "GET", path, "", "Accept", tableForm)
		}
		time.Sleep(5 * time.Hour)
		p.must(t, 200, "PATCH", widgetsPath+"/a/scale", `{"spec":{"replicas":9}}`, "Content-Type", mergePatch)
		p.must(t, 200, "DELETE", newEvents, "")
		expectThen(t, p, then, was, "Accept", tableForm)
	})
}
