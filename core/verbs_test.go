package core_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/eventlog/logpb"
)

func TestCreateFillsWhatTheServerOwns(t *testing.T) {
	p := newPlane(t)
	a := p.must(t, 201, "POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget",
		"metadata":{"name":"a","uid":"mine","creationTimestamp":"2000-01-01T00:00:00Z","generation":7,"selfLink":"x","labels":{"k":"v"}},
		"spec":{"size":3},"status":{"ready":true}}`)
	o := a.object()
	meta := o["metadata"].(map[string]any)
	if meta["uid"] == "mine" || len(meta["uid"].(string)) != 36 || strings.HasPrefix(meta["creationTimestamp"].(string), "2000") ||
		meta["generation"] != 1.0 || meta["selfLink"] != nil || meta["namespace"] != "default" {
		t.Errorf("metadata %v", meta)
	}
	if diff := cmp.Diff(map[string]any{"size": 3.0, "color": "blue"}, o["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if o["status"] != nil {
		t.Errorf("a create set the status: %v", o["status"])
	}
	if got := p.must(t, 200, "GET", widgetsPath+"/a", ""); string(got.body) != string(a.body) {
		t.Errorf("read back as\n%s\nnot\n%s", got.body, a.body)
	}
	if version := fmt.Sprint(p.committer.Tip().Revision()); meta["resourceVersion"] != version {
		t.Errorf("resourceVersion %v, the log is at %s", meta["resourceVersion"], version)
	}
}

func TestGenerateName(t *testing.T) {
	p := newPlane(t)
	seen := map[string]bool{}
	for range 20 {
		name := p.must(t, 201, "POST", widgetsPath, `{"metadata":{"generateName":"g-"},"spec":{"size":1}}`).field("metadata", "name").(string)
		if !strings.HasPrefix(name, "g-") || len(name) != 7 || seen[name] {
			t.Errorf("name %q", name)
		}
		seen[name] = true
	}
}

func TestUpdate(t *testing.T) {
	p := newPlane(t)
	created := p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	body := func(size int, change ...string) string {
		text := strings.Replace(string(created.body), `"size":1`, fmt.Sprintf(`"size":%d`, size), 1)
		return strings.NewReplacer(change...).Replace(text)
	}
	a := p.must(t, 200, "PUT", widgetsPath+"/a", body(2))
	if a.field("metadata", "generation") != 2.0 || a.field("spec", "size") != 2.0 || a.field("metadata", "uid") != created.field("metadata", "uid") {
		t.Errorf("updated to %s", a)
	}
	// The same again has an old resourceVersion.
	a = p.must(t, 409, "PUT", widgetsPath+"/a", body(2))
	if want := `Operation cannot be fulfilled on widgets.example.com "a": the object has been modified; please apply your changes to the latest version and try again`; a.field("message") != want {
		t.Errorf("message %v", a.field("message"))
	}
	// Metadata alone is no new generation.
	version := p.do("GET", widgetsPath+"/a", "").field("metadata", "resourceVersion").(string)
	old := created.field("metadata", "resourceVersion").(string)
	a = p.must(t, 200, "PUT", widgetsPath+"/a", body(2, `"resourceVersion":"`+old+`"`, `"resourceVersion":"`+version+`","labels":{"a":"b"}`))
	if a.field("metadata", "generation") != 2.0 || a.field("metadata", "labels", "a") != "b" {
		t.Errorf("labelled as %s", a)
	}
}

func TestAWriteThatChangesNothingMakesNoEvent(t *testing.T) {
	p := newPlane(t)
	created := p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	before := p.committer.Tip().Revision()
	for name, do := range map[string]func() answer{
		"update":      func() answer { return p.do("PUT", widgetsPath+"/a", string(created.body)) },
		"merge patch": func() answer { return p.patch("a", "merge", `{"spec":{"size":1}}`) },
		"json patch":  func() answer { return p.patch("a", "json", `[{"op":"replace","path":"/spec/size","value":1}]`) },
	} {
		if a := do(); a.code != 200 || string(a.body) != string(created.body) {
			t.Errorf("%s: %s", name, a)
		}
	}
	if after := p.committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

func (r *replica) patch(name, kind, body string, header ...string) answer {
	contentType := map[string]string{"merge": "application/merge-patch+json", "json": "application/json-patch+json", "strategic": "application/strategic-merge-patch+json"}[kind]
	return r.do("PATCH", widgetsPath+"/"+name, body, append([]string{"Content-Type", contentType}, header...)...)
}

func TestPatch(t *testing.T) {
	p := newPlane(t)
	created := p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	if a := p.patch("a", "merge", `{"spec":{"size":5,"color":null},"metadata":{"labels":{"x":"y"}}}`); a.code != 200 ||
		a.field("spec", "size") != 5.0 || a.field("spec", "color") != "blue" || a.field("metadata", "labels", "x") != "y" || a.field("metadata", "generation") != 2.0 {
		t.Errorf("merge patch: %s", a)
	}
	if a := p.patch("a", "json", `[{"op":"test","path":"/spec/size","value":5},{"op":"add","path":"/spec/owner","value":"ann@example.com"}]`); a.code != 200 || a.field("spec", "owner") != "ann@example.com" {
		t.Errorf("JSON patch: %s", a)
	}
	old := created.field("metadata", "resourceVersion").(string)
	if a := p.patch("a", "merge", `{"metadata":{"resourceVersion":"`+old+`"},"spec":{"size":6}}`); a.code != 409 {
		t.Errorf("with an old resourceVersion: %s", a)
	}
	if a := p.patch("a", "json", `[{"op":"test","path":"/spec/size","value":77}]`); a.code != 422 {
		t.Errorf("failed test: %s", a)
	}
	if a := p.patch("none", "merge", `{}`); a.code != 404 {
		t.Errorf("of nothing: %s", a)
	}
	if a := p.patch("a", "strategic", `{}`); a.code != 415 || !strings.Contains(string(a.body), "application/merge-patch+json") {
		t.Errorf("strategic merge patch of a custom kind: %s", a)
	}
	// A built-in kind takes it.
	p.must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"},"data":{"a":"1","b":"2"}}`)
	a := p.must(t, 200, "PATCH", "/api/v1/namespaces/default/configmaps/c", `{"data":{"a":null,"c":"3"}}`, "Content-Type", "application/strategic-merge-patch+json")
	if diff := cmp.Diff(map[string]any{"b": "2", "c": "3"}, a.field("data")); diff != "" {
		t.Errorf("strategic merge patch (-want +got):\n%s", diff)
	}
}

func TestStatusHasAPlaceOfItsOwn(t *testing.T) {
	p := newPlane(t)
	created := p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	withStatus := strings.Replace(string(created.body), `"size":1}`, `"size":9},"status":{"ready":true}`, 1)
	a := p.must(t, 200, "PUT", widgetsPath+"/a/status", withStatus)
	if a.field("spec", "size") != 1.0 || a.field("status", "ready") != true || a.field("status", "note") != "none" || a.field("metadata", "generation") != 1.0 {
		t.Errorf("status update: %s", a)
	}
	// The object itself does not take it.
	a = p.do("PATCH", widgetsPath+"/a", `{"spec":{"size":2},"status":{"ready":false}}`, "Content-Type", "application/merge-patch+json")
	if a.code != 200 || a.field("spec", "size") != 2.0 || a.field("status", "ready") != true || a.field("metadata", "generation") != 2.0 {
		t.Errorf("patch of spec and status: %s", a)
	}
	a = p.do("PATCH", widgetsPath+"/a/status", `{"metadata":{"labels":{"a":"b"}},"status":{"ready":false}}`, "Content-Type", "application/merge-patch+json")
	if a.code != 200 || a.field("status", "ready") != false || a.field("metadata", "labels") != nil {
		t.Errorf("patch of the status: %s", a)
	}
	if a := p.do("GET", widgetsPath+"/a/status", ""); a.code != 200 {
		t.Errorf("get of the status: %s", a)
	}
	if a := p.do("GET", "/apis/example.com/v1/plains/x/status", ""); a.code != 404 {
		t.Errorf("status of a kind without one: %s", a)
	}
}

func TestDelete(t *testing.T) {
	p := newPlane(t)
	created := p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	uid, version := created.field("metadata", "uid").(string), created.field("metadata", "resourceVersion").(string)
	p.must(t, 409, "DELETE", widgetsPath+"/a", `{"preconditions":{"uid":"other"}}`)
	p.must(t, 409, "DELETE", widgetsPath+"/a", `{"preconditions":{"resourceVersion":"1"}}`)
	a := p.must(t, 200, "DELETE", widgetsPath+"/a", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"`+uid+`","resourceVersion":"`+version+`"}}`)
	want := map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success",
		"details": map[string]any{"name": "a", "group": "example.com", "kind": "widgets", "uid": uid}}
	if diff := cmp.Diff(want, a.object()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.must(t, 404, "GET", widgetsPath+"/a", "")
	p.must(t, 404, "DELETE", widgetsPath+"/a", "")
	again := p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	if again.field("metadata", "uid") == uid {
		t.Error("a new object has the old uid")
	}
}

func TestFinalizersHoldBackADelete(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, `{"metadata":{"name":"a","finalizers":["example.com/x"]},"spec":{"size":1}}`)
	a := p.must(t, 200, "DELETE", widgetsPath+"/a", "")
	if a.field("kind") != "Widget" || a.field("metadata", "deletionTimestamp") == nil || a.field("metadata", "deletionGracePeriodSeconds") != 0.0 || a.field("metadata", "generation") != 2.0 {
		t.Errorf("marked as %s", a)
	}
	again := p.must(t, 200, "DELETE", widgetsPath+"/a", "")
	if string(again.body) != string(a.body) {
		t.Errorf("a second delete made %s", again)
	}
	if a := p.patch("a", "merge", `{"metadata":{"finalizers":["example.com/x","example.com/y"]}}`); a.code != 422 {
		t.Errorf("another finalizer: %s", a)
	}
	if a := p.patch("a", "merge", `{"metadata":{"deletionTimestamp":null},"spec":{"size":2}}`); a.code != 200 || a.field("metadata", "deletionTimestamp") == nil || a.field("metadata", "deletionGracePeriodSeconds") != 0.0 {
		t.Errorf("undeleted: %s", a)
	}
	a = p.patch("a", "merge", `{"metadata":{"finalizers":null}}`)
	if a.code != 200 || a.field("metadata", "finalizers") != nil {
		t.Errorf("last finalizer: %s", a)
	}
	p.must(t, 404, "GET", widgetsPath+"/a", "")
}

func TestNamespaces(t *testing.T) {
	p := newPlane(t)
	if a := p.must(t, 200, "GET", "/api/v1/namespaces/default", ""); a.field("status", "phase") != "Active" || a.field("metadata", "labels", "kubernetes.io/metadata.name") != "default" {
		t.Errorf("default namespace: %s", a)
	}
	for _, ns := range []string{"default", "kube-system"} {
		p.must(t, 403, "DELETE", "/api/v1/namespaces/"+ns, "")
	}
	const inNew = "/apis/example.com/v1/namespaces/new/widgets"
	if a := p.must(t, 404, "POST", inNew, widget("a", 1)); a.field("message") != `namespaces "new" not found` {
		t.Errorf("message %v", a.field("message"))
	}
	p.must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"new"}}`)
	p.must(t, 201, "POST", inNew, widget("a", 1))
	// A delete marks it, whether it is empty or not. Then it takes nothing new.
	a := p.must(t, 200, "DELETE", "/api/v1/namespaces/new", "")
	if a.field("kind") != "Namespace" || a.field("status", "phase") != "Terminating" || a.field("metadata", "deletionTimestamp") == nil || a.field("metadata", "deletionGracePeriodSeconds") != nil {
		t.Errorf("a namespace that is deleted: %s", a)
	}
	if again := p.must(t, 200, "DELETE", "/api/v1/namespaces/new", ""); string(again.body) != string(a.body) {
		t.Errorf("deleted once more: %s", again)
	}
	p.must(t, 200, "PUT", inNew+"/a", strings.Replace(widget("a", 2), `"name":"a"`, `"name":"a","resourceVersion":"`+fmt.Sprint(p.must(t, 200, "GET", inNew+"/a", "").field("metadata", "resourceVersion"))+`"`, 1))
	if a := p.must(t, 403, "POST", inNew, widget("b", 1)); !strings.Contains(string(a.body), "NamespaceTerminating") {
		t.Errorf("create in a namespace that is going: %s", a)
	}
	// It stays until it is finalized and empty.
	if a := p.must(t, 200, "PUT", "/api/v1/namespaces/new/finalize", `{"metadata":{"name":"new"}}`); a.field("spec", "finalizers") != nil || a.field("status", "phase") != "Terminating" {
		t.Errorf("a namespace with content is finalized: %s", a)
	}
	p.must(t, 200, "GET", inNew+"/a", "")
	p.must(t, 200, "DELETE", inNew+"/a", "")
	p.must(t, 200, "GET", "/api/v1/namespaces/new", "")
	p.must(t, 200, "PUT", "/api/v1/namespaces/new/finalize", `{"metadata":{"name":"new"}}`)
	p.must(t, 404, "POST", inNew, widget("a", 1))
}

func TestFinalizersOfNamespaces(t *testing.T) {
	const path = "/api/v1/namespaces/new"
	p := newPlane(t)
	p.must(t, 405, "GET", path+"/finalize", "")
	p.must(t, 404, "PUT", path+"/finalize", `{"metadata":{"name":"new"}}`)
	p.must(t, 404, "PUT", widgetsPath+"/a/finalize", widget("a", 1))
	finalizers := func(a answer) string { return fmt.Sprint(a.field("spec", "finalizers")) }
	p.must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"new"},"spec":{"finalizers":["example.com/x"]}}`)
	// They change there alone, and nothing but the status stays as it was.
	if a := p.must(t, 200, "PUT", path, `{"metadata":{"name":"new"},"spec":{"finalizers":["kubernetes"]}}`); finalizers(a) != "[example.com/x kubernetes]" {
		t.Errorf("update: %s", a)
	}
	if a := p.must(t, 200, "PUT", path+"/finalize", `{"metadata":{"name":"new","labels":{"a":"b"}},"status":{"phase":"Terminating"}}`); finalizers(a) != "<nil>" || a.field("status", "phase") != "Active" || a.field("metadata", "labels", "a") != "b" {
		t.Errorf("finalize: %s", a)
	}
	if a := p.must(t, 200, "PUT", path, `{"metadata":{"name":"new"},"spec":{"finalizers":["kubernetes"]}}`); finalizers(a) != "<nil>" {
		t.Errorf("update after that: %s", a)
	}
	p.must(t, 422, "PUT", path+"/finalize", `{"metadata":{"name":"new"},"spec":{"finalizers":["a b"]}}`)
	// One that has none, as in old logs, gets that of the server when it is deleted.
	p.must(t, 200, "PATCH", path, `{"metadata":{"finalizers":["example.com/y"]}}`, "Content-Type", "application/merge-patch+json")
	if a := p.must(t, 200, "DELETE", path, ""); finalizers(a) != "[kubernetes]" {
		t.Errorf("delete: %s", a)
	}
	// Finalizers in metadata count as well.
	p.must(t, 200, "PUT", path+"/finalize", `{"metadata":{"name":"new","finalizers":["example.com/y"]}}`)
	p.must(t, 200, "DELETE", path, "")
	p.must(t, 200, "PATCH", path, `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
	p.must(t, 404, "GET", path, "")
}

func TestDryRunChangesNothing(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	before := p.committer.Tip().Revision()
	if a := p.must(t, 201, "POST", widgetsPath+"?dryRun=All", widget("b", 1)); a.field("spec", "color") != "blue" || a.field("metadata", "uid") == nil {
		t.Errorf("create: %s", a)
	}
	p.must(t, 409, "POST", widgetsPath+"?dryRun=All", widget("a", 1))
	p.must(t, 422, "POST", widgetsPath+"?dryRun=All", widget("c", -1))
	if a := p.must(t, 200, "PATCH", widgetsPath+"/a?dryRun=All", `{"spec":{"size":8}}`, "Content-Type", "application/merge-patch+json"); a.field("spec", "size") != 8.0 {
		t.Errorf("patch: %s", a)
	}
	p.must(t, 200, "DELETE", widgetsPath+"/a?dryRun=All", "")
	p.must(t, 200, "DELETE", widgetsPath+"/a", `{"dryRun":["All"]}`)
	p.must(t, 422, "DELETE", widgetsPath+"/a?dryRun=Some", "")
	if after := p.committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// What pruning, defaulting or the rules of a built-in kind changed can be seen in the
// log: it has the request as it was sent, too.
func TestEventsHaveTheRequestAsItWas(t *testing.T) {
	p := newPlane(t)
	const complete = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"c"},"spec":{"size":1,"color":"red"}}`
	for _, tc := range []struct {
		path, body string
		adapted    bool
	}{
		{widgetsPath, widget("defaulted", 1), true},
		{widgetsPath, complete, false},
		{"/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"a":"b"},"data":{},"type":"Opaque"}`, true},
		{"/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"},"data":{"a":"b"}}`, false},
	} {
		p.must(t, 201, "POST", tc.path, tc.body)
		batches, err := p.log.Back(t.Context(), p.committer.Tip().Revision(), 1)
		if err != nil {
			t.Fatal(err)
		}
		events := batches[0].Events
		request := string(events[len(events)-1].Content(logpb.Role_ROLE_REQUEST))
		if tc.adapted && request != tc.body || !tc.adapted && request != "" {
			t.Errorf("%s: the event has %q", tc.body, request)
		}
	}
}
