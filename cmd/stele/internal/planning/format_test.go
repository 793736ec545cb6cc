package planning

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/cmd/stele/internal/report"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	oldDigest = "b72ab74a3a81b72ab74a3a81b72ab74a3a81b72ab74a3a81b72ab74a3a81b72a"
	newDigest = "9f084dbd85619f084dbd85619f084dbd85619f084dbd85619f084dbd85619f08"
)

// examplePlan has a finding of each class, and texts that must not be taken for Markdown, HTML or commands.
func examplePlan() *plan.Plan {
	at := func(file string, line int) schemas.Position {
		return schemas.Position{File: file, Line: line, Column: 3}
	}
	p := &plan.Plan{
		Cluster:  "dev",
		From:     plan.Side{Digest: oldDigest, Revision: 1310},
		To:       plan.Side{Digest: newDigest, Commit: "9f7eb4fbb1d99f7eb4fbb1d99f7eb4fbb1d99f7e+changes", Changed: []string{"teams/data/database.cue"}, Folder: "clusters/dev"},
		Revision: 1310,
		Checked:  plan.Checked{Objects: 51, Of: 51, Replayed: 281},
		Findings: []plan.Finding{
			{
				Class: plan.Breaks, Rule: "BOUND_TIGHTENED", Kind: "databases.data.corp.example", Path: "spec.storageGiB", Before: "<=8192", After: "<=200",
				Source: at("teams/data/database.cue", 11), Was: at("teams/data/database.cue", 11), Evidence: plan.Proved,
				Details: []string{"They stay, and can be changed elsewhere: what an update leaves as it is does not stand in its way, so a label, a status and every other field can still be written by everybody who could write them."},
				Fix:     []string{"Make the field smaller in the objects", "Push again"},
				Objects: &plan.Objects{Violating: 27, Of: 51, Samples: []plan.Sample{{Namespace: "data-shop", Name: "db-026", Value: json.RawMessage("400")}, {Namespace: "data-shop", Name: "db-044", Value: json.RawMessage("399"), Stuck: true}}},
			},
			{
				Class: plan.Breaks, Rule: "FIELD_REMOVED", Kind: "databases.data.corp.example", Path: "spec.owner", Before: "string, required",
				Was: at("teams/data/database.cue", 9), Evidence: plan.Proved, Message: "The next write of each object deletes it.",
				Accepted: &plan.Acceptance{Reason: "STO-91: nobody reads it", Until: "2026-12-31", Source: at("clusters/dev/accept.cue", 2)},
			},
			{Class: plan.Changes, Rule: "DEFAULT_CHANGED", Kind: "databases.data.corp.example", Path: "spec.tier", Before: "dev", After: "standard", Source: at("teams/data/database.cue", 10), Evidence: plan.Proved, Objects: &plan.Objects{Of: 51}},
			{Class: plan.Looks, Rule: "COLUMN_CHANGED", Kind: "databases.data.corp.example", Path: "AGE", Version: "v1", Evidence: plan.Proved},
			{
				Class: plan.Widens, Rule: "GRANT_ADDED", Path: "data/bindings/self-service", Subject: "group:developers", Evidence: plan.Proved, Source: at("teams/data/access.cue", 21),
				Message: "@everyone may </pre><script>alert(1)</script> `do` | *anything*\x1b[31m", Details: []string{"::error::forged", "100% of [it](http://example.com) #1"},
			},
			{
				Class: plan.Narrows, Rule: "RULE_TIGHTENED", Path: "data/validate/own-tenant", Evidence: plan.Shown, Source: at("teams/data/admission.cue", 4),
				Before:         "object.spec.tenant == namespaceObject.metadata.labels['tenant'] || request.userInfo.username.startsWith('system:')",
				After:          "object.spec.tenant == namespaceObject.metadata.labels['tenant']\n&& object.spec.tier != 'critical'",
				Counterexample: &plan.Counterexample{Request: "create databases in data-shop by user:dana", Object: json.RawMessage(`{"spec":{"tier":"critical"}}`), Before: "accepted", After: "refused: own tenant only"},
			},
			{Class: plan.Changes, Rule: "RULE_CHANGED", Path: "data/validate/limit", Evidence: plan.Possible, Before: "a", After: "b"},
		},
		Replay: &plan.Replay{
			Since: 900, Until: 1310, Writes: 281, Refusals: 3, Undecided: 2, Why: []string{"their objects are not kept any more"},
			Flips: []plan.Flip{
				{Refused: true, User: "dana", Verb: "create", Resource: "databases.data.corp.example", Stage: "schema", Path: "spec.storageGiB", Message: "must be at most 200", Count: 28, First: 901, Last: 1200, AuditIDs: []string{"8113ecbf-f517-4d63-a5d1-2d670828d522"}},
			},
		},
		Notes: []string{"Webhooks were not asked."},
	}
	p.Finish()
	return p
}

func exampleParts() []Part {
	same := &plan.Plan{Cluster: "prod", From: plan.Side{Digest: oldDigest, Revision: 7}, To: plan.Side{Digest: oldDigest}}
	same.Finish()
	form := &plan.Plan{Cluster: "test", From: plan.Side{Digest: oldDigest}, To: plan.Side{Digest: newDigest}}
	form.Finish()
	return []Part{
		{Plan: examplePlan(), Name: "clusters/dev", Package: "clusters/dev", Prefix: "law/", Unused: plan.Unused{
			Expired: []plan.Accepted{{Rule: "KIND_REMOVED", Kind: "pipelines.x", Until: "2026-01-01", Source: schemas.Position{File: "clusters/dev/accept.cue", Line: 3}}},
			Entries: []plan.Accepted{{Rule: "FIELD_REMOVED", Kind: "pipelines.x", Path: "spec.a", Source: schemas.Position{File: "clusters/dev/accept.cue", Line: 4}}},
			IDs:     []string{"k99999"},
		}},
		{Plan: same, Name: "clusters/prod", Package: "clusters/prod", Prefix: "law/"},
		{Plan: form, Name: "clusters/test", Package: "clusters/test", Prefix: "law/"},
	}
}

var breaking = []plan.Class{plan.Breaks}

// render returns plans in a format.
func render(t *testing.T, format string, parts []Part) string {
	t.Helper()
	var b bytes.Buffer
	out := &show.Output{Writer: &b}
	var err error
	switch format {
	case "text", "verbose":
		err = (&Text{Out: out, Refusing: breaking, Verbose: format == "verbose"}).Write(parts)
	case "markdown":
		err = Markdown(out, parts)
	case "json", "yaml":
		err = out.Document(format, document(parts))
	default:
		err = report.Write(out, format, reports(parts, breaking)...)
	}
	require.NoError(t, err)
	return b.String()
}

func TestFormats(t *testing.T) {
	for _, format := range append([]string{"text", "verbose", "markdown", "json", "yaml"}, report.Formats...) {
		got := render(t, format, exampleParts())
		golden := filepath.Join("testdata", format+".golden")
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		assert.Equal(t, string(want), got, format)
		for range 100 {
			require.Equal(t, got, render(t, format, exampleParts()), format)
		}
	}
}

func TestTextDoesNotMoveTheCursorAndIsNotTooWide(t *testing.T) {
	text := render(t, "verbose", exampleParts())
	assert.NotContains(t, text, "\x1b")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    {") {
			continue // to be copied
		}
		assert.LessOrEqual(t, utf8.RuneCountInString(line), width+1, line)
	}
}

func TestACommentHasNoTextOfUsersAsMarkdown(t *testing.T) {
	text := render(t, "markdown", exampleParts())
	assert.NotContains(t, text, "\x1b")
	assert.Equal(t, strings.Count(text, "<code>"), strings.Count(text, "</code>"))
	text = regexp.MustCompile("(?U)``.*``|`[^`].*`").ReplaceAllString(text, "") // in code, Markdown and HTML mean nothing
	assert.NotContains(t, text, "<script")
	assert.Equal(t, strings.Count(text, "<pre>"), strings.Count(text, "</pre>"))
	assert.Equal(t, strings.Count(text, "<details>"), strings.Count(text, "</details>"))
	outside := text
	for { // mentions have no effect within pre and code
		before, rest, ok := strings.Cut(outside, "<pre>")
		if !ok {
			break
		}
		_, after, _ := strings.Cut(rest, "</pre>")
		outside = before + after
	}
	assert.NotContains(t, outside, "@everyone")
}

func TestNamesOfFilesAreCodeInAComment(t *testing.T) {
	for _, name := range []string{
		"a and <img src=x onerror=alert(1)>.cue", "a and [approved](https://evil.example).cue", "a and @everyone.cue", "a` and <b>`.cue", "a| and **b**|.cue", "a\\| and <b>.cue", "a](https://evil.example) and b.cue",
	} {
		p := &plan.Plan{Cluster: "dev", From: plan.Side{Digest: oldDigest}, To: plan.Side{Digest: newDigest}, Findings: []plan.Finding{
			{Class: plan.Widens, Rule: "FIELD_ADDED", Kind: "a.b", Path: "spec.x", Source: schemas.Position{File: name, Line: 7}},
			{Class: plan.Widens, Rule: "BOUND_LOOSENED", Kind: "a.b", Path: "spec.x", Source: schemas.Position{File: "z and <i>.cue", Line: 7}},
		}}
		p.Finish()
		for _, links := range []string{"", "https://git.example/blob"} {
			part := Part{Plan: p, Name: "dev", Links: links}
			_, cell, ok := strings.Cut(strings.TrimSuffix(part.row(part.changes()[0]), " |\n"), " 2 findings | ")
			require.True(t, ok)
			outside := regexp.MustCompile("(?U)``.*``|`[^`].*`|<code>.*</code>|\\(https://git\\.example/[^ ()<>@&$]*#L7\\)").ReplaceAllString(cell, "")
			assert.Contains(t, []string{" and 1 other line", "[] and 1 other line"}, outside, cell)
		}
	}
}

func TestACommentHasALimit(t *testing.T) {
	var parts []Part
	for cluster := range 3 {
		p := &plan.Plan{Cluster: fmt.Sprint("c", cluster), From: plan.Side{Digest: oldDigest}, To: plan.Side{Digest: newDigest}}
		for i := range 2000 {
			class := plan.Classes[i%len(plan.Classes)]
			p.Findings = append(p.Findings, plan.Finding{
				Class: class, Rule: "CONSTRAINT_CHANGED", Kind: fmt.Sprintf("kind%d.example.com", i), Path: strings.Repeat("spec.very.long.", i%20) + fmt.Sprint(i),
				Before: strings.Repeat("é|`", i%100), After: fmt.Sprint(i), Evidence: plan.Proved,
				Message: fmt.Sprint("message ", i), Details: []string{strings.Repeat("detail ", i%300)},
			})
		}
		p.Finish()
		parts = append(parts, Part{Plan: p, Name: p.Cluster})
	}
	text := render(t, "markdown", parts)
	assert.Less(t, len(text), 65_536)
	assert.Greater(t, len(text), 40_000, "most of the room is used")
	shown := strings.Count(text, "| 🔴 ")
	assert.Positive(t, shown)
	assert.NotContains(t, text, "| ⚪ ", "the most dangerous come first")
	assert.Contains(t, text, "<details>", "there is room for details")
	for _, p := range parts {
		assert.Contains(t, text, "`"+p.Cluster+"`")
	}
	// Each change is shown or counted.
	counted := 0
	for line := range strings.Lines(text) {
		var n int
		if _, err := fmt.Sscanf(line, "and %d more change", &n); err == nil {
			counted += n
		}
	}
	rows := 0
	for _, light := range lights {
		rows += strings.Count(text, "| "+light+" ")
	}
	assert.Equal(t, 6000, counted+rows)
	assert.Equal(t, text, render(t, "markdown", parts))
}

func TestACommentForManyControlPlanesHasALimit(t *testing.T) {
	var parts []Part
	for i := range 3000 {
		p := &plan.Plan{Cluster: fmt.Sprint("cluster-", i), From: plan.Side{Digest: oldDigest}, To: plan.Side{Digest: newDigest}, Findings: []plan.Finding{{Class: plan.Breaks, Rule: "KIND_REMOVED", Kind: "a.b"}}}
		p.Finish()
		parts = append(parts, Part{Plan: p, Name: p.Cluster})
	}
	text := render(t, "markdown", parts)
	assert.Less(t, len(text), 65_536)
	named := strings.Count(text, "### stele plan")
	assert.Contains(t, text, fmt.Sprintf("and %d more control planes with 🔴 %d breaks", 3000-named, 3000-named))
}

func TestFindingsOfOneLineShareARow(t *testing.T) {
	p := &plan.Plan{Cluster: "dev", From: plan.Side{Digest: oldDigest}, To: plan.Side{Digest: newDigest}}
	for i := range 20 {
		p.Findings = append(p.Findings, plan.Finding{Class: plan.Widens, Rule: "BOUND_LOOSENED", Kind: "a.b", Path: fmt.Sprint("spec.f", i), Before: "<=1", After: "<=2", Source: schemas.Position{File: "a.cue", Line: 7}})
	}
	p.Finish()
	text := render(t, "markdown", []Part{{Plan: p, Name: "dev"}})
	assert.Equal(t, 1, strings.Count(text, "| 🟠 "))
	assert.Contains(t, text, "17 more: each admits more")
}

func TestLongTextsAreNotCutSilently(t *testing.T) {
	p := &plan.Plan{Cluster: "dev", From: plan.Side{Digest: oldDigest}, To: plan.Side{Digest: newDigest}, Findings: []plan.Finding{
		{Class: plan.Breaks, Rule: "FIELD_REMOVED", Kind: "a.b", Path: strings.Repeat("x", 5000), Details: []string{strings.Repeat("word ", 5000)}},
	}}
	p.Finish()
	text := render(t, "markdown", []Part{{Plan: p, Name: "dev"}})
	assert.Less(t, len(text), 10_000)
	assert.Contains(t, text, "x…` is removed (see the JSON) |")
	assert.Contains(t, text, "more: see the JSON")
}

func TestJSONIsThePlan(t *testing.T) {
	var got plan.Plan
	require.NoError(t, json.Unmarshal([]byte(render(t, "json", exampleParts()[:1])), &got))
	assert.Equal(t, examplePlan().Summary, got.Summary)
	assert.Equal(t, plan.APIVersion, got.APIVersion)
	var list planList
	require.NoError(t, json.Unmarshal([]byte(render(t, "json", exampleParts())), &list))
	assert.Equal(t, "PlanList", list.Kind)
	assert.Len(t, list.Items, 3)
}
