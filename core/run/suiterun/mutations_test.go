package suiterun_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/run/suiterun"
)

const mutatingBundle = `package cluster

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t"
		groups: [""]
		namespaces: ["*"]
		admission: mutate: {
			label: {order: 1, match: {apiGroups: [""], resources: ["configmaps"], conditions: unlabelled: "!has(object.metadata.labels)"}, mutations: {
				set: {order: 1, patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'owner': request.userInfo.username}}}"}
				more: {order: 2, patchType: "JSONPatch", expression: "has(object.data) ? [JSONPatch{op: 'remove', path: '/data'}] : []"}
			}}
			fail: {order: 2, match: {apiGroups: [""], resources: ["configmaps"], conditions: bad: "object.metadata.name == 'bad'"}
				mutations: x: {patchType: "JSONPatch", expression: "[JSONPatch{op: 'remove', path: '/data/missing'}]"}}
			never: {order: 3, match: {apiGroups: [""], resources: ["secrets"]}, mutations: x: {patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}}
		}
		rbac: bindings: all: {clusterRole: "cluster-admin", namespaces: ["*"], subjects: [{user: "alice"}]}
	}
}
`

const mutatingSuite = `package tests

import "stele.dev/policy"

suite: policy.#Suite & {
	people: alice: user: "alice"
	_configMap: {apiVersion: "v1", kind: "ConfigMap", metadata: {name: string | *"a", namespace: "default", ...}, ...}
	tests: {
		"it is labelled": {
			as: "alice", request: {verb: "create", object: _configMap & {data: k: "v"}}
			expect: {code: 201, object: {data: null, metadata: labels: owner: "alice"}, mutations: ["t/mutate/label/set", "t/mutate/label/more"]}
		}
		"it is left alone": {
			as: "alice", request: {verb: "create", object: _configMap & {metadata: labels: app: "x"}}
			expect: {code: 201, object: metadata: labels: owner: null, mutations: []}
		}
		"it cannot be changed": {
			as: "alice", request: {verb: "create", object: _configMap & {metadata: name: "bad"}}
			expect: {code: 403, stage: "mutation", rule: "t/mutate/fail/x", mutations: ["t/mutate/label/set"]}
		}
	}
}
`

// A suite says what rules make of an object, and coverage counts the rules.
func TestSuitesSayWhatMutationsMake(t *testing.T) {
	r, s := runnerOf(t, mutatingBundle, mutatingSuite)
	coverage := suiterun.NewCoverage()
	coverage.AddPolicy(r.Form())
	for i := range s.Tests {
		result, err := r.Run(t.Context(), s, &s.Tests[i])
		if err != nil {
			t.Fatal(err)
		}
		coverage.Observe(result.Answer)
		if len(result.Failures) > 0 {
			t.Errorf("%s: %s\n%s", result.Test.Name, strings.Join(result.Failures, "\n"), strings.Join(result.Why, "\n"))
		}
	}
	var points []string
	for _, p := range coverage.Points() {
		if p.Part == "mutation" {
			points = append(points, fmt.Sprint(p.ID, " ", p.Missing()))
		}
	}
	want := []string{"t/mutate/fail/x [changes]", "t/mutate/label/more []", "t/mutate/label/set []", "t/mutate/never/x [changes]"}
	if !slices.Equal(points, want) {
		t.Errorf("not exercised: %q, want %q", points, want)
	}
	if summary := coverage.Summary(); !strings.Contains(summary, "2 of 4 mutations") {
		t.Errorf("it says %s", summary)
	}
}

// Expectations about mutations can fail, can be made from answers, and name what exists.
func TestExpectationsOfMutationsFail(t *testing.T) {
	r, s := runnerOf(t, mutatingBundle, mutatingSuite)
	test := &s.Tests[0]
	test.Expect.Object, test.Expect.Mutations = []byte(`{"data":{"k":"v"},"metadata":{"labels":{"owner":null}}}`), &[]string{"t/mutate/label/more"}
	result, err := r.Run(t.Context(), s, test)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`expected data to be {"k":"v"}, and it is not set`, `expected metadata.labels.owner to be null, and it is "alice"`,
		"expected the object to be changed by t/mutate/label/more, and it was by t/mutate/label/set, t/mutate/label/more",
	}
	if !slices.Equal(result.Failures, want) {
		t.Errorf("it says %q", result.Failures)
	}
	if list, _ := result.Expected()["mutations"].([]string); !slices.Equal(list, []string{"t/mutate/label/set", "t/mutate/label/more"}) {
		t.Errorf("it expects %v", result.Expected())
	}
	test.Expect.Mutations = &[]string{"t/mutate/label/sett", "t/mutate/label"}
	if diags := r.Check(s, false); len(diags) != 2 || !strings.Contains(diags.Error(), `nothing in the bundle that changes objects is called "t/mutate/label/sett"`) || !strings.Contains(diags.Error(), `did you mean "t/mutate/label/set"?`) {
		t.Errorf("it says %v", diags)
	}
}
