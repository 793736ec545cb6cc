package policy_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
)

const withControlPlane = `package test

import (
	"stele.dev/policy"
	"stele.dev/policy/controlplane"
)

bundle: policy.#Bundle & {
	cluster: "test"
	teams: platform: {
		contact: "#x", groups: ["*"], namespaces: ["*"]
		rbac: controlplane.scheduler & controlplane.controllerManager & controlplane.controllers & controlplane.nodes & controlplane.monitoring
		rbac: bindings: "nodes-of-a": {clusterRole: "system:node", subjects: [{user: "system:node:a"}], namespaces: ["a"]}
	}
}
`

func controlPlane(t *testing.T, bundle string) *compile.Result {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")},
		"bundle.cue":         {Data: []byte(bundle)},
		// A copy in the repository, of another version, is not the program's.
		"cue.mod/pkg/stele.dev/policy/controlplane/controlplane.cue": {Data: []byte("package controlplane\nscheduler: 1\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return compiled
}

// The roles of Kubernetes' own components can be imported, and let them do what they do, served or not.
func TestRolesOfControlPlaneComponents(t *testing.T) {
	compiled := controlPlane(t, withControlPlane)
	form, _ := compiled.Form.Encode()
	p, err := probes.Load(form)
	if err != nil {
		t.Fatal(err)
	}
	account := func(name string) (string, []string) {
		return "system:serviceaccount:kube-system:" + name, []string{"system:serviceaccounts", "system:authenticated"}
	}
	user := func(name string) (string, []string) { return name, []string{"system:authenticated"} }
	asked := func(user string, groups []string, verb, group, resource, namespace, name string) bool {
		resource, subresource, _ := strings.Cut(resource, "/")
		return p.Authorize(t.Context(), &policy.Request{User: user, Groups: groups, Verb: verb, IsResource: true, Group: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name}).Allowed
	}
	for _, tc := range []struct {
		who                                    func(string) (string, []string)
		name, verb, group, resource, ns, named string
		want                                   bool
	}{
		{user, "system:kube-scheduler", "create", "coordination.k8s.io", "leases", "kube-system", "", true},
		{user, "system:kube-scheduler", "update", "coordination.k8s.io", "leases", "kube-system", "kube-scheduler", true},
		{user, "system:kube-scheduler", "update", "coordination.k8s.io", "leases", "kube-system", "other", false},
		{user, "system:kube-scheduler", "create", "", "pods/binding", "default", "a", true},
		{user, "system:kube-scheduler", "get", "", "configmaps", "kube-system", "extension-apiserver-authentication", true},
		{user, "system:kube-scheduler", "get", "", "secrets", "default", "a", false},
		{user, "system:kube-controller-manager", "create", "", "serviceaccounts/token", "kube-system", "a", true},
		{user, "system:kube-controller-manager", "watch", "apps", "deployments", "", "", true},
		{user, "system:kube-controller-manager", "delete", "apps", "deployments", "default", "a", false},
		{account, "deployment-controller", "create", "apps", "replicasets", "default", "", true},
		{account, "deployment-controller", "create", "", "secrets", "default", "", false},
		{account, "generic-garbage-collector", "delete", "example.com", "widgets", "default", "a", true},
		{account, "namespace-controller", "update", "", "namespaces/finalize", "a", "a", true},
		{user, "system:kube-proxy", "watch", "discovery.k8s.io", "endpointslices", "", "", true},
		{user, "system:node:a", "get", "", "secrets", "a", "x", true},
		{user, "system:node:b", "get", "", "secrets", "a", "x", false},
	} {
		who, groups := tc.who(tc.name)
		if got := asked(who, groups, tc.verb, tc.group, tc.resource, tc.ns, tc.named); got != tc.want {
			t.Errorf("%s may %s %s.%s %s/%s: %v", who, tc.verb, tc.resource, tc.group, tc.ns, tc.named, got)
		}
	}
	if d := p.Authorize(t.Context(), &policy.Request{User: "m", Groups: []string{"system:monitoring"}, Verb: "get", Path: "/metrics"}); !d.Allowed {
		t.Errorf("monitoring: %+v", d)
	}
	var roles []string
	for _, r := range p.Form().Roles {
		roles = append(roles, r.Name)
	}
	for _, want := range []string{"system:kube-scheduler", "system:volume-scheduler", "system:kube-controller-manager", "system:controller:job-controller", "system:controller:statefulset-controller", "system:node", "system:node-proxier", "system:monitoring"} {
		if !slices.Contains(roles, want) {
			t.Errorf("there is no role %s", want)
		}
	}
}

// What a bundle itself says of resources is checked as before, also beside what it imports.
func TestRulesBesideThoseOfThePackageAreChecked(t *testing.T) {
	source, err := bundles.ReadFS(fstest.MapFS{
		"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")},
		"bundle.cue":         {Data: []byte(withControlPlane + `bundle: teams: platform: rbac: clusterRoles: own: rules: r: {apiGroups: ["apps"], resources: ["deployments"], verbs: ["get"]}` + "\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	_, diags := compile.Bundle(source)
	if len(diags) != 1 || !strings.Contains(diags[0].String(), `nothing is served in the API group "apps"`) {
		t.Errorf("%v", diags)
	}
}
