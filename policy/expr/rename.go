package expr

import (
	"slices"

	"github.com/google/cel-go/common/ast"
)

// Rename replaces a variable in the text of an expression by another expression, such as the selection of a field. Variables of
// macros that have the same name stay. The error says that the text cannot be parsed.
func Rename(text, variable, by string) (string, error) {
	parsed, issues := base().Parse(text)
	if issues.Err() != nil {
		return "", issues.Err()
	}
	tree := parsed.NativeRep()
	var at []int
	var visit func(ast.NavigableExpr)
	visit = func(e ast.NavigableExpr) {
		parts := e.Children()
		switch e.Kind() {
		case ast.IdentKind:
			// A macro may have the same part of the text in several places.
			if place, ok := tree.SourceInfo().GetOffsetRange(e.ID()); ok && e.AsIdent() == variable && !slices.Contains(at, int(place.Start)) {
				at = append(at, int(place.Start))
			}
		case ast.ComprehensionKind:
			if c := e.AsComprehension(); c.IterVar() == variable || c.IterVar2() == variable {
				parts = parts[:2] // what it ranges over, and its first result
			}
		}
		for _, part := range parts {
			visit(part)
		}
	}
	visit(ast.NavigateAST(tree))
	slices.Sort(at)
	out, n := []rune(text), len([]rune(variable))
	for _, start := range slices.Backward(at) {
		out = slices.Replace(out, start, start+n, []rune(by)...)
	}
	return string(out), nil
}
