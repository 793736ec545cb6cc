// Package builtin has the kinds that every server has: Namespace, ConfigMap,
// Secret, ServiceAccount, Event and Lease. Event is there twice: what events.k8s.io serves
// is a [Face] of the events of the core group.
//
// Their schemas are CUE, in the files beside this one, and are compiled as those
// of a bundle are. What CUE cannot say about them stands in Go: [Prepare] runs
// before the program of the kind prepares the object, and [Validate] after it
// has validated it.
//
//	builtin.Prepare(kind, object, old)
//	unknown, changed := program.Prepare(object)
//	errs := append(program.Validate(object), builtin.Validate(kind, object, old)...)
//
// Neither looks at metadata beyond the labels and annotations that it names.
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

// Kinds returns the built-in kinds, sorted by group and plural. They are
// compiled once; callers MUST NOT modify the schemas.
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

// FieldPaths are where objects of a kind, by plural.group, have the values of selectable
// fields that are not what the field is: as gjson writes paths. Callers MUST NOT modify them.
func FieldPaths(resource string) map[string]string { return fieldPaths[resource] }

var fieldPaths = map[string]map[string]string{
	// The source of an event is a component, or else the controller.
	"events": {"source": `[source.component,reportingComponent].#(%"?*")`},
}
