package policy_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
)

// Kubernetes' controller sorts the roles that another one selects by name, takes the rules of each as they are, and leaves out a
// rule that is already there. It changes nothing of a role whose rules are in this order.
func TestAggregatedRolesHaveTheOrderOfKubernetes(t *testing.T) {
	rule := func(id, verb string) policy.Rule {
		return policy.Rule{ID: id, Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{"pods"}}
	}
	to := func(role string) map[string]string { return map[string]string{"to-" + role: "true"} }
	for name, tc := range map[string]struct {
		roles []policy.Role
		want  map[string][]string
	}{
		"by name, not as they stand": {
			[]policy.Role{{Name: "all", Aggregate: to("all")}, {Name: "z", Labels: to("all"), Rules: []policy.Rule{rule("z/1", "get")}}, {Name: "b", Labels: to("all"), Rules: []policy.Rule{rule("b/2", "list"), rule("b/1", "watch")}}},
			map[string][]string{"all": {"b/2", "b/1", "z/1"}}},
		"the rules of an aggregated role stay together": {
			[]policy.Role{{Name: "edit", Aggregate: to("edit")}, {Name: "view", Labels: to("edit"), Aggregate: to("view")},
				{Name: "a-of-view", Labels: to("view"), Rules: []policy.Rule{rule("a/1", "get")}}, {Name: "zz", Labels: to("edit"), Rules: []policy.Rule{rule("zz/1", "delete")}}, {Name: "m", Labels: to("edit"), Rules: []policy.Rule{rule("m/1", "update")}}},
			map[string][]string{"edit": {"m/1", "a/1", "zz/1"}, "view": {"a/1"}}},
		"what is there already": {
			[]policy.Role{{Name: "all", Aggregate: to("all")}, {Name: "a", Labels: to("all"), Rules: []policy.Rule{rule("a/1", "get")}}, {Name: "b", Labels: to("all"), Rules: []policy.Rule{rule("b/1", "get"), rule("b/2", "list")}}},
			map[string][]string{"all": {"a/1", "b/2"}}},
		"roles that select each other": {
			[]policy.Role{{Name: "x", Labels: to("y"), Aggregate: to("x")}, {Name: "y", Labels: to("x"), Aggregate: to("y")}, {Name: "p", Labels: to("x"), Rules: []policy.Rule{rule("p/1", "get")}}, {Name: "q", Labels: to("y"), Rules: []policy.Rule{rule("q/1", "list")}}},
			map[string][]string{"x": {"p/1", "q/1"}, "y": {"q/1", "p/1"}}},
		"a role of a namespace": {
			[]policy.Role{{Name: "all", Aggregate: to("all")}, {Name: "one", Namespace: "one", Labels: to("all"), Rules: []policy.Rule{rule("one/1", "get")}}, {Name: "b", Labels: to("all"), Rules: []policy.Rule{rule("b/1", "list")}}},
			map[string][]string{"all": {"b/1"}}},
		"a role that selects itself, with rules of its own": {
			[]policy.Role{{Name: "self", Labels: to("self"), Aggregate: to("self"), Rules: []policy.Rule{rule("self/1", "get")}}},
			map[string][]string{"self": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			compile.AggregateRoles(tc.roles)
			for role, want := range tc.want {
				i := slices.IndexFunc(tc.roles, func(r policy.Role) bool { return r.Name == role })
				var got []string
				for _, r := range tc.roles[i].Rules {
					got = append(got, r.ID)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", role, diff)
				}
			}
		})
	}
}

// The built-in role edit has the rules of system:aggregate-to-edit before those of view, as in Kubernetes.
func TestTheRoleEditHasTheOrderOfKubernetes(t *testing.T) {
	roles := compile.BuiltinRoles()
	compile.AggregateRoles(roles)
	edit := policy.IndexBy(roles, func(r *policy.Role) string { return r.Name })["edit"]
	var from []string
	for _, r := range edit.Rules {
		if role := r.ID[len("builtin/clusterRoles/"):]; !slices.Contains(from, role[:len("system:aggregate-to-xxxx")]) {
			from = append(from, role[:len("system:aggregate-to-xxxx")])
		}
	}
	if !slices.Equal(from, []string{"system:aggregate-to-edit", "system:aggregate-to-view"}) {
		t.Errorf("the rules are of %q", from)
	}
}
