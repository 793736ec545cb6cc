// Package cuevalue inspects evaluated CUE values: constants, alternatives and defaults.
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

// IsFile reports whether v is the value of a file, or of several joined files.
func IsFile(v cue.Value) bool {
	if op, args := v.Expr(); op == cue.AndOp && slices.ContainsFunc(args, IsFile) {
		return true
	}
	_, ok := v.Source().(*ast.File)
	return ok
}

// IsCycle reports whether CUE rejected a definition that refers to itself.
func IsCycle(err error) bool {
	return slices.ContainsFunc(errors.Errors(err), func(e errors.Error) bool {
		format, _ := e.Msg()
		return format == "structural cycle"
	})
}

// FixedItems reports whether v is a list with at least one item.
func FixedItems(v cue.Value) bool {
	items, err := v.List()
	return err != nil || items.Next()
}

// DocOf returns the comments on a value.
func DocOf(v cue.Value) string {
	var docs []string
	for _, d := range v.Doc() {
		if text := strings.TrimSpace(d.Text()); text != "" && !slices.Contains(docs, text) {
			docs = append(docs, text)
		}
	}
	return strings.Join(docs, "\n\n")
}

// IsLiteral reports whether v consists of constants only, also in lists and structs.
func IsLiteral(v cue.Value) bool {
	if op, args := v.Expr(); op == cue.OrOp || op == cue.NoOp && len(args) == 1 && args[0] != v {
		return false // alternatives, hidden by a default
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

// Target returns the value that v refers to. CUE returns none for a reference that is alone in a struct
// literal; Target then looks the value up by name.
func Target(v cue.Value, args []cue.Value) (cue.Value, bool) {
	if t := cue.Dereference(v); t != v {
		return t, true
	}
	switch len(args) {
	case 1: // a reference to a let
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

// IsWritten reports whether v is written as a literal. Constants may also come from defaults.
func IsWritten(v cue.Value) bool {
	op, args := v.Expr()
	_, ok := cuesyntax.SyntaxOf(v.Source()).(*ast.BasicLit)
	return ok && op == cue.NoOp && len(args) == 1
}

// IsError reports whether v is an error that no data can resolve.
func IsError(v cue.Value) bool {
	return v.IncompleteKind() == cue.BottomKind && v.IsConcrete()
}

// IsBound reports whether op is the operator of a bound: >1, !=2, =~"^a".
func IsBound(op cue.Op) bool {
	switch op {
	case cue.GreaterThanOp, cue.GreaterThanEqualOp, cue.LessThanOp, cue.LessThanEqualOp,
		cue.NotEqualOp, cue.RegexMatchOp, cue.NotRegexMatchOp:
		return true
	}
	return false
}

// IsConstant reports whether v is a single scalar without alternatives.
func IsConstant(v cue.Value) bool {
	const scalars = cue.NullKind | cue.BoolKind | cue.NumberKind | cue.StringKind
	return v.IsConcrete() && v.Err() == nil && v.Kind()&scalars != 0
}

// CompositeKinds are the kinds of values with parts.
const CompositeKinds = cue.ListKind | cue.StructKind

func isTop(v cue.Value) bool {
	op, _ := v.Expr()
	return op == cue.NoOp && v.IncompleteKind() == cue.TopKind && fmt.Sprint(v) == "_"
}

// IsComposite reports whether v may be a list or a struct.
func IsComposite(v cue.Value) bool { return v.IncompleteKind()&CompositeKinds != 0 }

// IsData reports whether v is a complete and closed literal, so that unification cannot change it.
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

// KindsOf returns the JSON kinds for a CUE kind.
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

// IsBasic reports whether v is bool, int, number or string.
func IsBasic(v cue.Value) bool {
	switch fmt.Sprint(v) {
	case "bool", "int", "number", "string":
		return true
	}
	return false
}
