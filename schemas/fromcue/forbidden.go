package fromcue

import (
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/fromcue/cuevalue"
	"stele.dev/stele/schemas/interpreter"
)

// forbid makes n the node of a field that may not be set.
func forbid(n *schemas.Node, message, doc string) {
	*n = schemas.Node{Kinds: schemas.AnyKind &^ schemas.NullKind, Logic: schemas.Forbids(), Doc: doc, Message: message, Source: n.Source}
}

// closedTo reports whether CUE refuses a value only because a part of a struct is closed to it, or to what must be in it.
func closedTo(v cue.Value) bool {
	if !cuevalue.IsError(v) {
		return false
	}
	all := errors.Errors(v.Err())
	return len(all) > 0 && !slices.ContainsFunc(all, func(err errors.Error) bool {
		format, _ := err.Msg()
		return format != interpreter.FieldNotAllowed
	})
}

// forbidden reports whether a value is written as an error: _|_, or error("…") with a message. An optional field with it may not be
// set.
func forbidden(v cue.Value) (message string, ok bool) {
	if !cuevalue.IsError(v) {
		return "", false
	}
	return writtenError(v, 0)
}

// writtenError looks for an error among the parts of a value.
func writtenError(v cue.Value, depth int) (message string, ok bool) {
	x := cuesyntax.SyntaxOf(v.Source())
	switch x := x.(type) {
	case *ast.BottomLit:
		return "", true
	case *ast.CallExpr:
		if cuesyntax.IsBuiltin(x.Fun, "error") {
			if len(x.Args) == 1 {
				message, _ = cuesyntax.TextOf(x.Args[0])
			}
			return message, true
		}
	}
	op, args := v.Expr()
	if depth >= maxNesting*2 {
		return "", false
	}
	switch op {
	case cue.AndOp:
		for _, a := range args {
			if message, ok := writtenError(a, depth+1); ok {
				return message, true
			}
		}
	case cue.SelectorOp:
		if t, ok := cuevalue.Target(v, args); ok {
			return writtenError(t, depth+1)
		}
	}
	return "", false
}
