package evaluation

import (
	"testing"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/policy/format"
)

func TestAllPatternsOfTheFormatHaveWords(t *testing.T) {
	f, err := parser.ParseFile(format.File, format.Files()[format.File])
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Walk(f, func(n ast.Node) bool {
		u, ok := n.(*ast.UnaryExpr)
		if !ok || u.Op != token.MAT {
			return true
		}
		text, ok := u.X.(*ast.BasicLit)
		if !ok {
			return true // it is made of the bundle's own names
		}
		pattern, err := literal.Unquote(text.Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		if inWords[pattern] == "" {
			t.Errorf("inWords lacks %s (line %d)", pattern, u.Pos().Line())
		}
		return true
	}, nil)
	if found < 10 {
		t.Errorf("found %d patterns", found)
	}
}
