package exporting_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"stele.dev/stele/cmd/stele/internal/exporting"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// A rule is exported with all that a ValidatingAdmissionPolicy and its binding can say, and one that reads other objects is not.
func TestRulesOfAdmissionAreExportedWhole(t *testing.T) {
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue": {Data: []byte(`package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"], admission: validate: {
	whole: {
		match: {apiGroups: [""], resources: ["configmaps"], resourceNames: ["a"], scope: "Namespaced", matchPolicy: "Exact", excludeResourceRules: x: {apiGroups: [""], resources: ["configmaps"], resourceNames: ["b"]}}
		paramKind: {apiVersion: "v1", kind: "Secret"}
		paramRef: {selector: matchLabels: a: "b", namespace: "default", parameterNotFoundAction: "Deny"}
		validations: x: expression: "has(params.data)"
		auditAnnotations: who: valueExpression: "request.userInfo.username"
		failurePolicy: "Ignore"
	}
	over: {match: {apiGroups: [""], resources: ["configmaps"]}, objects: x: {kind: "namespaces", version: "v1"}, validations: x: expression: "objects.x.count() > 0"}
}}}`)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	objects, notes := exporting.Objects(compiled.Form)
	var p admissionv1.ValidatingAdmissionPolicy
	var b admissionv1.ValidatingAdmissionPolicyBinding
	for _, o := range objects {
		text, _ := json.Marshal(o)
		switch o.(map[string]any)["kind"] {
		case "ValidatingAdmissionPolicy":
			err = json.Unmarshal(text, &p)
		case "ValidatingAdmissionPolicyBinding":
			err = json.Unmarshal(text, &b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m := p.Spec.MatchConstraints
	if *p.Spec.FailurePolicy != "Ignore" || *p.Spec.ParamKind != (admissionv1.ParamKind{APIVersion: "v1", Kind: "Secret"}) || len(p.Spec.AuditAnnotations) != 1 ||
		*m.MatchPolicy != "Exact" || len(m.ResourceRules[0].ResourceNames) != 1 || *m.ResourceRules[0].Scope != "Namespaced" || m.ExcludeResourceRules[0].ResourceNames[0] != "b" {
		t.Errorf("the policy is %+v", p.Spec)
	}
	if r := b.Spec.ParamRef; r.Namespace != "default" || r.Selector.MatchLabels["a"] != "b" || *r.ParameterNotFoundAction != "Deny" {
		t.Errorf("the binding is %+v", b.Spec)
	}
	if said := strings.Join(notes, "\n"); !strings.Contains(said, "t/validate/over is not exported: it reads other objects") || p.Name != "t.whole" {
		t.Errorf("%s is exported, and it is said:\n%s", p.Name, said)
	}
}
