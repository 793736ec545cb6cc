package exporting_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/cmd/stele/internal/exporting"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/importing"
	"stele.dev/stele/schemas"
)

const audited = `package test

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	audit: {
		omitStages: ["RequestReceived"]
		omitManagedFields: true
		rules: {
			"rule-1": {order: 10, level: "None", subjects: [{user: "u"}, {serviceAccount: "a/b"}], memberOf: ["g", "h"], verbs: ["get", "list"]}
			"rule-2": {order: 20, level: "Request", apiGroups: [""], resources: ["secrets", "configmaps"], names: ["x"], namespaces: ["", "default"], omitManagedFields: false}
			"rule-3": {order: 30, level: "RequestResponse", resources: ["*/status", "leases", "namespaces/*"], omitStages: ["Panic", "ResponseStarted"]}
			"rule-4": {order: 40, level: "Metadata", nonResourceURLs: ["/metrics", "/healthz*"], verbs: ["get"], subjects: [{group: "x"}]}
			"rule-5": {order: 50, level: "Metadata", namespaces: ["default"]}
			"rule-6": {order: 60, level: "Metadata", apiGroups: ["coordination.k8s.io"]}
			"rule-7": {order: 70, level: "Metadata"}
		}
	}
}
`

// withoutPlaces returns audit rules without their positions.
func withoutPlaces(a policy.Audit) policy.Audit {
	a.Source = schemas.Position{}
	rules := make([]policy.AuditRule, len(a.Rules))
	for i := range a.Rules {
		rules[i] = a.Rules[i]
		rules[i].Source = schemas.Position{}
	}
	a.Rules = rules
	return a
}

func TestAuditRulesAreExportedAndImported(t *testing.T) {
	form := planetest.Compile(t, audited).Form
	exported, notes := exporting.Audit(&form.Audit)
	if len(notes) > 0 {
		t.Errorf("the export says %q", notes)
	}
	text, err := json.Marshal(exported)
	if err != nil {
		t.Fatal(err)
	}
	result, err := importing.Convert([]importing.Document{{Name: "audit.json", Data: text}}, importing.Options{Package: "test", Whole: true, Folder: true, Team: "t", Sections: []string{"audit"}})
	if err != nil || len(result.Notes) > 0 {
		t.Fatal(err, result)
	}
	bundle := "package test\n\nimport \"stele.dev/policy\"\n\nbundle: policy.#Bundle & {cluster: \"test\"}\n"
	for _, f := range result.Files {
		if strings.HasSuffix(f.Path, "audit.cue") {
			bundle += strings.TrimPrefix(string(f.Data), "package test")
		}
	}
	if diff := cmp.Diff(withoutPlaces(form.Audit), withoutPlaces(planetest.Compile(t, bundle).Form.Audit)); diff != "" {
		t.Errorf("(-was +imported):\n%s\n%s", diff, bundle)
	}
}

func TestWhatAnAuditPolicyCannotExpress(t *testing.T) {
	form := planetest.Compile(t, strings.Replace(audited, `"rule-7": {order: 70,`, `"rule-7": {order: 70, sync: true,`, 1)).Form
	if _, notes := exporting.Audit(&form.Audit); len(notes) != 1 || !strings.Contains(notes[0], "sync of audit/rules/rule-7 is not exported") {
		t.Errorf("it says %q", notes)
	}
	if exported, _ := exporting.Audit(&policy.Audit{}); exported != nil {
		t.Errorf("without rules it exports %v", exported)
	}
}
