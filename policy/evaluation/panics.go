package evaluation

import (
	"fmt"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
)

// Panicked reports a panic, at the value that was being compiled.
func (c *Evaluation) Panicked(p any) {
	var pos schemas.Position
	path := ""
	guarded(func() { pos, path = Position(c.visited), c.visited.Path().String() })
	if pos.IsZero() {
		pos, path = c.panicking()
	}
	if pos.IsZero() {
		pos = schemas.Position{File: bundles.FirstFile(c.Source), Line: 1, Column: 1}
	}
	c.Diags = append(c.Diags, schemas.Diagnostic{Pos: pos, Path: path, Message: fmt.Sprintf("it cannot be compiled: CUE panics (%v)", p), Hint: "write it in a simpler way"})
}

// guarded calls a function and reports whether it panics.
func guarded(f func()) (panics bool) {
	defer func() { panics = recover() != nil }()
	f()
	return false
}

// maxTrials limits how often a package is evaluated to find what CUE panics on.
const maxTrials = 200

// panicking finds the innermost field on which CUE panics. Each trial has a context of its own, as a panic leaves values half evaluated.
func (c *Evaluation) panicking() (pos schemas.Position, path string) {
	if c.instance == nil {
		return pos, ""
	}
	trials := 0
	evaluated := func(at []cue.Selector, do func(v cue.Value)) bool {
		trials++
		return guarded(func() { do(cuecontext.New().BuildInstance(c.instance).LookupPath(cue.MakePath(at...))) })
	}
	if evaluated(nil, func(cue.Value) {}) {
		return c.unbuildable(), ""
	}
	var at []cue.Selector
	for descends := true; descends; {
		descends = false
		var below []cue.Selector
		evaluated(at, func(v cue.Value) {
			if p := Position(v); !p.IsZero() {
				pos, path = p, v.Path().String()
			}
			fields, err := v.Fields(cue.All())
			for err == nil && fields.Next() {
				below = append(below, fields.Selector())
			}
		})
		for _, s := range below {
			next := append(at[:len(at):len(at)], s)
			if trials < maxTrials && evaluated(next, func(v cue.Value) { _ = v.Validate(cue.Concrete(true)) }) {
				at, descends = next, true
				break
			}
		}
	}
	return pos, path
}

// unbuildable returns the position of the innermost declaration that CUE cannot build without a panic.
func (c *Evaluation) unbuildable() (pos schemas.Position) {
	var in func(imports, decls []ast.Decl) bool
	in = func(imports, decls []ast.Decl) bool {
		for _, d := range decls {
			if !guarded(func() { cuecontext.New().BuildFile(&ast.File{Decls: append(imports[:len(imports):len(imports)], d)}) }) {
				continue
			}
			if p, ok := bundles.Locate(d.Pos()); ok {
				pos = p
			}
			if f, ok := d.(*ast.Field); ok {
				if s, ok := f.Value.(*ast.StructLit); ok {
					in(imports, s.Elts)
				}
			}
			return true
		}
		return false
	}
	for _, i := range c.Packages() {
		for _, f := range i.Files {
			var imports, decls []ast.Decl
			for _, d := range f.Decls {
				switch d.(type) {
				case *ast.ImportDecl:
					imports = append(imports, d)
				case *ast.Package:
				default:
					decls = append(decls, d)
				}
			}
			if in(imports, decls) {
				return pos
			}
		}
	}
	return pos
}
