package rules_test

import (
	"slices"
	"testing"

	"stele.dev/stele/policy/plan/plantest"
)

// Rules that change objects are compared by what they say, and not by where.
func TestChangesOfMutations(t *testing.T) {
	with := func(mutation string) string {
		return plantest.Edit(t, plantest.Databases, "owned: {", mutation+"\n\t\towned: {")
	}
	rule := func(order, label string) string {
		return `marked: {match: {apiGroups: ["data.corp.example"], resources: ["databases"]}, validations: ok: expression: "true"}
		}
		teams: data: admission: mutate: label: {order: ` + order + `, match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			mutations: x: {patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'a': '` + label + `'}}}"}
		}
		teams: data: admission: validate: {`
	}
	none := `marked: {match: {apiGroups: ["data.corp.example"], resources: ["databases"]}, validations: ok: expression: "true"}`
	for _, c := range []struct {
		name, from, to string
		want           []string
	}{
		{"nothing", rule("1", "b"), "\n" + rule("1", "b"), nil},
		{"a new one", none, rule("1", "b"), []string{"changes MUTATION_ADDED data/mutate/label proved"}},
		{"one that is gone", rule("1", "b"), none, []string{"changes MUTATION_REMOVED data/mutate/label proved"}},
		{"another expression", rule("1", "b"), rule("1", "c"), []string{"changes MUTATION_CHANGED data/mutate/label proved"}},
		{"another order", rule("1", "b"), rule("2", "b"), []string{"changes MUTATION_CHANGED data/mutate/label proved"}},
	} {
		if got := lines(compare(t, plantest.Sides(t, with(c.from), with(c.to)))); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
