package policy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
)

// everything is a bundle with all that a form can hold.
var everything = strings.NewReplacer("RULES", `validations: small: {path: "spec.size", rule: "self < 900", message: "too large"}`, "BODY", `
		rbac: bindings: readers: {clusterRole: "reader", subjects: [{group: "g"}], namespaces: ["a-*"], when: "request.namespace != 'a-secret'"}
		rbac: bindings: writers: {clusterRole: "writer", subjects: [{user: "u"}], namespaces: ["*"], when: "object.spec.size < 500"}
		rbac: denies: night: {subjects: [{group: "g"}], rules: r: {apiGroups: ["b.example.com"], resources: ["things"], verbs: ["list"]}, reason: "no", unless: "request.userInfo.username == 'somebody'"}
		admission: validate: v: {
			match: {apiGroups: ["b.example.com"], resources: ["things"], objectSelector: matchLabels: a: "b", conditions: c: "request.name != 'x'"}
			params: max: 7
			variables: over: "object.spec.size - params.max"
			validations: x: {expression: "variables.over < 0", messageExpression: "'over by ' + string(variables.over)"}
			validationActions: ["Warn", "Audit"]
		}
		admission: validate: w: {match: {apiGroups: ["b.example.com"], resources: ["things"]}, validations: x: expression: "has(object.spec.names)"}
`).Replace(inCEL)

// A form that another version of the program has written makes the same policy here: its
// probes say so. A form is kept for each of those; a new one is written with -update.
func TestFormsOfOtherVersions(t *testing.T) {
	const newest = "testdata/forms/2026-11-21.json"
	if *update {
		compiled, diags := compile.Bundle(twoTeams(t, everything))
		if len(diags) > 0 {
			t.Fatal(diags)
		}
		encoded, _ := compiled.Form.Encode()
		if err := os.WriteFile(newest, encoded, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/forms/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no forms", err)
	}
	for _, file := range files {
		encoded, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := probes.Load(encoded); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		form, err := policy.DecodeForm(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if form.Probes == nil || len(form.Probes.Access) == 0 || len(form.Probes.Objects) == 0 {
			t.Errorf("%s has no probes", file)
		}
		if again, _ := form.Encode(); !bytes.Equal(again, encoded) {
			t.Errorf("%s encodes as something else", file)
		}
	}
}

// A program that would decide otherwise than the one that compiled the form does not
// load it.
func TestAFormThatMeansSomethingElseHere(t *testing.T) {
	compiled, diags := compile.Bundle(twoTeams(t, everything))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := compiled.Form.Encode()
	allowed, refused, prepared := 0, 0, 0
	for i := range compiled.Form.Probes.Access {
		if strings.HasPrefix(compiled.Form.Probes.Access[i].Decision, "allowed by b/") {
			allowed++
		}
	}
	for i := range compiled.Form.Probes.Objects {
		if o := &compiled.Form.Probes.Objects[i]; strings.HasSuffix(o.Resource, "b.example.com") {
			refused += len(o.Refused)
		}
		if len(compiled.Form.Probes.Objects[i].Prepared) > 0 {
			prepared++
		}
	}
	if allowed == 0 || refused == 0 || prepared == 0 {
		t.Fatalf("the probes have %d grants, %d refusals and %d defaulted objects", allowed, refused, prepared)
	}
	for name, change := range map[string]func(*policy.Form){
		"another grant": func(f *policy.Form) { f.Bindings = f.Bindings[1:] },
		"another bound": func(f *policy.Form) {
			f.Kinds[len(f.Kinds)-1].Versions[0].Schema.Struct.Open = true
			f.Probes.Objects[len(f.Probes.Objects)-1].Refused = nil
		},
		"another rule":       func(f *policy.Form) { f.Validations = nil },
		"another default":    func(f *policy.Form) { f.Probes.Objects[3].Prepared = json.RawMessage(`{"x":1}`) },
		"a kind that is not": func(f *policy.Form) { f.Probes.Objects[0].Resource = "nothings.example.com" },
		"no JSON":            func(f *policy.Form) { f.Probes.Objects[0].Object = json.RawMessage(`[]`) },
	} {
		t.Run(name, func(t *testing.T) {
			form, err := policy.DecodeForm(encoded)
			if err != nil {
				t.Fatal(err)
			}
			change(form)
			changed, _ := form.Encode()
			if _, err := probes.Load(changed); err == nil || !strings.Contains(err.Error(), "probe") && !strings.Contains(err.Error(), "makes another policy") {
				t.Errorf("loaded: %v", err)
			}
		})
	}
}

// A rule that comes out differently now and then, by the order of a map that it makes
// itself, does not keep its policy from being loaded.
func TestProbesOfWhatIsNotStable(t *testing.T) {
	compiled, diags := compile.Bundle(twoTeams(t, strings.NewReplacer("RULES", "", "BODY", `admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["things"]}
		validations: x: expression: "{'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8}.map(k, k)[0] != 'h'"
	}`).Replace(inCEL)))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := compiled.Form.Encode()
	for range 200 {
		if _, err := probes.Load(encoded); err != nil {
			t.Fatal(err)
		}
	}
}
