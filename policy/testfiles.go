package policy

import (
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
)

// tests checks the files of tests in the folders of a bundle: that they are tests as the format has them. They are no
// part of what is activated.
func (c *compiler) tests() {
	for _, f := range c.source.folders() {
		if slices.ContainsFunc(c.source.Files, func(file File) bool {
			return path.Dir(file.Path) == f.dir && strings.HasSuffix(file.Path, "_test.cue")
		}) {
			c.testsIn(f)
		}
	}
}

func (c *compiler) testsIn(f folder) {
	t := &compiler{source: c.source, evaluation: evaluation{folder: f.dir}, found: map[string]finding{}}
	defer func() { c.addAll(t.diags) }()
	instance := c.source.load(f.dir, true)
	if instance.Err != nil {
		t.raw(instance.Err)
		return
	}
	t.build(instance)
	if err := instance.Err; err != nil {
		t.cue(err)
		return
	}
	t.besideTests(f)
	tests := t.root.LookupPath(cue.ParsePath("tests"))
	if !tests.Exists() {
		return
	}
	if d := c.instances[definitionsPath]; !t.definitions.Exists() && d != nil { // tests need not import what they are checked against
		t.definitions = t.context.BuildInstance(d)
	}
	definition := t.definition("#Tests")
	t.root = t.root.FillPath(cue.ParsePath("tests"), definition)
	if err := t.root.LookupPath(cue.ParsePath("tests")).Validate(cue.Concrete(true)); err != nil {
		t.broken = true
		t.names(t.root.LookupPath(cue.ParsePath("tests")), grammarOf(definition), []string{"tests"})
		t.cue(err)
	}
}

// besideTests refuses fields of the files of tests that are none, and that the package does not have either.
func (c *compiler) besideTests(f folder) {
	known := []string{"tests", "bundle"}
	for _, file := range f.files {
		syntax, _ := parser.ParseFile(file.Path, file.Data)
		for label := range fieldLabels(syntax) {
			known = append(known, label)
		}
	}
	for _, file := range c.source.Files {
		if path.Dir(file.Path) != f.dir || !strings.HasSuffix(file.Path, "_test.cue") {
			continue
		}
		syntax, _ := parser.ParseFile(path.Join(virtualRoot, file.Path), file.Data)
		for label, field := range fieldLabels(syntax) {
			if !slices.Contains(known, label) {
				pos, _ := locate(field.Pos())
				c.add(pos, label, "a field beside `tests` has no effect", didYouMean(label, []string{"tests"}, "move it into tests, or make it a definition: #"+label))
			}
		}
	}
}

// fieldLabels yields the regular fields at the top of a file.
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
