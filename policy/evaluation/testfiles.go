package evaluation

import (
	"path"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
)

// suiteField is the field of a package that has a suite of tests.
const suiteField = "suite"

// TestFiles rejects tests that are in the wrong place: files *_test.cue in the bundle's folders, which CUE leaves out, so that
// nothing would run them, and packages of tests that the bundle imports.
func (c *Evaluation) TestFiles() {
	c.importsSuites()
	for _, f := range c.Source.Folders() {
		for _, file := range c.Source.Files {
			if path.Dir(file.Path) == f.Dir && strings.HasSuffix(file.Path, "_test.cue") && !strings.HasPrefix(f.Dir, "cue.mod") {
				c.Diags = append(c.Diags, schemas.Diagnostic{
					Pos: schemas.Position{File: file.Path, Line: 1, Column: 1}, Message: "nothing runs this file: CUE leaves out files *_test.cue",
					Hint: "write the tests into a package of their own, such as " + path.Join(f.Dir, "tests") + ", as its field `suite: policy.#Suite & {…}`",
				})
			}
		}
	}
}

// Suite evaluates a package of tests and returns its field `suite`. It reports the errors; the value is the zero Value if
// there are any.
func (c *Evaluation) Suite(instance *build.Instance) (suite cue.Value) {
	c.Build(instance)
	if err := instance.Err; err != nil {
		c.CUE(err)
	}
	c.regexps()
	suite = c.Root.LookupPath(cue.ParsePath(suiteField))
	err := c.Root.Validate(cue.Concrete(true))
	if c.broken = err != nil; c.broken {
		if d := c.definition("#Suite"); d.Exists() {
			c.names(suite, grammarOf(d), []string{suiteField})
		}
		c.CUE(err)
	}
	c.besideSuite()
	if !suite.LookupPath(cue.MakePath(cue.Hid("_suite", DefinitionsPath))).Exists() && !c.broken {
		if suite.Exists() {
			c.Add(Position(suite), suiteField, "it is not a policy.#Suite, so that nothing would check it", "write `suite: policy.#Suite & {…}`, with import \""+DefinitionsPath+"\"")
		} else {
			c.Add(schemas.Position{File: bundles.FirstFile(c.Source), Line: 1, Column: 1}, "", "the package has no field `suite`", "write `suite: policy.#Suite & {…}`, with import \""+DefinitionsPath+"\"")
		}
	}
	if c.broken && len(c.Diags) == 0 {
		c.Raw(err)
	}
	if len(c.Diags) > 0 {
		return cue.Value{}
	}
	return suite
}

// besideSuite rejects exported fields beside the suite, which probably belong inside of it.
func (c *Evaluation) besideSuite() {
	for label, x := range FieldsOf(c.Root) {
		if name := label.String(); name != suiteField {
			c.Add(Position(x), name, "a field beside `suite` has no effect", "move it into the suite, or make it a definition or a hidden field: #"+name+", _"+name)
		}
	}
}

// importsSuites rejects imports of packages of tests: they would become part of the bundle.
func (c *Evaluation) importsSuites() {
	for _, f := range c.Source.Folders() {
		if !f.Importer.IsZero() && f.HasSuite() {
			c.Add(f.Importer, "", "a package of tests is imported, so that it would become part of the bundle", "let the tests import the bundle's packages, and not the reverse")
		}
	}
}
