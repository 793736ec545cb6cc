package evaluation

import (
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/wording"
)

// Tests checks the test files in the bundle's folders against the format of tests. They are not part
// of the compiled bundle.
func (c *Evaluation) Tests() {
	for _, f := range c.Source.Folders() {
		if slices.ContainsFunc(c.Source.Files, func(file bundles.File) bool {
			return path.Dir(file.Path) == f.Dir && strings.HasSuffix(file.Path, "_test.cue")
		}) {
			c.testsIn(f)
		}
	}
}

func (c *Evaluation) testsIn(f bundles.Folder) {
	t := New(c.Source)
	t.folder = f.Dir
	defer func() { c.AddAll(t.Diags) }()
	instance := c.Source.Instance(f.Dir, true)
	if instance.Err != nil {
		t.Raw(instance.Err)
		return
	}
	t.Build(instance)
	if err := instance.Err; err != nil {
		t.CUE(err)
		return
	}
	t.besideTests(f)
	tests := t.Root.LookupPath(cue.ParsePath("tests"))
	if !tests.Exists() {
		return
	}
	if d := c.Instances[DefinitionsPath]; !t.definitions.Exists() && d != nil { // test files need not import the definitions
		t.definitions = t.context.BuildInstance(d)
	}
	definition := t.definition("#Tests")
	t.Root = t.Root.FillPath(cue.ParsePath("tests"), definition)
	if err := t.Root.LookupPath(cue.ParsePath("tests")).Validate(cue.Concrete(true)); err != nil {
		t.broken = true
		t.names(t.Root.LookupPath(cue.ParsePath("tests")), grammarOf(definition), []string{"tests"})
		t.CUE(err)
	}
}

// besideTests rejects fields of test files that are neither tests nor fields of the package.
func (c *Evaluation) besideTests(f bundles.Folder) {
	known := []string{"tests", "bundle"}
	for _, file := range f.Files {
		syntax, _ := parser.ParseFile(file.Path, file.Data)
		for label := range fieldLabels(syntax) {
			known = append(known, label)
		}
	}
	for _, file := range c.Source.Files {
		if path.Dir(file.Path) != f.Dir || !strings.HasSuffix(file.Path, "_test.cue") {
			continue
		}
		syntax, _ := file.Parse()
		for label, field := range fieldLabels(syntax) {
			if !slices.Contains(known, label) {
				pos, _ := bundles.Locate(field.Pos())
				c.Add(pos, label, "a field beside `tests` has no effect", wording.DidYouMean(label, []string{"tests"}, "move it into tests, or make it a definition: #"+label))
			}
		}
	}
}

// fieldLabels yields the regular top-level fields of a file.
func fieldLabels(f *ast.File) func(func(string, *ast.Field) bool) {
	return func(yield func(string, *ast.Field) bool) {
		for _, d := range f.Decls {
			field, ok := d.(*ast.Field)
			if !ok {
				continue
			}
			label, _, err := ast.LabelName(field.Label)
			if err == nil && !strings.HasPrefix(label, "#") && !strings.HasPrefix(label, "_") && !yield(label, field) {
				return
			}
		}
	}
}
