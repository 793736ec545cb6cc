// Package bundles reads bundles: it takes a snapshot of the files of a CUE module and loads it
// without the network. It also finds the bundles of a module: the packages with a field `bundle` that
// no other package of the module imports, except packages of tests. A team's package is not a bundle by
// itself, but a part of the bundles that import it. Tests are the packages with a field `suite`.
package bundles

import (
	"maps"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
)

// Module is the packages of a module, by folder.
type Module struct {
	packages  map[string]*packageFolder
	importers map[string][]string
}

type packageFolder struct {
	imports   []string // folders
	hasBundle bool
	hasSuite  bool
}

// ModuleOf returns the packages of a source's module. It reads files with errors as far as possible;
// compiling reports their errors.
func ModuleOf(source *Source) *Module {
	m := &Module{packages: map[string]*packageFolder{}, importers: map[string][]string{}}
	name := source.ModulePath()
	for _, f := range source.Files {
		dir := path.Dir(f.Path)
		if path.Ext(f.Path) != ".cue" || dir == "cue.mod" || strings.HasPrefix(dir, "cue.mod/") {
			continue
		}
		file, _ := parser.ParseFile(f.Path, f.Data)
		if file == nil {
			continue
		}
		p := m.packages[dir]
		if p == nil {
			p = &packageFolder{}
			m.packages[dir] = p
		}
		p.hasBundle = p.hasBundle || slices.ContainsFunc(file.Decls, isBundle)
		p.hasSuite = p.hasSuite || slices.ContainsFunc(file.Decls, isSuite)
		for spec := range file.ImportSpecs() {
			if to, _, ok := inModule(name, spec); ok && to != dir && !slices.Contains(p.imports, to) {
				p.imports = append(p.imports, to)
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(m.packages)) {
		p := m.packages[dir]
		if p.hasSuite && !p.hasBundle {
			continue // tests are no part of what they test
		}
		for _, to := range p.imports {
			m.importers[to] = append(m.importers[to], dir)
		}
	}
	return m
}

// isBundle reports whether a declaration is the field `bundle`.
func isBundle(decl ast.Decl) bool { return isField(decl, "bundle") }

// isSuite reports whether a declaration is the field `suite`.
func isSuite(decl ast.Decl) bool { return isField(decl, "suite") }

func isField(decl ast.Decl, name string) bool {
	field, ok := decl.(*ast.Field)
	if !ok {
		return false
	}
	label, _, err := ast.LabelName(field.Label)
	return err == nil && label == name
}

// Suites returns the packages of tests in a folder and in its subfolders, sorted.
func (m *Module) Suites(dir string) (found []string) {
	for _, p := range slices.Sorted(maps.Keys(m.packages)) {
		if m.packages[p].hasSuite && (dir == "." || p == dir || strings.HasPrefix(p, dir+"/")) {
			found = append(found, p)
		}
	}
	return found
}

// Of returns the bundles that contain the package in a folder, sorted. A package that no other package
// imports is its own bundle.
func (m *Module) Of(dir string) []string {
	seen := map[string]bool{}
	var found []string
	var visit func(string)
	visit = func(dir string) {
		if seen[dir] {
			return
		}
		seen[dir] = true
		if len(m.importers[dir]) == 0 && m.packages[dir] != nil && m.packages[dir].hasBundle {
			found = append(found, dir)
		}
		for _, by := range m.importers[dir] {
			visit(by)
		}
	}
	visit(dir)
	slices.Sort(found)
	return found
}

// Below returns the bundles that contain packages in a folder or in its subfolders, sorted.
func (m *Module) Below(dir string) []string {
	found := map[string]bool{}
	for p := range m.packages {
		if dir == "." || p == dir || strings.HasPrefix(p, dir+"/") {
			for _, b := range m.Of(p) {
				found[b] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
