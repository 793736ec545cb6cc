package core_test

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
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// sorted are the names of a list's objects.
func (a answer) sorted() []string {
	names := a.names()
	slices.Sort(names)
	return names
}

// fill creates widgets: red ones with the label app=x, and blue ones without.
func (r *replica) fill(t testing.TB, red, blue int) {
	t.Helper()
	for i := range red {
		r.must(t, 201, "POST", widgetsPath, fmt.Sprintf(`{"metadata":{"name":"r%d","labels":{"app":"x"}},"spec":{"size":%d,"color":"red"}}`, i, i+1))
	}
	for i := range blue {
		r.must(t, 201, "POST", widgetsPath, widget(fmt.Sprint("b", i), i+1))
	}
}

// events are those after a revision, in order.
func (r *replica) events(t testing.TB, after uint64) []*eventlog.Event {
	t.Helper()
	batches, err := r.log.Back(t.Context(), r.committer.Tip().Revision(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	var events []*eventlog.Event
	for _, b := range slices.Backward(batches) {
		for i, e := range b.Events {
			if b.First+uint64(i) > after {
				events = append(events, e)
			}
		}
	}
	return events
}

// Each object of a collection is deleted by itself, with an event that says by which rule.
func TestDeleteCollection(t *testing.T) {
	p := newPlane(t)
	p.fill(t, 3, 2)
	before := p.committer.Tip().Revision()
	a := p.must(t, 200, "DELETE", widgetsPath+"?labelSelector=app%3Dx", "", "Authorization", "Bearer editor-token")
	if a.field("kind") != "WidgetList" || a.field("metadata", "resourceVersion") != fmt.Sprint(before) {
		t.Errorf("answered with %s", a)
	}
	if diff := cmp.Diff([]string{"r0", "r1", "r2"}, a.sorted()); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b0", "b1"}, p.must(t, 200, "GET", widgetsPath, "").sorted()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	var deleted []string
	for _, e := range p.events(t, before) {
		m := e.Meta
		if m.Type != logpb.Type_TYPE_DELETED || m.Request.Verb != "deletecollection" || m.Actor.User != "eddie" || m.Decisions.Rule != "t/bindings/editors" || m.Object.Uid == "" {
			t.Errorf("event %v", m)
		}
		deleted = append(deleted, m.Object.Name)
	}
	if slices.Sort(deleted); !slices.Equal(deleted, []string{"r0", "r1", "r2"}) {
		t.Errorf("events of %v", deleted)
	}
	if a := p.must(t, 200, "DELETE", widgetsPath+"?labelSelector=app%3Dx", ""); len(a.sorted()) != 0 {
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
		p := newPlane(t)
		p.fill(t, 2, 3)
		// Without a body the query has the options of the deletes as well, in which a resourceVersion is a precondition.
		p.must(t, 200, "DELETE", widgetsPath+tc.query, `{"dryRun":[`+tc.dryRun+`]}`)
		if diff := cmp.Diff(tc.left, p.must(t, 200, "GET", widgetsPath, "").sorted()); diff != "" {
			t.Errorf("%s leaves (-want +got):\n%s", tc.query, diff)
		}
	}
	p := newPlane(t)
	p.fill(t, 2, 3)
	p.must(t, 200, "DELETE", widgetsPath+"?dryRun=All", "")
	p.must(t, 409, "DELETE", widgetsPath+"?resourceVersion=1", "")
	first := p.must(t, 200, "DELETE", widgetsPath+"?limit=2", "")
	next, _ := first.field("metadata", "continue").(string)
	if next == "" || len(first.sorted()) != 2 {
		t.Fatalf("the first page: %s", first)
	}
	if second := p.must(t, 200, "DELETE", widgetsPath+"?limit=2&continue="+next, ""); len(second.sorted()) != 2 || slices.Contains(second.sorted(), first.sorted()[0]) {
		t.Errorf("the second page: %s", second)
	}
	for query, code := range map[string]int{"?labelSelector=%3D": 400, "?fieldSelector=spec.none%3D1": 400, "?limit=x": 400, "?resourceVersionMatch=Exact": 422, "?propagationPolicy=None": 422, "?dryRun=No": 422,
		"?ignoreStoreReadErrorWithClusterBreakingPotential=true": 422, "?continue=x": 400} {
		if a := p.do("DELETE", widgetsPath+query, ""); a.code != code {
			t.Errorf("%s: %s, want %d", query, a, code)
		}
	}
	if left := p.must(t, 200, "GET", widgetsPath, "").sorted(); len(left) != 1 {
		t.Errorf("what was refused deleted something: %v", left)
	}
	p.must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"a"}}`)
	if a := p.must(t, 200, "DELETE", "/apis/example.com/v1/plains", ""); !slices.Equal(a.sorted(), []string{"a"}) {
		t.Errorf("of the cluster: %s", a)
	}
	p.must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	if a := p.must(t, 200, "DELETE", "/api/v1/namespaces/default/configmaps", ""); a.field("kind") != "ConfigMapList" {
		t.Errorf("of a built-in kind: %s", a)
	}
}

// The options hold for each object, and so do its finalizers.
func TestDeleteCollectionHasOptions(t *testing.T) {
	p := newPlane(t)
	p.fill(t, 2, 1)
	uid := p.must(t, 200, "GET", widgetsPath+"/b0", "").field("metadata", "uid").(string)
	if a := p.must(t, 409, "DELETE", widgetsPath, `{"preconditions":{"uid":"`+uid+`"}}`); !strings.Contains(fmt.Sprint(a.field("message")), "does not match the UID in record") {
		t.Errorf("a precondition: %s", a)
	}
	p.must(t, 200, "DELETE", widgetsPath, `{"propagationPolicy":"Foreground"}`)
	for _, i := range p.must(t, 200, "GET", widgetsPath, "").field("items").([]any) {
		meta := i.(map[string]any)["metadata"].(map[string]any)
		if fmt.Sprint(meta["finalizers"]) != "[foregroundDeletion]" || meta["deletionTimestamp"] == nil {
			t.Errorf("metadata %v", meta)
		}
	}
	p.must(t, 200, "DELETE", widgetsPath, `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`)
	if left := p.must(t, 200, "GET", widgetsPath, "").sorted(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// It is a permission of its own; a deny that names an object, conditions and rules of
// admission hold for each object.
func TestDeleteCollectionIsAuthorized(t *testing.T) {
	p := newPlane(t)
	p.fill(t, 1, 1)
	p.must(t, 403, "DELETE", widgetsPath, "", "Authorization", "Bearer reader-token")
	p.must(t, 201, "POST", widgetsPath, widget("precious", 1))
	a := p.must(t, 403, "DELETE", widgetsPath+"?fieldSelector=metadata.name%3Dprecious", "", "Authorization", "Bearer editor-token")
	if !strings.Contains(fmt.Sprint(a.field("message")), "precious things stay") || a.header.Get("X-Stele-Stage") != "authorization" {
		t.Errorf("a deny: %s", a)
	}
	p.must(t, 200, "GET", widgetsPath+"/precious", "")

	text := strings.Replace(ruled, `verbs: ["create", "update", "patch", "delete"]}`, `verbs: ["create", "update", "patch", "delete", "deletecollection"]}`, 1)
	p.must(t, 201, "POST", policiesPath, policyBody(t, text, nil))
	p.must(t, 201, "POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"kept","labels":{"keep":"true"}},"spec":{"size":8}}`)
	delete := func(code int, query string, as ...string) answer {
		t.Helper()
		return p.must(t, code, "DELETE", widgetsPath+query, "", as...)
	}
	if a := delete(422, "?labelSelector=keep", "Authorization", "Bearer editor-token"); !strings.Contains(fmt.Sprint(a.field("message")), "only those who may delete secrets") || a.header.Get("X-Stele-Stage") != "validation" {
		t.Errorf("a rule of admission: %s", a)
	}
	if a := delete(403, "?fieldSelector=metadata.name%3Dkept", makers()...); !strings.Contains(fmt.Sprint(a.field("message")), "its condition does not hold") {
		t.Errorf("a condition: %s", a)
	}
	delete(200, "?fieldSelector=spec.color%3Dred", makers()...)
	delete(200, "?labelSelector=keep")
	// Who may not list does not learn which objects there are.
	blind := strings.Replace(text, `bindings: night: {clusterRole: "reader", subjects: [{group: "makers"}], namespaces: ["*"], when: "request.namespace != 'kube-system'"}`, "", 1)
	p.must(t, 201, "POST", policiesPath, policyBody(t, blind, nil))
	some, none := delete(403, "", makers()...), delete(403, "?fieldSelector=metadata.name%3Dnothing", makers()...)
	if string(some.body) != string(none.body) {
		t.Errorf("it can be told apart whether there is something:\n%s\n%s", some, none)
	}
}

// What is asked of an explanation is the same, and nothing is deleted.
func TestDeleteCollectionIsExplained(t *testing.T) {
	p := newRuledPlane(t)
	p.fill(t, 1, 1)
	before := p.committer.Tip().Revision()
	spec := widgetSpec("deletecollection", "eddie", "editors")
	if e := p.explain(t, spec); !e.Status.Allowed || e.Status.Code != 200 || stage(t, e, "authorization").Rule != "t/bindings/editors" {
		t.Errorf("%+v", e.Status)
	}
	spec.Object = json.RawMessage(`{"propagationPolicy":"Orphan"}`) // a body replaces the query
	if e := p.explain(t, spec); !e.Status.Allowed {
		t.Errorf("%+v", e.Status)
	}
	if after := p.committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
	p.must(t, 201, "POST", widgetsPath, widget("precious", 1))
	if e := p.explain(t, spec); e.Status.Allowed || e.Status.Code != 403 || !strings.Contains(e.Status.Message, "precious things stay") {
		t.Errorf("%+v", e.Status)
	}
}

// Many who delete collections, and others who write meanwhile, get along: each object is
// deleted once, and nobody is refused for what another one has done.
func TestDeleteCollectionsAtOnce(t *testing.T) {
	p := newPlane(t)
	const each = 40
	p.fill(t, each, each)
	before := p.committer.Tip().Revision()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if a := p.do("DELETE", widgetsPath+"?labelSelector=app", ""); a.code != 200 {
				t.Errorf("delete: %s", a)
			}
		})
	}
	for i := range each {
		all.Go(func() {
			if a := p.patch(fmt.Sprint("b", i), "merge", `{"metadata":{"labels":{"a":"b"}}}`); a.code != 200 {
				t.Errorf("patch: %s", a)
			}
		})
	}
	all.Wait()
	if left := len(p.must(t, 200, "GET", widgetsPath, "").sorted()); left != each {
		t.Errorf("%d are left", left)
	}
	if events := len(p.events(t, before)); events != 2*each {
		t.Errorf("%d events", events)
	}
}

// P3: a policy that comes in force meanwhile decides of what is not yet deleted.
func TestDeleteCollectionUnderANewPolicy(t *testing.T) {
	lawless := strings.Replace(bundle, `bindings: editors: {clusterRole: "widgets", subjects: [{group: "editors"}], namespaces: ["default"]}`, "", 1)
	if lawless == bundle {
		t.Fatal("nothing replaced")
	}
	body := policyBody(t, lawless, nil)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p, err := tryStart(t.Context(), store.Open(func(memlog.Op) memlog.Fault { return memlog.Fault{Request: 5 * time.Millisecond} }), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.closeInBubble()
		p.bootstrap(t, bundle)
		const all = 100
		p.fill(t, all, 0)
		before := p.committer.Tip().Revision()
		var deleting sync.WaitGroup
		deleting.Go(func() {
			if a := p.do("DELETE", widgetsPath, "", "Authorization", "Bearer editor-token"); a.code != 403 || a.field("reason") != "Forbidden" {
				t.Errorf("answered with %s", a)
			}
		})
		time.Sleep(12 * time.Millisecond)
		p.must(t, 201, "POST", policiesPath, body)
		deleting.Wait()
		activated := false
		for _, e := range p.events(t, before) {
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
		if left := len(p.must(t, 200, "GET", widgetsPath, "").names()); left == 0 || left == all {
			t.Errorf("%d of %d are left", left, all)
		}
	})
}

// What is not served any more is not gone: it is still there in another version.
func TestDeleteCollectionInAVersionThatEnds(t *testing.T) {
	body := policyBody(t, versioned("v1"), nil)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p, err := tryStart(t.Context(), store.Open(func(memlog.Op) memlog.Fault { return memlog.Fault{Request: 5 * time.Millisecond} }), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.closeInBubble()
		p.bootstrap(t, both)
		p.fill(t, 100, 0)
		var deleting sync.WaitGroup
		deleting.Go(func() {
			if a := p.do("DELETE", betaPath, ""); a.code != 404 {
				t.Errorf("answered with %.200s", a)
			}
		})
		time.Sleep(12 * time.Millisecond)
		p.must(t, 201, "POST", policiesPath, body)
		deleting.Wait()
		if left := len(p.must(t, 200, "GET", widgetsPath, "").names()); left == 0 {
			t.Error("nothing is left")
		}
	})
}
