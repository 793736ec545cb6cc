package lint

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// comment matches a comment that allows findings: in CUE after //, in YAML after #.
var comment = regexp.MustCompile(`(?://|#)\s*stele:allow\b[ \t]*(.*)$`)

// alone matches a line with nothing but a comment.
var alone = regexp.MustCompile(`^\s*(//|#[^A-Za-z])`)

// allowance is a comment that allows findings on its line, or, if nothing else is on the line, on the line below the
// comments.
type allowance struct {
	pos  schemas.Position
	ids  []string
	line int // of the findings
	used bool
}

// allow returns the findings that no comment allows, and those about the comments. It sorts them.
func (c *checking) allow() []Finding {
	comments := c.comments()
	kept := c.findings[:0]
	for _, f := range c.findings {
		allowed := false
		for _, a := range comments {
			if a.pos.File == f.Pos.File && a.line == f.Pos.Line && slices.Contains(a.ids, f.Lint) {
				a.used, allowed = true, true
			}
		}
		if !allowed {
			kept = append(kept, f)
		}
	}
	c.findings = kept
	var module *bundles.Module
	for _, a := range comments {
		if a.used || len(a.ids) == 0 {
			continue
		}
		if module == nil {
			module = bundles.ModuleOf(c.Module)
		}
		if dir := path.Dir(a.pos.File); dir == c.Used.Package || len(module.Of(dir)) <= 1 {
			c.add("ALLOW_UNUSED", a.pos, "", "there is no finding of "+strings.Join(a.ids, ", ")+" for the comment to allow", "")
		}
	}
	Sort(c.findings)
	return slices.Compact(c.findings)
}

// Sort sorts findings by position, then by lint.
func Sort(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column),
			strings.Compare(a.Lint, b.Lint), strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
}

// comments returns the comments in the files of the bundle. It reports those that name no lint.
func (c *checking) comments() (all []*allowance) {
	for _, f := range c.Used.Files {
		if !strings.Contains(string(f.Data), "stele:allow") || strings.HasPrefix(f.Path, "cue.mod/") {
			continue
		}
		lines := strings.Split(string(f.Data), "\n")
		for i, text := range lines {
			m := comment.FindStringSubmatchIndex(text)
			if m == nil {
				continue
			}
			a := &allowance{pos: schemas.Position{File: f.Path, Line: i + 1, Column: m[0] + 1}, line: i + 1}
			for j := i; j < len(lines) && alone.MatchString(lines[j]); j++ {
				a.line = j + 2 // the first line that is no comment
			}
			ids, _, _ := strings.Cut(text[m[2]:m[3]], " ")
			for id := range strings.SplitSeq(ids, ",") {
				if Find(id) == nil || id != strings.ToUpper(id) {
					c.add("ALLOW_UNKNOWN", a.pos, "", "there is no lint "+wording.Quoted([]string{wording.Cut(id, 80)})[0], wording.DidYouMean(strings.ToUpper(id), IDs(), "`stele policy vet --explain ID` explains one"))
					continue
				}
				a.ids = append(a.ids, id)
			}
			all = append(all, a)
		}
	}
	return all
}
