package planning

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/policy/plan"
)

// An edit replaces text of testdata/review.cue.
type edit struct{ old, is string }

const everybody = `subjects: [{group: "system:authenticated"}]`

// eight and twelve are changes of a pull request, one entry each.
var (
	eight = [][]edit{
		{{`<=100000`, `<=9000`}},
		{{` | {type: "check", address!: string}`, ``}},
		{{`owner!: =~`, `contact!: =~`}},
		{{`verbs: ["get", "list", "watch", "create", "update", "patch"]`, `verbs: ["*"]`}},
		{{`		bindings: developers`, `		denies: "payouts-stay": {` + everybody + `, reason: "payouts stay", rules: a: {apiGroups: ["ledger.quill.example"], resources: ["payouts"], verbs: ["delete", "deletecollection"]}}
		bindings: developers`}},
		{{`<= params.max"`, `< params.max"`}},
		{{`*"basic" | "gold"`, `"basic" | *"gold"`}},
		{{`*"cc-1000"`, `*"cc-2000"`}},
	}
	twelve = [][]edit{
		{{`<=5000`, `<=10000`}},
		{{`note?:  string`, `note?:  string
		branch?: string`}},
		{{`"current" | "savings" | "escrow"`, `"current" | "savings" | "escrow" | "trust"`}},
		{{`!= 'escrow'"}`, `== 'current'"}`}},
		{{`groups: ["edge.quill.example"]
		namespaces: ["edge-*"]`, `groups: ["*"]
		namespaces: ["*"]`}},
		{{`		rbac: bindings: lookers`, `		rbac: bindings: root: {clusterRole: "cluster-admin", subjects: [{user: "eve"}], namespaces: ["*"]}
		rbac: bindings: lookers`}},
		{{`subjects: [{group: "support"}]`, `subjects: [{group: "helpdesk"}]`}},
		{{`weight: int & >=0`, `weight: int & >=1`}},
		{{`level: "Request", apiGroups`, `level: "None", apiGroups`}},
		{{`	admission: validate: "no-self": {
		match: {apiGroups: ["ledger.quill.example"], resources: ["payouts"]}
		validations: self: {expression: "object.spec.account != object.metadata.name", message: "a payout has a name of its own"}
	}
`, ``}},
		{{`phase?: string`, `phase?: string
	status?: reason?: string`}},
		{{`	// more`, `	admission: validate: "has-note": {
		match: {apiGroups: ["ledger.quill.example"], resources: ["accounts"]}
		validations: note: {expression: "has(object.spec.note)", message: "say what it is for"}
	}`}},
	}
)

// review returns the bundle of testdata/review.cue after edits.
func review(t *testing.T, changes ...[]edit) *loaded {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "review.cue"))
	require.NoError(t, err)
	text := string(data)
	for _, edits := range changes {
		for _, e := range edits {
			require.Contains(t, text, e.old)
			text = strings.Replace(text, e.old, e.is, 1)
		}
	}
	return compiled(t, fstest.MapFS{
		"teams/ledger/bank.cue": {Data: []byte(text)}, "cue.mod/module.cue": {Data: []byte("module: \"quill.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, "teams/ledger")
}

// bank is what is stored: 17 accounts and 12 payouts.
func bank(t *testing.T) plans.Source {
	t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Namespace\nmetadata: {name: ledger-eu}\n")
	for i := range 17 {
		b.WriteString("---\napiVersion: ledger.quill.example/v1\nkind: Account\nmetadata: {namespace: ledger-eu, name: acc-" + string(rune('a'+i)) + "}\nspec: {kind: current, owner: dana@quill.example, daily: 100, single: 50, tier: basic}\n")
	}
	for i := range 12 {
		method := `{type: sepa, iban: x}`
		if i%3 == 0 {
			method = `{type: check, address: y}`
		}
		b.WriteString("---\napiVersion: ledger.quill.example/v1\nkind: Payout\nmetadata: {namespace: ledger-eu, name: pay-" + string(rune('a'+i)) + "}\nspec: {account: acc-a, amount: 1" + strings.Repeat("0", i%5) + ", method: " + method + "}\n")
	}
	source, err := plans.ReadObjects(strings.NewReader(b.String()))
	require.NoError(t, err)
	return source
}

// reviewed returns the plan of changes to the bank.
func reviewed(t *testing.T, changes ...[]edit) Part {
	t.Helper()
	from, to := review(t), review(t, changes...)
	p, err := plans.Make(t.Context(), plan.Sides{From: from.policy, To: to.policy}, plans.Options{Objects: bank(t), Samples: 3})
	require.NoError(t, err)
	p.From.Digest, p.To.Digest = oldDigest, newDigest
	return Part{Plan: p, Name: "clusters/bank", Package: "clusters/bank"}
}

func TestAPlanOfEightAndOfTwentyChanges(t *testing.T) {
	for name, changes := range map[string][][]edit{"eight": eight, "twenty": append(eight[:8:8], twelve...)} {
		part := reviewed(t, changes...)
		for _, format := range []string{"text", "markdown"} {
			got := render(t, format, []Part{part})
			golden := filepath.Join("testdata", name+"."+format+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), got, name)
		}
	}
}

func TestTheSummaryOfEightChangesFitsOnAScreen(t *testing.T) {
	const screen = 40
	for screens, changes := range map[int][][]edit{1: eight, 2: append(eight[:8:8], twelve...)} {
		part := reviewed(t, changes...)
		assert.Len(t, part.changes(), len(changes), "one line for each change")
		summary, _, found := strings.Cut(render(t, "text", []Part{part}), "\nStored objects checked: ")
		require.True(t, found)
		assert.LessOrEqual(t, strings.Count(summary, "\n"), screens*screen)
	}
}

func TestACommentLinksToTheLines(t *testing.T) {
	part := reviewed(t, eight[0])
	part.Prefix, part.Links = "law of banks/", "https://git.example/law/blob/c0ffee"
	assert.Contains(t, render(t, "markdown", []Part{part}), "| [`teams/ledger/bank.cue:52`](https://git.example/law/blob/c0ffee/law%20of%20banks/teams/ledger/bank.cue#L52) |")
}

func TestTheAddressOfFilesIsThatOfTheJob(t *testing.T) {
	for want, variables := range map[string]map[string]string{
		"":                                   {"GITHUB_SHA": "c0ffee"},
		"https://github.com/a/b/blob/c0ffee": {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "a/b", "GITHUB_SHA": "c0ffee"},
		"https://gitlab.com/a/b/-/blob/f00d": {"CI_PROJECT_URL": "https://gitlab.com/a/b", "CI_COMMIT_SHA": "f00d"},
	} {
		assert.Equal(t, want, linksOfJob(func(name string) string { return variables[name] }))
	}
}

func TestEachFindingIsInOneLineOfTheSummary(t *testing.T) {
	part := reviewed(t, append(eight[:8:8], twelve...)...)
	for _, p := range []Part{part, {Plan: examplePlan()}} {
		lines := map[string]int{}
		for _, c := range p.changes() {
			require.NotEmpty(t, c.findings)
			for _, f := range c.findings {
				lines[f.ID]++
			}
		}
		assert.Len(t, lines, len(p.Findings))
		for id, n := range lines {
			assert.Equal(t, 1, n, id)
		}
	}
}
