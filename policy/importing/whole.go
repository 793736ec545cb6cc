package importing

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
)

// sourced is a value with the part of the input that it is made of.
type sourced struct {
	value any
	origin
}

// origin is a part of the input.
type origin struct {
	of   *object
	path []string
}

// from says what a value is made of.
func from(value any, o *object, path ...string) sourced {
	return sourced{value, origin{o, slices.Clone(path)}}
}

// write adds the text of a part of the team, or of the bundle if it belongs to the control plane.
func (m *importer) write(file string, at []string, f fields) {
	m.parts = append(m.parts, part{file: file, text: pathText(at) + structText(f) + "\n"})
	m.record(at, f)
}

// ofTeam returns the path of a field of the team.
func (m *importer) ofTeam(at ...string) []string {
	if m.Whole {
		return append([]string{"bundle", "teams", m.Team}, at...)
	}
	return append([]string{"team"}, at...)
}

// pathText returns a path as the beginning of a field.
func pathText(at []string) (text string) {
	for _, name := range at {
		text += label(name) + ": "
	}
	return text
}

// record notes what the fields of a value are made of, by their paths.
func (m *importer) record(at []string, v any) {
	switch v := v.(type) {
	case sourced:
		m.origins[pathKey(at)] = v.origin
		m.record(at, v.value)
	case fields:
		for _, f := range v {
			m.record(append(slices.Clip(at), f.key), f.value)
		}
	}
}

func pathKey(at []string) string { return strings.Join(at, "\x00") }

// whole compiles all that was written as a part of a bundle, and notes what is refused, each at the line of the input. It also notes
// kinds of which the whole makes something else than was compared with their definitions.
func (m *importer) whole() error {
	if m.Compile == nil {
		return nil
	}
	source, folder, err := m.surroundings()
	if err != nil {
		return err
	}
	for _, f := range m.files {
		source.Files = append(source.Files, bundles.File{Path: path.Join(folder, f.Path), Data: f.Data})
	}
	slices.SortFunc(source.Files, func(a, b bundles.File) int { return strings.Compare(a.Path, b.Path) })
	result, diags, err := m.Compile(source)
	if err != nil {
		return err
	}
	for _, d := range diags {
		m.refused(&d, folder)
	}
	if len(diags) > 0 {
		return nil
	}
	for _, o := range m.objectsOf("CustomResourceDefinition") {
		alone := m.alone[o]
		if alone == nil {
			continue
		}
		i := slices.IndexFunc(result.Form.Kinds, func(k schemas.Kind) bool { return k.Resource() == alone.Resource() })
		if i < 0 || !reflect.DeepEqual(bare(alone), bare(&result.Form.Kinds[i])) {
			m.note(o, nil, "the kind %s is not as its definition is: something else in the package or in the bundle is part of it, too", alone.Resource())
		}
	}
	return nil
}

// refused notes a mistake in what was written, at the line of the input that it was made of.
func (m *importer) refused(d *schemas.Diagnostic, folder string) {
	message := d.Message
	if d.Hint != "" {
		message += "; " + d.Hint
	}
	file := strings.TrimPrefix(d.Pos.File, folder+"/")
	for _, f := range m.files {
		if f.Path != file {
			continue
		}
		if at, ok := m.madeOf(f, d.Pos); ok {
			m.note(at.of, at.path, "vet refuses what is made of it (%s:%d): %s", file, d.Pos.Line, message)
			return
		}
		m.notes = append(m.notes, Note{file, d.Pos.Line, "vet refuses this: " + message})
		return
	}
	if !d.Pos.IsZero() {
		message = d.Pos.String() + ": " + message
	}
	m.notes = append(m.notes, Note{m.objects[0].File, 0, "vet refuses the bundle with what was imported: " + message})
}

// madeOf returns what the field at a position of a file is made of.
func (m *importer) madeOf(f File, pos schemas.Position) (origin, bool) {
	if strings.HasPrefix(f.Path, crdFolder) {
		for _, o := range m.objectsOf("CustomResourceDefinition") {
			if crdFolder+o.name()+".yaml" == f.Path {
				return origin{of: o}, true
			}
		}
	}
	at := fieldAt(f.Data, pos)
	for n := len(at); n > 0; n-- {
		if o, ok := m.origins[pathKey(at[:n])]; ok {
			return o, true
		}
	}
	return origin{}, false
}

// fieldAt returns the path of the innermost field of a file that contains a position.
func fieldAt(data []byte, pos schemas.Position) (at []string) {
	file, err := parser.ParseFile("", data)
	if err != nil {
		return nil
	}
	contains := func(n ast.Node) bool {
		before := func(a, b token.Position) bool { return a.Line < b.Line || a.Line == b.Line && a.Column <= b.Column }
		here := token.Position{Line: pos.Line, Column: pos.Column}
		return before(n.Pos().Position(), here) && before(here, n.End().Position())
	}
	var within func(decls []ast.Decl)
	within = func(decls []ast.Decl) {
		for _, d := range decls {
			f, ok := d.(*ast.Field)
			if !ok || !contains(f) {
				continue
			}
			name, _, err := ast.LabelName(f.Label)
			if err != nil {
				return
			}
			at = append(at, name)
			if s, ok := f.Value.(*ast.StructLit); ok {
				within(s.Elts)
			}
			return
		}
	}
	within(file.Decls)
	return at
}

// crdFolder is the folder of definitions that are kept as they are.
const crdFolder = "crds/"

// trialFolder is the folder of what was imported, in a bundle that does not say where it will be.
const trialFolder = "trial-of-import/part"

// surroundings returns a bundle that what was imported is compiled with, and the folder where that stands in it: the bundle that it
// becomes part of, or else one that has nothing but the kinds that the input speaks of and that are not written.
func (m *importer) surroundings() (source *bundles.Source, folder string, err error) {
	imports, bundle := "", fmt.Sprintf("bundle: policy.#Bundle & {cluster: \"trial\", teams: %s: {contact: \"#\", groups: [\"*\"], namespaces: [\"*\"]}}\n", label(m.Team))
	module := "trial.example/policy"
	source = &bundles.Source{Files: []bundles.File{{Path: bundles.ModuleFile, Data: []byte("module: \"trial.example/policy\"\nlanguage: version: \"v0.17.0\"\n")}}}
	folder = trialFolder
	if m.IntoSource != nil {
		source.Files = slices.Clone(m.IntoSource.Files)
		instance := m.IntoSource.Instance(m.IntoSource.Package, false)
		if instance.Err != nil {
			return nil, "", instance.Err
		}
		module, _, _ = strings.Cut(instance.Module, "@")
		imports = fmt.Sprintf("\tinto %q\n", path.Join(module, m.IntoSource.Package)+":"+instance.PkgName)
		bundle = "bundle: into.bundle\n"
		if m.IntoFolder != "" {
			folder = m.IntoFolder
		}
	}
	part := "bundle: part.bundle\n"
	if !m.Whole {
		part = fmt.Sprintf("bundle: teams: %s: part.team\n", label(m.Team))
	}
	text := fmt.Sprintf("package main\n\nimport (\n\t\"stele.dev/policy\"\n%s\tpart %q\n)\n\n_format: policy.#Bundle\n\n%s%s", imports, path.Join(module, folder)+":"+m.Package, bundle, part)
	for name, definition := range m.around() {
		text += fmt.Sprintf("bundle: teams: %s: crds: %s: %s\n", label(m.Team), label(name), cueText(definition))
	}
	source.Package = path.Dir(trialFolder)
	source.Files = append(source.Files, bundles.File{Path: source.Package + "/main.cue", Data: []byte(text)})
	return source, folder, nil
}

// around returns the definitions that are needed beside what was written: those of the input that are not imported, and one for each
// resource of which only the name is known.
func (m *importer) around() map[string]any {
	list := map[string]any{}
	if !m.wants("crds") {
		for _, o := range m.objectsOf("CustomResourceDefinition") {
			list[o.name()] = keptContent(o)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(m.served.assumed)) {
		resources := m.served.assumed[group]
		for _, plural := range slices.Sorted(maps.Keys(resources)) {
			versions := []any{}
			for i, v := range append([]string{"v1"}, slices.DeleteFunc(slices.Clone(resources[plural]), func(v string) bool { return v == "v1" })...) {
				open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
				versions = append(versions, map[string]any{
					"name": v, "served": true, "storage": i == 0,
					"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": map[string]any{"spec": open, "status": open}}},
					"subresources": map[string]any{"status": map[string]any{}, "scale": map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
				})
			}
			name := plural + "." + group
			list[name] = map[string]any{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": map[string]any{"name": name, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, only its name is known"}},
				"spec": map[string]any{
					"group": group, "scope": "Namespaced", "versions": versions,
					"names": map[string]any{"kind": "Assumed" + strconv.Itoa(len(list)), "plural": plural, "singular": "assumed" + strconv.Itoa(len(list)), "listKind": "Assumed" + strconv.Itoa(len(list)) + "List"},
				},
			}
		}
	}
	return list
}
