package exporting_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/exporting"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/importing"
	"stele.dev/stele/schemas"
)

// compiledForm compiles a bundle of one file.
func compiledForm(t *testing.T, text string) *policy.Form {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte(text)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return compiled.Form
}

// A rule is exported with all that a ValidatingAdmissionPolicy and its binding can say, and one that reads other objects is not.
func TestRulesOfAdmissionAreExportedWhole(t *testing.T) {
	form := compiledForm(t, `package test
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
}}}`)
	objects, notes := exporting.Objects(form)
	var err error
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

// What is exported of rules that change objects is imported as the same rules.
func TestMutationsAreExportedAndImportedAgain(t *testing.T) {
	const text = `package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"], admission: mutate: {
	"a-whole": {
		order: 10
		match: {
			apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps", "secrets"], operations: ["CREATE"], resourceNames: ["a"], scope: "Namespaced", matchPolicy: "Exact"
			excludeResourceRules: "exclude-1": {apiGroups: [""], resources: ["configmaps"], operations: ["CREATE"], resourceNames: ["b"]}
			objectSelector: matchLabels: app: "x"
			namespaceSelector: matchExpressions: [{key: "k", operator: "Exists"}]
			conditions: named: "object.metadata.name != ''"
		}
		paramKind: {apiVersion: "v1", kind: "ConfigMap"}
		paramRef: {name: "limits", namespace: "default", parameterNotFoundAction: "Deny"}
		variables: max: "params.data.max"
		mutations: {
			"change-1": {order: 2, patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'max': variables.max}}}"}
			"change-0": {order: 1, patchType: "JSONPatch", expression: "[JSONPatch{op: 'test', path: '/metadata/name', value: 'a'}]"}
		}
		failurePolicy: "Ignore"
		reinvocationPolicy: "IfNeeded"
	}
	"b-plain": {
		order: 20
		match: {apiGroups: [""], resources: ["secrets"]}
		mutations: "change-1": {patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}
	}
	constants: {order: 30, match: {apiGroups: [""], resources: ["secrets"]}, params: a: "b", mutations: x: {patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'a': params.a}}}"}}
	reader: {order: 40, match: {apiGroups: [""], resources: ["secrets"]}, objects: x: {kind: "namespaces", version: "v1"}
		mutations: x: {patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'a': string(objects.x.count())}}}"}}
}}}`
	form := compiledForm(t, text)
	objects, notes := exporting.Objects(form)
	for _, want := range []string{"t/mutate/reader is not exported: it reads other objects", "the order 10 of t/mutate/a-whole is not exported", "the order 20 of t/mutate/b-plain is not exported"} {
		if !strings.Contains(strings.Join(notes, "\n"), want) {
			t.Errorf("no note %q in\n%s", want, strings.Join(notes, "\n"))
		}
	}
	var documents []importing.Document
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if kind := o.(map[string]any)["kind"].(string); strings.HasPrefix(kind, "MutatingAdmissionPolicy") {
			documents = append(documents, importing.Document{Name: kind, Data: data})
		}
	}
	if len(documents) != 6 {
		t.Fatalf("%d objects are exported", len(documents))
	}
	result, err := importing.Convert(documents, importing.Options{Package: "test", Team: "t", Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	again := compiledForm(t, strings.Replace(string(result.Files[0].Data), "package test\n", "package test\nimport \"stele.dev/policy\"\n", 1)+`
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"]}}`)
	ignored := cmp.Options{cmpopts.IgnoreTypes(schemas.Position{}), cmpopts.IgnoreFields(policy.Mutation{}, "ID"), cmpopts.IgnoreFields(policy.MutationStep{}, "ID")}
	if len(again.Mutations) != 3 {
		t.Fatalf("%d rules are imported", len(again.Mutations))
	}
	if diff := cmp.Diff(form.Mutations[:2], again.Mutations[:2], ignored); diff != "" {
		t.Errorf("%s\n%s", diff, result.Files[0].Data)
	}
	constants := again.Mutations[2] // params that are values of a bundle are a variable
	if len(constants.Variables) != 1 || constants.Variables[0].Name != "params" || constants.Variables[0].Text != `{"a":"b"}` || !strings.Contains(constants.Mutations[0].Expression.Text, "variables.params.a") {
		t.Errorf("constants are imported as %+v", constants)
	}
}

// What is exported of webhooks is imported as the same webhooks.
func TestWebhooksAreExportedAndImportedAgain(t *testing.T) {
	form := compiledForm(t, `package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"], admission: webhooks: {
	mutating: {
		"a.example.com": {
			order: 10, reinvocationPolicy: "IfNeeded", failurePolicy: "Ignore", matchPolicy: "Exact", timeoutSeconds: 3, sideEffects: "NoneOnDryRun"
			rules: {"rule-1": {apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"], scope: "Namespaced"}, "rule-2": {apiGroups: [""], resources: ["secrets"], operations: ["*"]}}
			namespaceSelector: matchLabels: a: "b"
			objectSelector: matchExpressions: [{key: "k", operator: "Exists"}]
			matchConditions: named: "object.metadata.name != ''"
			clientConfig: url: "https://hooks.example.com/a"
		}
		"b.example.com": {order: 20, rules: "rule-1": {apiGroups: [""], resources: ["configmaps"], operations: ["UPDATE"]}, sideEffects: "None"
			clientConfig: service: {namespace: "n", name: "s", path: "/p", port: 8443}}
	}
	validating: "c.example.com": {rules: "rule-1": {apiGroups: [""], resources: ["configmaps"], operations: ["DELETE"]}, sideEffects: "None", clientConfig: url: "https://hooks.example.com/c"}
}}}`)
	objects, notes := exporting.Objects(form)
	var documents []importing.Document
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if kind := o.(map[string]any)["kind"].(string); strings.HasSuffix(kind, "WebhookConfiguration") {
			documents = append(documents, importing.Document{Name: kind, Data: data})
		}
	}
	if len(documents) != 3 {
		t.Fatalf("%d objects are exported: %s", len(documents), notes)
	}
	result, err := importing.Convert(documents, importing.Options{Package: "test", Team: "t", Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	again := compiledForm(t, strings.Replace(string(result.Files[0].Data), "package test\n", "package test\nimport \"stele.dev/policy\"\n", 1)+`
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"]}}`)
	ignored := cmp.Options{cmpopts.IgnoreTypes(schemas.Position{}), cmpopts.IgnoreFields(policy.ReviewRule{}, "ID"), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(form.Reviewers, again.Reviewers, ignored); diff != "" {
		t.Errorf("%s\n%s", diff, result.Files[0].Data)
	}
}
