package lookup_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// The scenarios of kube-apiserver's pkg/admission/plugin/policy/validating/admission_test.go, with rules of a bundle in place of
// policies and bindings. docs/CONFORMANCE.md lists those that cannot apply.

// paramKinds are the kinds of params and of requests, inside and outside of namespaces, and rules in place of RULES.
const paramKinds = `package p

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		kinds: "paramsconfigs.example.com": {group: "example.com", names: {kind: "ParamsConfig", plural: "paramsconfigs"}, storageVersion: "v1", versions: v1: #schema: maxReplicas?: int}
		kinds: "clusterscopedparamsconfigs.example.com": {
			group: "example.com", names: {kind: "ClusterScopedParamsConfig", plural: "clusterscopedparamsconfigs"}, scope: "Cluster", storageVersion: "v1", versions: v1: #schema: maxReplicas?: int
		}
		kinds: "requests.example.com": {group: "example.com", names: {kind: "Request", plural: "requests"}, storageVersion: "v1", versions: v1: #schema: maxReplicas?: int}
		kinds: "clusterrequests.example.com": {group: "example.com", names: {kind: "ClusterRequest", plural: "clusterrequests"}, scope: "Cluster", storageVersion: "v1", versions: v1: #schema: maxReplicas?: int}
		_match: {apiGroups: ["example.com"], resources: ["requests", "clusterrequests"], operations: ["CREATE"]}
		_params: {apiVersion: "example.com/v1", kind: "ParamsConfig"}
		_clusterParams: {apiVersion: "example.com/v1", kind: "ClusterScopedParamsConfig"}
		admission: validate: {RULES}
	}
}
`

func withRules(rules string) string { return strings.Replace(paramKinds, "RULES", rules, 1) }

const (
	namespacedPath = "/apis/example.com/v1/namespaces/%s/paramsconfigs"
	requestsPath   = "/apis/example.com/v1/namespaces/%s/requests"
	clusterPath    = "/apis/example.com/v1/clusterscopedparamsconfigs"
	denies         = `validations: x: {expression: "false", message: "Denied"}`
	paramRefName   = "replicas-test.example.com"
	noParams       = "no params found for policy binding with `Deny` parameterNotFoundAction"
)

// param returns an object of params, or of a request, that is created at a path.
func param(path, name, labels string) string {
	resource, _, _ := strings.Cut(path[strings.LastIndex(path, "/")+1:], "?")
	kind := map[string]string{"paramsconfigs": "ParamsConfig", "clusterscopedparamsconfigs": "ClusterScopedParamsConfig", "requests": "Request", "clusterrequests": "ClusterRequest"}[resource]
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":%q,"metadata":{"name":%q,"labels":{%s}}}`, kind, name, labels)
}

// requested is the answer to a dry run of a create in a namespace, "" for an object outside of namespaces.
func requested(t *testing.T, p *planetest.Plane, namespace, name string) (code int, says string) {
	t.Helper()
	path := "/apis/example.com/v1/clusterrequests"
	if namespace != "" {
		path = fmt.Sprintf(requestsPath, namespace)
	}
	a := do(p, "POST", path+"?dryRun=All", param(path, name, ""))
	return a.code, a.body
}

// refused checks that a request is refused with a text, "" for one that is admitted.
func refused(t *testing.T, p *planetest.Plane, namespace, text string) {
	t.Helper()
	code, says := requested(t, p, namespace, "request")
	if text == "" && code != http.StatusCreated || text != "" && (code != http.StatusUnprocessableEntity || !strings.Contains(says, text)) {
		t.Errorf("in %q: %d %s, want %q", namespace, code, says, text)
	}
}

// TestUpstreamParamRef has the cases of TestParamRef.
func TestUpstreamParamRef(t *testing.T) {
	const (
		yes, no, other = `"doesitmatch":"yes"`, `"doesitmatch":"no"`, `"notaffiliated":"no"`
		mine, others   = "mynamespace", "othernamespace"
	)
	p := planetest.Start(t, planetest.Options{Bundle: withRules("")})
	for _, ns := range []string{mine, others} {
		must(t, p, 201, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+ns+`"}}`, "")
	}
	type object struct{ namespace, suffix, labels string }
	params := []object{
		{"default", "", no}, {mine, "", no}, {others, "", no}, {"default", "1", yes}, {mine, "1", yes}, {others, "1", yes},
		{"default", "2", other}, {mine, "2", other}, {others, "2", other}, {"default", "3", other}, {mine, "3", yes}, {others, "3", yes},
		{"", "", yes}, {"", "1", no}, {"", "2", other}, {"", "3", yes}, {"", "4", no}, {"", "5", other},
	}
	pathOf := func(o object) string {
		if o.namespace == "" {
			return clusterPath
		}
		return fmt.Sprintf(namespacedPath, o.namespace)
	}
	create := func(o object) {
		must(t, p, 201, "POST", pathOf(o), param(pathOf(o), paramRefName+o.suffix, o.labels), "")
	}
	for _, o := range params {
		create(o)
	}
	cases := 0
	for _, clusterScoped := range []bool{false, true} {
		for _, by := range []string{"name", "labels", "everything"} {
			for _, namespace := range []string{"", mine} {
				for _, deny := range []bool{false, true} {
					if clusterScoped && namespace != "" {
						continue // an error of the bundle: TestUpstreamMistakes
					}
					cases++
					t.Run(fmt.Sprint(map[bool]string{true: "cluster-scoped "}[clusterScoped], by, " ", namespace, map[bool]string{true: " deny", false: " allow"}[deny]), func(t *testing.T) {
						ref := map[string]string{"name": fmt.Sprintf("name: %q", paramRefName), "labels": `selector: matchLabels: doesitmatch: "yes"`, "everything": "selector: {}"}[by]
						if namespace != "" {
							ref += fmt.Sprintf(", namespace: %q", namespace)
						}
						// Upstream refuses requests outside of namespaces whose params would be in a namespace. Here such a rule is an error of the
						// bundle (TestUpstreamMistakes), so that it can only be about requests in namespaces.
						lost := namespace == "" && !clusterScoped
						if ref += map[bool]string{true: `, parameterNotFoundAction: "Deny"`, false: `, parameterNotFoundAction: "Allow"`}[deny]; lost {
							ref += `}, match: {scope: "Namespaced"`
						}
						p.Activate(t, withRules(fmt.Sprintf(`r: {match: _match, paramKind: %s, paramRef: {%s}
							validations: x: {expression: "false", messageExpression: "'<' + (has(params.metadata.namespace) ? params.metadata.namespace : '') + '/' + params.metadata.name + '>'"}}`,
							map[bool]string{true: "_clusterParams", false: "_params"}[clusterScoped], ref)))
						// expected are the params of requests in a namespace, "" for requests outside of namespaces.
						expected := func(in string) (list []object) {
							for _, o := range params {
								from := namespace
								if from == "" && !clusterScoped {
									from = in
								}
								if (o.namespace == "") == clusterScoped && o.namespace == from && (by != "name" || o.suffix == "") && (by != "labels" || o.labels == yes) {
									list = append(list, o)
								}
							}
							return list
						}
						shown := func(list []object) (names []string) {
							for _, o := range list {
								names = append(names, "<"+o.namespace+"/"+paramRefName+o.suffix+">")
							}
							slices.Sort(names)
							return names
						}
						for _, in := range []string{others, ""} {
							if in == "" && lost {
								continue
							}
							code, says := requested(t, p, in, "request")
							if got, want := observed(says), shown(expected(in)); code != 422 || len(want) == 0 || !slices.Equal(got, want) {
								t.Errorf("in %q: %d, with %q, want %q", in, code, got, want)
							}
						}
						deleted := expected(others)
						if !lost {
							for _, o := range expected("") {
								if !slices.Contains(deleted, o) {
									deleted = append(deleted, o)
								}
							}
						}
						for _, o := range deleted {
							must(t, p, 200, "DELETE", pathOf(o)+"/"+paramRefName+o.suffix, "", "")
						}
						want := map[bool]string{true: noParams}[deny]
						refused(t, p, others, want)
						if !lost {
							refused(t, p, "", want)
						}
						for _, o := range deleted {
							create(o)
						}
					})
				}
			}
		}
	}
	if cases != 18 {
		t.Errorf("%d cases; upstream has 18", cases)
	}
}

// observed returns the params that the refusals of an answer name.
func observed(says string) (names []string) {
	var status struct{ Message string }
	if json.Unmarshal([]byte(says), &status) != nil {
		return nil
	}
	for rest := status.Message; ; {
		_, after, found := strings.Cut(rest, "<")
		name, next, closed := strings.Cut(after, ">")
		if !found || !closed {
			slices.Sort(names)
			return slices.Compact(names)
		}
		names = append(names, "<"+name+">")
		rest = next
	}
}

// TestUpstreamScenarios has the other scenarios.
func TestUpstreamScenarios(t *testing.T) {
	const named = `paramKind: _params, paramRef: {name: "` + paramRefName + `", namespace: "default", parameterNotFoundAction: "Deny"}`
	p := planetest.Start(t, planetest.Options{Bundle: withRules(`r: {match: _match, ` + named + `, ` + denies + `}`)})
	here := fmt.Sprintf(namespacedPath, "default")
	refused(t, p, "default", noParams) // TestInvalidParamSourceInstanceName
	must(t, p, 201, "POST", here, param(here, paramRefName, ""), "")
	refused(t, p, "default", "Denied") // TestBasicPolicyDefinitionFailure

	// TestReconfigureBinding
	p.Activate(t, withRules(`r: {match: _match, `+strings.Replace(named, "replicas-test.", "replicas-test2.", 1)+`, `+denies+`}`))
	refused(t, p, "default", noParams)
	must(t, p, 201, "POST", here, param(here, "replicas-test2.example.com", ""), "")
	refused(t, p, "default", "Denied")

	// TestRemoveDefinition, TestRemoveBinding
	p.Activate(t, withRules(""))
	refused(t, p, "default", "")

	// TestDefinitionDoesntMatch
	p.Activate(t, withRules(`r: {match: _match, match: conditions: even: "object.metadata.name.size() % 2 == 0", `+denies+`}`))
	for name, want := range map[string]int{"oddlength": 201, "evenlength": 422} {
		if code, says := requested(t, p, "default", name); code != want {
			t.Errorf("%s: %d %s", name, code, says)
		}
	}

	// TestEmptyParamSource
	p.Activate(t, withRules(`r: {match: _match, `+denies+`}`))
	refused(t, p, "default", "Denied")

	// TestMultiplePoliciesSharedParamType
	two := func(first string) string {
		return withRules(`one: {match: _match, ` + first + `, validations: x: expression: "true"}
			two: {match: _match, ` + named + `, validations: x: {expression: "params.metadata.name == ''", message: "Policy2Denied"}}`)
	}
	for _, first := range []string{named, `failurePolicy: "Fail"`} {
		p.Activate(t, two(first))
		refused(t, p, "default", "Policy2Denied")
	}

	// TestNativeTypeParam, TestNamespaceParamRefName
	p.Activate(t, withRules(`r: {match: _match, match: scope: "Namespaced", paramKind: {apiVersion: "v1", kind: "ConfigMap"}, paramRef: {name: "`+paramRefName+`", parameterNotFoundAction: "Deny"}
		validations: x: {expression: "!(params.data.coolkey in ['default', 'mynamespace'])", messageExpression: "'correct type in ' + params.metadata.namespace"}}`))
	must(t, p, 201, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"mynamespace"}}`, "")
	for _, ns := range []string{"default", "mynamespace"} {
		must(t, p, 201, "POST", "/api/v1/namespaces/"+ns+"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+paramRefName+`"},"data":{"coolkey":"`+ns+`"}}`, "")
	}
	for _, ns := range []string{"default", "mynamespace", "default"} {
		refused(t, p, ns, "correct type in "+ns)
	}
}

// TestUpstreamActions has TestAuditValidationAction, TestWarnValidationAction, TestAllValidationActions and TestAuditAnnotations.
func TestUpstreamActions(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: withRules(`
		one: {match: _match, validationActions: ["Audit"], validations: x: {expression: "false", message: "I'm sorry Dave"}}
		two: {match: _match, validationActions: ["Audit"], validations: x: {expression: "false", message: "I can't do that"}}`)})
	here, params := fmt.Sprintf(requestsPath, "default"), fmt.Sprintf(namespacedPath, "default")
	create := func(name string, code int) (says string, warnings []string) {
		t.Helper()
		q := httptest.NewRequest("POST", here, strings.NewReader(param(here, name, "")))
		q.Header.Set("Authorization", "Bearer admin-token")
		q.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if p.Pipeline.ServeHTTP(w, q); w.Code != code {
			t.Fatalf("%s: %d %s", name, w.Code, w.Body)
		}
		return w.Body.String(), w.Header().Values("Warning")
	}
	audited := func() map[string]string {
		batches, err := p.Log.Back(t.Context(), 1<<62, 1)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, a := range batches[0].Events[0].Meta.GetDecisions().GetAudit().GetAnnotations() {
			all[a.GetKey()] = a.GetValue()
		}
		return all
	}
	if _, warnings := create("request-audit", 201); len(warnings) > 0 {
		t.Errorf("warnings: %q", warnings)
	}
	if got, want := fired(t, p), []string{"t/validate/one/x Audit I'm sorry Dave", "t/validate/two/x Audit I can't do that"}; !slices.Equal(got, want) {
		t.Errorf("the event has %q", got)
	}

	p.Activate(t, withRules(`r: {match: _match, validationActions: ["Warn"], validations: x: {expression: "false", message: "I'm sorry Dave"}}`))
	if _, warnings := create("request-warn", 201); len(warnings) != 1 || !strings.Contains(warnings[0], "I'm sorry Dave") {
		t.Errorf("warnings: %q", warnings)
	}
	if got := fired(t, p); !slices.Equal(got, []string{"t/validate/r/x Warn I'm sorry Dave"}) || len(audited()) > 0 {
		t.Errorf("the event has %q, annotations: %v", got, audited())
	}

	p.Activate(t, withRules(`r: {match: _match, validationActions: ["Deny", "Audit"], validations: x: {expression: "false", message: "I'm sorry Dave"}}`))
	if says, warnings := create("request-all", 422); len(warnings) > 0 || !strings.Contains(says, "I'm sorry Dave") {
		t.Errorf("%s, warnings: %q", says, warnings)
	}

	for name, labels := range map[string]string{"a": `"kind":"normal"`, "b": `"kind":"special"`, "c": `"kind":"normal"`} {
		must(t, p, 201, "POST", params, param(params, name, labels), "")
	}
	p.Activate(t, withRules(`r: {match: _match, match: scope: "Namespaced", paramKind: _params, paramRef: {selector: matchExpressions: [{key: "kind", operator: "Exists"}], parameterNotFoundAction: "Deny"}
		validations: x: expression: "true"
		auditAnnotations: {
			"example-key": valueExpression: "params.metadata.labels['kind'] + '-value'"
			"excluded-key": valueExpression: "null"
		}}`))
	create("request-annotations", 201)
	if all := audited(); len(all) != 1 || all["t/validate/r/example-key"] != "normal-value, special-value" {
		t.Errorf("annotations: %v", all)
	}
	p.Activate(t, withRules(`r: {match: _match, validations: x: expression: "true", auditAnnotations: "error-key": valueExpression: "object.metadata.labels['none']"}`))
	if says, _ := create("request-error", 422); !strings.Contains(says, "no such key") {
		t.Error(says)
	}
}

// fired returns the rules that the last event has, with their actions and messages.
func fired(t *testing.T, p *planetest.Plane) (list []string) {
	t.Helper()
	batches, err := p.Log.Back(t.Context(), 1<<62, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range batches[0].Events[0].Meta.GetDecisions().GetAdmission() {
		list = append(list, fmt.Sprint(a.GetRule(), " ", a.GetAction(), " ", a.GetMessage()))
	}
	return list
}

// TestUpstreamMistakes has the scenarios of policies that upstream refuses when they are asked. Here they are errors of the bundle.
func TestUpstreamMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ rule, want string }{
		"TestInvalidParamSourceGVK":                       {`paramKind: {apiVersion: "example.com/v1", kind: "BadParamKind"}, paramRef: {name: "x", parameterNotFoundAction: "Deny"}`, "BadParamKind"},
		"TestNamespaceParamRefClusterScopedParamError":    {`paramKind: _clusterParams, paramRef: {name: "x", namespace: "mynamespace", parameterNotFoundAction: "Deny"}`, "namespace"},
		"TestParamRef, of requests outside of namespaces": {`paramKind: _params, paramRef: {name: "x", parameterNotFoundAction: "Deny"}`, "params in namespaces need paramRef.namespace"},
		"TestAllValidationActions, with Warn":             {`validationActions: ["Deny", "Warn"]`, "Deny and Warn together"},
		"TestEmptyParamRef, which passes null as params":  {`paramKind: _params`, "paramRef"},
	} {
		source, err := bundles.ReadFS(fstest.MapFS{
			"bundle.cue":         {Data: []byte(withRules(`r: {match: _match, ` + tc.rule + `, ` + denies + `}`))},
			"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
		}, ".")
		if err != nil {
			t.Fatal(err)
		}
		if _, diags := compile.Bundle(source); len(diags) == 0 || !strings.Contains(diags.Error(), tc.want) || diags[0].Pos.Line == 0 {
			t.Errorf("%s: %v", name, diags)
		}
	}
}
