package edit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/logpb"
)

func TestCreateFillsWhatTheServerOwns(t *testing.T) {
	p := planetest.NewPlane(t)
	a := p.Must(t, 201, "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget",
		"metadata":{"name":"a","uid":"mine","creationTimestamp":"2000-01-01T00:00:00Z","generation":7,"selfLink":"x","labels":{"k":"v"}},
		"spec":{"size":3},"status":{"ready":true}}`)
	o := a.Object()
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
	if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"/a", ""); string(got.Body) != string(a.Body) {
		t.Errorf("read back as\n%s\nnot\n%s", got.Body, a.Body)
	}
	if version := fmt.Sprint(p.Committer.Tip().Revision()); meta["resourceVersion"] != version {
		t.Errorf("resourceVersion %v, the log is at %s", meta["resourceVersion"], version)
	}
}

func TestGenerateName(t *testing.T) {
	p := planetest.NewPlane(t)
	seen := map[string]bool{}
	for range 20 {
		name := p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"generateName":"g-"},"spec":{"size":1}}`).Field("metadata", "name").(string)
		if !strings.HasPrefix(name, "g-") || len(name) != 7 || seen[name] {
			t.Errorf("name %q", name)
		}
		seen[name] = true
	}
}

func TestUpdate(t *testing.T) {
	p := planetest.NewPlane(t)
	created := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	body := func(size int, change ...string) string {
		text := strings.Replace(string(created.Body), `"size":1`, fmt.Sprintf(`"size":%d`, size), 1)
		return strings.NewReplacer(change...).Replace(text)
	}
	a := p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a", body(2))
	if a.Field("metadata", "generation") != 2.0 || a.Field("spec", "size") != 2.0 || a.Field("metadata", "uid") != created.Field("metadata", "uid") {
		t.Errorf("updated to %s", a)
	}
	// The same again has an old resourceVersion.
	a = p.Must(t, 409, "PUT", planetest.WidgetsPath+"/a", body(2))
	if want := `Operation cannot be fulfilled on widgets.example.com "a": the object has been modified; please apply your changes to the latest version and try again`; a.Field("message") != want {
		t.Errorf("message %v", a.Field("message"))
	}
	// Metadata alone is no new generation.
	version := p.Do("GET", planetest.WidgetsPath+"/a", "").Field("metadata", "resourceVersion").(string)
	old := created.Field("metadata", "resourceVersion").(string)
	a = p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a", body(2, `"resourceVersion":"`+old+`"`, `"resourceVersion":"`+version+`","labels":{"a":"b"}`))
	if a.Field("metadata", "generation") != 2.0 || a.Field("metadata", "labels", "a") != "b" {
		t.Errorf("labelled as %s", a)
	}
}

func TestAWriteThatChangesNothingMakesNoEvent(t *testing.T) {
	p := planetest.NewPlane(t)
	created := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	before := p.Committer.Tip().Revision()
	for name, do := range map[string]func() planetest.Answer{
		"update":      func() planetest.Answer { return p.Do("PUT", planetest.WidgetsPath+"/a", string(created.Body)) },
		"merge patch": func() planetest.Answer { return p.Patch("a", "merge", `{"spec":{"size":1}}`) },
		"json patch": func() planetest.Answer {
			return p.Patch("a", "json", `[{"op":"replace","path":"/spec/size","value":1}]`)
		},
	} {
		if a := do(); a.Code != 200 || string(a.Body) != string(created.Body) {
			t.Errorf("%s: %s", name, a)
		}
	}
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

func TestPatch(t *testing.T) {
	p := planetest.NewPlane(t)
	created := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	if a := p.Patch("a", "merge", `{"spec":{"size":5,"color":null},"metadata":{"labels":{"x":"y"}}}`); a.Code != 200 ||
		a.Field("spec", "size") != 5.0 || a.Field("spec", "color") != "blue" || a.Field("metadata", "labels", "x") != "y" || a.Field("metadata", "generation") != 2.0 {
		t.Errorf("merge patch: %s", a)
	}
	if a := p.Patch("a", "json", `[{"op":"test","path":"/spec/size","value":5},{"op":"add","path":"/spec/owner","value":"ann@example.com"}]`); a.Code != 200 || a.Field("spec", "owner") != "ann@example.com" {
		t.Errorf("JSON patch: %s", a)
	}
	old := created.Field("metadata", "resourceVersion").(string)
	if a := p.Patch("a", "merge", `{"metadata":{"resourceVersion":"`+old+`"},"spec":{"size":6}}`); a.Code != 409 {
		t.Errorf("with an old resourceVersion: %s", a)
	}
	if a := p.Patch("a", "json", `[{"op":"test","path":"/spec/size","value":77}]`); a.Code != 422 {
		t.Errorf("failed test: %s", a)
	}
	if a := p.Patch("none", "merge", `{}`); a.Code != 404 {
		t.Errorf("of nothing: %s", a)
	}
	if a := p.Patch("a", "strategic", `{}`); a.Code != 415 || !strings.Contains(string(a.Body), "application/merge-patch+json") {
		t.Errorf("strategic merge patch of a custom kind: %s", a)
	}
	// A built-in kind takes it.
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"},"data":{"a":"1","b":"2"}}`)
	a := p.Must(t, 200, "PATCH", "/api/v1/namespaces/default/configmaps/c", `{"data":{"a":null,"c":"3"}}`, "Content-Type", "application/strategic-merge-patch+json")
	if diff := cmp.Diff(map[string]any{"b": "2", "c": "3"}, a.Field("data")); diff != "" {
		t.Errorf("strategic merge patch (-want +got):\n%s", diff)
	}
}

func TestStatusHasAPlaceOfItsOwn(t *testing.T) {
	p := planetest.NewPlane(t)
	created := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	withStatus := strings.Replace(string(created.Body), `"size":1}`, `"size":9},"status":{"ready":true}`, 1)
	a := p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a/status", withStatus)
	if a.Field("spec", "size") != 1.0 || a.Field("status", "ready") != true || a.Field("status", "note") != "none" || a.Field("metadata", "generation") != 1.0 {
		t.Errorf("status update: %s", a)
	}
	// The object itself does not take it.
	a = p.Do("PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":2},"status":{"ready":false}}`, "Content-Type", "application/merge-patch+json")
	if a.Code != 200 || a.Field("spec", "size") != 2.0 || a.Field("status", "ready") != true || a.Field("metadata", "generation") != 2.0 {
		t.Errorf("patch of spec and status: %s", a)
	}
	a = p.Do("PATCH", planetest.WidgetsPath+"/a/status", `{"metadata":{"labels":{"a":"b"}},"status":{"ready":false}}`, "Content-Type", "application/merge-patch+json")
	if a.Code != 200 || a.Field("status", "ready") != false || a.Field("metadata", "labels") != nil {
		t.Errorf("patch of the status: %s", a)
	}
	if a := p.Do("GET", planetest.WidgetsPath+"/a/status", ""); a.Code != 200 {
		t.Errorf("get of the status: %s", a)
	}
	if a := p.Do("GET", "/apis/example.com/v1/plains/x/status", ""); a.Code != 404 {
		t.Errorf("status of a kind without one: %s", a)
	}
}

func TestDelete(t *testing.T) {
	p := planetest.NewPlane(t)
	created := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	uid, version := created.Field("metadata", "uid").(string), created.Field("metadata", "resourceVersion").(string)
	p.Must(t, 409, "DELETE", planetest.WidgetsPath+"/a", `{"preconditions":{"uid":"other"}}`)
	p.Must(t, 409, "DELETE", planetest.WidgetsPath+"/a", `{"preconditions":{"resourceVersion":"1"}}`)
	a := p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"`+uid+`","resourceVersion":"`+version+`"}}`)
	want := map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success",
		"details": map[string]any{"name": "a", "group": "example.com", "kind": "widgets", "uid": uid}}
	if diff := cmp.Diff(want, a.Object()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Must(t, 404, "GET", planetest.WidgetsPath+"/a", "")
	p.Must(t, 404, "DELETE", planetest.WidgetsPath+"/a", "")
	again := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	if again.Field("metadata", "uid") == uid {
		t.Error("a new object has the old uid")
	}
}

func TestFinalizersHoldBackADelete(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","finalizers":["example.com/x"]},"spec":{"size":1}}`)
	a := p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")
	if a.Field("kind") != "Widget" || a.Field("metadata", "deletionTimestamp") == nil || a.Field("metadata", "deletionGracePeriodSeconds") != 0.0 || a.Field("metadata", "generation") != 2.0 {
		t.Errorf("marked as %s", a)
	}
	again := p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")
	if string(again.Body) != string(a.Body) {
		t.Errorf("a second delete made %s", again)
	}
	if a := p.Patch("a", "merge", `{"metadata":{"finalizers":["example.com/x","example.com/y"]}}`); a.Code != 422 {
		t.Errorf("another finalizer: %s", a)
	}
	if a := p.Patch("a", "merge", `{"metadata":{"deletionTimestamp":null},"spec":{"size":2}}`); a.Code != 200 || a.Field("metadata", "deletionTimestamp") == nil || a.Field("metadata", "deletionGracePeriodSeconds") != 0.0 {
		t.Errorf("undeleted: %s", a)
	}
	a = p.Patch("a", "merge", `{"metadata":{"finalizers":null}}`)
	if a.Code != 200 || a.Field("metadata", "finalizers") != nil {
		t.Errorf("last finalizer: %s", a)
	}
	p.Must(t, 404, "GET", planetest.WidgetsPath+"/a", "")
}

func TestNamespaces(t *testing.T) {
	p := planetest.NewPlane(t)
	if a := p.Must(t, 200, "GET", "/api/v1/namespaces/default", ""); a.Field("status", "phase") != "Active" || a.Field("metadata", "labels", "kubernetes.io/metadata.name") != "default" {
		t.Errorf("default namespace: %s", a)
	}
	for _, ns := range []string{"default", "kube-system"} {
		p.Must(t, 403, "DELETE", "/api/v1/namespaces/"+ns, "")
	}
	const inNew = "/apis/example.com/v1/namespaces/new/widgets"
	if a := p.Must(t, 404, "POST", inNew, planetest.Widget("a", 1)); a.Field("message") != `namespaces "new" not found` {
		t.Errorf("message %v", a.Field("message"))
	}
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"new"}}`)
	p.Must(t, 201, "POST", inNew, planetest.Widget("a", 1))
	// A delete marks it, whether it is empty or not. Then it takes nothing new.
	a := p.Must(t, 200, "DELETE", "/api/v1/namespaces/new", "")
	if a.Field("kind") != "Namespace" || a.Field("status", "phase") != "Terminating" || a.Field("metadata", "deletionTimestamp") == nil || a.Field("metadata", "deletionGracePeriodSeconds") != nil {
		t.Errorf("a namespace that is deleted: %s", a)
	}
	if again := p.Must(t, 200, "DELETE", "/api/v1/namespaces/new", ""); string(again.Body) != string(a.Body) {
		t.Errorf("deleted once more: %s", again)
	}
	p.Must(t, 200, "PUT", inNew+"/a", strings.Replace(planetest.Widget("a", 2), `"name":"a"`, `"name":"a","resourceVersion":"`+fmt.Sprint(p.Must(t, 200, "GET", inNew+"/a", "").Field("metadata", "resourceVersion"))+`"`, 1))
	if a := p.Must(t, 403, "POST", inNew, planetest.Widget("b", 1)); !strings.Contains(string(a.Body), "NamespaceTerminating") {
		t.Errorf("create in a namespace that is going: %s", a)
	}
	// It stays until it is finalized and empty.
	if a := p.Must(t, 200, "PUT", "/api/v1/namespaces/new/finalize", `{"metadata":{"name":"new"}}`); a.Field("spec", "finalizers") != nil || a.Field("status", "phase") != "Terminating" {
		t.Errorf("a namespace with content is finalized: %s", a)
	}
	p.Must(t, 200, "GET", inNew+"/a", "")
	p.Must(t, 200, "DELETE", inNew+"/a", "")
	p.Must(t, 200, "GET", "/api/v1/namespaces/new", "")
	p.Must(t, 200, "PUT", "/api/v1/namespaces/new/finalize", `{"metadata":{"name":"new"}}`)
	p.Must(t, 404, "POST", inNew, planetest.Widget("a", 1))
}

func TestFinalizersOfNamespaces(t *testing.T) {
	const path = "/api/v1/namespaces/new"
	p := planetest.NewPlane(t)
	p.Must(t, 405, "GET", path+"/finalize", "")
	p.Must(t, 404, "PUT", path+"/finalize", `{"metadata":{"name":"new"}}`)
	p.Must(t, 404, "PUT", planetest.WidgetsPath+"/a/finalize", planetest.Widget("a", 1))
	finalizers := func(a planetest.Answer) string { return fmt.Sprint(a.Field("spec", "finalizers")) }
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"new"},"spec":{"finalizers":["example.com/x"]}}`)
	// They change there alone, and nothing but the status stays as it was.
	if a := p.Must(t, 200, "PUT", path, `{"metadata":{"name":"new"},"spec":{"finalizers":["kubernetes"]}}`); finalizers(a) != "[example.com/x kubernetes]" {
		t.Errorf("update: %s", a)
	}
	if a := p.Must(t, 200, "PUT", path+"/finalize", `{"metadata":{"name":"new","labels":{"a":"b"}},"status":{"phase":"Terminating"}}`); finalizers(a) != "<nil>" || a.Field("status", "phase") != "Active" || a.Field("metadata", "labels", "a") != "b" {
		t.Errorf("finalize: %s", a)
	}
	if a := p.Must(t, 200, "PUT", path, `{"metadata":{"name":"new"},"spec":{"finalizers":["kubernetes"]}}`); finalizers(a) != "<nil>" {
		t.Errorf("update after that: %s", a)
	}
	p.Must(t, 422, "PUT", path+"/finalize", `{"metadata":{"name":"new"},"spec":{"finalizers":["a b"]}}`)
	// One that has none, as in old logs, gets that of the server when it is deleted.
	p.Must(t, 200, "PATCH", path, `{"metadata":{"finalizers":["example.com/y"]}}`, "Content-Type", "application/merge-patch+json")
	if a := p.Must(t, 200, "DELETE", path, ""); finalizers(a) != "[kubernetes]" {
		t.Errorf("delete: %s", a)
	}
	// Finalizers in metadata count as well.
	p.Must(t, 200, "PUT", path+"/finalize", `{"metadata":{"name":"new","finalizers":["example.com/y"]}}`)
	p.Must(t, 200, "DELETE", path, "")
	p.Must(t, 200, "PATCH", path, `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 404, "GET", path, "")
}

func TestDryRunChangesNothing(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	before := p.Committer.Tip().Revision()
	if a := p.Must(t, 201, "POST", planetest.WidgetsPath+"?dryRun=All", planetest.Widget("b", 1)); a.Field("spec", "color") != "blue" || a.Field("metadata", "uid") == nil {
		t.Errorf("create: %s", a)
	}
	p.Must(t, 409, "POST", planetest.WidgetsPath+"?dryRun=All", planetest.Widget("a", 1))
	p.Must(t, 422, "POST", planetest.WidgetsPath+"?dryRun=All", planetest.Widget("c", -1))
	if a := p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a?dryRun=All", `{"spec":{"size":8}}`, "Content-Type", "application/merge-patch+json"); a.Field("spec", "size") != 8.0 {
		t.Errorf("patch: %s", a)
	}
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a?dryRun=All", "")
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", `{"dryRun":["All"]}`)
	p.Must(t, 422, "DELETE", planetest.WidgetsPath+"/a?dryRun=Some", "")
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// What pruning, defaulting or the rules of a built-in kind changed can be seen in the
// log: it has the request as it was sent, too.
func TestEventsHaveTheRequestAsItWas(t *testing.T) {
	p := planetest.NewPlane(t)
	const complete = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"c"},"spec":{"size":1,"color":"red"}}`
	for _, tc := range []struct {
		path, body string
		adapted    bool
	}{
		{planetest.WidgetsPath, planetest.Widget("defaulted", 1), true},
		{planetest.WidgetsPath, complete, false},
		{"/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"a":"b"},"data":{},"type":"Opaque"}`, true},
		{"/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"},"data":{"a":"b"}}`, false},
	} {
		p.Must(t, 201, "POST", tc.path, tc.body)
		batches, err := p.Log.Back(t.Context(), p.Committer.Tip().Revision(), 1)
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
