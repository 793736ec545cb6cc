package policy_test

import (
	"cmp"
	"errors"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/format"
	"stele.dev/stele/policy/lint"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/policy/rights"
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
		rbac: controlplane.scheduler & controlplane.controllerManager & controlplane.controllers & controlplane.nodes & controlplane.certificates & controlplane.addons & controlplane.monitoring
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
		{user, "system:kube-scheduler", "update", "coordination.k8s.io", "leases", "default", "other", false},
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

// rolesOfKubernetes reads the roles and bindings that kube-apiserver creates. A role of one namespace has that behind its name if
// another one has the same name.
func rolesOfKubernetes(t *testing.T) (roles map[string][]policy.Rule, bindings []rbacv1.RoleBinding) {
	t.Helper()
	roles = map[string][]policy.Rule{}
	files, err := filepath.Glob("format/internal/componentroles/upstream/*.yaml")
	if err != nil || len(files) != 6 {
		t.Fatal(files, err)
	}
	var namespaced []rbacv1.Role
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var items struct {
			Items []rbacv1.RoleBinding `json:"items"`
		}
		var rules struct {
			Items []rbacv1.Role `json:"items"`
		}
		if err := errors.Join(yaml.Unmarshal(data, &items), yaml.Unmarshal(data, &rules)); err != nil {
			t.Fatal(file, err)
		}
		if strings.HasSuffix(file, "bindings.yaml") {
			bindings = append(bindings, items.Items...)
			continue
		}
		namespaced = append(namespaced, rules.Items...)
	}
	for _, r := range namespaced {
		name := r.Name
		if slices.ContainsFunc(namespaced, func(o rbacv1.Role) bool { return o.Name == r.Name && o.Namespace != r.Namespace }) {
			name += ":" + r.Namespace
		}
		for _, x := range r.Rules {
			roles[name] = append(roles[name], policy.Rule{Verbs: x.Verbs, APIGroups: x.APIGroups, Resources: x.Resources, ResourceNames: x.ResourceNames, NonResourceURLs: x.NonResourceURLs})
		}
	}
	return roles, bindings
}

// Each role of a component grants what Kubernetes' own role of that name grants, in the version of Kubernetes whose libraries the program has.
func TestRolesOfComponentsAreKubernetesOwn(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	library := regexp.MustCompile(`\tk8s\.io/api v0\.([0-9.]+)`).FindSubmatch(mod)
	cue := format.Files()[path.Dir(format.File)+"/controlplane/controlplane.cue"]
	if made := regexp.MustCompile(`as Kubernetes 1\.([0-9.]+) has`).FindSubmatch(cue); library == nil || made == nil || string(made[1]) != string(library[1]) {
		t.Errorf("the roles are of Kubernetes 1.%s, and the libraries of 1.%s: see format/internal/componentroles/upstream/README.md", made, library)
	}
	want, bindings := rolesOfKubernetes(t)
	form := controlPlane(t, withControlPlane).Form
	found := policy.IndexBy(form.Roles, func(r *policy.Role) string { return r.Name })
	builtin := policy.IndexBy(compile.BuiltinRoles(), func(r *policy.Role) string { return r.Name })
	for name, rules := range want {
		role := found[name]
		if builtin[name] != nil {
			continue // for the kinds that are served: see the documentation
		}
		if role == nil {
			t.Errorf("there is no role %s", name)
			continue
		}
		covered := func(one policy.Rule, by []policy.Rule) {
			if ok, err := rights.Covered(t.Context(), &one, by); err != nil || !ok {
				t.Errorf("%s: only one side has %+v (%v)", name, one, err)
			}
		}
		for _, rule := range rules {
			covered(rule, role.Rules)
		}
		for _, rule := range role.Rules {
			covered(rule, rules)
		}
	}
	for _, b := range bindings {
		namespace := cmp.Or(b.Namespace, "*")
		for _, s := range b.Subjects {
			subject := policy.Subject{User: s.Name}
			switch s.Kind {
			case rbacv1.GroupKind:
				subject = policy.Subject{Group: s.Name}
			case rbacv1.ServiceAccountKind:
				subject.User = "system:serviceaccount:" + s.Namespace + ":" + s.Name
			}
			if b.RoleRef.Name == "cluster-admin" {
				continue // system:masters
			}
			if !slices.ContainsFunc(form.Bindings, func(own policy.Binding) bool {
				return (own.Role == b.RoleRef.Name || own.Role == b.RoleRef.Name+":"+b.Namespace) && slices.Equal(own.Namespaces, []string{namespace}) && slices.Contains(own.Subjects, subject)
			}) {
				t.Errorf("%s is not bound to %+v in %s", b.RoleRef.Name, subject, namespace)
			}
		}
	}
}

// Nothing is reported of the lines of the package, which the author of a bundle cannot change.
func TestNoFindingsInThePackageOfComponents(t *testing.T) {
	compiled := controlPlane(t, withControlPlane)
	findings, err := lint.Check(t.Context(), &lint.Bundle{Form: compiled.Form, Module: compiled.Source, Used: compiled.Source, Warnings: compiled.Warnings})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Pos.File != "bundle.cue" {
			t.Errorf("%+v", f)
		}
	}
}
