package cuesyntax

import (
	"encoding/json"
	"fmt"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// Canonical returns v as canonical JSON.
func Canonical(v cue.Value) (json.RawMessage, error) {
	text, err := v.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return jsonvalue.Canonical(text)
}

// constantOf returns a constant that is written as a literal.
func constantOf(x ast.Expr) (json.RawMessage, bool) {
	switch y := Unparen(x).(type) {
	case *ast.BasicLit:
		if y.Kind == token.NULL {
			return nil, false
		}
	case *ast.UnaryExpr:
		if _, ok := Unparen(y.X).(*ast.BasicLit); !ok || y.Op != token.SUB {
			return nil, false
		}
	default:
		return nil, false
	}
	v := cuecontext.New().BuildExpr(x)
	text, err := Canonical(v)
	if err != nil || v.Kind() == cue.FloatKind && schemas.KindOfJSON(text) == schemas.IntegerKind {
		return nil, false
	}
	return text, true
}

// Unparen returns the expression without enclosing parentheses.
func Unparen(x ast.Expr) ast.Expr {
	for {
		p, ok := x.(*ast.ParenExpr)
		if !ok {
			return x
		}
		x = p.X
	}
}

// SoleEmbedding returns the embedded expression if the struct has no other declarations.
func SoleEmbedding(s *ast.StructLit) (ast.Expr, bool) {
	if len(s.Elts) != 1 {
		return nil, false
	}
	e, ok := s.Elts[0].(*ast.EmbedDecl)
	if !ok {
		return nil, false
	}
	return e.Expr, true
}

// A FileSyntax presents a file as an expression: the struct of its declarations.
type FileSyntax struct {
	ast.BadExpr
	File *ast.File
}

// SyntaxOf returns the expression of a declaration, without parentheses.
func SyntaxOf(node ast.Node) ast.Expr {
	switch x := node.(type) {
	case *ast.Field:
		return SyntaxOf(x.Value)
	case *ast.Alias:
		return SyntaxOf(x.Expr)
	case *ast.LetClause:
		return SyntaxOf(x.Expr)
	case *ast.EmbedDecl:
		return SyntaxOf(x.Expr)
	case *ast.ParenExpr:
		return SyntaxOf(x.X)
	case *ast.Ellipsis:
		if x.Type == nil {
			return ast.NewIdent("_")
		}
		return SyntaxOf(x.Type)
	case *ast.File:
		return &FileSyntax{File: x}
	case ast.Expr:
		return x
	}
	return nil
}

// A Disjunct is an alternative in the syntax of a disjunction.
type Disjunct struct {
	Expr   ast.Expr
	Marked bool // marked as the default
}

// Disjuncts appends the alternatives of a disjunction to terms, without parentheses and in CUE's order.
func Disjuncts(x ast.Expr, marked bool, terms []Disjunct) []Disjunct {
	switch y := x.(type) {
	case *ast.BinaryExpr:
		if y.Op == token.OR {
			return Disjuncts(y.Y, marked, Disjuncts(y.X, marked, terms))
		}
	case *ast.UnaryExpr:
		if y.Op == token.MUL {
			return Disjuncts(y.X, true, terms)
		}
	}
	return append(terms, Disjunct{SyntaxOf(x), marked})
}

// NameOf returns a name for the syntax of an expression for error messages, such as "a slice".
func NameOf(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.BottomLit:
		return "the error literal _|_"
	case *ast.Interpolation:
		return "an interpolation"
	case *ast.BinaryExpr:
		return "the operator " + x.Op.String()
	case *ast.UnaryExpr:
		return "the operator " + x.Op.String()
	case *ast.SliceExpr:
		return "a slice"
	case *ast.Func:
		return "a function type"
	case *ast.PostfixExpr:
		return "the operator " + x.Op.String()
	case *ast.Comprehension:
		return "a comprehension"
	}
	return strings.TrimPrefix(fmt.Sprintf("syntax of type %T", x), "*")
}

// TextOf returns the text of a string literal.
func TextOf(x ast.Expr) (text string, ok bool) {
	lit, ok := x.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := literal.Unquote(lit.Value)
	return text, err == nil
}
