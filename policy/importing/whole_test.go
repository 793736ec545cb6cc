package importing_test

import (
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/policy/importing"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

// imported imports a text as a package of the platform.
func imported(t *testing.T, text string) (*importing.Result, string) {
	t.Helper()
	o := options()
	o.Whole, o.Folder = true, true
	result, err := importing.Convert([]importing.Document{{Name: "in.yaml", Data: []byte(text)}}, o)
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, n := range result.Notes {
		said += n.String() + "\n"
	}
	return result, said
}

func definitionOf(group, kind, plural, spec string) string {
	return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + plural + "." + group + `}
spec:
  group: ` + group + `
  scope: Namespaced
  names: {kind: ` + kind + `, plural: ` + plural + `, singular: ` + strings.ToLower(kind) + `}
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: ` + spec + `}}}}}
---`
}

// Kinds of one name in several groups have schemas of their own, and so have the structs in their limited lists.
func TestKindsOfOneName(t *testing.T) {
	list := `{l: {type: array, maxItems: 3, items: {type: object, properties: {%: {type: string}}}}, a-b: {type: array, maxItems: 1, items: {type: object, properties: {%: {type: integer}}}}, aB: {type: array, maxItems: 1, items: {type: object, properties: {%: {type: boolean}}}}}`
	result, said := imported(t, definitionOf("tls.example", "Certificate", "certificates", `{days: {type: integer, minimum: 1}}`)+
		definitionOf("net.example", "Certificate", "certificates", `{days: {type: integer, maximum: 90}, hosts: {type: string}}`)+
		definitionOf("a.example", "Box", "boxes", strings.ReplaceAll(list, "%", "x"))+definitionOf("b.example", "Box", "boxs", strings.ReplaceAll(list, "%", "w"))+
		definitionOf("c.example", "BoxSpecL", "boxspecls", `{z: {type: string}}`)+definitionOf("d.example", "My-Kind", "mykinds", `{z: {type: string}}`))
	if strings.Join(result.Kept, " ") != "mykinds.d.example" || strings.Count(said, "\n") != 1 {
		t.Errorf("kept %v\n%s", result.Kept, said)
	}
	form := bundleOf(t, result, true)
	valid := func(resource string, spec map[string]any) bool {
		k := form.Kinds[slices.IndexFunc(form.Kinds, func(k schemas.Kind) bool { return k.Resource() == resource })]
		p, err := program.New(k.Versions[0].Schema)
		if err != nil {
			t.Fatal(err)
		}
		object := map[string]any{"spec": spec}
		unknown, _ := p.Prepare(object)
		return len(p.Validate(object)) == 0 && len(unknown) == 0
	}
	for _, c := range []struct {
		resource string
		spec     map[string]any
		valid    bool
	}{
		{"certificates.tls.example", map[string]any{"days": int64(200)}, true},
		{"certificates.tls.example", map[string]any{"days": int64(0)}, false},
		{"certificates.tls.example", map[string]any{"hosts": "x"}, false},
		{"certificates.net.example", map[string]any{"days": int64(0), "hosts": "x"}, true},
		{"certificates.net.example", map[string]any{"days": int64(91)}, false},
		{"boxes.a.example", map[string]any{"l": []any{map[string]any{"x": "a"}}, "a-b": []any{map[string]any{"x": int64(1)}}, "aB": []any{map[string]any{"x": true}}}, true},
		{"boxes.a.example", map[string]any{"l": []any{map[string]any{"w": "a"}}}, false},
		{"boxs.b.example", map[string]any{"l": []any{map[string]any{"w": "a"}}}, true},
		{"boxspecls.c.example", map[string]any{"z": "a"}, true},
		{"boxspecls.c.example", map[string]any{"x": "a"}, false},
	} {
		if valid(c.resource, c.spec) != c.valid {
			t.Errorf("%s: %v is valid: %v", c.resource, c.spec, !c.valid)
		}
	}
}

// What nothing serves is left out and noted, in every part of a bundle, so that vet accepts the rest.
func TestWhatIsNotServedIsLeftOut(t *testing.T) {
	result, said := imported(t, definitionOf("example.com", "Gauge", "gauges", `{size: {type: integer}}`)+strings.Replace(definitionOf("example.com", "Site", "sites", `{}`), "Namespaced", "Cluster", 1)+`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator}
rules:
- {apiGroups: [example.com], resources: [gauges, gauges/status, gauges/finalizers], verbs: [update]}
- {apiGroups: ["", apps], resources: [configmaps, pods, deployments], verbs: [get]}
- {apiGroups: [apps], resources: ["*"], verbs: ["*"]}
- {apiGroups: [monitoring.example], resources: [monitors], verbs: [get]}
- {apiGroups: ["*"], resources: [nodes], verbs: [get]}
- {resources: [configmaps], verbs: [get]}
---
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, verbs: [watch], resources: [{group: "", resources: [endpoints, services]}]}
- {level: Metadata, resources: [{group: "", resources: ["configmaps", "pods/*", "secrets/exec", "*/exec", "*/status"]}, {group: batch}, {group: example.com}]}
- {level: Metadata, namespaces: [default], resources: [{group: example.com, resources: [sites, gauges]}]}
- {level: Metadata, namespaces: [default], resources: [{group: example.com, resources: [sites]}]}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: operators}
spec: {type: Limited, limited: {nominalConcurrencyShares: 10, limitResponse: {type: Reject}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: operators}
spec:
  matchingPrecedence: 2000
  priorityLevelConfiguration: {name: operators}
  rules:
  - subjects: [{kind: User, user: {name: u}}]
    resourceRules:
    - {verbs: [get], apiGroups: [""], resources: [nodes, configmaps], clusterScope: true, namespaces: ["*"]}
    - {verbs: [get], apiGroups: ["example.com"], resources: [sites], namespaces: ["*"]}
    - {verbs: [get], apiGroups: ["example.com"], resources: ["*/status"], namespaces: ["*"]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: sizes}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["", apps], apiVersions: [v1], operations: [CREATE], resources: [pods, deployments]}
    - {apiGroups: [example.com, apps], apiVersions: [v1, v2], operations: [CREATE], resources: [gauges, deployments]}
    - {apiGroups: [example.com], apiVersions: [v3], operations: [CREATE], resources: [gauges]}
    - {apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [clusterroles]}
  validations: [{expression: "true"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: sizes}
spec: {policyName: sizes, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: a.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://example.com/a"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods, secrets]}, {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
- name: b.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://example.com/b"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
`)
	if strings.Contains(said, "vet refuses") {
		t.Error(said)
	}
	form := bundleOf(t, result, true)
	for _, want := range []string{
		`"gauges/finalizers" of rule 1 of the ClusterRole "operator" is left out`, `"pods", "deployments" of rule 2 of the ClusterRole "operator" are left out`,
		`in.yaml:28: rule 3 of the ClusterRole "operator" is left out: nothing serves "*" in the API group "apps"`, `rule 4 of the ClusterRole "operator" is left out: nothing serves "monitors" in the API group "monitoring.example"; if the bundle does, name it with --into`,
		`rule 5 of the ClusterRole`, `rule 6 of the ClusterRole "operator" is left out: a rule about resources names API groups`,
		`a part of the audit rule 1 (level None) is left out`, `"pods/*", "secrets/exec", "*/exec" of a part of the audit rule 2`, `nothing is served in the API group "batch"`, `"sites" of a part of the audit rule 3`,
		`"nodes" of resource rule 1 in rule 1 of the flow schema "operators"`, `"sites" of resource rule 2`, `resources such as "*/status" of resource rule 3`,
		`resource rule 1 of the policy "sizes" is left out`, `"deployments" of resource rule 2 of the policy "sizes" is left out`, `resource rule 3 of the policy "sizes" is left out: it is about the versions v3`, `resource rule 4 of the policy "sizes" is left out`,
		`"pods" of rule 1 of the webhook "a.example.com" is left out`, `rule 2 of the webhook "a.example.com" is left out`, `the webhook "b.example.com" is left out: no rule of it`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no note %q in\n%s", want, said)
		}
	}
	if len(form.Validations) != 1 || len(form.Reviewers) != 1 || len(form.Audit.Rules) != 3 || len(form.Flow.FlowSchemas) != 1 || len(form.Flow.FlowSchemas[0].Rules) != 1 {
		t.Errorf("rules %d, webhooks %d, audit %d, flow %+v", len(form.Validations), len(form.Reviewers), len(form.Audit.Rules), form.Flow.FlowSchemas)
	}
}

// Without a definition in the input, rules about unknown kinds are kept: the bundle may have them.
func TestRulesAboutKindsThatTheInputLacks(t *testing.T) {
	_, said := imported(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [example.com, gateway.networking.k8s.io], resources: [things, routes/status, things/finalizers], verbs: [get]}, {apiGroups: [apps], resources: [deployments], verbs: [get]}]
`)
	for _, want := range []string{`"things" in the API group "example.com" is of no definition in the input: the bundle must have it`, `"things/finalizers" of rule 1`, `rule 2 of the ClusterRole "reader" is left out`} {
		if !strings.Contains(said, want) {
			t.Errorf("no note %q in\n%s", want, said)
		}
	}
	if strings.Contains(said, "vet refuses what") {
		t.Error(said)
	}
}

// What vet refuses is a note at the line of the input.
func TestWhatVetRefusesIsNoted(t *testing.T) {
	_, said := imported(t, definitionOf("example.com", "Gauge", "gauges", `{size: {type: integer}}`)+`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: sizes}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [gauges]}]
  matchConditions:
  - {name: a, expression: "1"}
  variables:
  - {name: v, expression: "object.spec.nothing"}
  validations:
  - expression: "object.spec.size < 3"
  - expression: "object.spec.size < 'x'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: sizes}
spec: {policyName: sizes, validationActions: [Deny]}
`)
	for _, want := range []string{"in.yaml:19: vet refuses what is made of it (admission.cue:", "in.yaml:21: vet refuses what is made of it"} {
		if !strings.Contains(said, want) {
			t.Errorf("no note %q in\n%s", want, said)
		}
	}
}

// A binding with resource rules gives the rule what both match.
func TestBindingsWithResourceRules(t *testing.T) {
	policyOf := func(rules, binding string) string {
		return definitionOf("example.com", "Gauge", "gauges", `{size: {type: integer}}`) + definitionOf("example.com", "Box", "boxes", `{size: {type: integer}}`) + `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: sizes}
spec: {matchConstraints: {resourceRules: [` + rules + `]}, validations: [{expression: "object.spec.size < 3"}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: sizes}
spec: {policyName: sizes, validationActions: [Deny], matchResources: {` + binding + `}}
`
	}
	rule := func(groups, operations, resources, more string) string {
		return "{apiGroups: [" + groups + `], apiVersions: ["*"], operations: [` + operations + "], resources: [" + resources + "]" + more + "}"
	}
	both := rule("example.com", "CREATE, UPDATE", "gauges, boxes", "")
	for name, c := range map[string]struct{ rules, binding, want string }{
		"the same":              {both, "resourceRules: [" + both + "]", "example.com gauges,boxes CREATE,UPDATE  0"},
		"narrower":              {rule(`"*"`, `"*"`, `"*"`, ""), "resourceRules: [" + rule("example.com", "CREATE", "gauges", ", resourceNames: [a]") + "]", "example.com gauges CREATE a 0"},
		"wider":                 {both, "resourceRules: [" + rule(`"*"`, `"*"`, `"*/*"`, "") + "]", "example.com gauges,boxes CREATE,UPDATE  0"},
		"crossing":              {both, "resourceRules: [" + rule("example.com, other.example", "UPDATE, DELETE", `"boxes/*", secrets`, "") + "]", "example.com boxes UPDATE  0"},
		"several":               {both, "resourceRules: [" + rule("example.com", "CREATE", "gauges", "") + ", " + rule("example.com", "CREATE", "boxes", "") + "]", "example.com gauges,boxes CREATE  0"},
		"several, apart":        {both, "resourceRules: [" + rule("example.com", "CREATE", "gauges", "") + ", " + rule("example.com", "UPDATE", "boxes", "") + "]", "example.com gauges CREATE  0; example.com boxes UPDATE  0"},
		"nothing":               {both, "resourceRules: [" + rule("example.com", "DELETE", "gauges", "") + "]", ""},
		"excludes":              {both, "excludeResourceRules: [" + rule("example.com", "UPDATE", "boxes", "") + "]", "example.com gauges,boxes CREATE,UPDATE  1"},
		"excludes nothing":      {both, "excludeResourceRules: [" + rule("other.example", "UPDATE", "boxes", "") + "]", "example.com gauges,boxes CREATE,UPDATE  0"},
		"names":                 {rule("example.com", "CREATE", "gauges", ", resourceNames: [a, b]"), "resourceRules: [" + rule("example.com", "CREATE", "gauges", ", resourceNames: [b, c]") + "]", "example.com gauges CREATE b 0"},
		"names, nothing":        {rule("example.com", "CREATE", "gauges", ", resourceNames: [a]"), "resourceRules: [" + rule("example.com", "CREATE", "gauges", ", resourceNames: [c]") + "]", ""},
		"scopes":                {rule("example.com", "CREATE", "gauges", ", scope: Cluster"), "resourceRules: [" + rule("example.com", "CREATE", "gauges", ", scope: Namespaced") + "]", ""},
		"different matchPolicy": {both, "matchPolicy: Exact, resourceRules: [" + both + "]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			result, said := imported(t, policyOf(c.rules, c.binding))
			form := bundleOf(t, result, true)
			var got []string
			for _, v := range form.Validations {
				m := v.Match
				got = append(got, strings.Join([]string{strings.Join(m.APIGroups, ","), strings.Join(m.Resources, ","), strings.Join(m.Operations, ","), strings.Join(m.ResourceNames, ","), string(rune('0' + len(m.Excludes)))}, " "))
			}
			if strings.Join(got, "; ") != c.want || (said == "") != (c.want != "") {
				t.Errorf("got %q, want %q\n%s", got, c.want, said)
			}
		})
	}
}

// A policy for several kinds reads the fields of each after it asked for object.kind. What is wrong with all of them stays an error.
func TestPoliciesForSeveralKinds(t *testing.T) {
	kinds := definitionOf("example.com", "Gauge", "gauges", `{size: {type: integer}}`) + definitionOf("example.com", "Box", "boxes", `{replicas: {type: integer}, sizes: {type: object, properties: {a: {type: integer}}}, items: {type: array, items: {type: object, properties: {size: {type: integer}}}}}`)
	policyOf := func(rules, spec string) string {
		return kinds + `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: several}
spec:
  matchConstraints: {resourceRules: [` + rules + `]}
` + spec + `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: several}
spec: {policyName: several, validationActions: [Deny]}
`
	}
	const three = `{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [gauges, boxes]}, {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}`
	for name, c := range map[string]struct {
		rules, spec     string
		dynamic, errors int
	}{
		"guarded": {three, `  variables:
  - {name: amount, expression: "object.kind == 'Gauge' ? object.spec.size : object.kind == 'Box' ? object.spec.replicas : 0"}
  validations:
  - {expression: "object.kind != 'Gauge' || object.spec.size <= 10"}
  - {expression: "object.kind != 'Box' || !has(object.spec.items) || object.spec.items.all(i, i.size <= 10)"}
  - {expression: "variables.amount <= 10", messageExpression: "'too much: ' + string(variables.amount)"}
  - {expression: "object.metadata.name != 'x'"}`, 7, 0},
		"a condition, and the old object": {three, `  matchConditions: [{name: a, expression: "request.operation == 'CREATE' || object.kind != 'Box' || oldObject.spec.replicas > 0"}]
  validations: [{expression: "true || false"}]`, 2, 0},
		"a typing error": {three, `  validations: [{expression: "object.kind != 'Gauge' || object.spec.szie <= 10"}]`, 1, 1},
		"one kind":       {`{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [gauges]}`, `  validations: [{expression: "object.spec.replicas <= 10"}]`, 0, 1},
		"a field by a variable": {`{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [boxes]}`, `  variables: [{name: names, expression: "['a']"}]
  validations: [{expression: "variables.names.all(n, !has(object.spec.sizes) || object.spec.sizes[n] <= 10)"}]`, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, said := imported(t, policyOf(c.rules, c.spec))
			if n := strings.Count(said, "is written with dyn(object)"); (n > 0) != (c.dynamic > 0) {
				t.Errorf("%d expressions are dynamic", n)
			}
			if n := strings.Count(said, "vet refuses"); (n > 0) != (c.errors > 0) {
				t.Errorf("%d mistakes", n)
			}
			if t.Failed() {
				t.Log(said)
			}
		})
	}
}
