package activation_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
)

func TestAPolicyIsReplaced(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 500))
	before := p.Must(t, 200, "GET", planetest.PoliciesPath, "").Field("items").([]any)[0].(map[string]any)["metadata"].(map[string]any)["name"].(string)

	if a := p.Must(t, 200, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, planetest.Bundle, nil)); a.Field("metadata", "name") != before {
		t.Errorf("the one in force again: %s", a)
	}
	revision := p.Committer.Tip().Revision()
	if a := p.Must(t, 201, "POST", planetest.PoliciesPath+"?dryRun=All", planetest.PolicyBody(t, planetest.Narrower, nil)); a.Field("metadata", "name") == before || p.Committer.Tip().Revision() != revision {
		t.Errorf("a dry run: %s", a)
	}
	a := p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, planetest.Narrower, func(p *activation.Policy) { p.Spec.Replaces, p.Spec.Commit = before, "c0ffee" }), "User-Agent", "tests")
	after := fmt.Sprint(a.Field("metadata", "name"))
	if a.Field("status", "revision") != float64(p.Committer.Tip().Revision()) || a.Field("status", "actor") != "admin" {
		t.Errorf("%s", a)
	}
	if got := p.Must(t, 200, "GET", planetest.PoliciesPath+"/"+after, ""); got.Field("spec", "commit") != "c0ffee" {
		t.Errorf("in force: %s", got)
	}
	old := p.Must(t, 200, "GET", planetest.PoliciesPath+"/"+before, "")
	if files := fmt.Sprint(old.Field("spec", "files")); !strings.Contains(files, "int & >0 & <=1000") || old.Field("status", "inForce") != false {
		t.Errorf("the one before: %s", old)
	}
	p.Must(t, 404, "GET", planetest.PoliciesPath+"/0000", "")
	if ready := p.Must(t, 200, "GET", "/readyz?verbose", ""); !strings.Contains(string(ready.Body), fmt.Sprintf("[+]policy ok: %s is in force since revision %d\n", after, p.Committer.Tip().PolicyRevision())) {
		t.Errorf("%s", ready)
	}
	for _, path := range []string{planetest.WidgetsPath, "/readyz", planetest.WidgetsPath + "/none"} {
		if got := p.Do("GET", path, "").Header.Get("Stele-Policy"); got != after {
			t.Errorf("%s was answered under the policy %q", path, got)
		}
	}

	// What was there stays readable; what is written keeps to the new law.
	p.Must(t, 200, "GET", planetest.WidgetsPath+"/a", "")
	p.Must(t, 422, "POST", planetest.WidgetsPath, planetest.Widget("b", 500))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 5))
	p.Must(t, 403, "GET", planetest.WidgetsPath, "", "Authorization", "Bearer editor-token")

	// The log tells who, and what allowed it, once.
	changes := p.Must(t, 200, "GET", planetest.ChangesPath+"?fieldSelector=type%3DPolicyActivated", "")
	first := changes.Field("items").([]any)[0].(map[string]any)
	if first["policy"] != after || first["actor"].(map[string]any)["user"] != "admin" || first["request"].(map[string]any)["userAgent"] != "tests" {
		t.Errorf("the activation: %v", first)
	}

	for name, tc := range map[string]struct {
		body     string
		as       string
		code     int
		contains string
	}{
		"in place of another":            {planetest.PolicyBody(t, planetest.Bundle, func(p *activation.Policy) { p.Spec.Replaces = before }), "admin", 409, "is in force, activated at revision"},
		"without a kind that is used":    {planetest.PolicyBody(t, planetest.Confined, nil), "admin", 409, "of widgets.example.com exist"},
		"with a kind under another name": {planetest.PolicyBody(t, strings.NewReplacer(`kind: "Widget"`, `kind: "Gizmo"`).Replace(planetest.Bundle), nil), "admin", 409, "of widgets.example.com exist"},
		"with another version":           {planetest.PolicyBody(t, strings.NewReplacer(`storageVersion: "v1"`, `storageVersion: "v2"`, "versions: v1: {\n\t\t\t\t#schema: #Widget", "versions: v2: {\n\t\t\t\t#schema: #Widget", "versions: v1: #schema: {spec?", "versions: v2: #schema: {spec?").Replace(planetest.Bundle), nil), "admin", 409, "of widgets.example.com exist"},
		"by somebody who may not":        {planetest.PolicyBody(t, planetest.Bundle, nil), "editor", 403, `cannot create resource "policies" in API group "policy.stele.dev"`},
		"with errors": {planetest.PolicyBody(t, planetest.Bundle, func(p *activation.Policy) {
			for i, f := range p.Spec.Files {
				if f.Path == "bundle.cue" {
					p.Spec.Files[i].Data = strings.Replace(f.Data, "reader", "nobody-at-all", 1)
				}
			}
		}), "admin", 422, "bundle.cue:"},
		"of another control plane": {planetest.PolicyBody(t, elsewhere, nil), "admin", 409,
			`the policy in force is of the control plane "test", this one is of "prod-eu"; if that is meant, push it with --rename (spec.rename)`},
		"without files":      {`{"apiVersion":"policy.stele.dev/v1","kind":"Policy","spec":{"package":"."}}`, "admin", 422, "spec.files: Required value"},
		"with files outside": {`{"apiVersion":"policy.stele.dev/v1","kind":"Policy","spec":{"package":".","files":[{"path":"/etc/x.cue","data":""}]}}`, "admin", 422, "spec.files[0].path"},
		"with unknown parts": {`{"apiVersion":"policy.stele.dev/v1","kind":"Policy","spec":{"package":".","denies":[]}}`, "admin", 400, "unknown field"},
		"of another kind":    {`{"apiVersion":"v1","kind":"ConfigMap"}`, "admin", 400, "must be of type Policy"},
		"that is no JSON":    {`{`, "admin", 400, ""},
	} {
		revision := p.Committer.Tip().Revision()
		a := p.Must(t, tc.code, "POST", planetest.PoliciesPath, tc.body, "Authorization", "Bearer "+tc.as+"-token")
		if !strings.Contains(strings.ReplaceAll(string(a.Body), `\"`, `"`), tc.contains) || p.Committer.Tip().Revision() != revision {
			t.Errorf("%s: %s", name, a)
		}
	}
	p.Must(t, 405, "DELETE", planetest.PoliciesPath+"/"+after, "")
	if a := p.Must(t, 200, "GET", planetest.PoliciesPath+"?fieldSelector=metadata.name%3Dother", ""); len(a.Field("items").([]any)) != 0 {
		t.Errorf("by another name: %s", a)
	}
	p.Must(t, 400, "GET", planetest.PoliciesPath+"?fieldSelector=status.actor%3Dx", "")
	p.Must(t, 400, "GET", planetest.PoliciesPath+"?labelSelector=a", "")
	p.Must(t, 405, "PUT", planetest.PoliciesPath+"/"+after, "{}")
}

// elsewhere is the bundle of these tests as another control plane would have it.
var elsewhere = strings.Replace(planetest.Bundle, `cluster: "test"`, `cluster: "prod-eu"`, 1)

func TestAControlPlaneIsRenamedOnPurpose(t *testing.T) {
	p := planetest.NewPlane(t)
	renaming := func(p *activation.Policy) { p.Spec.Rename = true }
	p.Must(t, 409, "POST", planetest.PoliciesPath+"?dryRun=All", planetest.PolicyBody(t, elsewhere, nil))
	p.Must(t, 201, "POST", planetest.PoliciesPath+"?dryRun=All", planetest.PolicyBody(t, elsewhere, renaming))
	a := p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, elsewhere, renaming))
	if a.Field("status", "cluster") != "prod-eu" {
		t.Errorf("renamed: %s", a)
	}
	items := p.Must(t, 200, "GET", planetest.PoliciesPath, "").Field("items").([]any)
	before := items[1].(map[string]any)["metadata"].(map[string]any)["name"]
	if a := p.Must(t, 200, "GET", fmt.Sprint(planetest.PoliciesPath, "/", before), ""); a.Field("status", "cluster") != "test" {
		t.Errorf("the one before: %s", a)
	}
	p.Must(t, 409, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, planetest.Narrower, nil))
}

// P3: a watch ends when its permission goes, and goes on under a policy that leaves it.
func TestWatchesEndWithTheirPermission(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	editor := p.Watch(t, planetest.WidgetsPath+"?watch=1", "Authorization", "Bearer editor-token")
	reader := p.Watch(t, planetest.WidgetsPath+"?watch=1", "Authorization", "Bearer reader-token")
	log := p.Watch(t, planetest.ChangesPath+"?watch=1&fieldSelector=type%3DCreated", "Authorization", "Bearer reader-token")
	editor.Next(t)
	reader.Next(t)
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, planetest.Narrower, nil))
	e := editor.Next(t)
	if e.Type != "ERROR" || e.Object["code"] != float64(403) || !strings.Contains(fmt.Sprint(e.Object["message"]), `User "eddie" cannot watch resource "widgets"`) {
		t.Errorf("whose permission went: %v", e)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
	if e := reader.Next(t); e.Type != "ADDED" {
		t.Errorf("who may still watch: %v", e)
	}
	if e := log.Next(t); e.Type != "ADDED" || e.Object["type"] != "Created" {
		t.Errorf("who may still read the log: %v", e)
	}
}

// A watch by a field that can no longer be selected by would be told nothing any more.
func TestWatchesEndWithTheirSelector(t *testing.T) {
	p := planetest.NewPlane(t)
	w := p.Watch(t, planetest.WidgetsPath+"?watch=1&fieldSelector=spec.color%3Dred")
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, `[".spec.color"]`, `[]`, 1), nil))
	if e := w.Next(t); e.Type != "ERROR" || e.Object["code"] != float64(410) {
		t.Errorf("%v", e)
	}
}

// A policy that lacks a field which objects have is refused, unless that is meant.
func TestAPolicyThatDropsFieldsIsRefused(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.PoliciesPath+"?dryRun=All", planetest.PolicyBody(t, planetest.Colorless, nil)) // nothing has the field
	for _, name := range []string{"a", "b", "c"} {
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(name, 1))
	}
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"ports":[{"name":"x","port":1},{"name":"y","port":2}]}}`, "Content-Type", planetest.MergePatch)
	dropping := func(p *activation.Policy) { p.Spec.DropFields = true }
	without := strings.NewReplacer(`ports?: [...{name!: string, port!: int & >0}]`, `ports?: [...{name!: string}]`).Replace(planetest.Colorless)
	revision := p.Committer.Tip().Revision()
	for _, query := range []string{"", "?dryRun=All"} {
		a := p.Must(t, 409, "POST", planetest.PoliciesPath+query, planetest.PolicyBody(t, without, nil))
		for _, want := range []string{
			"widgets.example.com: spec.color is not in the new schema; 3 objects have it, for example default/a",
			"widgets.example.com: spec.ports[].port is not in the new schema; 1 object has it, for example default/a",
			"--drop-fields",
		} {
			if !strings.Contains(string(a.Body), want) {
				t.Errorf("%s does not say %q", a, want)
			}
		}
	}
	if p.Committer.Tip().Revision() != revision {
		t.Error("what was refused is in the log")
	}
	a := p.Must(t, 201, "POST", planetest.PoliciesPath+"?dryRun=All", planetest.PolicyBody(t, without, dropping))
	if warnings := strings.Join(a.Header.Values("Warning"), "\n"); !strings.Contains(warnings, "3 objects have it") {
		t.Errorf("warnings: %s", warnings)
	}
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, without, dropping))
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, planetest.Bundle, nil))
	if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"/b", "").Field("spec", "color"); got != "blue" {
		t.Errorf("the field is back as %v", got)
	}
}

// A schema may lose many fields at once: an answer tells the first of them.
func TestAnAnswerTellsSomeOfTheFieldsThatAreDropped(t *testing.T) {
	p := planetest.NewPlane(t)
	var fields strings.Builder
	spec := map[string]int{"size": 1}
	for i := range 100 {
		fmt.Fprintf(&fields, "f%d?: int\n\t\t", i)
		spec[fmt.Sprint("f", i)] = i
	}
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, "owner?:", fields.String()+"owner?:", 1), nil))
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":`+string(text)+`}`)
	a := p.Must(t, 409, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, planetest.Bundle, nil))
	if n := len(a.Field("details", "causes").([]any)); n != 20 || !strings.Contains(string(a.Body), "80 more fields") {
		t.Errorf("%d causes: %.2000s", n, a)
	}
}
