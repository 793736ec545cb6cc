package suites

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

// Edit sets fields of what a test expects.
type Edit struct {
	// Test is the name of the test, or TEST/CASE; Case is the name of the case, "" if it is none.
	Test, Case string
	// Set are the fields of expect and their values; nil removes a field.
	Set map[string]any
}

// Apply returns a file with edits. It keeps comments, and formats the file as `cue fmt` does. A test that the file does not
// have as a plain field is not found; the names of those that were found are returned.
func Apply(name string, text []byte, edits []Edit) (edited []byte, found []string, err error) {
	file, err := parser.ParseFile(name, text, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range edits {
		at := []string{"suite", "tests", e.Test}
		if e.Case != "" {
			at = append(at, "cases", e.Case)
		}
		done, err := set(file, at, e.Set)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", strings.Join(at[2:], "/"), err)
		}
		if !done {
			continue
		}
		found = append(found, strings.TrimSuffix(e.Test+"/"+e.Case, "/"))
	}
	if len(found) == 0 {
		return text, nil, nil
	}
	if edited, err = format.Node(file); err != nil {
		return nil, nil, err
	}
	_, err = parser.ParseFile(name, edited)
	return edited, found, err
}

// lookup returns the field at a path below declarations; nil if it is not written as a plain field.
func lookup(decls []ast.Decl, path []string) *ast.Field {
	for _, d := range decls {
		field, ok := d.(*ast.Field)
		if !ok {
			continue
		}
		label, _, err := ast.LabelName(field.Label)
		if err != nil || label != path[0] {
			continue
		}
		if len(path) == 1 {
			return field
		}
		if found := lookupIn(field.Value, path[1:]); found != nil {
			return found
		}
	}
	return nil
}

func lookupIn(x ast.Expr, path []string) *ast.Field {
	switch x := x.(type) {
	case *ast.StructLit:
		return lookup(x.Elts, path)
	case *ast.ParenExpr:
		return lookupIn(x.X, path)
	case *ast.BinaryExpr:
		if x.Op == token.AND {
			if found := lookupIn(x.X, path); found != nil {
				return found
			}
			return lookupIn(x.Y, path)
		}
	}
	return nil
}

// set sets fields of expect of the test or case at a path, wherever the file has them. A field that a case has from its test
// is left as it is, as the case would contradict the test. set reports whether the file changed.
func set(file *ast.File, at []string, values map[string]any) (done bool, err error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		field := lookup(file.Decls, slices.Concat(at, []string{"expect", name}))
		inherited := len(at) > 3 && lookup(file.Decls, slices.Concat(at[:3], []string{"expect", name})) != nil
		switch {
		case values[name] == nil && field == nil, field == nil && inherited:
			continue
		case values[name] == nil:
			remove(file, field)
			done = true
			continue
		}
		text, err := json.Marshal(values[name])
		if err != nil {
			return done, err
		}
		value, err := parser.ParseExpr("", text)
		if err != nil {
			return done, err
		}
		unquote(value)
		if field != nil {
			field.Value = value
			done = true
			continue
		}
		test := lookup(file.Decls, at)
		if test == nil {
			continue
		}
		if err := add(test, &ast.Field{Label: ast.NewIdent(name), Value: value}); err != nil {
			return done, err
		}
		done = true
	}
	return done, nil
}

// remove removes a field from the struct that has it.
func remove(file *ast.File, field *ast.Field) {
	ast.Walk(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.StructLit); ok {
			s.Elts = slices.DeleteFunc(s.Elts, func(d ast.Decl) bool { return d == ast.Decl(field) })
		}
		return true
	}, nil)
}

// add adds a field to what a test expects.
func add(test, field *ast.Field) error {
	body, ok := test.Value.(*ast.StructLit)
	if !ok {
		return fmt.Errorf("it is not written as a struct")
	}
	expect := lookup(body.Elts, []string{"expect"})
	if expect == nil {
		expect = &ast.Field{Label: ast.NewIdent("expect"), Value: ast.NewStruct()}
		test.Value = braced(body, expect)
	}
	inner, ok := expect.Value.(*ast.StructLit)
	if !ok {
		return fmt.Errorf("what it expects is not written as a struct")
	}
	expect.Value = braced(inner, field)
	return nil
}

// braced returns a struct with one more field. A struct without braces, such as expect: code: 200, gets some.
func braced(s *ast.StructLit, field *ast.Field) *ast.StructLit {
	if s.Lbrace.IsValid() {
		s.Elts = append(s.Elts, field)
		return s
	}
	var all []any
	for _, d := range append(s.Elts, field) {
		all = append(all, d)
	}
	return ast.NewStruct(all...)
}

// unquote writes labels without quotes where they need none, and everything on as few lines as it fits.
func unquote(x ast.Expr) {
	ast.Walk(x, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok {
			if label, _, err := ast.LabelName(field.Label); err == nil && ast.IsValidIdent(label) {
				field.Label = ast.NewIdent(label)
			}
		}
		return true
	}, nil)
}

// Write returns a file of a package of tests with one test. Its value is that of the JSON of the map.
func Write(name string, test map[string]any) ([]byte, error) {
	text, err := json.MarshalIndent(map[string]any{"tests": map[string]any{name: test}}, "", "\t") // a field on each line
	if err != nil {
		return nil, err
	}
	suite, err := parser.ParseExpr("", text)
	if err != nil {
		return nil, err
	}
	unquote(suite)
	body, err := format.Node(suite)
	if err != nil {
		return nil, err
	}
	return format.Source(fmt.Appendf(nil, "package tests\n\nimport \"stele.dev/policy\"\n\nsuite: policy.#Suite & %s\n", body))
}
