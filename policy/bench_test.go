package policy_test

import (
	"fmt"
	"testing"

	"stele.dev/stele/policy"
)

// manyRoles are the access rules of a large company: 10,000 roles over 200 kinds, each
// bound to one of 500 groups or 2,000 users in the namespaces of one of 1,000 tenants.
func manyRoles() policy.Form {
	f := policy.Form{}
	resource := func(i int) string { return fmt.Sprintf("kind%ds", i%200) }
	for i := range 10_000 {
		name := fmt.Sprintf("role%d", i)
		f.Roles = append(f.Roles, policy.Role{Name: name, Rules: []policy.Rule{
			{ID: name + "/edit", Verbs: list{"get", "list", "watch", "create", "update", "patch"}, APIGroups: list{"example.com"}, Resources: list{resource(i), resource(i + 1)}},
			{ID: name + "/status", Verbs: list{"get"}, APIGroups: list{"example.com"}, Resources: list{resource(i) + "/status"}},
			{ID: name + "/one", Verbs: list{"approve"}, APIGroups: list{"example.com"}, Resources: list{resource(i)}, ResourceNames: list{"main"}},
		}})
		subject := policy.Subject{Group: fmt.Sprintf("group%d", i%500)}
		if i%4 == 0 {
			subject = policy.Subject{User: fmt.Sprintf("user%d", i/4%2000)}
		}
		f.Bindings = append(f.Bindings, policy.Binding{ID: "t/bindings/" + name, Role: name, Subjects: []policy.Subject{subject}, Namespaces: list{fmt.Sprintf("tenant%d-*", i%1000)}})
	}
	// And one group that everybody is in has a binding of its own for each tenant.
	f.Roles = append(f.Roles, policy.Role{Name: "viewer", Rules: []policy.Rule{
		{ID: "viewer/all", Verbs: list{"get", "list", "watch"}, APIGroups: list{"example.com"}, Resources: list{"shared"}},
	}})
	for i := range 1000 {
		f.Bindings = append(f.Bindings, policy.Binding{ID: fmt.Sprintf("t/bindings/viewers%d", i), Role: "viewer",
			Subjects: []policy.Subject{{Group: "system:authenticated"}}, Namespaces: list{fmt.Sprintf("tenant%d-*", i)}})
	}
	for i := range 100 {
		id := fmt.Sprintf("t/denies/keep%d", i)
		f.Denies = append(f.Denies, policy.Deny{ID: id, Reason: "keep", Subjects: []policy.Subject{{Group: "system:authenticated"}}, Rules: []policy.Rule{
			{ID: id + "/all", Verbs: list{"deletecollection"}, APIGroups: list{"example.com"}, Resources: list{resource(2 * i)}},
		}})
	}
	return f
}

// The cost of a decision depends on who asks and on what for, not on how many rules there
// are about others: less than a microsecond for somebody in ten groups.
func BenchmarkAuthorize(b *testing.B) {
	p := newPolicy(b, manyRoles())
	groups := list{"system:authenticated"}
	for i := range 9 {
		groups = append(groups, fmt.Sprintf("group%d", 51*i+1))
	}
	for _, bm := range []struct {
		name              string
		verb, kind, where string
		allowed, denied   bool
	}{
		{name: "allowed", verb: "update", kind: "kind1s", where: "tenant1-prod", allowed: true},
		{name: "denied", verb: "deletecollection", kind: "kind2s", where: "tenant1-prod", denied: true},
		{name: "no-opinion", verb: "delete", kind: "kind1s", where: "tenant1-prod"},
		{name: "of-1000-bindings/allowed", verb: "get", kind: "shared", where: "tenant999-prod", allowed: true},
		{name: "of-1000-bindings/no-opinion", verb: "get", kind: "shared", where: "elsewhere"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			r := &policy.Request{IsResource: true, User: "user1", Groups: groups, Verb: bm.verb, Group: "example.com", Resource: bm.kind, Namespace: bm.where, Name: "w"}
			if d := p.Authorize(r); d.Allowed != bm.allowed || d.Denied != bm.denied {
				b.Fatalf("%+v", d)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.Authorize(r)
			}
		})
	}
}
