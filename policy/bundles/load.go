package bundles

import (
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/load"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/policy/format"
	"stele.dev/stele/schemas"
)

// virtualRoot is the folder where CUE's loader sees the source's files. It does not exist on the
// host.
const virtualRoot = "/.stele-bundle"

// Load loads the source's package, with the program's own definitions and without files from outside
// of the source. It also returns a source with only the files that the package uses.
func Load(source *Source) (*build.Instance, *Source, error) {
	instance := source.Instance(source.Package, false)
	if instance.Err != nil {
		return nil, nil, instance.Err
	}
	embedded, err := source.embed(instance, map[*build.Instance]bool{})
	if err != nil {
		return nil, nil, err
	}
	used := &Source{Package: source.Package}
	for _, f := range source.Files {
		if slices.Contains(embedded, f.Path) || isUsed(instance, f.Path, map[*build.Instance]bool{}) || f.Path == ModuleFile {
			used.Files = append(used.Files, f)
		}
	}
	return instance, used, nil
}

// Instance loads the package in a folder, with or without its tests.
func (s *Source) Instance(dir string, tests bool) *build.Instance {
	files := map[string]load.Source{}
	for p, data := range format.Files() {
		files[path.Join(virtualRoot, p)] = load.FromBytes(data)
	}
	for _, f := range s.Files {
		files[path.Join(virtualRoot, f.Path)] = load.FromBytes(f.Data)
	}
	return load.Instances([]string{"."}, &load.Config{
		Overlay:    files,
		ModuleRoot: virtualRoot,
		Dir:        path.Join(virtualRoot, dir),
		Env:        []string{"CUE_REGISTRY=none"},
		Tests:      tests,
	})[0]
}

func isUsed(i *build.Instance, file string, seen map[*build.Instance]bool) bool {
	if seen[i] {
		return false
	}
	seen[i] = true
	for _, f := range i.BuildFiles {
		if Relative(f.Filename) == file {
			return true
		}
	}
	return slices.ContainsFunc(i.Imports, func(i *build.Instance) bool { return isUsed(i, file, seen) })
}

func Relative(filename string) string { return strings.TrimPrefix(filename, virtualRoot+"/") }

// Empty reports whether the package's folder has no files. Its subfolders may have some.
func (s *Source) Empty() bool {
	return !slices.ContainsFunc(s.Files, func(f File) bool { return path.Dir(f.Path) == s.Package && path.Ext(f.Path) == ".cue" })
}

func FirstFile(s *Source) string {
	for _, f := range s.Files {
		if path.Dir(f.Path) == s.Package {
			return f.Path
		}
	}
	return s.Package
}

// Locate returns the position in the source; false if it is in the program's own definitions.
func Locate(p token.Pos) (schemas.Position, bool) {
	if !p.IsValid() || p.Filename() == "" || format.Has(Relative(p.Filename())) {
		return schemas.Position{}, false
	}
	return schemas.Position{File: Relative(p.Filename()), Line: p.Line(), Column: p.Column()}, true
}
