package cuesyntax

import (
	"strconv"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
)

// Packages are the packages that a schema may refer to.
type Packages struct {
	byFile map[string]*build.Instance // by file name
}

// NewPackages indexes the files of packages.
func NewPackages(instances []*build.Instance) Packages {
	p := Packages{byFile: map[string]*build.Instance{}}
	for _, i := range instances {
		for _, f := range i.Files {
			p.byFile[f.Pos().Filename()] = i
			p.byFile[f.Filename] = i
		}
	}
	return p
}

// declarationsOf returns the top-level declarations of the package that contains the node.
func (p Packages) declarationsOf(node ast.Node) (decls []ast.Decl) {
	i := p.byFile[node.Pos().Filename()]
	if i == nil {
		return nil
	}
	for _, f := range i.Files {
		decls = append(decls, f.Decls...)
	}
	return decls
}

// declares reports whether a package declares the identifier at the top level.
func (p Packages) declares(id *ast.Ident) bool {
	if _, ok := id.Scope.(*ast.File); ok {
		return true
	}
	return id.Scope == nil && len(named(p.declarationsOf(id), id.Name)) > 0
}

// targets returns the declarations that x refers to. The result is empty if the syntax does not show
// them.
func (p Packages) targets(x ast.Expr, depth int) []ast.Node {
	if depth > schemas.MaxDepth {
		return nil
	}
	switch x := Unparen(x).(type) {
	case *ast.Ident:
		return p.resolve(x)
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(x.Sel)
		if err != nil {
			return nil
		}
		if id, ok := x.X.(*ast.Ident); ok && MeaningOf(id) == IsPackage {
			return named(p.imported(id), name)
		}
		return p.selected(x.X, name, depth+1)
	case *ast.IndexExpr:
		if l, ok := Unparen(x.Index).(*ast.BasicLit); ok && l.Kind == token.STRING {
			if name, _, err := ast.LabelName(l); err == nil {
				return p.selected(x.X, name, depth+1)
			}
		}
	}
	return nil
}

// resolve returns the declarations of an identifier.
func (p Packages) resolve(id *ast.Ident) []ast.Node {
	if m := MeaningOf(id); m == IsPredeclared || m == IsPackage {
		return nil
	}
	switch x := id.Node.(type) {
	case *ast.LetClause:
		return []ast.Node{x.Expr}
	case *ast.Alias:
		return []ast.Node{x.Expr}
	case *ast.Field:
		return []ast.Node{x}
	}
	var found []ast.Node
	switch scope := id.Scope.(type) {
	case *ast.StructLit:
		found = named(scope.Elts, id.Name)
	case *ast.File, nil:
		if found = named(p.declarationsOf(id), id.Name); len(found) > 0 {
			break
		}
		if f, ok := scope.(*ast.File); ok {
			found = named(f.Decls, id.Name)
		}
	}
	if len(found) == 0 && id.Node != nil && id.Node != ast.Node(id) {
		found = []ast.Node{id.Node}
	}
	return found
}

// imported returns the declarations of an imported package. The result is empty for CUE's standard
// packages.
func (p Packages) imported(id *ast.Ident) (decls []ast.Decl) {
	spec, ok := id.Node.(*ast.ImportSpec)
	if !ok {
		return nil
	}
	path, err := strconv.Unquote(spec.Path.Value)
	from := p.byFile[id.Pos().Filename()]
	if err != nil || from == nil {
		return nil
	}
	wanted := ast.ParseImportPath(path).Canonical()
	for _, i := range from.Imports {
		if got := ast.ParseImportPath(i.ImportPath).Canonical(); got.Path == wanted.Path && got.Qualifier == wanted.Qualifier {
			for _, f := range i.Files {
				decls = append(decls, f.Decls...)
			}
		}
	}
	return decls
}

// named returns the fields and lets with the given name.
func named(decls []ast.Decl, name string) (found []ast.Node) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.Field:
			if label, _, err := ast.LabelName(d.Label); err == nil && label == name {
				found = append(found, d)
			}
		case *ast.LetClause:
			if d.Ident.Name == name {
				found = append(found, d.Expr)
			}
		}
	}
	return found
}

// selected returns the declarations of the named field in the declaration x.
func (p Packages) selected(x ast.Node, name string, depth int) (found []ast.Node) {
	if depth > schemas.MaxDepth {
		return nil
	}
	of := func(decls []ast.Decl) {
		found = append(found, named(decls, name)...)
		for _, d := range decls {
			switch d := d.(type) {
			case *ast.EmbedDecl:
				found = append(found, p.selected(d.Expr, name, depth+1)...)
			case *ast.Comprehension:
				found = append(found, p.selected(d.Value, name, depth+1)...)
			}
		}
	}
	switch x := x.(type) {
	case *ast.Field:
		return p.selected(x.Value, name, depth)
	case *ast.Alias:
		return p.selected(x.Expr, name, depth)
	case *ast.ParenExpr:
		return p.selected(x.X, name, depth)
	case *ast.StructLit:
		of(x.Elts)
	case *ast.File:
		of(x.Decls)
	case *ast.UnaryExpr:
		return p.selected(x.X, name, depth+1)
	case *ast.BinaryExpr:
		return append(p.selected(x.X, name, depth+1), p.selected(x.Y, name, depth+1)...)
	case *ast.CallExpr:
		for _, a := range x.Args {
			found = append(found, p.selected(a, name, depth+1)...)
		}
	case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr:
		for _, t := range p.targets(x.(ast.Expr), depth+1) {
			found = append(found, p.selected(t, name, depth+1)...)
		}
	}
	return found
}
