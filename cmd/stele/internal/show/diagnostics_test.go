package show

import (
	"strings"
	"testing"

	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
)

func TestACaretStandsUnderItsColumn(t *testing.T) {
	long := strings.Repeat("a", 200)
	for name, tc := range map[string]struct {
		text        string
		column      int
		line, caret string
	}{
		"in plain text":         {"  a: 5", 6, "  a: 5", "     ^"},
		"at the beginning":      {"a: 5", 1, "a: 5", "^"},
		"behind the end":        {"a: {", 5, "a: {", "    ^"},
		"behind tabs":           {"\ta:\t5", 5, "\ta:\t5", "\t  \t^"},
		"behind letters of two": {`a: "ö", b`, 10, `a: "ö", b`, "        ^"},
		"behind accents":        {"e\u0301: 5", 6, "e\u0301: 5", " \u0301  ^"},
		"behind wide letters":   {`"漢字": 5`, 11, `"漢字": 5`, " \u3000\u3000   ^"},
		"behind what moves the cursor or turns the text": {"\x1b[2Ja\u202e: 5", 11, "\ufffd[2Ja\ufffd: 5", "        ^"},
		"in a long line":                  {long + "x" + long, 201, strings.Repeat("a", 60) + "x" + strings.Repeat("a", 59), strings.Repeat(" ", 60) + "^"},
		"at the beginning of a long line": {"x" + long, 1, "x" + long[:119], "^"},
		"at the end of a long line":       {long + "x", 201, long[:119] + "x", strings.Repeat(" ", 119) + "^"},
		"if there is one":                 {"a: 5", 0, "a: 5", ""},
		"not in an empty line":            {" \t", 1, "", ""},
	} {
		if line, caret := excerpt(tc.text, tc.column); line != tc.line || caret != tc.caret {
			t.Errorf("%s:\n%q\n%q, want\n%q\n%q", name, line, caret, tc.line, tc.caret)
		}
	}
}

func TestDiagnosticsArePainted(t *testing.T) {
	source := &bundles.Source{Files: []bundles.File{{Path: "a.cue", Data: []byte("one\ntwo\n" + strings.Repeat("\n", 97) + "hundred\n")}}}
	diags := schemas.Diagnostics{
		{Pos: schemas.Position{File: "a.cue", Line: 2, Column: 3}, Message: "wrong"},
		{Pos: schemas.Position{File: "a.cue", Line: 100, Column: 1}, Message: "too long"},
		{Pos: schemas.Position{File: "b.cue", Line: 1, Column: 1}, Message: "not there"},
		{Message: "nowhere"},
	}
	for name, tc := range map[string]struct {
		color bool
		want  string
	}{
		"plainly": {false, "a.cue:2: wrong\n     2 | two\n       |   ^\na.cue:100: too long\n   100 | hundred\n       | ^\nb.cue:1: not there\nnowhere\n"},
		"on a terminal": {true, "\x1b[1ma.cue:2: wrong\x1b[0m\n\x1b[34m     2 |\x1b[0m two\n\x1b[34m       |\x1b[0m \x1b[1;31m  ^\x1b[0m\n" +
			"\x1b[1ma.cue:100: too long\x1b[0m\n\x1b[34m   100 |\x1b[0m hundred\n\x1b[34m       |\x1b[0m \x1b[1;31m^\x1b[0m\n\x1b[1mb.cue:1: not there\x1b[0m\n\x1b[1mnowhere\x1b[0m\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			w := newDiagnosticWriter(&out, source, diags)
			if w.color {
				t.Error("it takes this for a terminal")
			}
			w.color = tc.color
			for _, d := range diags {
				w.write(d)
			}
			if out.String() != tc.want {
				t.Errorf("%q, want\n%q", out.String(), tc.want)
			}
		})
	}
}
