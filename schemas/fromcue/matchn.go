package fromcue

import (
	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
)

// matchesOne surveys a call of matchN with types that exclude each other, such as matchN(1, [int,
// string]) or matchN(>=1, [string, [...string]]). Such a call is a choice between the types. ok is false
// for structs, because matchN neither closes nor completes them, and for arguments that are not literal
// types.
func (c *Compiler) matchesOne(x *ast.CallExpr, args []cue.Value, at *place) (s shape, ok bool) {
	if at.within+at.operand > 0 || at.passing || at.matched != nil || len(args) != 2 || len(x.Args) != 2 {
		return s, false
	}
	arms, isList := cuesyntax.Unparen(x.Args[1]).(*ast.ListLit)
	if !isList || len(arms.Elts) < 2 || admitsCount(args[0], 0) || !admitsCount(args[0], 1) {
		return s, false
	}
	var choice ast.Expr
	var kinds cue.Kind
	for i, arm := range arms.Elts {
		if !isPlainType(arm) {
			return s, false
		}
		v := c.scratch.BuildExpr(arm)
		kind := v.IncompleteKind()
		if v.Err() != nil || kind == cue.BottomKind || kind&(kinds|cue.StructKind|cue.BytesKind) != 0 {
			return s, false
		}
		kinds |= kind
		if i == 0 {
			choice = arm
			continue
		}
		choice = &ast.BinaryExpr{X: choice, Op: token.OR, Y: arm}
	}
	v := c.scratch.BuildExpr(choice)
	at.matched, at.dropped = &v, append(at.dropped, x)
	return c.survey(v, at), true
}

// admitsCount reports whether the first argument of matchN admits n.
func admitsCount(v cue.Value, n int) bool {
	return v.Unify(cuecontext.New().Encode(n)).Validate() == nil
}

// isPlainType reports whether an expression consists only of predeclared types, constants, bounds, and
// lists of them.
func isPlainType(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		_, basic := basicKinds[x.Name]
		return basic && cuesyntax.MeaningOf(x) == cuesyntax.IsPredeclared
	case *ast.ParenExpr:
		return isPlainType(x.X)
	case *ast.UnaryExpr:
		return x.Op != token.MUL && isPlainType(x.X)
	case *ast.BinaryExpr:
		return (x.Op == token.AND || x.Op == token.OR) && isPlainType(x.X) && isPlainType(x.Y)
	case *ast.Ellipsis:
		return x.Type != nil && isPlainType(x.Type)
	case *ast.ListLit:
		return len(x.Elts) == 1 && isPlainType(x.Elts[0])
	}
	return false
}
