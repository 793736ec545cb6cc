package edit_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// Each object of a collection is deleted by itself, with an event that says by which rule.
func TestDeleteCollection(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Fill(t, 3, 2)
	before := p.Committer.Tip().Revision()
	a := p.Must(t, 200, "DELETE", planetest.WidgetsPath+"?labelSelector=app%3Dx", "", "Authorization", "Bearer editor-token")
	if a.Field("kind") != "WidgetList" || a.Field("metadata", "resourceVersion") != fmt.Sprint(before) {
		t.Errorf("answered with %s", a)
	}
	if diff := cmp.Diff([]string{"r0", "r1", "r2"}, a.Sorted()); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b0", "b1"}, p.Must(t, 200, "GET", planetest.WidgetsPath, "").Sorted()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	var deleted []string
	for _, e := range p.Events(t, before) {
		m := e.Meta
		if m.Type != logpb.Type_TYPE_DELETED || m.Request.Verb != "deletecollection" || m.Actor.User != "eddie" || m.Decisions.Rule != "t/bindings/editors" || m.Object.Uid == "" {
			t.Errorf("event %v", m)
		}
		deleted = append(deleted, m.Object.Name)
	}
	if slices.Sort(deleted); !slices.Equal(deleted, []string{"r0", "r1", "r2"}) {
		t.Errorf("events of %v", deleted)
	}
	if a := p.Must(t, 200, "DELETE", planetest.WidgetsPath+"?labelSelector=app%3Dx", ""); len(a.Sorted()) != 0 {
		t.Errorf("once more: %s", a)
	}
}

// Which objects are meant is said as for a list.
func TestDeleteCollectionSelects(t *testing.T) {
	for _, tc := range []struct {
		query, dryRun string
		left          []string
	}{
		{"", "", nil},
		{"?resourceVersion=0", "", nil},
		{"?fieldSelector=spec.color%3Dred", "", []string{"b0", "b1", "b2"}},
		{"?fieldSelector=metadata.name%3Db1", "", []string{"b0", "b2", "r0", "r1"}},
		{"?labelSelector=!app&limit=2", "", []string{"b2", "r0", "r1"}},
		{"", `"All"`, []string{"b0", "b1", "b2", "r0", "r1"}},
	} {
		p := planetest.NewPlane(t)
		p.Fill(t, 2, 3)
		// Without a body the query has the options of the deletes as well, in which a resourceVersion is a precondition.
		p.Must(t, 200, "DELETE", planetest.WidgetsPath+tc.query, `{"dryRun":[`+tc.dryRun+`]}`)
		if diff := cmp.Diff(tc.left, p.Must(t, 200, "GET", planetest.WidgetsPath, "").Sorted()); diff != "" {
			t.Errorf("%s leaves (-want +got):\n%s", tc.query, diff)
		}
	}
	p := planetest.NewPlane(t)
	p.Fill(t, 2, 3)
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"?dryRun=All", "")
	p.Must(t, 409, "DELETE", planetest.WidgetsPath+"?resourceVersion=1", "")
	first := p.Must(t, 200, "DELETE", planetest.WidgetsPath+"?limit=2", "")
	next, _ := first.Field("metadata", "continue").(string)
	if next == "" || len(first.Sorted()) != 2 {
		t.Fatalf("the first page: %s", first)
	}
	if second := p.Must(t, 200, "DELETE", planetest.WidgetsPath+"?limit=2&continue="+next, ""); len(second.Sorted()) != 2 || slices.Contains(second.Sorted(), first.Sorted()[0]) {
		t.Errorf("the second page: %s", second)
	}
	for query, code := range map[string]int{"?labelSelector=%3D": 400, "?fieldSelector=spec.none%3D1": 400, "?limit=x": 400, "?resourceVersionMatch=Exact": 422, "?propagationPolicy=None": 422, "?dryRun=No": 422,
		"?ignoreStoreReadErrorWithClusterBreakingPotential=true": 422, "?continue=x": 400} {
		if a := p.Do("DELETE", planetest.WidgetsPath+query, ""); a.Code != code {
			t.Errorf("%s: %s, want %d", query, a, code)
		}
	}
	if left := p.Must(t, 200, "GET", planetest.WidgetsPath, "").Sorted(); len(left) != 1 {
		t.Errorf("what was refused deleted something: %v", left)
	}
	p.Must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"a"}}`)
	if a := p.Must(t, 200, "DELETE", "/apis/example.com/v1/plains", ""); !slices.Equal(a.Sorted(), []string{"a"}) {
		t.Errorf("of the cluster: %s", a)
	}
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	if a := p.Must(t, 200, "DELETE", "/api/v1/namespaces/default/configmaps", ""); a.Field("kind") != "ConfigMapList" {
		t.Errorf("of a built-in kind: %s", a)
	}
}

// The options hold for each object, and so do its finalizers.
func TestDeleteCollectionHasOptions(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Fill(t, 2, 1)
	uid := p.Must(t, 200, "GET", planetest.WidgetsPath+"/b0", "").Field("metadata", "uid").(string)
	if a := p.Must(t, 409, "DELETE", planetest.WidgetsPath, `{"preconditions":{"uid":"`+uid+`"}}`); !strings.Contains(fmt.Sprint(a.Field("message")), "does not match the UID in record") {
		t.Errorf("a precondition: %s", a)
	}
	p.Must(t, 200, "DELETE", planetest.WidgetsPath, `{"propagationPolicy":"Foreground"}`)
	for _, i := range p.Must(t, 200, "GET", planetest.WidgetsPath, "").Field("items").([]any) {
		meta := i.(map[string]any)["metadata"].(map[string]any)
		if fmt.Sprint(meta["finalizers"]) != "[foregroundDeletion]" || meta["deletionTimestamp"] == nil {
			t.Errorf("metadata %v", meta)
		}
	}
	p.Must(t, 200, "DELETE", planetest.WidgetsPath, `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`)
	if left := p.Must(t, 200, "GET", planetest.WidgetsPath, "").Sorted(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// It is a permission of its own; a deny that names an object, conditions and rules of
// admission hold for each object.
func TestDeleteCollectionIsAuthorized(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Fill(t, 1, 1)
	p.Must(t, 403, "DELETE", planetest.WidgetsPath, "", "Authorization", "Bearer reader-token")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("precious", 1))
	a := p.Must(t, 403, "DELETE", planetest.WidgetsPath+"?fieldSelector=metadata.name%3Dprecious", "", "Authorization", "Bearer editor-token")
	if !strings.Contains(fmt.Sprint(a.Field("message")), "precious things stay") || a.Header.Get("X-Stele-Stage") != "authorization" {
		t.Errorf("a deny: %s", a)
	}
	p.Must(t, 200, "GET", planetest.WidgetsPath+"/precious", "")

	text := strings.Replace(planetest.Ruled, `verbs: ["create", "update", "patch", "delete"]}`, `verbs: ["create", "update", "patch", "delete", "deletecollection"]}`, 1)
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, text, nil))
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"kept","labels":{"keep":"true"}},"spec":{"size":8}}`)
	delete := func(code int, query string, as ...string) planetest.Answer {
		t.Helper()
		return p.Must(t, code, "DELETE", planetest.WidgetsPath+query, "", as...)
	}
	if a := delete(422, "?labelSelector=keep", "Authorization", "Bearer editor-token"); !strings.Contains(fmt.Sprint(a.Field("message")), "only those who may delete secrets") || a.Header.Get("X-Stele-Stage") != "validation" {
		t.Errorf("a rule of admission: %s", a)
	}
	if a := delete(403, "?fieldSelector=metadata.name%3Dkept", planetest.Makers()...); !strings.Contains(fmt.Sprint(a.Field("message")), "its condition does not hold") {
		t.Errorf("a condition: %s", a)
	}
	delete(200, "?fieldSelector=spec.color%3Dred", planetest.Makers()...)
	delete(200, "?labelSelector=keep")
	// Who may not list does not learn which objects there are.
	blind := strings.Replace(text, `bindings: night: {clusterRole: "reader", subjects: [{group: "makers"}], namespaces: ["*"], when: "request.namespace != 'kube-system'"}`, "", 1)
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, blind, nil))
	some, none := delete(403, "", planetest.Makers()...), delete(403, "?fieldSelector=metadata.name%3Dnothing", planetest.Makers()...)
	if string(some.Body) != string(none.Body) {
		t.Errorf("it can be told apart whether there is something:\n%s\n%s", some, none)
	}
}

// What is asked of an explanation is the same, and nothing is deleted.
func TestDeleteCollectionIsExplained(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Fill(t, 1, 1)
	before := p.Committer.Tip().Revision()
	spec := planetest.WidgetSpec("deletecollection", "eddie", "editors")
	if e := p.Explain(t, spec); !e.Status.Allowed || e.Status.Code != 200 || planetest.Stage(t, e, "authorization").Rule != "t/bindings/editors" {
		t.Errorf("%+v", e.Status)
	}
	spec.Object = json.RawMessage(`{"propagationPolicy":"Orphan"}`) // a body replaces the query
	if e := p.Explain(t, spec); !e.Status.Allowed {
		t.Errorf("%+v", e.Status)
	}
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("precious", 1))
	if e := p.Explain(t, spec); e.Status.Allowed || e.Status.Code != 403 || !strings.Contains(e.Status.Message, "precious things stay") {
		t.Errorf("%+v", e.Status)
	}
}

// Many who delete collections, and others who write meanwhile, get along: each object is
// deleted once, and nobody is refused for what another one has done.
func TestDeleteCollectionsAtOnce(t *testing.T) {
	p := planetest.NewPlane(t)
	const each = 40
	p.Fill(t, each, each)
	before := p.Committer.Tip().Revision()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if a := p.Do("DELETE", planetest.WidgetsPath+"?labelSelector=app", ""); a.Code != 200 {
				t.Errorf("delete: %s", a)
			}
		})
	}
	for i := range each {
		all.Go(func() {
			if a := p.Patch(fmt.Sprint("b", i), "merge", `{"metadata":{"labels":{"a":"b"}}}`); a.Code != 200 {
				t.Errorf("patch: %s", a)
			}
		})
	}
	all.Wait()
	if left := len(p.Must(t, 200, "GET", planetest.WidgetsPath, "").Sorted()); left != each {
		t.Errorf("%d are left", left)
	}
	if events := len(p.Events(t, before)); events != 2*each {
		t.Errorf("%d events", events)
	}
}

// P3: a policy that comes in force meanwhile decides of what is not yet deleted.
func TestDeleteCollectionUnderANewPolicy(t *testing.T) {
	lawless := strings.Replace(planetest.Bundle, `bindings: editors: {clusterRole: "widgets", subjects: [{group: "editors"}], namespaces: ["default"]}`, "", 1)
	if lawless == planetest.Bundle {
		t.Fatal("nothing replaced")
	}
	body := planetest.PolicyBody(t, lawless, nil)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p, err := planetest.OpenReplica(t.Context(), store.Open(func(memlog.Op) memlog.Fault { return memlog.Fault{Request: 5 * time.Millisecond} }), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.CloseInBubble()
		p.Bootstrap(t, planetest.Bundle)
		const all = 100
		p.Fill(t, all, 0)
		before := p.Committer.Tip().Revision()
		var deleting sync.WaitGroup
		deleting.Go(func() {
			if a := p.Do("DELETE", planetest.WidgetsPath, "", "Authorization", "Bearer editor-token"); a.Code != 403 || a.Field("reason") != "Forbidden" {
				t.Errorf("answered with %s", a)
			}
		})
		time.Sleep(12 * time.Millisecond)
		p.Must(t, 201, "POST", planetest.PoliciesPath, body)
		deleting.Wait()
		activated := false
		for _, e := range p.Events(t, before) {
			switch {
			case e.Meta.Type == logpb.Type_TYPE_POLICY_ACTIVATED:
				activated = true
			case activated && e.Meta.Type == logpb.Type_TYPE_DELETED:
				t.Errorf("%s was deleted under the policy that does not allow it", e.Meta.Object.Name)
			}
		}
		if !activated {
			t.Error("no policy came in force")
		}
		if left := len(p.Must(t, 200, "GET", planetest.WidgetsPath, "").Names()); left == 0 || left == all {
			t.Errorf("%d of %d are left", left, all)
		}
	})
}

// What is not served any more is not gone: it is still there in another version.
func TestDeleteCollectionInAVersionThatEnds(t *testing.T) {
	body := planetest.PolicyBody(t, planetest.Versioned("v1"), nil)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p, err := planetest.OpenReplica(t.Context(), store.Open(func(memlog.Op) memlog.Fault { return memlog.Fault{Request: 5 * time.Millisecond} }), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.CloseInBubble()
		p.Bootstrap(t, planetest.Both)
		p.Fill(t, 100, 0)
		var deleting sync.WaitGroup
		deleting.Go(func() {
			if a := p.Do("DELETE", planetest.BetaPath, ""); a.Code != 404 {
				t.Errorf("answered with %.200s", a)
			}
		})
		time.Sleep(12 * time.Millisecond)
		p.Must(t, 201, "POST", planetest.PoliciesPath, body)
		deleting.Wait()
		if left := len(p.Must(t, 200, "GET", planetest.WidgetsPath, "").Names()); left == 0 {
			t.Error("nothing is left")
		}
	})
}
