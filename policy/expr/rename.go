package expr

import (
	"maps"
	"slices"
	"unicode"

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

// RenameSelections replaces a variable in the text of an expression, with the fields that are selected from it: by returns how many of
// the fields at a path it replaces, and by what. Fields that are only tested, and keys in brackets, are not in the path.
func RenameSelections(text, variable string, by func(path []string) (n int, replacement string)) (string, error) {
	parsed, issues := base().Parse(text)
	if issues.Err() != nil {
		return "", issues.Err()
	}
	tree := parsed.NativeRep()
	paths := map[int][]string{} // by their places
	var visit func(ast.NavigableExpr)
	visit = func(e ast.NavigableExpr) {
		parts := e.Children()
		switch e.Kind() {
		case ast.IdentKind:
			place, ok := tree.SourceInfo().GetOffsetRange(e.ID())
			if !ok || e.AsIdent() != variable {
				break
			}
			var path []string
			for above, is := e.Parent(); is && above.Kind() == ast.SelectKind && !above.AsSelect().IsTestOnly(); above, is = above.Parent() {
				path = append(path, above.AsSelect().FieldName())
			}
			if other, known := paths[int(place.Start)]; !known || len(path) < len(other) { // a macro may have it in several places
				paths[int(place.Start)] = path
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
	read, done := []rune(text), 0
	var out []rune
	for _, start := range slices.Sorted(maps.Keys(paths)) {
		path := paths[start]
		ends := []int{start + len([]rune(variable))}
		for _, name := range path {
			end, ok := selected(read, ends[len(ends)-1], name)
			if !ok {
				break // written in another way, such as with a comment
			}
			ends = append(ends, end)
		}
		n, replacement := by(path[:len(ends)-1])
		out = append(append(out, read[done:start]...), []rune(replacement)...)
		done = ends[n]
	}
	return string(append(out, read[done:]...)), nil
}

// selected returns where the selection of a field that begins at a place ends.
func selected(text []rune, at int, name string) (end int, ok bool) {
	space := func() {
		for at < len(text) && unicode.IsSpace(text[at]) {
			at++
		}
	}
	if space(); at >= len(text) || text[at] != '.' {
		return 0, false
	}
	at++
	space()
	for _, written := range []string{name, "`" + name + "`"} {
		if field := []rune(written); at+len(field) <= len(text) && slices.Equal(text[at:at+len(field)], field) {
			return at + len(field), true
		}
	}
	return 0, false
}
