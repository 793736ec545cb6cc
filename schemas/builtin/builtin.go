// Package builtin has the kinds that every server serves: Namespace, ConfigMap, Secret, ServiceAccount,
// ResourceQuota, Event and Lease. Event is served twice: the events of events.k8s.io are a [Face] of the events of the
// core group.
//
// The schemas are the CUE files of this package, compiled like those of a bundle. Rules that CUE cannot
// express are in Go: [Prepare] runs before the program prepares an object, and [Validate] after the
// program validated it. Both read no metadata except some labels and annotations.
//
//	builtin.Prepare(kind, object, old)
//	unknown, changed := program.Prepare(object)
//	errs := append(program.Validate(object), builtin.Validate(kind, object, old)...)
package builtin

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/kinds"
)

//go:embed *.cue
var files embed.FS

// Kinds returns the built-in kinds, sorted by group and plural. They are compiled once. Callers must not
// modify the schemas.
func Kinds() ([]schemas.Kind, error) {
	kinds, err := compiled()
	return slices.Clone(kinds), err
}

var compiled = sync.OnceValues(func() ([]schemas.Kind, error) {
	instance := build.NewContext().NewInstance("builtin", nil)
	names, err := fs.Glob(files, "*.cue")
	if err != nil {
		return nil, fmt.Errorf("builtin: %w", err)
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("builtin: %w", err)
		}
		file, err := parser.ParseFile("builtin/"+name, text, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("builtin: %w", err)
		}
		if err := instance.AddSyntax(file); err != nil {
			return nil, fmt.Errorf("builtin: %w", err)
		}
	}
	v := cuecontext.New().BuildInstance(instance)
	declared, err := v.LookupPath(cue.ParsePath("kinds")).Fields()
	if err != nil {
		return nil, fmt.Errorf("builtin: %w", err)
	}
	var all []schemas.Kind
	var diags schemas.Diagnostics
	for declared.Next() {
		k, d := kinds.BuiltinFromCUE(declared.Selector().Unquoted(), declared.Value(), locate, instance)
		all = append(all, k)
		diags = append(diags, d...)
	}
	if diags != nil {
		return nil, fmt.Errorf("builtin: %w", diags)
	}
	slices.SortFunc(all, func(a, b schemas.Kind) int {
		return slices.Compare([]string{a.Group, a.Plural}, []string{b.Group, b.Plural})
	})
	return all, nil
})

func locate(p token.Pos) (schemas.Position, bool) {
	if p.Filename() == "" || !p.IsValid() {
		return schemas.Position{}, false
	}
	return schemas.Position{File: p.Filename(), Line: p.Line(), Column: p.Column()}, true
}

// FieldPaths returns the gjson paths of selectable fields that have another path in objects of the
// resource, given as plural.group. Callers must not modify the result.
func FieldPaths(resource string) map[string]string { return fieldPaths[resource] }

var fieldPaths = map[string]map[string]string{
	// The source of an event is its component, or else its reporting controller.
	"events": {"source": `[source.component,reportingComponent].#(%"?*")`},
}
