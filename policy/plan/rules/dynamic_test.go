package rules_test

import (
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/plantest"
)

func TestChangesOfDynamic(t *testing.T) {
	with := func(more string) string {
		return plantest.Edit(t, plantest.Databases, `cluster: "dev"`, `cluster: "dev"`+"\n\t"+more)
	}
	const refuse, match = "dynamic: {}", `dynamic: rbac: "Match"`
	for _, c := range []struct {
		from, to string
		class    plan.Class
	}{{refuse, match, plan.Widens}, {match, refuse, plan.Narrows}, {refuse, `dynamic: rbac: "Refuse"`, ""}} {
		found := compare(t, plantest.Sides(t, with(c.from), with(c.to)))
		if c.class == "" {
			if len(found) > 0 {
				t.Errorf("%s to %s: %v", c.from, c.to, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Rule != "DYNAMIC_CHANGED" || found[0].Class != c.class || found[0].Path != "dynamic.rbac" || found[0].Source.Line+found[0].Was.Line == 0 {
			t.Errorf("%s to %s: %v", c.from, c.to, found)
		}
	}
}

// What clients may bring is more than what agrees, and each further group is more.
func TestAllowingDefinitionsWidens(t *testing.T) {
	with := func(more string) string {
		return plantest.Edit(t, plantest.Databases, `cluster: "dev"`, `cluster: "dev"`+"\n\tdynamic: {customresourcedefinitions: "+more+"}")
	}
	const match, some, other, all = `"Match"`, `"Allow", groups: ["a.example"]`, `"Allow", groups: ["a.example", "*.b.example"]`, `"Allow"`
	for _, c := range []struct {
		from, to string
		class    plan.Class
		shown    string
	}{
		{match, some, plan.Widens, "Match -> Allow a.example"}, {some, other, plan.Widens, "Allow a.example -> Allow a.example, *.b.example"}, {other, all, plan.Widens, ""},
		{all, some, plan.Narrows, "Allow * -> Allow a.example"}, {some, match, plan.Narrows, ""},
	} {
		found := compare(t, plantest.Sides(t, with(c.from), with(c.to)))
		if len(found) != 1 || found[0].Class != c.class || c.shown != "" && found[0].Before+" -> "+found[0].After != c.shown {
			t.Errorf("%s to %s: %v", c.from, c.to, found)
		}
	}
}

// Further namespaces and powers widen what clients may grant.
func TestAllowingRBACWidens(t *testing.T) {
	with := func(more string) string {
		return plantest.Edit(t, plantest.Databases, `cluster: "dev"`, `cluster: "dev"`+"\n\tdynamic: {rbac: "+more+"}")
	}
	const match, one, two = `"Match"`, `"Allow", namespaces: ["a"]`, `"Allow", namespaces: ["a", "b"]`
	const reads, writes = one + `, powers: r: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}`, one + `, powers: r: {apiGroups: [""], resources: ["configmaps"], verbs: ["get", "update"]}`
	for _, c := range []struct {
		from, to string
		class    plan.Class
		shown    string
	}{
		{match, one, plan.Widens, "Match -> Allow a"}, {one, two, plan.Widens, "Allow a -> Allow a, b"}, {two, one, plan.Narrows, ""}, {one, reads, plan.Narrows, "Allow a -> Allow a (powers: get configmaps)"},
		{reads, writes, plan.Widens, ""}, {writes, reads, plan.Narrows, ""}, {reads, one, plan.Widens, ""}, {one, match, plan.Narrows, ""},
	} {
		found := compare(t, plantest.Sides(t, with(c.from), with(c.to)))
		if len(found) != 1 || found[0].Rule != "DYNAMIC_CHANGED" || found[0].Class != c.class || c.shown != "" && found[0].Before+" -> "+found[0].After != c.shown {
			t.Errorf("%s to %s: %v", c.from, c.to, found)
		}
	}
}

func TestRenamedObjectsAreFound(t *testing.T) {
	const part = `teams: data: rbac: {clusterRoles: shown: {%rules: a: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["get"]}}, bindings: shown: {$clusterRole: "shown", subjects: [{user: "x"}], namespaces: ["data-one"]}}`
	with := func(role, binding string) string {
		return plantest.Edit(t, plantest.Databases, `cluster: "dev"`, `cluster: "dev"`+"\n\t"+strings.NewReplacer("%", role, "$", binding).Replace(part))
	}
	found := compare(t, plantest.Sides(t, with("", ""), with(`name: "Shown", namespace: "data-one", `, `name: "chart", `)))
	want := []string{"data/bindings/shown data:shown chart", "data/clusterRoles/shown shown data-one/Shown"}
	var got []string
	for _, f := range found {
		if f.Rule != "OBJECT_RENAMED" || f.Class != plan.Changes || f.Source.Line+f.Was.Line == 0 {
			t.Errorf("%+v", f)
		}
		got = append(got, f.Path+" "+f.Before+" "+f.After)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if found := compare(t, plantest.Sides(t, with("", ""), with(`name: "shown", `, `name: "data:shown", `))); len(found) > 0 {
		t.Errorf("names that are the same: %v", found)
	}
}
