package policy_test

import (
	"testing"

	"stele.dev/stele/policy"
)

// Where names do not matter, all of them are decided alike; where they may, that is said.
func TestByName(t *testing.T) {
	p := loaded(t, `teams: b: rbac: {
	clusterRoles: {
		all: rules: r: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}
		one: rules: r: {apiGroups: [""], resources: ["secrets"], resourceNames: ["mine"], verbs: ["get"]}
		status: rules: r: {apiGroups: [""], resources: ["*/status"], resourceNames: ["mine"], verbs: ["get"]}
	}
	bindings: {
		all: {clusterRole: "all", subjects: [{group: "all"}], namespaces: ["*"]}
		one: {clusterRole: "one", subjects: [{user: "one"}, {group: "system:masters"}], namespaces: ["prod"]}
		status: {clusterRole: "status", subjects: [{user: "status"}], namespaces: ["prod"]}
		when: {clusterRole: "all", subjects: [{user: "when"}], namespaces: ["*"], when: "request.name == 'x'"}
	}
}`)
	for _, tc := range []struct {
		user, group, resource, subresource string
		want                               bool
	}{
		{"a", "all", "configmaps", "", false},
		{"a", "all", "secrets", "", false},
		{"one", "all", "secrets", "", true},
		{"one", "all", "configmaps", "", false},
		{"one", "system:masters", "secrets", "", false},
		{"status", "", "pods", "status", true},
		{"status", "", "pods", "", false},
		{"when", "", "configmaps", "", true},
	} {
		if got := p.ByName(&policy.Request{User: tc.user, Groups: []string{tc.group}, Verb: "get", IsResource: true, Resource: tc.resource, Subresource: tc.subresource, Namespace: "prod"}); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
