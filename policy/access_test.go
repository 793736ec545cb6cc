package policy_test

import (
	"context"
	"testing"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/schemas"
)

// newPolicy makes a policy that has roles and bindings only.
func newPolicy(t testing.TB, f policy.Form) *policy.Policy {
	t.Helper()
	f.Version = policy.FormVersion
	encoded, _ := f.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rule(verbs, groups, resources, names []string) policy.Rule {
	return policy.Rule{ID: "r", Verbs: verbs, APIGroups: groups, Resources: resources, ResourceNames: names}
}

type list = []string

func TestAuthorize(t *testing.T) {
	p := newPolicy(t, policy.Form{
		Roles: []policy.Role{
			{Name: "editor", Rules: []policy.Rule{
				rule(list{"get", "list", "update"}, list{"example.com"}, list{"widgets"}, nil),
				rule(list{"get"}, list{"example.com"}, list{"widgets/status"}, nil),
				rule(list{"update"}, list{"example.com"}, list{"gadgets"}, list{"one", "two"}),
				rule(list{"approve"}, list{"example.com"}, list{"gadgets"}, nil),
				rule(list{"create"}, list{"example.com"}, list{"gadgets"}, list{""}),
			}},
			{Name: "scaler", Rules: []policy.Rule{rule(list{"*"}, list{"*"}, list{"*/scale"}, nil)}},
			{Name: "everything", Rules: []policy.Rule{rule(list{"*"}, list{"*"}, list{"*"}, nil)}},
			{Name: "group", Rules: []policy.Rule{rule(list{"get"}, list{"example.com"}, list{"*"}, nil)}},
			{Name: "paths", Rules: []policy.Rule{{ID: "p", Verbs: list{"get"}, NonResourceURLs: list{"/api/*", "/version"}}}},
		},
		Bindings: []policy.Binding{
			{ID: "t/bindings/dev", Role: "editor", Subjects: []policy.Subject{{Group: "devs"}, {User: "alice"}}, Namespaces: list{"dev-*", "shared"}},
			{ID: "t/bindings/global", Role: "editor", Subjects: []policy.Subject{{User: "root"}}, Namespaces: list{"*"}},
			{ID: "t/bindings/scale", Role: "scaler", Subjects: []policy.Subject{{User: "scaler"}}, Namespaces: list{"*"}},
			{ID: "t/bindings/all", Role: "everything", Subjects: []policy.Subject{{Group: "owners"}}, Namespaces: list{"a-*-z"}},
			{ID: "t/bindings/group", Role: "group", Subjects: []policy.Subject{{User: "reader"}}, Namespaces: list{"*"}},
			{ID: "t/bindings/paths", Role: "paths", Subjects: []policy.Subject{{User: "walker"}}, Namespaces: list{"*"}},
			{ID: "t/bindings/local-paths", Role: "paths", Subjects: []policy.Subject{{User: "local"}}, Namespaces: list{"dev-*"}},
		},
	})
	widget := policy.Request{IsResource: true, Verb: "get", Group: "example.com", Resource: "widgets", Namespace: "dev-1", Name: "w"}
	for _, tc := range []struct {
		name   string
		user   string
		groups list
		change func(*policy.Request)
		want   string // id of the binding; "" for no
	}{
		{"a group's grant", "bob", list{"devs"}, nil, "t/bindings/dev"},
		{"a user's grant", "alice", nil, nil, "t/bindings/dev"},
		{"nobody's", "bob", nil, nil, ""},
		{"a user with the name of a group", "devs", nil, nil, ""},
		{"a group with the name of a user", "bob", list{"alice"}, nil, ""},
		{"another verb", "alice", nil, func(r *policy.Request) { r.Verb = "delete" }, ""},
		{"another resource", "alice", nil, func(r *policy.Request) { r.Resource = "gizmos" }, ""},
		{"another group of the API", "alice", nil, func(r *policy.Request) { r.Group = "example.org" }, ""},
		{"a namespace by name", "alice", nil, func(r *policy.Request) { r.Namespace = "shared" }, "t/bindings/dev"},
		{"another namespace", "alice", nil, func(r *policy.Request) { r.Namespace = "prod-1" }, ""},
		{"a namespace that a glob only begins like", "alice", nil, func(r *policy.Request) { r.Namespace = "dev" }, ""},
		{"all namespaces", "alice", nil, func(r *policy.Request) { r.Namespace, r.Verb = "", "list" }, ""},
		{"all namespaces, granted", "root", nil, func(r *policy.Request) { r.Namespace, r.Verb = "", "list" }, "t/bindings/global"},
		{"a glob with a middle", "x", list{"owners"}, func(r *policy.Request) { r.Namespace = "a-b-z" }, "t/bindings/all"},
		{"a glob with a middle, too short", "x", list{"owners"}, func(r *policy.Request) { r.Namespace = "a-z" }, ""},
		{"wildcards of verb, group and resource", "x", list{"owners"}, func(r *policy.Request) {
			*r = policy.Request{IsResource: true, Verb: "whatever", Group: "g", Resource: "r", Subresource: "s", Namespace: "a--z"}
		}, "t/bindings/all"},
		{"a subresource that is granted", "alice", nil, func(r *policy.Request) { r.Subresource = "status" }, "t/bindings/dev"},
		{"a subresource that is not", "alice", nil, func(r *policy.Request) { r.Subresource = "scale" }, ""},
		{"the resource, where only the subresource is granted", "scaler", nil, nil, ""},
		{"any resource's subresource", "scaler", nil, func(r *policy.Request) { r.Subresource = "scale" }, "t/bindings/scale"},
		{"any resource of a group", "reader", nil, func(r *policy.Request) { r.Resource = "gizmos" }, "t/bindings/group"},
		{"a name that is listed", "alice", nil, func(r *policy.Request) { r.Resource, r.Verb, r.Name = "gadgets", "update", "two" }, "t/bindings/dev"},
		{"a name that is not", "alice", nil, func(r *policy.Request) { r.Resource, r.Verb, r.Name = "gadgets", "update", "three" }, ""},
		{"no name, where names are listed", "alice", nil, func(r *policy.Request) { r.Resource, r.Verb, r.Name = "gadgets", "update", "" }, ""},
		{"no name, where that is listed", "alice", nil, func(r *policy.Request) { r.Resource, r.Verb, r.Name = "gadgets", "create", "" }, "t/bindings/dev"},
		{"a name, where no name is listed", "alice", nil, func(r *policy.Request) { r.Resource, r.Verb = "gadgets", "create" }, ""},
		{"a verb of one's own", "alice", nil, func(r *policy.Request) { r.Resource, r.Verb = "gadgets", "approve" }, "t/bindings/dev"},
		{"a path", "walker", nil, func(r *policy.Request) { *r = policy.Request{Verb: "get", Path: "/version"} }, "t/bindings/paths"},
		{"a path below a prefix", "walker", nil, func(r *policy.Request) { *r = policy.Request{Verb: "get", Path: "/api/v1"} }, "t/bindings/paths"},
		{"a path beside a prefix", "walker", nil, func(r *policy.Request) { *r = policy.Request{Verb: "get", Path: "/apis"} }, ""},
		{"a path with another verb", "walker", nil, func(r *policy.Request) { *r = policy.Request{Verb: "post", Path: "/version"} }, ""},
		{"a path, granted in namespaces", "local", nil, func(r *policy.Request) { *r = policy.Request{Verb: "get", Path: "/version"} }, ""},
		{"masters", "x", list{"system:masters"}, func(r *policy.Request) { *r = policy.Request{Verb: "get", Path: "/x"} }, "system:masters"},
	} {
		r := widget
		if tc.change != nil {
			tc.change(&r)
		}
		r.User, r.Groups = tc.user, tc.groups
		d := p.Authorize(context.Background(), &r)
		if d.Allowed != (tc.want != "") || d.Rule != tc.want {
			t.Errorf("%s: allowed %v by %q, want %q", tc.name, d.Allowed, d.Rule, tc.want)
		}
	}
}

func TestDeniesComeFirst(t *testing.T) {
	p := newPolicy(t, policy.Form{
		Roles:    []policy.Role{{Name: "everything", Rules: []policy.Rule{rule(list{"*"}, list{"*"}, list{"*"}, nil)}}},
		Bindings: []policy.Binding{{ID: "t/bindings/all", Role: "everything", Subjects: []policy.Subject{{Group: "devs"}}, Namespaces: list{"*"}}},
		Denies: []policy.Deny{
			{ID: "t/denies/no-deletes", Subjects: []policy.Subject{{Group: "devs"}}, Reason: "ask first",
				Rules: []policy.Rule{rule(list{"delete"}, list{"example.com"}, list{"widgets"}, nil)}, Source: schemas.Position{File: "rbac.cue", Line: 31}},
			{ID: "t/denies/one", Subjects: []policy.Subject{{User: "root"}}, Reason: "kept",
				Rules: []policy.Rule{rule(list{"*"}, list{"example.com"}, list{"widgets", "widgets/status"}, list{"precious"})}},
		},
	})
	widget := policy.Request{IsResource: true, Verb: "get", Group: "example.com", Resource: "widgets", Namespace: "dev-1", Name: "w"}
	for name, tc := range map[string]struct {
		user   string
		groups list
		change func(*policy.Request)
		denied bool
		rule   string
	}{
		"what no deny names":            {"alice", list{"devs"}, func(*policy.Request) {}, false, "t/bindings/all"},
		"what is granted and denied":    {"alice", list{"devs"}, func(r *policy.Request) { r.Verb = "delete" }, true, "t/denies/no-deletes"},
		"a subresource":                 {"alice", list{"devs"}, func(r *policy.Request) { r.Verb, r.Subresource = "delete", "status" }, false, "t/bindings/all"},
		"masters, too":                  {"root", list{"system:masters"}, func(r *policy.Request) { r.Name = "precious" }, true, "t/denies/one"},
		"masters, by another name":      {"root", list{"system:masters"}, func(*policy.Request) {}, false, "system:masters"},
		"what is denied to others":      {"root", list{"system:masters"}, func(r *policy.Request) { r.Verb = "delete" }, false, "system:masters"},
		"what is denied, but not given": {"eve", nil, func(r *policy.Request) { r.Verb = "delete" }, false, ""},
	} {
		r := widget
		r.User, r.Groups = tc.user, tc.groups
		tc.change(&r)
		if d := p.Authorize(context.Background(), &r); d.Denied != tc.denied || d.Rule != tc.rule || d.Denied && d.Allowed {
			t.Errorf("%s: %+v", name, d)
		}
	}
	r := widget
	r.User, r.Groups, r.Verb = "alice", list{"devs"}, "delete"
	if d := p.Authorize(context.Background(), &r); d.Reason != "ask first (rbac.cue:31)" || d.Source != "rbac.cue:31" || d.Authorizer != "deny" {
		t.Errorf("%+v", d)
	}
}
