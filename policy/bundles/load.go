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

// virtualRoot is where the loader finds the source's files. They are laid over the
// host's file system, which has nothing there.
const virtualRoot = "/.stele-bundle"

// loadInstance loads the package, with the program's own definitions and nothing from
// outside the source.
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

// load reads the package of a folder, with its tests or without.
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

// empty tells whether there is nothing in the folder of the package; below it there may be.
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

// locate says where in the source a position is; not if it is in our definitions.
func Locate(p token.Pos) (schemas.Position, bool) {
	if !p.IsValid() || p.Filename() == "" || format.Has(Relative(p.Filename())) {
		return schemas.Position{}, false
	}
	return schemas.Position{File: Relative(p.Filename()), Line: p.Line(), Column: p.Column()}, true
}
