package authz_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/auth/authz"
	"stele.dev/stele/policy"
)

// The table is that of kube-apiserver's ABAC mode, for both forms of lines.
func TestABAC(t *testing.T) {
	const versioned = `{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": `
	file := strings.Join([]string{
		`# who may do what`,
		``,
		versioned + `{"user": "alice", "namespace": "*", "resource": "*", "apiGroup": "*"}}`,
		versioned + `{"user": "kubelet", "namespace": "*", "resource": "pods", "readonly": true}}`,
		versioned + `{"user": "bob", "namespace": "projectCaribou", "resource": "pods", "apiGroup": ""}}`,
		versioned + `{"group": "system:serviceaccounts", "nonResourcePath": "/healthz"}}`,
		versioned + `{"user": "*", "nonResourcePath": "/open/*", "readonly": true}}`,
		versioned + `{"user": "carl", "group": "ops", "namespace": "*", "resource": "events", "apiGroup": "events.k8s.io"}}`,
		versioned + `{"namespace": "*", "resource": "*", "apiGroup": "*"}}`,
		`{"user": "old", "namespace": "ns", "resource": "services"}`,
		`{"group": "legacy", "readonly": true}`,
		`{"user": "*", "resource": "bindings", "readonly": true}`,
		`{user: yaml, resource: secrets}`,
	}, "\n")
	on := func(verb, group, resource, namespace string) policy.Request {
		return policy.Request{Verb: verb, IsResource: true, Group: group, Resource: resource, Namespace: namespace, Name: "x"}
	}
	path := func(verb, path string) policy.Request { return policy.Request{Verb: verb, Path: path} }
	a := newAuthorizers(t, authz.Options{PolicyFile: write(t, "abac.jsonl", file)})
	p := chain(t, a, "abac")
	for name, tc := range map[string]struct {
		user, group string
		request     policy.Request
		line        string // that allows it
	}{
		"everything":                        {"alice", "", on("delete", "apps", "deployments", "x"), "3"},
		"everything, but no paths":          {"alice", "", path("get", "/metrics"), ""},
		"reading":                           {"kubelet", "", on("watch", "", "pods", "x"), "4"},
		"reading, not writing":              {"kubelet", "", on("create", "", "pods", "x"), ""},
		"no group is the core group":        {"kubelet", "", on("get", "apps", "pods", "x"), ""},
		"a namespace":                       {"bob", "", on("create", "", "pods", "projectCaribou"), "5"},
		"another namespace":                 {"bob", "", on("create", "", "pods", "other"), ""},
		"all namespaces are not one":        {"bob", "", on("list", "", "pods", ""), ""},
		"a subresource is its resource":     {"bob", "", policy.Request{Verb: "get", IsResource: true, Resource: "pods", Subresource: "log", Namespace: "projectCaribou"}, "5"},
		"a group, a path":                   {"x", "system:serviceaccounts", path("get", "/healthz"), "6"},
		"a group, another path":             {"x", "system:serviceaccounts", path("get", "/healthz/etcd"), ""},
		"everybody who is known":            {"x", "system:authenticated", path("get", "/open/a/b"), "7"},
		"everybody who is known, to write":  {"x", "system:authenticated", path("post", "/open/a/b"), ""},
		"* are not those who are not known": {"system:anonymous", "system:unauthenticated", path("get", "/open/a"), ""},
		"user and group":                    {"carl", "ops", on("get", "events.k8s.io", "events", "x"), "8"},
		"user without the group":            {"carl", "dev", on("get", "events.k8s.io", "events", "x"), ""},
		"group without the user":            {"dave", "ops", on("get", "events.k8s.io", "events", "x"), ""},
		"a line of nobody":                  {"eve", "system:authenticated", on("get", "", "nodes", ""), ""},
		"without a version":                 {"old", "", on("update", "any.example.com", "services", "ns"), "10"},
		"without a version, elsewhere":      {"old", "", on("update", "", "services", "x"), ""},
		"without a version, all resources":  {"x", "legacy", on("get", "", "nodes", ""), "11"},
		"without a version, all paths":      {"x", "legacy", path("get", "/metrics"), "11"},
		"without a version, everybody":      {"x", "system:authenticated", on("get", "", "bindings", "x"), "12"},
		"a line of YAML":                    {"yaml", "", on("delete", "", "secrets", "x"), "13"},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.request
			r.User, r.Groups = tc.user, []string{tc.group}
			d := p.Authorize(t.Context(), &r)
			if d.Denied {
				t.Fatalf("it was denied: %+v", d)
			}
			line := ""
			if d.Allowed {
				line = d.Source[strings.LastIndex(d.Source, ":")+1:]
			}
			if line != tc.line || d.Allowed && d.Rule != "abac" {
				t.Errorf("line %q allows it, want %q: %+v", line, tc.line, d)
			}
		})
	}
}

func TestALineThatCannotBeReadIsNamed(t *testing.T) {
	for name, tc := range map[string]struct{ line, want string }{
		"no object":           {`nonsense`, "abac.jsonl:3: it is no object: want a Policy"},
		"half an object":      {`{"user": "x"`, "did not find expected"},
		"another version":     {`{"apiVersion": "abac.authorization.kubernetes.io/v2", "kind": "Policy"}`, "it is abac.authorization.kubernetes.io/v2 Policy"},
		"another kind":        {`{"apiVersion": "v1", "kind": "Secret"}`, "it is v1 Secret"},
		"a version, no kind":  {`{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "spec": {}}`, "needs kind: Policy"},
		"a field that is not": {`{"user": 5}`, "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, "abac.jsonl", "# first\n\n"+tc.line+"\n")
			_, err := authz.New(authz.Options{PolicyFile: file})
			if err == nil || !strings.Contains(err.Error(), file+":3: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// A file that is changed holds from then on; one that cannot be read leaves what was there.
func TestThePolicyFileIsReadAgain(t *testing.T) {
	file := write(t, "abac.jsonl", `{"user": "a", "resource": "pods"}`)
	a := newAuthorizers(t, authz.Options{PolicyFile: file})
	p := chain(t, a, "abac")
	may := func(user string) bool {
		return p.Authorize(t.Context(), &policy.Request{User: user, Verb: "get", IsResource: true, Resource: "pods", Namespace: "x"}).Allowed
	}
	if !may("a") || may("b") {
		t.Fatalf("at first a may be %t, b %t", may("a"), may("b"))
	}
	overwrite(t, file, "\n"+`{"user": "b", "resource": "pods"}`)
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if may("a") || !may("b") {
		t.Errorf("then a may be %t, b %t", may("a"), may("b"))
	}
	overwrite(t, file, `{"user": "c", "resource": "pods"}`+"\n{")
	if err := a.Reload(); err == nil || !strings.Contains(err.Error(), file+":2") {
		t.Errorf("a broken line: %v", err)
	}
	if !may("b") || may("c") {
		t.Errorf("of a broken file b may be %t, c %t", may("b"), may("c"))
	}
}

func TestWithoutAPolicyFileNothingIsAllowed(t *testing.T) {
	a := newAuthorizers(t, authz.Options{})
	d := chain(t, a, "abac").Authorize(t.Context(), &policy.Request{User: "x", Verb: "get", Path: "/"})
	if got, want := verdict(d), "denied the authorizer abac cannot be asked"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	diags := a.Check(t.Context(), compileBundle(t, `authorizers: ["deny", "rbac", "abac"]`))
	if len(diags) != 1 || !strings.Contains(diags.Error(), "--authorization-policy-file") {
		t.Errorf("a policy that names it: %v", diags)
	}
}

func TestABACListsItsRules(t *testing.T) {
	a := newAuthorizers(t, authz.Options{PolicyFile: write(t, "abac.jsonl", `{"user": "a", "resource": "pods", "namespace": "x", "readonly": true}
{"user": "a", "resource": "secrets"}
{"user": "b"}`)})
	var got []string
	for _, r := range chain(t, a, "abac").RulesOf("a", nil, "y") {
		got = append(got, strings.Join(r.Verbs, ",")+" "+strings.Join(r.Resources, ","))
	}
	if diff := cmp.Diff([]string{"* secrets"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
