package fromcue

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/verify"
	"stele.dev/stele/schemas/program"
)

// agree compares the compiled schema with CUE on sample values. If they disagree at a fallback, because
// its expression means something else by itself, agree leaves the enclosing part to CUE. Otherwise it
// rejects the schema.
func (c *Compiler) agree(v cue.Value, n *schemas.Node, at *place) {
	if c.unsound(n) {
		return
	}
	tries, unknown := 8, 0
	if evaluated(n) {
		tries, unknown = 150, 20
	}
	value, how := verify.Disagreement(v, n, tries, unknown)
	if how == "" {
		return
	}
	widened := false
	n.Visit("", func(path string, n *schemas.Node) {
		related := n.Struct != nil && (len(n.Struct.Conditions)+len(n.Struct.Comparisons) > 0 ||
			slices.ContainsFunc(n.Struct.Fields, func(f schemas.Field) bool { return f.Schema.From != nil }))
		if n.Fallback == nil && n.Union == nil && !related || path == "" {
			return
		}
		around := path
		if !related {
			around = parentPath(path)
		}
		if _, ok := c.forced[around]; !ok {
			reason := reason{message: "what means something else by itself", source: n.Source}
			if n.Fallback != nil {
				reason.message = n.Fallback.Reason
			}
			c.forced[around], widened = reason, true
		}
	})
	if !widened && !c.widen() {
		c.refuse(at, nil, fmt.Sprintf("the compiled schema and CUE make different things of %.200s: %.400s", value, how),
			"write it in a simpler way")
	}
}

// unsound leaves the parts to CUE that cannot be checked as they were compiled, such as a default that no alternative beside it
// admits. It reports whether there are any.
func (c *Compiler) unsound(n *schemas.Node) (found bool) {
	plain := verify.WithoutAttributes(n)
	if _, err := program.NewChecker(plain); err == nil {
		return false
	}
	type part struct {
		path   string
		source schemas.Position
		err    error
	}
	var wrong []part // those around the innermost one come first
	plain.Visit("", func(path string, n *schemas.Node) {
		if _, err := program.NewChecker(n); err != nil && (len(wrong) == 0 || strings.HasPrefix(path, wrong[len(wrong)-1].path)) {
			wrong = append(wrong, part{path, n.Source, err})
		}
	})
	for _, p := range slices.Backward(wrong) {
		if _, forced := c.forced[p.path]; !forced && p.path != "" {
			c.forced[p.path] = reason{message: strings.TrimPrefix(p.err.Error(), "schemas: "), source: p.source}
			return true
		}
	}
	last := wrong[len(wrong)-1]
	c.refuse(&place{path: last.path, source: last.source}, nil, strings.TrimPrefix(last.err.Error(), "schemas: "), "write it in a simpler way")
	return true
}

// parentPath returns the path without its last element.
func parentPath(path string) string {
	if p, ok := strings.CutSuffix(path, "[]"); ok {
		return p
	}
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}
