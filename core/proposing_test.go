package core_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
)

const policiesPath = "/apis/policy.stele.dev/v1/policies"

// policyBody is a bundle of these tests as it is pushed.
func policyBody(t *testing.T, bundle string, change func(*activation.Policy)) string {
	t.Helper()
	p := &activation.Policy{Spec: activation.SpecOf(planetest.Compile(t, bundle).Source)}
	p.APIVersion, p.Kind = "policy.stele.dev/v1", "Policy"
	if change != nil {
		change(p)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// narrower is the bundle of these tests with a smaller bound, and without editors.
var narrower = strings.NewReplacer("int & >0 & <=1000", "int & >0 & <=10", `{group: "editors"}`, `{group: "nobody"}`).Replace(bundle)

func TestAPolicyIsReplaced(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 500))
	before := p.must(t, 200, "GET", policiesPath, "").field("items").([]any)[0].(map[string]any)["metadata"].(map[string]any)["name"].(string)

	if a := p.must(t, 200, "POST", policiesPath, policyBody(t, bundle, nil)); a.field("metadata", "name") != before {
		t.Errorf("the one in force again: %s", a)
	}
	revision := p.committer.Tip().Revision()
	if a := p.must(t, 201, "POST", policiesPath+"?dryRun=All", policyBody(t, narrower, nil)); a.field("metadata", "name") == before || p.committer.Tip().Revision() != revision {
		t.Errorf("a dry run: %s", a)
	}
	a := p.must(t, 201, "POST", policiesPath, policyBody(t, narrower, func(p *activation.Policy) { p.Spec.Replaces, p.Spec.Commit = before, "c0ffee" }), "User-Agent", "tests")
	after := fmt.Sprint(a.field("metadata", "name"))
	if a.field("status", "revision") != float64(p.committer.Tip().Revision()) || a.field("status", "actor") != "admin" {
		t.Errorf("%s", a)
	}
	if got := p.must(t, 200, "GET", policiesPath+"/"+after, ""); got.field("spec", "commit") != "c0ffee" {
		t.Errorf("in force: %s", got)
	}
	old := p.must(t, 200, "GET", policiesPath+"/"+before, "")
	if files := fmt.Sprint(old.field("spec", "files")); !strings.Contains(files, "int & >0 & <=1000") || old.field("status", "inForce") != false {
		t.Errorf("the one before: %s", old)
	}
	p.must(t, 404, "GET", policiesPath+"/0000", "")
	if ready := p.must(t, 200, "GET", "/readyz?verbose", ""); !strings.Contains(string(ready.body), fmt.Sprintf("[+]policy ok: %s is in force since revision %d\n", after, p.committer.Tip().PolicyRevision())) {
		t.Errorf("%s", ready)
	}
	for _, path := range []string{widgetsPath, "/readyz", widgetsPath + "/none"} {
		if got := p.do("GET", path, "").header.Get("Stele-Policy"); got != after {
			t.Errorf("%s was answered under the policy %q", path, got)
		}
	}

	// What was there stays readable; what is written keeps to the new law.
	p.must(t, 200, "GET", widgetsPath+"/a", "")
	p.must(t, 422, "POST", widgetsPath, widget("b", 500))
	p.must(t, 201, "POST", widgetsPath, widget("b", 5))
	p.must(t, 403, "GET", widgetsPath, "", "Authorization", "Bearer editor-token")

	// The log tells who, and what allowed it, once.
	changes := p.must(t, 200, "GET", changesPath+"?fieldSelector=type%3DPolicyActivated", "")
	first := changes.field("items").([]any)[0].(map[string]any)
	if first["policy"] != after || first["actor"].(map[string]any)["user"] != "admin" || first["request"].(map[string]any)["userAgent"] != "tests" {
		t.Errorf("the activation: %v", first)
	}

	for name, tc := range map[string]struct {
		body     string
		as       string
		code     int
		contains string
	}{
		"in place of another":            {policyBody(t, bundle, func(p *activation.Policy) { p.Spec.Replaces = before }), "admin", 409, "is in force, activated at revision"},
		"without a kind that is used":    {policyBody(t, confined, nil), "admin", 409, "of widgets.example.com exist"},
		"with a kind under another name": {policyBody(t, strings.NewReplacer(`kind: "Widget"`, `kind: "Gizmo"`).Replace(bundle), nil), "admin", 409, "of widgets.example.com exist"},
		"with another version":           {policyBody(t, strings.NewReplacer(`storageVersion: "v1"`, `storageVersion: "v2"`, "versions: v1: {\n\t\t\t\t#schema: #Widget", "versions: v2: {\n\t\t\t\t#schema: #Widget", "versions: v1: #schema: {spec?", "versions: v2: #schema: {spec?").Replace(bundle), nil), "admin", 409, "of widgets.example.com exist"},
		"by somebody who may not":        {policyBody(t, bundle, nil), "editor", 403, `cannot create resource "policies" in API group "policy.stele.dev"`},
		"with errors": {policyBody(t, bundle, func(p *activation.Policy) {
			for i, f := range p.Spec.Files {
				if f.Path == "bundle.cue" {
					p.Spec.Files[i].Data = strings.Replace(f.Data, "reader", "nobody-at-all", 1)
				}
			}
		}), "admin", 422, "bundle.cue:"},
		"of another control plane": {policyBody(t, elsewhere, nil), "admin", 409,
			`the policy in force is of the control plane "test", this one is of "prod-eu"; if that is meant, push it with --rename (spec.rename)`},
		"without files":      {`{"apiVersion":"policy.stele.dev/v1","kind":"Policy","spec":{"package":"."}}`, "admin", 422, "spec.files: Required value"},
		"with files outside": {`{"apiVersion":"policy.stele.dev/v1","kind":"Policy","spec":{"package":".","files":[{"path":"/etc/x.cue","data":""}]}}`, "admin", 422, "spec.files[0].path"},
		"with unknown parts": {`{"apiVersion":"policy.stele.dev/v1","kind":"Policy","spec":{"package":".","denies":[]}}`, "admin", 400, "unknown field"},
		"of another kind":    {`{"apiVersion":"v1","kind":"ConfigMap"}`, "admin", 400, "must be of type Policy"},
		"that is no JSON":    {`{`, "admin", 400, ""},
	} {
		revision := p.committer.Tip().Revision()
		a := p.must(t, tc.code, "POST", policiesPath, tc.body, "Authorization", "Bearer "+tc.as+"-token")
		if !strings.Contains(strings.ReplaceAll(string(a.body), `\"`, `"`), tc.contains) || p.committer.Tip().Revision() != revision {
			t.Errorf("%s: %s", name, a)
		}
	}
	p.must(t, 405, "DELETE", policiesPath+"/"+after, "")
	if a := p.must(t, 200, "GET", policiesPath+"?fieldSelector=metadata.name%3Dother", ""); len(a.field("items").([]any)) != 0 {
		t.Errorf("by another name: %s", a)
	}
	p.must(t, 400, "GET", policiesPath+"?fieldSelector=status.actor%3Dx", "")
	p.must(t, 400, "GET", policiesPath+"?labelSelector=a", "")
	p.must(t, 405, "PUT", policiesPath+"/"+after, "{}")
}

// elsewhere is the bundle of these tests as another control plane would have it.
var elsewhere = strings.Replace(bundle, `cluster: "test"`, `cluster: "prod-eu"`, 1)

func TestAControlPlaneIsRenamedOnPurpose(t *testing.T) {
	p := newPlane(t)
	renaming := func(p *activation.Policy) { p.Spec.Rename = true }
	p.must(t, 409, "POST", policiesPath+"?dryRun=All", policyBody(t, elsewhere, nil))
	p.must(t, 201, "POST", policiesPath+"?dryRun=All", policyBody(t, elsewhere, renaming))
	a := p.must(t, 201, "POST", policiesPath, policyBody(t, elsewhere, renaming))
	if a.field("status", "cluster") != "prod-eu" {
		t.Errorf("renamed: %s", a)
	}
	items := p.must(t, 200, "GET", policiesPath, "").field("items").([]any)
	before := items[1].(map[string]any)["metadata"].(map[string]any)["name"]
	if a := p.must(t, 200, "GET", fmt.Sprint(policiesPath, "/", before), ""); a.field("status", "cluster") != "test" {
		t.Errorf("the one before: %s", a)
	}
	p.must(t, 409, "POST", policiesPath, policyBody(t, narrower, nil))
}

// P3: a watch ends when its permission goes, and goes on under a policy that leaves it.
func TestWatchesEndWithTheirPermission(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	editor := p.watch(t, widgetsPath+"?watch=1", "Authorization", "Bearer editor-token")
	reader := p.watch(t, widgetsPath+"?watch=1", "Authorization", "Bearer reader-token")
	log := p.watch(t, changesPath+"?watch=1&fieldSelector=type%3DCreated", "Authorization", "Bearer reader-token")
	editor.next(t)
	reader.next(t)
	p.must(t, 201, "POST", policiesPath, policyBody(t, narrower, nil))
	e := editor.next(t)
	if e.Type != "ERROR" || e.Object["code"] != float64(403) || !strings.Contains(fmt.Sprint(e.Object["message"]), `User "eddie" cannot watch resource "widgets"`) {
		t.Errorf("whose permission went: %v", e)
	}
	p.must(t, 201, "POST", widgetsPath, widget("b", 1))
	if e := reader.next(t); e.Type != "ADDED" {
		t.Errorf("who may still watch: %v", e)
	}
	if e := log.next(t); e.Type != "ADDED" || e.Object["type"] != "Created" {
		t.Errorf("who may still read the log: %v", e)
	}
}

// A watch by a field that can no longer be selected by would be told nothing any more.
func TestWatchesEndWithTheirSelector(t *testing.T) {
	p := newPlane(t)
	w := p.watch(t, widgetsPath+"?watch=1&fieldSelector=spec.color%3Dred")
	p.must(t, 201, "POST", policiesPath, policyBody(t, strings.Replace(bundle, `[".spec.color"]`, `[]`, 1), nil))
	if e := w.next(t); e.Type != "ERROR" || e.Object["code"] != float64(410) {
		t.Errorf("%v", e)
	}
}

// A policy that lacks a field which objects have is refused, unless that is meant.
func TestAPolicyThatDropsFieldsIsRefused(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", policiesPath+"?dryRun=All", policyBody(t, colorless, nil)) // nothing has the field
	for _, name := range []string{"a", "b", "c"} {
		p.must(t, 201, "POST", widgetsPath, widget(name, 1))
	}
	p.must(t, 200, "PATCH", widgetsPath+"/a", `{"spec":{"ports":[{"name":"x","port":1},{"name":"y","port":2}]}}`, "Content-Type", mergePatch)
	dropping := func(p *activation.Policy) { p.Spec.DropFields = true }
	without := strings.NewReplacer(`ports?: [...{name!: string, port!: int & >0}]`, `ports?: [...{name!: string}]`).Replace(colorless)
	revision := p.committer.Tip().Revision()
	for _, query := range []string{"", "?dryRun=All"} {
		a := p.must(t, 409, "POST", policiesPath+query, policyBody(t, without, nil))
		for _, want := range []string{
			"widgets.example.com: spec.color is not in the new schema; 3 objects have it, for example default/a",
			"widgets.example.com: spec.ports[].port is not in the new schema; 1 object has it, for example default/a",
			"--drop-fields",
		} {
			if !strings.Contains(string(a.body), want) {
				t.Errorf("%s does not say %q", a, want)
			}
		}
	}
	if p.committer.Tip().Revision() != revision {
		t.Error("what was refused is in the log")
	}
	a := p.must(t, 201, "POST", policiesPath+"?dryRun=All", policyBody(t, without, dropping))
	if warnings := strings.Join(a.header.Values("Warning"), "\n"); !strings.Contains(warnings, "3 objects have it") {
		t.Errorf("warnings: %s", warnings)
	}
	p.must(t, 201, "POST", policiesPath, policyBody(t, without, dropping))
	p.must(t, 201, "POST", policiesPath, policyBody(t, bundle, nil))
	if got := p.must(t, 200, "GET", widgetsPath+"/b", "").field("spec", "color"); got != "blue" {
		t.Errorf("the field is back as %v", got)
	}
}

// A schema may lose many fields at once: an answer tells the first of them.
func TestAnAnswerTellsSomeOfTheFieldsThatAreDropped(t *testing.T) {
	p := newPlane(t)
	var fields strings.Builder
	spec := map[string]int{"size": 1}
	for i := range 100 {
		fmt.Fprintf(&fields, "f%d?: int\n\t\t", i)
		spec[fmt.Sprint("f", i)] = i
	}
	p.must(t, 201, "POST", policiesPath, policyBody(t, strings.Replace(bundle, "owner?:", fields.String()+"owner?:", 1), nil))
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	p.must(t, 201, "POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":`+string(text)+`}`)
	a := p.must(t, 409, "POST", policiesPath, policyBody(t, bundle, nil))
	if n := len(a.field("details", "causes").([]any)); n != 20 || !strings.Contains(string(a.body), "80 more fields") {
		t.Errorf("%d causes: %.2000s", n, a)
	}
}
