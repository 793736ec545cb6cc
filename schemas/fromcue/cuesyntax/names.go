// Package cuesyntax analyzes the syntax of CUE: the meaning of identifiers, the targets of references,
// and attributes.
package cuesyntax

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
)

// NamesIn returns the identifiers in an expression that are declared outside of it.
func NamesIn(node ast.Node) (names []*ast.Ident) {
	within := map[ast.Node]bool{}
	var all []*ast.Ident
	var walk func(ast.Node)
	walk = func(node ast.Node) {
		ast.Walk(node, func(n ast.Node) bool {
			within[n] = true
			switch n := n.(type) {
			case *ast.Field:
				switch l := n.Label.(type) {
				case *ast.Ident, *ast.BasicLit:
					within[l] = true // a label, not a reference
				default:
					walk(l)
				}
				if n.Value != nil {
					walk(n.Value)
				}
				return false
			case *ast.SelectorExpr:
				walk(n.X)
				return false
			case *ast.ForClause:
				walk(n.Source)
				return false
			case *ast.LetClause:
				walk(n.Expr)
				return false
			case *ast.Alias:
				walk(n.Expr)
				return false
			case *ast.Ident:
				all = append(all, n)
			}
			return true
		}, nil)
	}
	walk(node)
	for _, id := range all {
		if (id.Scope == nil || !within[id.Scope]) && (id.Node == nil || !within[id.Node]) {
			names = append(names, id)
		}
	}
	return names
}

// DeclsOf returns the declarations of a struct literal or a file.
func DeclsOf(lit ast.Node) []ast.Decl {
	switch lit := lit.(type) {
	case *ast.StructLit:
		return lit.Elts
	case *ast.File:
		return lit.Decls
	}
	return nil
}

// Holds reports whether the declaration d is node, or declares the alias node.
func Holds(d ast.Decl, node ast.Node) bool {
	if node == nil {
		return false
	}
	if d == node {
		return true
	}
	f, ok := d.(*ast.Field)
	return ok && (f.Label == node || f.Value == node)
}

// A meaning classifies what an identifier refers to.
type meaning int

const (
	IsPredeclared meaning = iota // int, string, _
	IsPackage                    // an import
	IsFixed                      // a definition, a hidden field or a let, which data cannot change
	IsField                      // a regular field, which may be data
	IsAlias                      // an alias or a comprehension variable, which may refer to data
)

// MeaningOf returns the meaning of an identifier as resolved by the parser. An unresolved name is
// predeclared, or declared in another file of the package.
func MeaningOf(id *ast.Ident) meaning {
	if id.Name == "_" || id.IsPredeclared() {
		return IsPredeclared
	}
	switch id.Node.(type) {
	case *ast.ImportSpec:
		return IsPackage
	case *ast.LetClause:
		switch id.Scope.(type) {
		case *ast.File, *ast.StructLit:
			return IsFixed
		}
		return IsAlias
	case *ast.Field, *ast.Alias:
		return IsAlias
	}
	switch id.Scope.(type) {
	case nil, *ast.File, *ast.StructLit:
	default:
		return IsAlias
	}
	switch {
	case strings.HasPrefix(id.Name, "__") && id.Node == nil:
		return IsPredeclared
	case strings.HasPrefix(id.Name, "_"), strings.HasPrefix(id.Name, "#"):
		return IsFixed
	case id.Node == nil && slices.Contains(predeclaredNames, id.Name):
		return IsPredeclared
	}
	return IsField
}

var predeclaredNames = []string{
	"bool", "string", "bytes", "int", "float", "number",
	"int8", "int16", "int32", "int64", "int128", "rune",
	"uint", "uint8", "uint16", "uint32", "uint64", "uint128", "float32", "float64",
	"and", "or", "len", "div", "mod", "quo", "rem", "close", "matchN", "matchIf", "error", "self",
}

// BaseOf returns the identifier at the start of a reference.
func BaseOf(x ast.Expr) *ast.Ident {
	for {
		switch y := x.(type) {
		case *ast.Ident:
			return y
		case *ast.SelectorExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.ParenExpr:
			x = y.X
		default:
			return nil
		}
	}
}

// SelectsFromPackage reports whether x has the form pkg.name.
func SelectsFromPackage(x ast.Expr) bool {
	s, ok := x.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	id, ok := s.X.(*ast.Ident)
	return ok && MeaningOf(id) == IsPackage
}

// BuiltinName returns the name of a member of a CUE standard package, such as "strings.MinRunes". It
// uses the path of the package, also if the import has another name.
func BuiltinName(x ast.Expr) (string, bool) {
	s, ok := x.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	id, ok := s.X.(*ast.Ident)
	if !ok {
		return "", false
	}
	spec, ok := id.Node.(*ast.ImportSpec)
	if !ok {
		return "", false
	}
	path, err := strconv.Unquote(spec.Path.Value)
	if first, _, _ := strings.Cut(path, "/"); err != nil || strings.Contains(first, ".") {
		return "", false
	}
	name, _, err := ast.LabelName(s.Sel)
	return path + "." + name, err == nil
}

// IsBuiltin reports whether fun is the predeclared function with that name.
func IsBuiltin(fun ast.Expr, name string) bool {
	id, ok := fun.(*ast.Ident)
	return ok && MeaningOf(id) == IsPredeclared && strings.TrimPrefix(id.Name, "__") == name
}

// IsLoopVariable reports whether an identifier is a variable of a comprehension.
func IsLoopVariable(id *ast.Ident) bool {
	_, scope := id.Scope.(*ast.ForClause)
	_, node := id.Node.(*ast.ForClause)
	return scope || node
}

// ContainsNode reports whether inner is part of the syntax of outer.
func ContainsNode(outer, inner ast.Node) bool {
	a, b := outer.Pos(), inner.Pos()
	return a.Filename() == b.Filename() && a.Offset() <= b.Offset() && inner.End().Offset() <= outer.End().Offset()
}
