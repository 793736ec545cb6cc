package suiterun_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"stele.dev/stele/core/run/suiterun"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/suites"
)

const reviewedBundle = `package cluster

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	plugins: owners: sha256: "linux/amd64": "` + "0000000000000000000000000000000000000000000000000000000000000000" + `"
	teams: t: {
		contact: "#t"
		groups: [""]
		namespaces: ["*"]
		admission: plugins: {
			mutating: "set-owner": {plugin: "owners", order: 1, sideEffects: "NoneOnDryRun", match: {apiGroups: [""], resources: ["configmaps"]}}
			validating: "check-owner": {plugin: "owners", match: {apiGroups: [""], resources: ["configmaps"]}}
		}
		rbac: bindings: all: {clusterRole: "cluster-admin", namespaces: ["*"], subjects: [{user: "alice"}]}
	}
}
`

// A suite says what plugins answer, and starts none.
const reviewedSuite = `package tests

import "stele.dev/policy"

suite: policy.#Suite & {
	people: alice: user: "alice"
	_create: {verb: "create", object: {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "a", namespace: "default"}}}
	tests: {
		"nobody is named": {as: "alice", request: _create, expect: code: 201}
		"it changes": {
			as: "alice", request: _create
			reviewers: "t/plugins/mutating/set-owner": patch: [{op: "add", path: "/metadata/labels", value: owner: "alice"}]
			expect: {code: 201, object: metadata: labels: owner: "alice", mutations: ["t/plugins/mutating/set-owner"]}
		}
		"it refuses": {
			as: "alice", request: _create
			reviewers: "t/plugins/validating/check-owner": "Refuse"
			expect: {code: 403, rule: "t/plugins/validating/check-owner", stage: "validation"}
		}
		"it cannot be asked": {
			as: "alice", request: _create
			reviewers: "t/plugins/mutating/set-owner": "Unavailable"
			expect: {code: 500, rule: "t/plugins/mutating/set-owner", stage: "mutation"}
		}
	}
}
`

// runnerOf compiles a bundle, and reads its suite.
func runnerOf(t *testing.T, bundle, suite string) (*suiterun.Runner, *suites.Suite) {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
		"cluster/bundle.cue": {Data: []byte(bundle)}, "cluster/tests/suite.cue": {Data: []byte(suite)},
	}, "cluster")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	r, err := suiterun.New(t.Context(), compiled, suiterun.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	of := *source
	of.Package = "cluster/tests"
	s, diags := suites.Read(&of)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	if diags := r.Check(s, false); len(diags) > 0 {
		t.Fatal(diags)
	}
	return r, s
}

func TestSuitesSayWhatPluginsAnswer(t *testing.T) {
	r, s := runnerOf(t, reviewedBundle, reviewedSuite)
	for i := range s.Tests {
		result, err := r.Run(t.Context(), s, &s.Tests[i])
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Failures) > 0 {
			t.Errorf("%s: %s\n%s", result.Test.Name, strings.Join(result.Failures, "\n"), strings.Join(result.Why, "\n"))
		}
	}
	s.Tests[0].Reviewers = map[string]suites.Review{"t/plugins/mutating/set-ownr": {Answer: suites.Admit}, "t/plugins/validating/check-owner": {Patch: []byte("[]")}}
	wrong := r.Check(s, false)
	if len(wrong) != 2 || !strings.Contains(wrong.Error(), `did you mean "t/plugins/mutating/set-owner"?`) || !strings.Contains(wrong.Error(), "cannot answer with a patch") {
		t.Errorf("it says %v", wrong)
	}
}
