package kinds_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// versioned is a kind with names, a scope and versions of its own.
func versioned(names, scope, storage, versions string) string {
	return `#S: {spec: a?: int}
bundle: teams: data: kinds: "gauges.example.com": {
	group: "example.com", names: {plural: "gauges", ` + names + `}, scope: "` + scope + `", storageVersion: "` + storage + `"
	versions: {` + versions + `}
}
`
}

func TestFindingsOfNamesAndVersions(t *testing.T) {
	from := compiled(t, versioned(`kind: "Gauge", shortNames: ["gg"]`, "Namespaced", "v1", "v1: #schema: #S, v2: #schema: #S")+
		kind("olds", "a: int", "")+kind("parts", "a: [...int], b?: int", ""), nil)
	to := compiled(t, versioned(`kind: "Meter", shortNames: ["mm"], categories: ["all"]`, "Cluster", "v2", "v2: #schema: #S, v3: #schema: #S")+
		kind("news", "a: int", "")+kind("parts", "a: [...int], b?: len(a)", ""), nil)
	var got []string
	for _, f := range compare(t, from, to) {
		got = append(got, f.Kind+" "+inLine(&f))
	}
	slices.Sort(got)
	want := []string{
		"gauges.example.com breaks KIND_NAMES_CHANGED names.kind: Gauge → Meter",
		"gauges.example.com breaks KIND_SCOPE_CHANGED scope: Namespaced → Cluster",
		"gauges.example.com breaks VERSION_REMOVED versions.v1 (v1): served →",
		"gauges.example.com changes KIND_NAMES_CHANGED names.categories:  → all",
		"gauges.example.com changes KIND_NAMES_CHANGED names.listKind: GaugeList → MeterList",
		"gauges.example.com changes KIND_NAMES_CHANGED names.shortNames: gg → mm",
		"gauges.example.com changes KIND_NAMES_CHANGED names.singular: gauge → meter",
		"gauges.example.com changes STORAGE_VERSION_CHANGED storageVersion: v1 → v2",
		"gauges.example.com changes VERSION_ADDED versions.v3 (v3):  → served",
		"news.example.com widens KIND_ADDED :  → News (news)",
		"olds.example.com breaks KIND_REMOVED : Olds (olds) →",
	}
	rest := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return strings.HasPrefix(s, "parts.") })
	if diff := cmp.Diff(want, rest); diff != "" {
		t.Error(diff)
	}
	if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "parts.example.com changes CUE_FALLBACK_ADDED spec:") }) {
		t.Errorf("no finding of what only CUE can check: %v", got)
	}
}

// Another conversion is a change; one that may lose more narrows.
func TestFindingsOfConversions(t *testing.T) {
	with := func(conversion string) string {
		return versioned(`kind: "Gauge"`, "Namespaced", "v1", "v1: #schema: spec: a?: \"x\" | \"y\", v1beta1: {#schema: spec: b?: \"x\" | \"y\", conversion: ["+conversion+"]}")
	}
	rename, exchanged := `{rename: {from: "spec.b", to: "spec.a"}}`, `{map: {field: "spec.a", values: {x: "y", y: "x"}}}`
	lossy := `{drop: {field: "spec.a", reason: "x"}}, {drop: {field: "spec.b", reason: "y"}}`
	for _, tc := range []struct{ from, to, want string }{
		{rename, rename, ""},
		{rename, rename + ", " + exchanged, `changes CONVERSION_CHANGED versions.v1beta1.conversion (v1beta1): rename spec.b → spec.a → rename spec.b → spec.a, map spec.a "x"→"y" "y"→"x"`},
		{rename, lossy, `narrows CONVERSION_CHANGED versions.v1beta1.conversion (v1beta1): rename spec.b → spec.a → drop  → spec.a, drop spec.b`},
	} {
		var got []string
		for _, f := range compare(t, compiled(t, with(tc.from), nil), compiled(t, with(tc.to), nil)) {
			got = append(got, inLine(&f))
		}
		if strings.Join(got, "\n") != tc.want {
			t.Errorf("%s\nwant %s", strings.Join(got, "\n"), tc.want)
		}
	}
}

// A rename says what to do, on both of its findings.
func TestRenames(t *testing.T) {
	from := compiled(t, kind("gauges", `owner!: =~"^[a-z]+$", other?: int`, ""), nil)
	to := compiled(t, kind("gauges", `contact!: =~"^[a-z]+$", more?: bool`, ""), nil)
	renames := map[string]int{}
	for _, f := range compare(t, from, to) {
		if strings.Contains(strings.Join(f.Details, " "), "look like a rename") {
			renames[f.Path] = len(f.Fix)
		}
	}
	if diff := cmp.Diff(map[string]int{"spec.owner": 3, "spec.contact": 0}, renames); diff != "" {
		t.Error(diff)
	}
}

// viewOf is a view of a kind.
func viewOf(name, fields string) string {
	return `bundle: teams: data: views: "` + name + `": {kind: "parts.example.com", version: "v1", ` + fields + "}\n"
}

func TestFindingsOfViews(t *testing.T) {
	a := `columns: a: {expression: "object.spec.a", type: "integer"}`
	base := kind("parts", "a: int, b?: int", "")
	from := compiled(t, base+viewOf("old-parts", a)+viewOf("same-parts", a)+viewOf("big-parts", a)+viewOf("all-parts", a+`, columns: b: {expression: "object.spec.b", type: "integer"}`), nil)
	to := compiled(t, base+"\n\n"+viewOf("new-parts", a)+viewOf("same-parts", a)+viewOf("big-parts", a+`, filter: "object.spec.a > 5"`)+viewOf("all-parts", a), nil)
	var got []string
	for _, f := range compare(t, from, to) {
		got = append(got, f.Kind+" "+inLine(&f))
	}
	slices.Sort(got)
	want := []string{
		"all-parts.views.stele.dev breaks VIEW_CHANGED data/views/all-parts: parts.example.com: a integer, b integer → parts.example.com: a integer",
		"big-parts.views.stele.dev changes VIEW_CHANGED data/views/big-parts: parts.example.com: a integer → parts.example.com: a integer where object.spec.a > 5",
		"new-parts.views.stele.dev changes VIEW_ADDED data/views/new-parts:  → parts.example.com: a integer",
		"old-parts.views.stele.dev breaks VIEW_REMOVED data/views/old-parts:  →",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
