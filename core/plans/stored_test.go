package plans_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// reading are rules that every database has an owner of its own and a new name, and every pipeline a database.
const reading = `
		admission: validate: "own-owner": {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			objects: databases: {kind: "databases.data.corp.example", version: "v1"}
			validations: owner: {expression: "!objects.databases.where('spec.owner', object.spec.owner).others().exists()", message: "another database has the owner"}
		}
		admission: validate: "new-name": {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE"]}
			objects: databases: {kind: "databases.data.corp.example", version: "v1"}
			validations: name: {expression: "!objects.databases.name(object.metadata.name).exists() && !objects.databases.get('shop', object.metadata.name).hasValue()", message: "there is one of this name"}
		}
		admission: validate: "for-database": {
			match: {apiGroups: ["data.corp.example"], resources: ["pipelines"]}
			objects: databases: {kind: "databases.data.corp.example", version: "v1"}
			validations: database: {expression: "objects.databases.get('shop', object.metadata.name.replace('pipe', 'db')).hasValue()", message: "there is no database for it"}
		}
		rbac: {`

// The plan tries stored objects with rules that read other objects, on the state at its revision and as the new policy shows it.
func TestRulesOverOtherObjectsAreTried(t *testing.T) {
	s := start(t)
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	for name, owner := range map[string]string{"db-1": "a", "db-2": "b", "db-3": "b", "db-4": "c"} {
		s.must(t, "dana", "POST", databases, fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Database","metadata":{"name":%q},"spec":{"owner":"%s@corp.example"}}`, name, owner))
	}
	for _, name := range []string{"pipe-1", "pipe-7"} {
		s.must(t, "della", "POST", pipelines, fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Pipeline","metadata":{"name":%q},"spec":{"steps":3}}`, name))
	}
	next := changed(t, "versions: v1: {\n\t\t\t\t#schema: #Database\n", "index: [\".spec.owner\"]\n\t\t\tversions: v1: {\n\t\t\t\t#schema: #Database\n", "\n\t\trbac: {", reading,
		`owner!: =~"^[a-z.]+@corp\\.example$"`, "owner!: =~\"^[a-z.]+@corp\\\\.example$\"\n\t\tshown: string | *\"x\"")
	p := s.plan(t, "admin", next, map[string]any{"samples": 5})
	found := map[string]string{}
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Objects != nil && f.Objects.Violating+f.Objects.Stuck > 0 {
			of := names(f.Objects)
			slices.Sort(of)
			found[f.Path] = fmt.Sprintf("%d of %d, %d stuck: %s", f.Objects.Violating, f.Objects.Of, f.Objects.Stuck, strings.Join(of, " "))
		}
	}
	want := map[string]string{
		"data/validate/own-owner":    "2 of 4, 2 stuck: shop/db-2 shop/db-3",
		"data/validate/for-database": "1 of 2, 1 stuck: shop/pipe-7",
	}
	if fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v in\n%s", found, want, show(p))
	}

	p = s.plan(t, "planner", next, nil)
	for i := range p.Findings {
		if f := &p.Findings[i]; strings.HasPrefix(f.Path, "data/validate/") && f.Objects != nil && f.Objects.Violating > 0 {
			t.Errorf("the planner may not list databases, and the plan counts %s\n%s", f.Path, show(p))
		}
	}
	if !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, "databases.data.corp.example") }) {
		t.Errorf("the plan does not say that rules were left out: %q", p.Notes)
	}
}
