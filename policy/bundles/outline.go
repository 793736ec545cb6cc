package bundles

import (
	"bytes"
	"fmt"
	"path"
	"slices"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
)

// LoadOutlined is [Load], and leaves out the schemas of embedded CustomResourceDefinitions: CUE holds all values of a bundle at once, many
// times larger than their files. In place of each schema is a struct with one field, whose name is mark and whose value is [Outlined] of
// the file and the number of the version. The mark must not be in the bundle otherwise.
func LoadOutlined(source *Source, mark string) (*build.Instance, *Source, error) {
	outlined := *source
	outlined.mark = mark
	instance, used, err := Load(&outlined)
	return instance, used, err
}

// Outlined names the schema of a version that was left out.
func Outlined(file string, version int) string { return fmt.Sprintf("%d %s", version, file) }

// outlinable is the least size of data files whose schemas are worth leaving out, and unseen are texts of CUE that could tell whether a
// schema is left out without an error.
const outlinable = 1 << 20

var unseen = []string{"openAPIV3Schema", `"crypto/`, `"encoding/`, `"struct"`, "len("}

// Outlinable reports whether a bundle has large data files, and CUE that only passes schemas on: then a bundle without schemas
// compiles to the same, but for them.
func (s *Source) Outlinable() bool {
	size := 0
	for i := range s.Files {
		f := &s.Files[i]
		if path.Ext(f.Path) != ".cue" {
			size += len(f.Data)
			continue
		}
		if slices.ContainsFunc(unseen, func(text string) bool { return bytes.Contains(f.Data, []byte(text)) }) {
			return false
		}
	}
	return size >= outlinable
}

// Decoded returns the content of a data file; nil if it is none that can be embedded.
func (s *Source) Decoded(file string) ast.Expr {
	for i := range s.Files {
		if f := &s.Files[i]; f.Path == file && path.Ext(file) != ".cue" {
			value, _ := f.decoded()
			return value
		}
	}
	return nil
}

// outline replaces the schemas of a definition.
func outline(file, mark string, definition ast.Expr) {
	kind, _ := fieldOf(definition, "kind").(*ast.BasicLit)
	if kind == nil || kind.Value != `"CustomResourceDefinition"` && kind.Value != "CustomResourceDefinition" {
		return
	}
	versions, _ := fieldOf(fieldOf(definition, "spec"), "versions").(*ast.ListLit)
	if versions == nil {
		return
	}
	for i, version := range versions.Elts {
		schema, _ := fieldOf(version, "schema").(*ast.StructLit)
		if schema == nil {
			continue
		}
		for _, d := range schema.Elts {
			if f, ok := d.(*ast.Field); ok && nameOf(f) == "openAPIV3Schema" {
				f.Value = ast.NewStruct(&ast.Field{Label: ast.NewString(mark), Value: ast.NewString(Outlined(file, i))})
			}
		}
	}
}

// fieldOf returns the value of a field; nil if there is none.
func fieldOf(in ast.Expr, name string) ast.Expr {
	fields, _ := in.(*ast.StructLit)
	if fields == nil {
		return nil
	}
	for _, d := range fields.Elts {
		if f, ok := d.(*ast.Field); ok && nameOf(f) == name {
			return f.Value
		}
	}
	return nil
}

func nameOf(f *ast.Field) string {
	name, _, _ := ast.LabelName(f.Label)
	return name
}
