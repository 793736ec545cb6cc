package compiling

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"stele.dev/stele/policy/bundles"
)

// Target is a bundle that a command was given.
type Target struct {
	// Name is its folder, as the user would write it.
	Name   string
	Source *bundles.Source
}

// Targets returns the bundles that arguments name, each once. An argument is the folder of a bundle, the folder of a
// part of bundles, or a pattern such as ./clusters/..., which means all bundles in the folder and below it.
func Targets(args []string) ([]Target, error) {
	var all []Target
	seen := map[string]bool{}
	add := func(dir string, source *bundles.Source, pkg string) {
		folder := folderOf(dir, source.Package, pkg)
		key, err := filepath.Abs(folder)
		if err != nil || seen[key] {
			return
		}
		seen[key] = true
		of := *source
		of.Package = pkg
		all = append(all, Target{folder, &of})
	}
	for _, arg := range args {
		dir, pattern := strings.CutSuffix(arg, "...")
		if dir = strings.TrimSuffix(dir, "/"); dir == "" && pattern {
			dir = "."
		} else if dir == "" {
			dir = arg
		}
		source, err := bundles.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		module := bundles.ModuleOf(source)
		packages := module.Of(source.Package)
		if pattern {
			if packages = module.Below(source.Package); len(packages) == 0 {
				return nil, fmt.Errorf("%s matches no bundle: no package there has a field `bundle`, and none is part of one that does", arg)
			}
		}
		if len(packages) == 0 || !pattern && slices.Contains(packages, source.Package) {
			packages = []string{source.Package} // compiling it reports the error
		}
		for _, pkg := range packages {
			add(dir, source, pkg)
		}
	}
	return all, nil
}

// folderOf returns the path of a package's folder, relative to the user's folder. dir is the folder of the package
// from.
func folderOf(dir, from, pkg string) string {
	if from == pkg {
		return dir
	}
	way, err := filepath.Rel(filepath.FromSlash(from), filepath.FromSlash(pkg))
	if err != nil {
		return pkg
	}
	return filepath.Join(dir, way)
}
