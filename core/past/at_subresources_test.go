package past_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// expectThen holds that each path is answered for a revision as it was, at today's address and
// below /at.
func expectThen(t *testing.T, p *planetest.Replica, revision uint64, was map[string]planetest.Answer, header ...string) {
	t.Helper()
	for path, want := range was {
		for _, then := range []string{planetest.ExactAt(path, revision), planetest.BelowAt(revision, path)} {
			if got := p.Must(t, 200, "GET", then, "", header...); string(got.Body) != string(want.Body) {
				t.Errorf("%s:\n%s\nwas\n%s", then, got.Body, want.Body)
			}
		}
	}
}

// What is said of an object at its subresources, is said of what it was.
func TestSubresourcesOfThen(t *testing.T) {
	otherPath := strings.Replace(planetest.Scaled, `statusReplicasPath: ".status.replicas"`, `statusReplicasPath: ".status.others"`, 1)
	otherPath = strings.Replace(otherPath, "status?: {replicas?: int", "status?: {replicas?: int, others?: int", 1)
	planetest.EveryMemory(t, planetest.Bundle, func(t *testing.T, p *planetest.Replica) {
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("plain", 1))
		unscaled := p.Committer.Tip().Revision()
		p.Activate(t, planetest.Scaled)
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("a", `,"replicas":3`))
		p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/status", `{"status":{"replicas":2,"selector":"app=a"}}`, "Content-Type", planetest.MergePatch)
		then := p.Committer.Tip().Revision()
		was := map[string]planetest.Answer{}
		for _, path := range []string{planetest.WidgetsPath + "/a/status", planetest.WidgetsPath + "/a/scale"} {
			was[path] = p.Must(t, 200, "GET", path, "")
		}
		if n := was[planetest.WidgetsPath+"/a/scale"]; n.Field("kind") != "Scale" || n.Field("spec", "replicas") != 3.0 || n.Field("status", "replicas") != 2.0 {
			t.Fatalf("the scale is %s", n)
		}
		p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/scale", `{"spec":{"replicas":9}}`, "Content-Type", planetest.MergePatch)
		p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/status", `{"status":{"replicas":8}}`, "Content-Type", planetest.MergePatch)
		expectThen(t, p, then, was)

		// Below /at it is the policy of then that knows where the numbers stand, and whether there are any.
		p.Activate(t, otherPath)
		for path, want := range was {
			if got := p.Must(t, 200, "GET", planetest.BelowAt(then, path), ""); string(got.Body) != string(want.Body) {
				t.Errorf("where the policy is another one today, %s\nwas %s", got, want)
			}
		}
		p.Must(t, 404, "GET", planetest.BelowAt(unscaled, planetest.WidgetsPath+"/plain/scale"), "")
		p.Must(t, 200, "GET", planetest.BelowAt(unscaled, planetest.WidgetsPath+"/plain/status"), "")
		p.Activate(t, planetest.Bundle)
		p.Must(t, 404, "GET", planetest.ExactAt(planetest.WidgetsPath+"/a/scale", then), "")
		for path, want := range was {
			if got := p.Must(t, 200, "GET", planetest.BelowAt(then, path), ""); string(got.Body) != string(want.Body) {
				t.Errorf("where there is no scale today, %s\nwas %s", got, want)
			}
		}

		// An object that is gone is there, and one that came later is not.
		p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")
		p.Must(t, 404, "GET", planetest.WidgetsPath+"/a/status", "")
		p.Must(t, 200, "GET", planetest.ExactAt(planetest.WidgetsPath+"/a/status", then), "")
		p.Must(t, 404, "GET", planetest.ExactAt(planetest.WidgetsPath+"/a/status", unscaled), "")
		p.Must(t, 405, "PUT", planetest.BelowAt(then, planetest.WidgetsPath+"/a/scale"), string(was[planetest.WidgetsPath+"/a/scale"].Body))
	})
}

// The subresources of the past are read with today's permission for them, and no other.
func TestSubresourcesOfThenTakeTheirOwnPermission(t *testing.T) {
	p := planetest.NewScaledPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("a", `,"replicas":3`))
	then := p.Committer.Tip().Revision()
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/scale", `{"spec":{"replicas":9}}`, "Content-Type", planetest.MergePatch)
	scaler := []string{"Impersonate-User", "sally", "Impersonate-Group", "scalers"}
	for _, of := range []func(string) string{func(path string) string { return planetest.ExactAt(path, then) }, func(path string) string { return planetest.BelowAt(then, path) }} {
		if a := p.Must(t, 200, "GET", of(planetest.WidgetsPath+"/a/scale"), "", scaler...); a.Field("spec", "replicas") != 3.0 {
			t.Errorf("%s", a)
		}
		p.Must(t, 403, "GET", of(planetest.WidgetsPath+"/a"), "", scaler...)
		p.Must(t, 403, "GET", of(planetest.WidgetsPath+"/a/status"), "", scaler...)
	}
}

// Events are shown by both of their groups as each showed them then.
func TestBothFacesOfEventsOfThen(t *testing.T) {
	planetest.EveryMemory(t, planetest.Bundle, func(t *testing.T, p *planetest.Replica) {
		p.Must(t, 201, "POST", planetest.CoreEvents, planetest.OldStyle)
		p.Must(t, 201, "POST", planetest.NewEvents, planetest.NewStyle)
		then := p.Committer.Tip().Revision()
		was := map[string]planetest.Answer{}
		for _, path := range []string{
			planetest.CoreEvents, planetest.NewEvents, "/apis/events.k8s.io/v1/events", planetest.NewEvents + "/new", planetest.NewEvents + "/old", planetest.CoreEvents + "/new",
			planetest.NewEvents + "?fieldSelector=regarding.name=w,reportingController=example.com/sizer", planetest.CoreEvents + "?fieldSelector=reportingComponent=example.com/sizer",
		} {
			was[path] = p.Must(t, 200, "GET", path, "")
		}
		if got := was[planetest.NewEvents+"/new"].Field("note"); got != "it has a size" {
			t.Fatalf("the note is %q", got)
		}
		p.Must(t, 200, "PATCH", planetest.CoreEvents+"/new", `{"message":"it has none"}`, "Content-Type", planetest.MergePatch)
		p.Must(t, 200, "DELETE", planetest.NewEvents+"/old", "")
		expectThen(t, p, then, was)
		for _, selector := range []string{"involvedObject.name=w", "source=sizer"} {
			p.Must(t, 400, "GET", planetest.BelowAt(then, planetest.NewEvents+"?fieldSelector="+selector), "")
		}
		w := p.Watch(t, planetest.BelowAt(then, planetest.NewEvents+"?watch=1&timeoutSeconds=1&fieldSelector=reportingController=example.com/sizer"))
		if e := w.Next(t); e.Type != "ADDED" || e.Object["note"] != "it has a size" {
			t.Errorf("a watch of then: %v", e)
		}
		w.Stop()
		w = p.Watch(t, planetest.NewEvents+fmt.Sprintf("?watch=1&resourceVersion=%d", then))
		for _, want := range []string{"MODIFIED new it has none", "DELETED old it has a size"} {
			e := w.Next(t)
			if got := fmt.Sprintf("%s %v %v", e.Type, e.Object["metadata"].(map[string]any)["name"], e.Object["note"]); got != want {
				t.Errorf("a watch from then: %s, want %s", got, want)
			}
		}
		w.Stop()
	})
}

// What is printed of them is relative to then.
func TestTablesOfSubresourcesAndFacesOfThen(t *testing.T) {
	planetest.Compile(t, planetest.Scaled)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := planetest.StartReplica(t, store.Open(nil), 1)
		p.Bootstrap(t, planetest.Scaled)
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("a", `,"replicas":3`))
		p.Must(t, 201, "POST", planetest.NewEvents, strings.Replace(planetest.NewStyle, "2026-01-02T03:04:05.000006Z", time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"), 1))
		time.Sleep(90 * time.Second)
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("b", `,"replicas":4`))
		then := p.Committer.Tip().Revision()
		was := map[string]planetest.Answer{}
		for _, path := range []string{planetest.WidgetsPath + "/a/scale", planetest.WidgetsPath + "/a/status", planetest.NewEvents, planetest.CoreEvents} {
			was[path] = p.Must(t, 200, "GET", path, "", "Accept", tableForm)
		}
		time.Sleep(5 * time.Hour)
		p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/scale", `{"spec":{"replicas":9}}`, "Content-Type", planetest.MergePatch)
		p.Must(t, 200, "DELETE", planetest.NewEvents, "")
		expectThen(t, p, then, was, "Accept", tableForm)
	})
}
