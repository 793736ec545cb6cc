package bundles

import (
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/parser"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// Folder is a folder from which the bundle takes a package.
type Folder struct {
	Dir, name string           // name is the package's name
	Importer  schemas.Position // the import of the package; zero for the bundle's own folder
	Files     []*File          // all CUE files in the folder, also those of other packages
}

// Folders returns the folders of the bundle's package and of its imports in the module. Each folder
// comes after the one that imports it.
func (s *Source) Folders() []Folder {
	module := s.ModulePath()
	all := []Folder{{Dir: s.Package}}
	for i := 0; i < len(all); i++ {
		f := &all[i]
		f.Files = s.cueFiles(f.Dir)
		if i == 0 {
			f.name = ownPackage(f.Files)
		}
		for _, file := range f.Files {
			syntax := head(file)
			if syntax.PackageName() != f.name {
				continue
			}
			for spec := range syntax.ImportSpecs() {
				dir, name, ok := inModule(module, spec)
				if !ok || slices.ContainsFunc(all, func(f Folder) bool { return f.Dir == dir && f.name == name }) {
					continue
				}
				pos, _ := Locate(spec.Pos())
				all = append(all, Folder{Dir: dir, name: name, Importer: pos})
				f = &all[i]
			}
		}
	}
	return all
}

// HasSuite reports whether the folder's package has tests.
func (f *Folder) HasSuite() bool {
	return slices.ContainsFunc(f.Files, func(file *File) bool {
		syntax, _ := parser.ParseFile(file.Path, file.Data)
		return syntax.PackageName() == f.name && slices.ContainsFunc(syntax.Decls, isSuite)
	})
}

// cueFiles returns the files in a folder that CUE reads.
func (s *Source) cueFiles(dir string) (files []*File) {
	for i := range s.Files {
		f := &s.Files[i]
		if path.Dir(f.Path) == dir && path.Ext(f.Path) == ".cue" && !strings.HasSuffix(f.Path, "_tool.cue") && !strings.HasSuffix(f.Path, "_test.cue") {
			files = append(files, f)
		}
	}
	return files
}

// head returns a file's syntax up to its imports, as far as it can be parsed.
func head(f *File) *ast.File {
	syntax, _ := parser.ParseFile(path.Join(virtualRoot, f.Path), f.Data, parser.ImportsOnly)
	return syntax
}

// ownPackage returns the package of the bundle's own folder. If there are several, it is the one
// with the field `bundle`.
func ownPackage(files []*File) (name string) {
	for _, f := range files {
		syntax, _ := parser.ParseFile(f.Path, f.Data)
		if name == "" {
			name = syntax.PackageName()
		}
		for _, d := range syntax.Decls {
			if field, ok := d.(*ast.Field); ok && syntax.PackageName() != "" {
				if label, _, _ := ast.LabelName(field.Label); label == "bundle" {
					return syntax.PackageName()
				}
			}
		}
	}
	return name
}

// ModulePath returns the module's path without its major version; "" if the source has no module.
func (s *Source) ModulePath() string {
	i := slices.IndexFunc(s.Files, func(f File) bool { return f.Path == ModuleFile })
	if i < 0 {
		return ""
	}
	syntax, _ := parser.ParseFile(ModuleFile, s.Files[i].Data)
	for _, d := range syntax.Decls {
		field, ok := d.(*ast.Field)
		if !ok {
			continue
		}
		if label, _, _ := ast.LabelName(field.Label); label == "module" {
			if text, ok := field.Value.(*ast.BasicLit); ok {
				module, _, _ := strings.Cut(wording.Unquoted(text.Value), "@")
				return module
			}
		}
	}
	return ""
}

// PackagePaths returns the import paths of the module's packages, sorted.
func (s *Source) PackagePaths() (paths []string) {
	module := s.ModulePath()
	for i := range s.Files {
		f := &s.Files[i]
		if name := head(f).PackageName(); path.Ext(f.Path) == ".cue" && name != "" && !strings.HasPrefix(f.Path, "cue.mod/") {
			paths = append(paths, strings.TrimSuffix(module+"/"+path.Dir(f.Path), "/."))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Parse parses a CUE file. [Locate] understands its positions.
func (f *File) Parse() (*ast.File, error) {
	return parser.ParseFile(path.Join(virtualRoot, f.Path), f.Data)
}

// ModuleFile is the path of the file that declares the module.
const ModuleFile = "cue.mod/module.cue"

// inModule returns the folder and the package that an import names; false if it is not in the
// module.
func inModule(module string, spec *ast.ImportSpec) (dir, name string, ok bool) {
	target, name, qualified := strings.Cut(wording.Unquoted(spec.Path.Value), ":")
	target, _, _ = strings.Cut(target, "@")
	dir, ok = strings.CutPrefix(target+"/", module+"/")
	if module == "" || !ok {
		return "", "", false
	}
	if !qualified {
		name = path.Base(target)
	}
	return path.Clean(dir), name, true
}

// LeftOut reports the files in the bundle's folders that CUE would silently leave out, so that they
// would not be enforced.
func (s *Source) LeftOut(instance *build.Instance) (diags, warnings schemas.Diagnostics) {
	add := func(pos schemas.Position, message, hint string) {
		diags = append(diags, schemas.Diagnostic{Pos: pos, Message: message, Hint: hint})
	}
	module := s.ModulePath()
	for _, f := range s.Folders() {
		if strings.HasPrefix(f.Dir, "cue.mod") {
			continue // a copy of another module
		}
		for _, file := range f.Files {
			name := head(file).PackageName()
			switch {
			case name == "" || name == "_":
				add(schemas.Position{File: file.Path, Line: 1, Column: 1}, "the file has no package, so that it is left out: the package of its folder is "+f.name, "begin it with `package "+f.name+"`")
			case name != f.name && !s.imports(module, f.Dir, name):
				add(packageClause(file), "package "+name+" is imported by nothing, so that the file is left out: the package of its folder is "+f.name, "write `package "+f.name+"`, or move the file")
			case name == f.name && instance != nil && !isUsed(instance, file.Path, map[*build.Instance]bool{}) && !strings.Contains(string(file.Data), "@ignore("):
				add(schemas.Position{File: file.Path, Line: 1, Column: 1}, "the file is left out by its attribute @if: no tags are set for a bundle", "take the attribute off, or write @ignore() if the file is to be left out")
			}
		}
	}
	for _, name := range s.NearMisses {
		if slices.ContainsFunc(s.Folders(), func(f Folder) bool { return f.Dir == path.Dir(name) }) {
			warnings = append(warnings, schemas.Diagnostic{Pos: schemas.Position{File: name, Line: 1, Column: 1}, Message: "the file is left out, as its name does not end in .cue", Hint: "rename it", Lint: "FILE_NAME"})
		}
	}
	return diags, warnings
}

// packageClause returns the position of a file's package clause.
func packageClause(f *File) schemas.Position {
	for _, d := range head(f).Decls {
		if p, ok := d.(*ast.Package); ok {
			pos, _ := Locate(p.PackagePos)
			return pos
		}
	}
	return schemas.Position{File: f.Path, Line: 1, Column: 1}
}

// imports reports whether a file of the module imports a package of a folder.
func (s *Source) imports(module, dir, name string) bool {
	for i := range s.Files {
		if path.Ext(s.Files[i].Path) != ".cue" {
			continue
		}
		for spec := range head(&s.Files[i]).ImportSpecs() {
			if d, n, ok := inModule(module, spec); ok && d == dir && n == name {
				return true
			}
		}
	}
	return false
}

// nearMiss reports whether a file name is a likely typo of one that ends in .cue.
func nearMiss(name string) bool {
	ext := path.Ext(strings.TrimSuffix(strings.ToLower(name), ".txt"))
	if strings.HasSuffix(ext, "~") || strings.ContainsFunc(ext, func(r rune) bool { return '0' <= r && r <= '9' }) {
		return false // a backup
	}
	return path.Ext(name) != ".cue" && len(ext) > 2 && wording.Distance(ext, ".cue") <= 1
}
