package contents_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/contents"
)

func TestContentsTellWhatChanges(t *testing.T) {
	const bundle = `package test

import "stele.dev/policy"

bundle: policy.#Bundle & {cluster: "test", teams: a: {contact: "#a", groups: ["a.example.com"], namespaces: ["a-*"]}}
bundle: teams: a: {
	kinds: "widgets.a.example.com": {group: "a.example.com", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1"
		versions: v1: {#schema: spec!: {size!: int, source?: string}, validations: grow: {path: "spec.size", rule: "self >= oldSelf"}}}
	rbac: clusterRoles: r: rules: x: {apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["get"]}
	rbac: clusterRoles: s: rules: x: {apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["list"]}
	rbac: bindings: b: {clusterRole: "r", subjects: [{user: "x"}], namespaces: ["a-1"]}
	rbac: denies: d: {subjects: [{user: "x"}], rules: x: {apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["delete"]}, reason: "no"}
	admission: validate: v: {match: {apiGroups: ["a.example.com"], resources: ["widgets"]}, validations: {p: expression: "object.spec.size > 0", q: expression: "true"}}
}
`
	form := func(text string) *policy.Form {
		source, err := bundles.ReadFS(fstest.MapFS{
			"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")},
			"bundle.cue":         {Data: []byte(text)},
		}, ".")
		if err != nil {
			t.Fatal(err)
		}
		compiled, diags := compile.Bundle(source)
		if len(diags) > 0 {
			t.Fatal(diags)
		}
		return compiled.Form
	}
	first := form(bundle)
	for name, tc := range map[string]struct {
		old, new string
		want     []contents.Content
	}{
		"nothing, on other lines": {"bundle: teams", "\n\n// Moved.\nbundle: teams", nil},
		"a field of a kind":       {"size!: int,", "size!: int & >0,", []contents.Content{{Part: "kinds", Count: 1, Changed: []string{"widgets.a.example.com"}}}},
		"a role less": {"\trbac: clusterRoles: s", "\t#unused: rbac: clusterRoles: s", []contents.Content{
			{Part: "roles", Count: 1, Removed: []string{"a/clusterRoles/s"}}}},
		"a binding more": {"rbac: denies: d:", "rbac: bindings: c: {clusterRole: \"s\", subjects: [{user: \"x\"}], namespaces: [\"a-1\"]}\n\trbac: denies: d:", []contents.Content{
			{Part: "bindings", Count: 2, Added: []string{"a/bindings/c"}}}},
		"a check": {`q: expression: "true"`, `q: expression: "1 < 2"`, []contents.Content{
			{Part: "rules", Count: 1, Changed: []string{"a/validate/v"}}, {Part: "validations", Count: 3, Changed: []string{"a/validate/v/q"}}}},
		"a flow schema and its level": {"bundle: teams", "bundle: flow: {\n\tpriorityLevels: p: {nominalConcurrencyShares: 1, queuing: {}}\n\tflowSchemas: f: {matchingPrecedence: 700, priorityLevel: \"p\", subjects: [{user: \"*\"}], rules: all: {verbs: [\"get\"], nonResourceURLs: [\"/*\"]}}\n}\nbundle: teams", []contents.Content{
			{Part: "priority levels", Count: 1, Added: []string{"flow/priorityLevels/p"}}, {Part: "flow schemas", Count: 1, Added: []string{"flow/flowSchemas/f"}}}},
		"what quotas limit": {"cluster: \"test\", teams: a", "cluster: \"test\", quota: {resources: \"sizes.example.com\": sums: w: {kind: \"widgets.a.example.com\", path: \".spec.size\"}, scopes: Team: value: label: \"team\"}, teams: a", []contents.Content{{Part: "quota rules", Count: 2, Added: []string{"quota/resources/sizes.example.com", "quota/scopes/Team"}}}},
		"the deny":          {"\trbac: denies", "\t#unused: rbac: denies", []contents.Content{{Part: "denies", Removed: []string{"a/denies/d"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var changed []contents.Content
			now := contents.Of(form(strings.Replace(bundle, tc.old, tc.new, 1)), first)
			if want := 6; len(now) != want && name != "a flow schema and its level" && name != "what quotas limit" {
				t.Fatalf("%d parts, want %d", len(now), want)
			}
			for _, c := range now {
				if len(c.Added)+len(c.Removed)+len(c.Changed) > 0 {
					changed = append(changed, c)
				}
			}
			if diff := cmp.Diff(tc.want, changed); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
