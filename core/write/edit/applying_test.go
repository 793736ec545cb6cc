package edit_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// current is a body with the resourceVersion of an answer.
func current(a planetest.Answer, body string) string {
	return strings.Replace(body, `"metadata":{`, fmt.Sprintf(`"metadata":{"resourceVersion":%q,`, a.Field("metadata", "resourceVersion")), 1)
}

func wantOwners(t testing.TB, a planetest.Answer, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, a.Owners(t)); diff != "" {
		t.Errorf("managedFields (-want +got):\n%s", diff)
	}
}

func TestEveryWriteSaysWhoSetWhat(t *testing.T) {
	p := planetest.NewPlane(t)
	const agent, create = "User-Agent", planetest.WidgetsPath + "?fieldManager=maker"
	a := p.Must(t, 201, "POST", create, planetest.Widget("a", 1), agent, "kubectl/v1")
	wantOwners(t, a, map[string]string{"maker Update example.com/v1": `{"f:spec":{".":{},"f:color":{},"f:size":{}}}`})

	// Another manager takes what it changes, and what is new.
	a = p.Patch("a", "merge", `{"metadata":{"labels":{"x":"y"}},"spec":{"size":2}}`, agent, "kubectl/v1.37 (linux)")
	wantOwners(t, a, map[string]string{
		"maker Update example.com/v1":   `{"f:spec":{".":{},"f:color":{}}}`,
		"kubectl Update example.com/v1": `{"f:metadata":{"f:labels":{".":{},"f:x":{}}},"f:spec":{"f:size":{}}}`,
	})
	// A status is written somewhere else.
	a = p.Do("PATCH", planetest.WidgetsPath+"/a/status", `{"status":{"ready":true},"spec":{"size":77}}`, "Content-Type", "application/merge-patch+json", agent, "controller")
	wantOwners(t, a, map[string]string{
		"maker Update example.com/v1":             `{"f:spec":{".":{},"f:color":{}}}`,
		"kubectl Update example.com/v1":           `{"f:metadata":{"f:labels":{".":{},"f:x":{}}},"f:spec":{"f:size":{}}}`,
		"controller Update example.com/v1 status": `{"f:status":{".":{},"f:note":{},"f:ready":{}}}`,
	})
	// What is gone belongs to nobody.
	a = p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a?fieldManager=maker", current(a, planetest.Widget("a", 3)))
	wantOwners(t, a, map[string]string{
		"maker Update example.com/v1":             `{"f:spec":{".":{},"f:color":{},"f:size":{}}}`,
		"controller Update example.com/v1 status": `{"f:status":{".":{},"f:note":{},"f:ready":{}}}`,
	})
}

func TestManagersWithoutAName(t *testing.T) {
	for agent, want := range map[string]string{
		"kubectl/v1.37": "kubectl", "": "", "a\x00b\u200b c/d/e": "ab c", strings.Repeat("x", 200): strings.Repeat("x", 128), strings.Repeat("é", 100): strings.Repeat("é", 64),
	} {
		if got := metadata.FieldManager(agent); got != want {
			t.Errorf("%q is %q, want %q", agent, got, want)
		}
	}
	p := planetest.NewPlane(t)
	wantOwners(t, p.Must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"a"},"spec":{"a":1}}`), map[string]string{"unknown Update example.com/v1": `{"f:spec":{".":{},"f:a":{}}}`})
}

// Clients may write managedFields themselves: forget them all, or be ignored.
func TestManagedFieldsThatClientsSend(t *testing.T) {
	p := planetest.NewPlane(t)
	sent := func(entries string) string {
		return strings.Replace(planetest.Widget("a", 1), `"name":"a"`, `"name":"a","managedFields":`+entries, 1)
	}
	mine := map[string]string{"me Update example.com/v1": `{"f:spec":{".":{},"f:color":{},"f:size":{}}}`}
	const other = `{"manager":"other","operation":"Apply","apiVersion":"example.com/v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:x":{}}}}}`
	a := p.Must(t, 201, "POST", planetest.WidgetsPath+"?fieldManager=me", sent("["+other+"]"))
	wantOwners(t, a, map[string]string{"me Update example.com/v1": mine["me Update example.com/v1"], "other Apply example.com/v1": `{"f:metadata":{"f:labels":{"f:x":{}}}}`})
	for _, invalid := range []string{`[{"manager":"m"}]`, `[{"operation":"Update","apiVersion":"v1","fieldsType":"X"}]`, `null`, `[]`} {
		if a = p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a?fieldManager=me", current(a, sent(invalid))); len(a.Owners(t)) != 2 {
			t.Errorf("%s made it %v", invalid, a.Owners(t))
		}
	}
	a = p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a?fieldManager=me", current(a, sent(`[{}]`)))
	if a.Field("metadata", "managedFields") != nil {
		t.Errorf("an entry without anything left %v", a.Owners(t))
	}
	// What is empty is the same in an object of a built-in kind.
	const configMaps = "/api/v1/namespaces/default/configmaps"
	c := p.Must(t, 201, "POST", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"v"}}`)
	if len(c.Owners(t)) == 0 {
		t.Error("nobody has made the ConfigMap")
	}
	c = p.Must(t, 200, "PUT", configMaps+"/c", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","managedFields":[]},"data":{"k":"v"}}`)
	if c.Field("metadata", "managedFields") != nil {
		t.Errorf("no entries left %v", c.Owners(t))
	}
	// Through a subresource they cannot be written.
	a = p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a?fieldManager=me", current(a, sent("["+other+"]")))
	a = p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a/status", current(a, sent("[]")))
	if len(a.Owners(t)) == 0 {
		t.Error("a status update forgot who set what")
	}
}

func TestThereAreNeverTooManyUpdaters(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath+"?fieldManager=m0", planetest.Widget("a", 1))
	var a planetest.Answer
	for i := range 15 {
		a = p.Must(t, 200, "PATCH", fmt.Sprintf("%s/a?fieldManager=m%d", planetest.WidgetsPath, i+1), fmt.Sprintf(`{"metadata":{"labels":{"l%d":"v"}}}`, i), "Content-Type", "application/merge-patch+json")
	}
	owners := a.Owners(t)
	if len(owners) != 10 || owners["ancient-changes Update example.com/v1"] == "" {
		t.Errorf("%d: %v", len(owners), owners)
	}
}

const sized = `apiVersion: example.com/v1
kind: Widget
metadata: {name: a, labels: {x: "1"}}
spec: {size: 5}
`

func TestApply(t *testing.T) {
	p := planetest.NewPlane(t)
	a := p.Apply("a", "ann", sized)
	if a.Code != 201 || a.Field("spec", "color") != "blue" || a.Field("metadata", "generation") != 1.0 || a.Field("metadata", "uid") == nil {
		t.Fatalf("created: %s", a)
	}
	ann := `{"f:metadata":{"f:labels":{"f:x":{}}},"f:spec":{"f:size":{}}}`
	wantOwners(t, a, map[string]string{"ann Apply example.com/v1": ann})

	// The same again is no write.
	before := p.Committer.Tip().Revision()
	if again := p.Apply("a", "ann", sized); again.Code != 200 || string(again.Body) != string(a.Body) || p.Committer.Tip().Revision() != before {
		t.Errorf("once more: %s", again)
	}
	// Two can want the same, and are both asked before it changes.
	bob := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":5,"owner":"bob@example.com"}}`
	a = p.Apply("a", "bob", bob)
	wantOwners(t, a, map[string]string{"ann Apply example.com/v1": ann, "bob Apply example.com/v1": `{"f:spec":{"f:owner":{},"f:size":{}}}`})
	before = p.Committer.Tip().Revision()
	a = p.Apply("a", "bob", strings.Replace(bob, `"size":5`, `"size":6`, 1))
	if a.Code != 409 || a.Field("reason") != "Conflict" || a.Field("message") != `Apply failed with 1 conflict: conflict with "ann": .spec.size` || p.Committer.Tip().Revision() != before {
		t.Errorf("conflict: %s", a)
	}
	if diff := cmp.Diff([]any{map[string]any{"reason": "FieldManagerConflict", "message": `conflict with "ann"`, "field": ".spec.size"}}, a.Field("details", "causes")); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
	a = p.Apply("a", "bob", strings.Replace(bob, `"size":5`, `"size":6`, 1), "&force=true")
	if a.Code != 200 || a.Field("spec", "size") != 6.0 || a.Field("metadata", "generation") != 3.0 {
		t.Errorf("forced: %s", a)
	}
	wantOwners(t, a, map[string]string{"ann Apply example.com/v1": `{"f:metadata":{"f:labels":{"f:x":{}}}}`, "bob Apply example.com/v1": `{"f:spec":{"f:owner":{},"f:size":{}}}`})

	// What nobody wants any more goes, and a default comes back.
	a = p.Apply("a", "bob", `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"size":6,"color":"red"}}`)
	if a.Field("spec", "owner") != nil || a.Field("spec", "color") != "red" {
		t.Errorf("withdrawn: %s", a)
	}
	a = p.Apply("a", "bob", `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"size":6}}`)
	if a.Field("spec", "color") != "blue" {
		t.Errorf("default: %s", a)
	}
}

func TestApplyIsInTheLogAsWhatItIs(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Apply("a", "ann", sized)
	batches, err := p.Log.Back(t.Context(), p.Committer.Tip().Revision(), 1)
	if err != nil {
		t.Fatal(err)
	}
	meta := batches[0].Events[len(batches[0].Events)-1].Meta
	if meta.Type != logpb.Type_TYPE_CREATED || meta.Request.Verb != "patch" || meta.Request.FieldManager != "ann" || meta.Request.MediaType != planetest.Applied || meta.Request.Status != 201 {
		t.Errorf("event %v", meta)
	}
}

func TestApplyToTheStatus(t *testing.T) {
	p := planetest.NewPlane(t)
	const status = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"no":"no"}},"spec":{"size":9},"status":{"ready":true}}`
	p.Must(t, 404, "PATCH", planetest.WidgetsPath+"/a/status?fieldManager=c", status, "Content-Type", planetest.Applied)
	p.Apply("a", "ann", sized)
	a := p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/status?fieldManager=c", status, "Content-Type", planetest.Applied)
	if a.Field("spec", "size") != 5.0 || a.Field("status", "ready") != true || a.Field("metadata", "labels", "no") != nil {
		t.Errorf("status: %s", a)
	}
	wantOwners(t, a, map[string]string{
		"ann Apply example.com/v1":      `{"f:metadata":{"f:labels":{"f:x":{}}},"f:spec":{"f:size":{}}}`,
		"c Apply example.com/v1 status": `{"f:status":{"f:ready":{}}}`,
	})
	before := p.Committer.Tip().Revision()
	// To the object itself its status says nothing, not even when.
	again := p.Apply("a", "ann", sized+"status: {ready: false}\n")
	if again.Code != 200 || string(again.Body) != string(a.Body) || p.Committer.Tip().Revision() != before {
		t.Errorf("with a status: %s\nnot\n%s", again, a)
	}
}

func TestBadApplies(t *testing.T) {
	p := planetest.NewPlane(t)
	there := p.Apply("a", "ann", sized)
	before := p.Committer.Tip().Revision()
	const head = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"`
	for _, tc := range []struct {
		name, path, body string
		code             int
		message          string
	}{
		{"no manager", "/a", sized, 422, `fieldManager: Required value: is required for apply patch`},
		{"no YAML", "/a?fieldManager=m", "a: [", 400, "error encoding patch: "},
		{"no object", "/a?fieldManager=m", "[1]", 400, "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array"},
		{"nothing", "/a?fieldManager=m", "", 400, "invalid object type: /, Kind="},
		{"of no kind", "/a?fieldManager=m", `{"metadata":{"name":"a"}}`, 400, "invalid object type: /, Kind="},
		{"of another kind", "/a?fieldManager=m", `{"apiVersion":"example.com/v1","kind":"Plain"}`, 400, "invalid object type: example.com/v1, Kind=Plain"},
		{"in another version", "/a?fieldManager=m", `{"apiVersion":"example.com/v2","kind":"Widget"}`, 400, "invalid object type: example.com/v2, Kind=Widget"},
		{"managedFields", "/a?fieldManager=m", head + `,"managedFields":[]}}`, 400, "metadata.managedFields must be nil"},
		{"an unknown field", "/a?fieldManager=m", head + `},"spec":{"sise":1}}`, 400, "failed to create typed patch object (/a; example.com/v1, Kind=Widget): .spec.sise: field not declared in schema"},
		{"a wrong type", "/a?fieldManager=m", head + `},"spec":5}`, 400, "failed to create typed patch object"},
		{"metadata that is none", "/a?fieldManager=m", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":5}`, 400, "failed to create typed patch object"},
		{"an invalid value", "/a?fieldManager=m&force=true", head + `},"spec":{"size":-5}}`, 422, "spec.size: Invalid value"},
		{"another name", "/b?fieldManager=m", head + `},"spec":{"size":5}}`, 400, "the name of the object (a) does not match the name on the URL (b)"},
		{"no name of what is new", "/b?fieldManager=m", `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"size":5}}`, 400, "the name of the object (b based on URL) was undeterminable: name must be provided"},
		{"another namespace", "/a?fieldManager=m", head + `,"namespace":"other"}}`, 400, "the namespace of the provided object does not match the namespace sent on the request"},
		{"an old resourceVersion", "/a?fieldManager=m", head + `,"resourceVersion":"1"}}`, 409, "the object has been modified; please apply your changes to the latest version and try again"},
		{"another uid", "/a?fieldManager=m", head + `,"uid":"other"}}`, 422, "metadata.uid: Invalid value"},
		{"a uid of what is new", "/b?fieldManager=m", strings.Replace(head, `"a"`, `"b"`, 1) + `,"uid":"u"},"spec":{"size":1}}`, 409, "uid mismatch: the provided object specified uid u, and no existing object was found"},
		{"twice, strictly", "/a?fieldManager=m&fieldValidation=Strict", head + `},"kind":"Widget"}`, 400, "error strict decoding patch: "},
		{"twice in YAML, strictly", "/a?fieldManager=m&fieldValidation=Strict", sized + "kind: Widget\n", 400, `key "kind" already set in map`},
	} {
		a := p.Do("PATCH", planetest.WidgetsPath+tc.path, tc.body, "Content-Type", planetest.Applied)
		if a.Code != tc.code || !strings.Contains(fmt.Sprint(a.Field("message")), tc.message) {
			t.Errorf("%s: %s\nwant %d %s", tc.name, a, tc.code, tc.message)
		}
	}
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
	// By default it is only warned of what is said twice.
	a := p.Apply("a", "ann", sized+"kind: Widget\n")
	if a.Code != 200 || string(a.Body) != string(there.Body) || !strings.Contains(a.Header.Get("Warning"), `already set in map`) {
		t.Errorf("twice: %s %v", a, a.Header)
	}
	a = p.Do("PATCH", planetest.WidgetsPath+"/a", "{}", "Content-Type", "text/plain")
	const list = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
	if a.Code != 415 || a.Field("message") != list {
		t.Errorf("%s", a)
	}
	a = p.Do("PATCH", "/api/v1/namespaces/default/configmaps/a", "{}", "Content-Type", "text/plain")
	if want := strings.Replace(list, "application/apply", "application/strategic-merge-patch+json, application/apply", 1); a.Code != 415 || a.Field("message") != want {
		t.Errorf("%s", a)
	}
}

// Who applies what is not there creates it.
func TestToApplyWhatIsNotThereTakesThePermissionToCreate(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.NewReplacer("bindings: editors:", `
		clusterRoles: patchers: rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["patch"]}
		clusterRoles: creators: rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["create"]}
		bindings: patchers: {clusterRole: "patchers", subjects: [{group: "patchers"}, {group: "makers"}], namespaces: ["*"]}
		bindings: makers: {clusterRole: "creators", subjects: [{group: "makers"}], namespaces: ["*"], when: "object.spec.size <= 5"}
		bindings: editors:`).Replace(planetest.Bundle))
	as := func(group, name string, size int) planetest.Answer {
		return p.Do("PATCH", planetest.WidgetsPath+"/"+name+"?fieldManager=m&force=true", planetest.Widget(name, size), "Content-Type", planetest.Applied, "Impersonate-User", "u", "Impersonate-Group", group)
	}
	if a := as("patchers", "a", 1); a.Code != 403 || !strings.Contains(string(a.Body), `cannot create resource \"widgets\"`) {
		t.Errorf("without: %s", a)
	}
	if a := as("makers", "a", 6); a.Code != 403 || !strings.Contains(string(a.Body), `cannot create resource \"widgets\"`) {
		t.Errorf("against its condition: %s", a)
	}
	if a := as("makers", "a", 5); a.Code != 201 {
		t.Errorf("as its condition wants: %s", a)
	}
	if a := as("patchers", "a", 6); a.Code != 200 {
		t.Errorf("what is there: %s", a)
	}
	const gone = "/apis/example.com/v1/namespaces/gone/widgets/a?fieldManager=m"
	if a := p.Do("PATCH", gone, planetest.Widget("a", 1), "Content-Type", planetest.Applied); a.Code != 404 || a.Field("message") != `namespaces "gone" not found` {
		t.Errorf("in no namespace: %s", a)
	}
}

func TestADryRunOfApply(t *testing.T) {
	p := planetest.NewPlane(t)
	before := p.Committer.Tip().Revision()
	if a := p.Apply("a", "ann", sized, "&dryRun=All"); a.Code != 201 || len(a.Owners(t)) != 1 {
		t.Errorf("of what is not there: %s", a)
	}
	if p.Committer.Tip().Revision() != before {
		t.Error("it wrote")
	}
	p.Apply("a", "ann", sized)
	if a := p.Apply("a", "bob", strings.Replace(sized, "5", "6", 1), "&dryRun=All"); a.Code != 409 {
		t.Errorf("of a conflict: %s", a)
	}
	if a := p.Apply("a", "ann", strings.Replace(sized, "5", "6", 1), "&dryRun=All"); a.Code != 200 || a.Field("spec", "size") != 6.0 {
		t.Errorf("of a change: %s", a)
	}
}

// Clients that applied with an annotation go on with server-side apply, as kubectl does.
func TestApplyTakesOverWhatKubectlKeptInAnAnnotation(t *testing.T) {
	p := planetest.NewPlane(t)
	const last = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{},"name":"a","namespace":"default"},"spec":{"size":5}}`
	annotated := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","annotations":{"kubectl.kubernetes.io/last-applied-configuration":%q}},"spec":{"size":5}}`, last)
	p.Must(t, 201, "POST", planetest.WidgetsPath+"?fieldManager=kubectl-client-side-apply", annotated)
	if a := p.Apply("a", "other", strings.Replace(sized, "5", "7", 1)); a.Code != 409 {
		t.Errorf("another manager: %s", a)
	}
	a := p.Apply("a", "kubectl", strings.Replace(sized, "5", "7", 1))
	if a.Code != 200 || a.Field("spec", "size") != 7.0 {
		t.Fatalf("kubectl: %s", a)
	}
	annotation := fmt.Sprint(a.Field("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"))
	if !strings.Contains(annotation, `"spec":{"size":7}`) {
		t.Errorf("the annotation is %s", annotation)
	}
}

// Times are no change, whoever sends them, and whatever is empty beside them.
func TestTimesOfManagersAloneAreNoChange(t *testing.T) {
	p := planetest.NewPlane(t)
	at := regexp.MustCompile(`"time":"[^"]*"`)
	const configMaps = "/api/v1/namespaces/default/configmaps"
	for _, tc := range []struct{ path, body string }{
		{planetest.WidgetsPath + "/a", planetest.Widget("a", 1)},
		{planetest.WidgetsPath + "/b", strings.Replace(planetest.Widget("b", 1), `"name":"b"`, `"name":"b","labels":{},"finalizers":[]`, 1)},
		{configMaps + "/c", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","finalizers":["x.io/a"]},"data":null}`},
	} {
		apply := func() planetest.Answer {
			return p.Do("PATCH", tc.path+"?fieldManager=one", tc.body, "Content-Type", planetest.Applied)
		}
		a := apply()
		// As if that were long ago.
		older := at.ReplaceAllString(string(a.Body), `"time":"2001-01-01T00:00:00Z"`)
		older = strings.Replace(older, `"metadata":{`, `"metadata":{"annotations":{"x":"y"},`, 1)
		a = p.Must(t, 200, "PUT", tc.path+"?fieldManager=two", older)
		if !strings.Contains(string(a.Body), "2001-01-01") {
			t.Fatalf("updated to %s", a)
		}
		revision := p.Committer.Tip().Revision()
		if b := apply(); b.Code != 200 || string(b.Body) != string(a.Body) {
			t.Errorf("applied again:\n%s\nbefore:\n%s", b, a)
		}
		if b := p.Do("PUT", tc.path, at.ReplaceAllString(string(a.Body), `"time":"2002-02-02T00:00:00Z"`)); b.Code != 200 || string(b.Body) != string(a.Body) {
			t.Errorf("updated to\n%s\nfrom\n%s", b, a)
		}
		if after := p.Committer.Tip().Revision(); after != revision {
			t.Errorf("%s: the log went from %d to %d", tc.path, revision, after)
		}
	}
}

// Objects from before there were managedFields belong to "before-first-apply".
func TestApplyToAnObjectThatNobodyManages(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 5))
	p.Patch("a", "merge", `{"metadata":{"managedFields":[{}]}}`)
	a := p.Patch("a", "merge", `{"spec":{"color":"red"}}`)
	if a.Field("metadata", "managedFields") != nil {
		t.Errorf("an update began to keep them: %s", a)
	}
	a = p.Apply("a", "ann", sized)
	wantOwners(t, a, map[string]string{
		"ann Apply example.com/v1":                 `{"f:metadata":{"f:labels":{"f:x":{}}},"f:spec":{"f:size":{}}}`,
		"before-first-apply Update example.com/v1": `{"f:spec":{".":{},"f:color":{},"f:size":{}}}`,
	})
}

// The versions of a kind share what is managed.
func TestApplyInAnotherVersion(t *testing.T) {
	p := planetest.NewVersioned(t)
	p.Must(t, 201, "PATCH", planetest.WidgetsPath+"/a?fieldManager=m", planetest.Widget("a", 1), "Content-Type", planetest.Applied)
	beta := strings.Replace(planetest.Widget("a", 2), "example.com/v1", "example.com/v1beta1", 1)
	a := p.Must(t, 200, "PATCH", planetest.BetaPath+"/a?fieldManager=m", beta, "Content-Type", planetest.Applied)
	if a.Field("apiVersion") != "example.com/v1beta1" || a.Field("spec", "size") != 2.0 {
		t.Errorf("%s", a)
	}
	wantOwners(t, a, map[string]string{"m Apply example.com/v1beta1": `{"f:spec":{"f:size":{}}}`})
	if a := p.Do("PATCH", planetest.WidgetsPath+"/a?fieldManager=n", planetest.Widget("a", 3), "Content-Type", planetest.Applied); a.Code != 409 || a.Field("message") != `Apply failed with 1 conflict: conflict with "m": .spec.size` {
		t.Errorf("%s", a)
	}
}
func TestTooMuchToSayWhoSetWhat(t *testing.T) {
	p := planetest.NewPlane(t)
	var limits strings.Builder
	for i := range 180_000 {
		fmt.Fprintf(&limits, `"k%07d":1,`, i)
	}
	body := strings.Replace(planetest.Widget("a", 1), `"size":1`, `"size":1,"limits":{`+strings.TrimSuffix(limits.String(), ",")+`}`, 1)
	a := p.Must(t, 201, "POST", planetest.WidgetsPath, body)
	if len(a.Owners(t)) > 0 {
		t.Error("it says who set each of 180000 fields")
	}
	p.Must(t, 413, "PATCH", planetest.WidgetsPath+"/b?fieldManager=m", strings.Replace(body, `"a"`, `"b"`, 1), "Content-Type", planetest.Applied)
}

// What cannot be decoded is not quoted if it may hold a secret: refusals are remembered.
func TestUndecodableSecretsAreNotQuoted(t *testing.T) {
	p := planetest.NewPlane(t)
	const secrets = "/api/v1/namespaces/default/secrets"
	for name, tc := range map[string]struct{ method, path, contentType, body string }{
		"create":          {"POST", secrets, "application/json", `{"stringData":{"p":"hunter2"},`},
		"create as YAML":  {"POST", secrets, "application/yaml", "stringData: {password: *hunter2}"},
		"update":          {"PUT", secrets + "/s", "application/json", `{"stringData":{"p":"hunter2"},`},
		"apply":           {"PATCH", secrets + "/s?fieldManager=m", planetest.Applied, "stringData: {password: *hunter2}"},
		"apply no object": {"PATCH", secrets + "/s?fieldManager=m", planetest.Applied, "hunter2 is no object"},
		"merge patch":     {"PATCH", secrets + "/s", planetest.MergePatch, `{"stringData":{"p":"hunter2"},`},
	} {
		a := p.Do(tc.method, tc.path, tc.body, "Content-Type", tc.contentType, "Audit-ID", "refused-"+tc.method)
		if a.Code != 400 && a.Code != 404 {
			t.Errorf("%s: %s", name, a)
		}
		remembered := p.Must(t, 200, "GET", "/apis/policy.stele.dev/v1/explanations/refused-"+tc.method, "")
		for _, text := range []string{string(a.Body), string(remembered.Body)} {
			if strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", tc.body[:8])) {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

// Of a kind with secrets neither what is there nor what is sent is quoted for want of its kind.
func TestSensitiveObjectsWithoutAKindAreNotQuoted(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.Replace(planetest.Bundle, "owner?:", "token?: string @stele(sensitive)\n\t\towner?:", 1))
	secret := strings.Replace(planetest.Widget("a", 1), `"size":1`, `"size":1,"token":"hunter2"`, 1)
	p.Must(t, 201, "POST", planetest.WidgetsPath, secret)
	for name, a := range map[string]planetest.Answer{
		"patch":  p.Patch("a", "merge", `{"kind":null}`),
		"update": p.Do("PUT", planetest.WidgetsPath+"/a", strings.Replace(secret, `"kind":"Widget",`, "", 1)),
	} {
		if a.Code < 400 || a.Code >= 500 || strings.Contains(string(a.Body), "hunter2") {
			t.Errorf("%s: %s", name, a)
		}
	}
}
