package evaluation

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/policy/bundles"
)

// regexps reports the bundle's invalid regular expressions, each at its own position. CUE and the
// schemas report them only where they are used.
func (c *Evaluation) regexps() {
	for path, i := range c.Instances {
		if path == DefinitionsPath {
			continue
		}
		for _, f := range i.Files {
			walkFields(f.Decls, nil, func(at []string, n ast.Node) {
				var pattern ast.Expr
				switch x := n.(type) {
				case *ast.UnaryExpr:
					if x.Op == token.MAT || x.Op == token.NMAT {
						pattern = x.X
					}
				case *ast.BinaryExpr:
					if x.Op == token.MAT || x.Op == token.NMAT {
						pattern = x.Y
					}
				}
				text, ok := pattern.(*ast.BasicLit)
				if !ok || text.Kind != token.STRING {
					return
				}
				written, err := literal.Unquote(text.Value)
				if err != nil {
					return
				}
				if _, err := syntax.Parse(written, syntax.Perl); err != nil {
					message, hint := explainRegexp(err)
					pos, _ := bundles.Locate(text.Pos())
					c.Add(pos, strings.Join(at, "."), message, hint)
				}
			})
		}
	}
}

// ofRegexp reports whether a message only follows from an invalid regular expression.
func ofRegexp(message string) bool { return strings.Contains(message, "error parsing regexp") }

// explainRegexp says what is wrong with a regular expression, and what to write.
func explainRegexp(err error) (message, hint string) {
	var e *syntax.Error
	if !errors.As(err, &e) {
		return err.Error(), ""
	}
	switch {
	case strings.HasPrefix(e.Expr, "(?="):
		return `RE2 has no lookahead "(?="`, "write two patterns joined by &"
	case strings.HasPrefix(e.Expr, "(?!"):
		return `RE2 has no lookahead "(?!"`, `write what must not match as another pattern: =~"…" & !~"…"`
	case strings.HasPrefix(e.Expr, "(?<="), strings.HasPrefix(e.Expr, "(?<!"):
		return fmt.Sprintf("RE2 has no lookbehind %q", e.Expr[:4]), "write two patterns joined by &"
	case e.Code == syntax.ErrInvalidEscape && len(e.Expr) == 2 && e.Expr[1] >= '1' && e.Expr[1] <= '9':
		return "RE2 has no backreference " + e.Expr, "write out what it refers to"
	}
	return fmt.Sprintf("the regular expression cannot be read: %s: %s", e.Code, e.Expr), `write \\ before a character that is meant itself`
}

// walkFields calls visit with each node of declarations, and with the labels of the fields around
// it.
func walkFields(decls []ast.Decl, at []string, visit func([]string, ast.Node)) {
	for _, d := range decls {
		path := at
		if f, ok := d.(*ast.Field); ok {
			if label, _, err := ast.LabelName(f.Label); err == nil {
				path = append(at[:len(at):len(at)], label)
			}
		}
		ast.Walk(d, func(n ast.Node) bool {
			if s, ok := n.(*ast.StructLit); ok {
				walkFields(s.Elts, path, visit)
				return false
			}
			visit(path, n)
			return true
		}, nil)
	}
}
