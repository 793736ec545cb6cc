package rules_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/policy/plan/plantest"
	"stele.dev/stele/policy/quotas"
)

// A plan reports what quotas can limit no more, or otherwise, field by field.
func TestChangesOfQuotas(t *testing.T) {
	const quota = `quota: {
		resources: "storage.corp.example": sums: {data: {kind: "databases.data.corp.example", path: ".spec.storageGiB"}, copies: {kind: "databases.data.corp.example", path: ".spec.replicas"}}
		scopes: Dev: {kinds: ["databases.data.corp.example"], selector: matchLabels: source: "a", fields: ".spec.tier": "dev"}
		scopes: Tier: {kinds: ["databases.data.corp.example"], value: field: ".spec.tier"}
		scopes: Team: value: label: "team"
	}
	`
	with := func(edits ...string) string {
		return plantest.Edit(t, plantest.Databases, `cluster: "dev"`, `cluster: "dev"`+"\n\t"+plantest.Edit(t, quota, edits...))
	}
	const resource, scopes = "quota/resources/storage.corp.example", "quota/scopes/"
	tried := map[string]bool{}
	for _, c := range []struct {
		field string // of the form
		edits []string
		want  []string
		says  string
	}{
		{"", []string{"quota: {", "\n\tquota: {"}, nil, ""},
		{"Resources/ID", []string{"copies: {", "more: {"}, nil, ""}, // a name says nothing
		{"Resources/Name", []string{"storage.corp", "space.corp"}, []string{"changes QUOTA_RESOURCE_ADDED quota/resources/space.corp.example", "widens QUOTA_RESOURCE_REMOVED " + resource}, "limit nothing by it any more"},
		{"Resources/Sums/ID", []string{"copies: {", "more: {"}, nil, ""}, // a name says nothing
		{"Resources/Sums/Path", []string{".spec.storageGiB", ".spec.replicas"}, []string{"changes QUOTA_RESOURCE_CHANGED " + resource}, "Other fields are counted as storage.corp.example."},
		{"Resources/Sums/Kind", []string{`, copies: {kind: "databases.data.corp.example", path: ".spec.replicas"}`, ""}, []string{"widens QUOTA_RESOURCE_CHANGED " + resource}, "Less is counted"},
		{"Resources/Sums", []string{"copies: {", `again: {kind: "databases.data.corp.example", path: ".spec.replicas"}, copies: {`}, []string{"narrows QUOTA_RESOURCE_CHANGED " + resource}, "More is counted"},
		{"Scopes/ID", []string{"scopes: Team", "scopes: Owner"}, []string{"changes QUOTA_SCOPE_ADDED " + scopes + "Owner", "widens QUOTA_SCOPE_REMOVED " + scopes + "Team"}, "count nothing any more"},
		{"Scopes/Name", []string{"scopes: Team", "scopes: Owner"}, []string{"changes QUOTA_SCOPE_ADDED " + scopes + "Owner", "widens QUOTA_SCOPE_REMOVED " + scopes + "Team"}, "can have the scope Owner"},
		{"Scopes/Kinds", []string{`Team: value`, `Team: kinds: ["configmaps"], scopes: Team: value`}, []string{"changes QUOTA_SCOPE_CHANGED " + scopes + "Team"}, "count other objects"},
		{"Scopes/Selector", []string{`source: "a"`, `source: "b"`}, []string{"changes QUOTA_SCOPE_CHANGED " + scopes + "Dev"}, ""},
		{"Scopes/Fields/Path", []string{`fields: ".spec.tier"`, `fields: ".spec.tenant"`}, []string{"changes QUOTA_SCOPE_CHANGED " + scopes + "Dev"}, ""},
		{"Scopes/Fields/Value", []string{`".spec.tier": "dev"`, `".spec.tier": "critical"`}, []string{"changes QUOTA_SCOPE_CHANGED " + scopes + "Dev"}, ""},
		{"Scopes/ValueLabel", []string{`label: "team"`, `label: "owner"`}, []string{"changes QUOTA_SCOPE_CHANGED " + scopes + "Team"}, ""},
		{"Scopes/ValueField", []string{`value: field: ".spec.tier"`, `value: field: ".spec.tenant"`}, []string{"changes QUOTA_SCOPE_CHANGED " + scopes + "Tier"}, ""},
	} {
		tried["/"+c.field] = true
		var got []string
		said := ""
		for _, f := range compare(t, plantest.Sides(t, with(), with(c.edits...))) {
			got = append(got, strings.Join([]string{string(f.Class), f.Rule, f.Path}, " "))
			said += f.Message + "\n"
			if f.Source.Line+f.Was.Line == 0 {
				t.Errorf("no line: %+v", f)
			}
		}
		if slices.Sort(got); !slices.Equal(got, c.want) || !strings.Contains(said, c.says) {
			t.Errorf("%s: %q\n%s", c.edits, got, said)
		}
	}
	for _, path := range fields(reflect.TypeFor[quotas.Form](), "") {
		if !tried[path] {
			t.Errorf("a change of the field %s is not tried: compare it in a plan", path)
		}
	}
	got := lines(compare(t, plantest.Sides(t, with(), plantest.Databases)))
	if want := []string{"widens QUOTA_RESOURCE_REMOVED " + resource + " proved", "widens QUOTA_SCOPE_REMOVED " + scopes + "Dev proved", "widens QUOTA_SCOPE_REMOVED " + scopes + "Team proved", "widens QUOTA_SCOPE_REMOVED " + scopes + "Tier proved"}; !slices.Equal(got, want) {
		t.Errorf("without quota: %q", got)
	}
}

// A pack that is dropped is rules that are gone.
func TestAPackIsDropped(t *testing.T) {
	packed := plantest.Edit(t, plantest.Databases, `import "stele.dev/policy"`, "import (\n\t\"stele.dev/policy\"\n\t\"stele.dev/policy/packs\"\n)",
		`teams: data: admission: validate: {`, `teams: data: admission: (packs.#LimitRange & {name: "gib", order: 3, apiGroups: ["data.corp.example"], resources: ["databases"], field: "spec.storageGiB", default: 5, max: 900}).admission
	teams: data: admission: validate: {`)
	got := lines(compare(t, plantest.Sides(t, packed, plantest.Databases)))
	if want := []string{"changes MUTATION_REMOVED data/mutate/gib proved", "widens RULE_REMOVED data/validate/gib proved"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
