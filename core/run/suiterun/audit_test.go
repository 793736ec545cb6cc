package suiterun_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/run/suiterun"
)

const auditedBundle = `package cluster

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	audit: rules: {
		secrets: {order: 10, level: "Metadata", apiGroups: [""], resources: ["secrets"]}
		reads: {order: 20, level: "None", verbs: ["get", "list", "watch"]}
		strangers: {order: 30, level: "Metadata", subjects: [{user: "mallory"}]}
		rest: {order: 40, level: "Request"}
	}
	teams: t: {
		contact: "#t"
		groups: [""]
		namespaces: ["*"]
		rbac: bindings: all: {clusterRole: "cluster-admin", namespaces: ["*"], subjects: [{user: "alice"}]}
	}
}
`

const auditedSuite = `package tests

import "stele.dev/policy"

suite: policy.#Suite & {
	people: {alice: user: "alice", mallory: user: "mallory"}
	tests: {
		"writes have their body": {
			as: "alice", request: {verb: "create", object: {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "a", namespace: "default"}}}
			expect: {code: 201, audit: "Request"}
		}
		"refusals are recorded": {
			as: "mallory", request: {verb: "create", object: {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "a", namespace: "default"}}}
			expect: {code: 403, audit: "Metadata"}
		}
		"reads are not": {
			as: "alice", request: {verb: "list", resource: "configmaps", namespace: "default"}
			expect: {code: 200, audit: "None"}
		}
	}
}
`

// Coverage counts the audit rules that decided what is recorded of a request, also of one that was refused.
func TestCoverageCountsAuditRules(t *testing.T) {
	r, s := runnerOf(t, auditedBundle, auditedSuite)
	coverage := suiterun.NewCoverage()
	coverage.AddPolicy(r.Form())
	for i := range s.Tests {
		result, err := r.Run(t.Context(), s, &s.Tests[i])
		if err != nil {
			t.Fatal(err)
		}
		coverage.Observe(result.Answer)
		if len(result.Failures) > 0 {
			t.Errorf("%s: %s", result.Test.Name, strings.Join(result.Failures, "\n"))
		}
	}
	var points []string
	for _, p := range coverage.Points() {
		if p.Part == "audit rule" {
			if points = append(points, fmt.Sprint(p.ID, " ", p.Missing())); !strings.HasPrefix(p.Source, "cluster/bundle.cue:") {
				t.Errorf("%s is at %s", p.ID, p.Source)
			}
		}
	}
	if want := []string{"audit/rules/reads []", "audit/rules/rest []", "audit/rules/secrets [used]", "audit/rules/strangers []"}; !slices.Equal(points, want) {
		t.Errorf("not exercised: %q, want %q", points, want)
	}
	if summary := coverage.Summary(); !strings.Contains(summary, "1 of 4 audit rules") {
		t.Errorf("it says %s", summary)
	}
}
