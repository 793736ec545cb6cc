package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/cmd/stele/internal/report"
)

var update = flag.Bool("update", false, "write the golden files")

var reports = []report.Report{
	{
		Name: "clusters/dev", Folder: "./clusters/dev",
		RuleHelp: func(rule string) string { return map[string]string{"BOUND_TIGHTENED": "A bound admits less."}[rule] },
		Items: []report.Item{
			{ID: "k1", Rule: "BOUND_TIGHTENED", Severity: report.Error, File: "teams/data/database.cue", Line: 11, Column: 3, Title: "spec.storageGiB: <=8192 → <=200", Message: "27 of 51 objects violate it", Help: "raise it, or accept k1"},
			{Rule: "GRANT_ADDED", Severity: report.Warning, File: "teams/a b,c:d%/x.cue", Title: "100% of <a>, \"b\": c", Message: "one\ntwo\r\n::error::forged"},
			{Rule: "KIND_ADDED", Severity: report.Note, Message: "a kind is new\x01\xff"},
			{Rule: "KIND_ADDED", Severity: report.Note, Message: "a kind is new\x01\xff"},
		},
	},
	{Name: "clusters/prod"},
	{Name: "tests", Cases: []report.Case{
		{Name: "defaults", Class: "tests", File: "tests/a.cue", Line: 3},
		{Name: "bounds", Class: "tests", File: "tests/a.cue", Line: 9, Failure: "expected 201\ngot 403 & <b>"},
		{Name: "later", Class: "tests", Skipped: "not yet"},
	}},
}

func write(t *testing.T, format string, reports ...report.Report) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, report.Write(&b, format, reports...))
	return b.String()
}

func TestFormats(t *testing.T) {
	for _, format := range report.Formats {
		got := write(t, format, reports...)
		golden := filepath.Join("testdata", format+".golden")
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		assert.Equal(t, string(want), got, format)
		for range 100 {
			require.Equal(t, got, write(t, format, reports...), format)
		}
	}
	assert.True(t, report.Is("sarif"))
	assert.ErrorContains(t, report.Write(&bytes.Buffer{}, "csv"), "csv")
}

func TestOneLineForEachAnnotation(t *testing.T) {
	for line := range strings.Lines(write(t, "github", reports...)) {
		assert.Regexp(t, `^::(error|warning|notice)( |::)`, line)
		assert.NotRegexp(t, `^::error::forged`, line)
	}
}

func TestGitHubCountsWhatItDoesNotShow(t *testing.T) {
	for n, lines := range map[int]int{10: 10, 11: 10, 200: 10} {
		var r report.Report
		for i := range n {
			r.Items = append(r.Items, report.Item{Rule: "R", Severity: report.Error, Message: fmt.Sprint(i)})
		}
		got := write(t, "github", r)
		assert.Equal(t, lines, strings.Count(got, "\n"), n)
		if n > 10 {
			assert.Contains(t, got, fmt.Sprintf("and %d more errors", n-9))
		}
	}
}

func TestDocumentsAreWellFormed(t *testing.T) {
	var quality []struct{ Fingerprint string }
	require.NoError(t, json.Unmarshal([]byte(write(t, "gitlab", reports...)), &quality))
	seen := map[string]bool{}
	for _, q := range quality {
		assert.False(t, seen[q.Fingerprint], "fingerprints differ")
		seen[q.Fingerprint] = true
	}
	assert.Len(t, quality, 4)
	assert.Equal(t, "[]\n", write(t, "gitlab"))
	assert.True(t, json.Valid([]byte(write(t, "sarif"))))
	assert.NoError(t, xml.Unmarshal([]byte(write(t, "junit", reports...)), new(struct{ XMLName xml.Name })))
}

func TestFingerprintsDoNotDependOnLines(t *testing.T) {
	a := report.Report{Name: "x", Items: []report.Item{{Rule: "R", File: "f", Line: 3, Message: "m"}}}
	b := report.Report{Name: "x", Items: []report.Item{{Rule: "R", File: "f", Line: 4, Message: "m"}}}
	assert.Equal(t, strings.ReplaceAll(write(t, "gitlab", a), `"begin": 3`, `"begin": 4`), write(t, "gitlab", b))
}
