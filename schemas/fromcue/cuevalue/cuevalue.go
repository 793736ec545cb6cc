// Package cuevalue reads evaluated CUE: whether a value is constant, what its alternatives are, which
// of them is the default.
package cuevalue

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
)

// IsFile reports whether v is a package: a file, or several joined.
func IsFile(v cue.Value) bool {
	if op, args := v.Expr(); op == cue.AndOp && slices.ContainsFunc(args, IsFile) {
		return true
	}
	_, ok := v.Source().(*ast.File)
	return ok
}

// IsCycle reports whether CUE has given up on a definition that refers to itself.
func IsCycle(err error) bool {
	return slices.ContainsFunc(errors.Errors(err), func(e errors.Error) bool {
		format, _ := e.Msg()
		return format == "structural cycle"
	})
}

// FixedItems reports whether a list says something about an item by its index.
func FixedItems(v cue.Value) bool {
	items, err := v.List()
	return err != nil || items.Next()
}

func DocOf(v cue.Value) string {
	var docs []string
	for _, d := range v.Doc() {
		if text := strings.TrimSpace(d.Text()); text != "" && !slices.Contains(docs, text) {
			docs = append(docs, text)
		}
	}
	return strings.Join(docs, "\n\n")
}

// IsLiteral reports whether v is written out in full: constants, and lists and
// structs of nothing else.
func IsLiteral(v cue.Value) bool {
	if op, args := v.Expr(); op == cue.OrOp || op == cue.NoOp && len(args) == 1 && args[0] != v {
		return false // alternatives, which a default hides
	}
	switch v.IncompleteKind() {
	case cue.StructKind:
		fields, err := v.Fields(cue.All(), cue.Patterns(true))
		for err == nil && fields.Next() {
			if fields.FieldType() != cue.StringLabel || !IsLiteral(fields.Value()) {
				return false
			}
		}
		return err == nil
	case cue.ListKind:
		if v.LookupPath(cue.MakePath(cue.AnyIndex)).Exists() {
			return false
		}
		items, err := v.List()
		for err == nil && items.Next() {
			if !IsLiteral(items.Value()) {
				return false
			}
		}
		return err == nil
	}
	return IsConstant(v)
}

// Target returns the value that v refers to. For a reference that is all that a
// struct literal embeds, CUE gives no such value; it is looked up by name in
// what CUE says it selects from.
func Target(v cue.Value, args []cue.Value) (cue.Value, bool) {
	if t := cue.Dereference(v); t != v {
		return t, true
	}
	switch len(args) {
	case 1: // a let
		t := cue.Dereference(args[0])
		return t, t != args[0]
	case 2:
		label, err := args[1].String()
		fields, err2 := cue.Dereference(args[0]).Fields(cue.All())
		for err == nil && err2 == nil && fields.Next() {
			if fields.Selector().String() == label {
				return fields.Value(), true
			}
		}
	}
	return cue.Value{}, false
}

// IsWritten reports whether a constant is written where it stands. Another one may be what CUE
// makes of defaults, without data.
func IsWritten(v cue.Value) bool {
	op, args := v.Expr()
	_, ok := cuesyntax.SyntaxOf(v.Source()).(*ast.BasicLit)
	return ok && op == cue.NoOp && len(args) == 1
}

// IsError reports whether v is an error that no data can cure.
func IsError(v cue.Value) bool {
	return v.IncompleteKind() == cue.BottomKind && v.IsConcrete()
}

func IsBound(op cue.Op) bool {
	switch op {
	case cue.GreaterThanOp, cue.GreaterThanEqualOp, cue.LessThanOp, cue.LessThanEqualOp,
		cue.NotEqualOp, cue.RegexMatchOp, cue.NotRegexMatchOp:
		return true
	}
	return false
}

// IsConstant reports whether v is one scalar, defaults not counted.
func IsConstant(v cue.Value) bool {
	const scalars = cue.NullKind | cue.BoolKind | cue.NumberKind | cue.StringKind
	return v.IsConcrete() && v.Err() == nil && v.Kind()&scalars != 0
}

const CompositeKinds = cue.ListKind | cue.StructKind

func isTop(v cue.Value) bool {
	op, _ := v.Expr()
	return op == cue.NoOp && v.IncompleteKind() == cue.TopKind && fmt.Sprint(v) == "_"
}

func IsComposite(v cue.Value) bool { return v.IncompleteKind()&CompositeKinds != 0 }

// IsData reports whether v is the same whatever it is unified with: written out
// in full, and closed.
func IsData(v cue.Value) bool {
	switch v.IncompleteKind() {
	case cue.StructKind:
		if v.Allows(cue.AnyString) {
			return false
		}
		fields, err := v.Fields()
		for err == nil && fields.Next() {
			if !IsData(fields.Value()) {
				return false
			}
		}
	case cue.ListKind:
		items, err := v.List()
		for err == nil && items.Next() {
			if !IsData(items.Value()) {
				return false
			}
		}
	}
	return IsLiteral(v)
}

func KindsOf(k cue.Kind) schemas.Kinds {
	var kinds schemas.Kinds
	for _, m := range [...]struct {
		cue  cue.Kind
		json schemas.Kinds
	}{
		{cue.NullKind, schemas.NullKind},
		{cue.BoolKind, schemas.BoolKind},
		{cue.IntKind, schemas.IntegerKind},
		{cue.FloatKind, schemas.NumberKind | schemas.IntegerKind},
		{cue.StringKind, schemas.StringKind},
		{cue.ListKind, schemas.ListKind},
		{cue.StructKind, schemas.StructKind},
	} {
		if k&m.cue != 0 {
			kinds |= m.json
		}
	}
	return kinds
}

func IsBasic(v cue.Value) bool {
	switch fmt.Sprint(v) {
	case "bool", "int", "number", "string":
		return true
	}
	return false
}
