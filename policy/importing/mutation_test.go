package importing_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/importing"
)

// mutating is two policies, the one whose name is the first one last.
const mutating = `
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: MutatingAdmissionPolicy
metadata: {name: whole}
spec:
  failurePolicy: Ignore
  reinvocationPolicy: IfNeeded
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    matchPolicy: Exact
    objectSelector: {matchLabels: {app: x}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps], resourceNames: [a], scope: Namespaced}]
    excludeResourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: ["*"], resources: [configmaps], resourceNames: [b]}]
  matchConditions: [{name: data, expression: "has(object.data)"}]
  variables: [{name: max, expression: "params.data.max"}]
  mutations:
  - {patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/data/max', value: variables.max}]"}}
  - {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}}
---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: MutatingAdmissionPolicyBinding
metadata: {name: whole}
spec:
  policyName: whole
  paramRef: {name: limits, namespace: default, parameterNotFoundAction: Allow}
  matchResources: {namespaceSelector: {matchLabels: {team: web}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: early}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}
    - {apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps, serviceaccounts]}
    - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE, DELETE], resources: [resourcequotas]}
    - {apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [namespaces]}
  mutations:
  - {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'early': 'yes'}}}"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: early}
spec: {policyName: early}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: unbound}
spec: {reinvocationPolicy: Never, mutations: []}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: lost}
spec: {policyName: missing}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: hook.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://hook.example.com/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
`

// All of a MutatingAdmissionPolicy is carried over. The order is that of the names, with webhooks last, and no object is
// changed twice by resource rules that match the same requests.
func TestMutatingAdmissionPoliciesAreImported(t *testing.T) {
	o := options()
	o.Whole, o.Folder = true, true
	r, err := importing.Convert([]importing.Document{{Name: "in.yaml", Data: []byte(mutating)}}, o)
	if err != nil {
		t.Fatal(err)
	}
	form := bundleOf(t, r, true)
	rules := map[string]*policy.Mutation{}
	said := ""
	for i := range form.Mutations {
		m := &form.Mutations[i]
		rules[m.ID] = m
		said += fmt.Sprintf("%d %s %s %s %d\n", m.Order, m.ID, strings.Join(m.Match.Resources, ","), strings.Join(m.Match.Operations, ","), len(m.Match.Excludes))
	}
	for i := range form.Reviewers {
		said += fmt.Sprintf("%d %s\n", form.Reviewers[i].Order, form.Reviewers[i].ID)
	}
	const want = `10 web/mutate/early configmaps,secrets CREATE 0
20 web/mutate/early-2 configmaps,serviceaccounts * 1
30 web/mutate/early-3 resourcequotas UPDATE 0
40 web/mutate/whole configmaps CREATE 1
50 web/webhooks/mutating/hook.example.com
`
	if said != want {
		t.Errorf("got\n%swant\n%s", said, want)
	}
	whole := rules["web/mutate/whole"]
	if whole == nil {
		t.FailNow()
	}
	m, p := &whole.Match, whole.ParamSource
	if !whole.Ignore || !whole.Reinvoke || !m.Exact || m.Scope != "Namespaced" || len(m.ResourceNames) != 1 || m.ObjectSelector.MatchLabels["app"] != "x" || m.NamespaceSelector.MatchLabels["team"] != "web" ||
		len(m.Conditions) != 1 || len(whole.Variables) != 1 || len(whole.Mutations) != 2 || whole.Mutations[0].PatchType != policy.JSONPatch || whole.Mutations[1].PatchType != policy.ApplyConfiguration {
		t.Errorf("the rule is %+v", whole)
	}
	if p == nil || p.Resource != "configmaps" || p.Name != "limits" || p.Namespace != "default" || p.Deny {
		t.Errorf("its params are %+v", p)
	}
	notes := ""
	for _, n := range r.Notes {
		notes += n.String() + "\n"
	}
	for _, want := range []string{
		`in.yaml:28: the 4 rules that change objects run in the order of the names of their policies, "early" first: kube-apiserver runs policies in no certain order`,
		`in.yaml:35: resource rules of the policy "early" match the same requests`,
		`in.yaml:38: the operation DELETE of the policy "early" is left out`,
		`in.yaml:39: the operation DELETE of the policy "early" is left out`,
		`the policy "unbound" is left out: no binding of it`,
		`the binding "lost" is left out: its policy "missing"`,
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note %q in\n%s", want, notes)
		}
	}
}
