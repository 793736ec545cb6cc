// Package evaluation evaluates the CUE of a bundle. It reports each mistake once, where the user
// made it, and says what to write instead.
package evaluation

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	cueerrors "cuelang.org/go/cue/errors"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
	"stele.dev/stele/schemas/wording"
)

// Add reports a mistake at a path.
func (c *Evaluation) Add(pos schemas.Position, path, message, hint string) {
	c.found[path] |= said
	c.AddAll(schemas.Diagnostics{{Pos: pos, Path: path, Message: message, Hint: hint}})
}

// AddAll reports diagnostics, except those that only follow from an undefined name.
func (c *Evaluation) AddAll(diags schemas.Diagnostics) {
	for i, d := range diags {
		if !strings.Contains(d.Message, meaningless) && !c.isExplained(&diags[i]) { // else the name or the line has been reported
			c.Diags = append(c.Diags, d)
		}
	}
}

// topLevel rejects exported fields beside the bundle, which probably belong inside of it.
func (c *Evaluation) topLevel(v cue.Value) {
	for label, x := range FieldsOf(v) {
		switch name := label.String(); name {
		case "bundle", "accept":
		case suiteField:
			c.Add(Position(x), name, "tests stand in a package of their own, so that they do not become part of the bundle", "move the suite into a folder below this one, such as tests")
		default:
			c.Add(Position(x), name, "a field beside `bundle` has no effect", "move it into the bundle, or make it a definition: #"+name)
		}
	}
}

// Position returns the position of the first conjunct that the user wrote.
func Position(v cue.Value) schemas.Position {
	return fromcue.PositionOf(v, bundles.Locate)
}

// PositionOfRule returns the position of a rule, whose field body says what it does. What a package of the program made of
// the user's values stands where these do, which is not where an environment changes one of them.
func PositionOfRule(v cue.Value, body string) schemas.Position {
	at, of := Position(v), v.LookupPath(cue.ParsePath(body))
	if !at.IsZero() && (!of.Exists() || !Position(of).IsZero()) {
		return at
	}
	if made := positionIn(v, at.File); !made.IsZero() {
		return made
	}
	return at
}

// positionIn returns the position of a value, or else that of the first part of it that the user wrote, outside of a file.
func positionIn(v cue.Value, not string) schemas.Position {
	if pos := Position(v); !pos.IsZero() && pos.File != not {
		return pos
	}
	for _, x := range FieldsOf(v) {
		if pos := positionIn(x, not); !pos.IsZero() {
			return pos
		}
	}
	return schemas.Position{}
}

// Fields yields the regular fields of a part of a value, sorted by name, even if the part has
// errors.
func (c *Evaluation) Fields(v cue.Value, part string) func(func(string, cue.Value) bool) {
	return func(yield func(string, cue.Value) bool) {
		x := v
		if part != "" {
			x = v.LookupPath(cue.ParsePath(part))
		}
		type named struct {
			name  string
			value cue.Value
		}
		var all []named
		for label, x := range FieldsOf(x) {
			if label.IsString() { // it may be a list by mistake
				all = append(all, named{label.Unquoted(), x})
			}
		}
		slices.SortFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })
		for _, n := range all {
			if c.visited = n.value; !yield(n.name, n.value) {
				return
			}
		}
	}
}

// Decode decodes a concrete value whose shape the definitions have checked. It leaves out values
// with errors.
func (c *Evaluation) Decode(v cue.Value, into any) {
	if !c.Sound(v) {
		return
	}
	if err := v.Decode(into); err != nil {
		c.CUE(cueerrors.Promote(err, v.Path().String()))
	}
}

// DecodeField decodes a field, if it exists.
func (c *Evaluation) DecodeField(v cue.Value, name string, into any) {
	if x := v.LookupPath(cue.ParsePath(name)); x.Exists() {
		c.Decode(x, into)
	}
}

// Evaluation is a source evaluated by CUE, and the diagnostics about it.
type Evaluation struct {
	Source      *bundles.Source
	folder      string                     // of the package
	Instances   map[string]*build.Instance // the package and its imports, by path
	context     *cue.Context
	Root        cue.Value
	definitions cue.Value // of bundles, if the source uses them
	broken      bool      // a value has an error
	visited     cue.Value // the last one of Fields
	instance    *build.Instance

	found           map[string]finding        // by path
	explained       map[schemas.Position]bool // lines with a mistake from which other errors follow
	FieldsSeen      int                       // in a kind, see LostDefaults
	Diags, Warnings schemas.Diagnostics
}

// New returns an evaluation of a source. [Evaluation.Evaluate] runs it.
func New(source *bundles.Source) *Evaluation {
	return &Evaluation{Source: source, folder: source.Package, found: map[string]finding{}, explained: map[schemas.Position]bool{}}
}

// DefinitionsPath is the import path of the definitions of bundles.
const DefinitionsPath = "stele.dev/policy"

// Evaluate evaluates a package and calls compile with its bundle, if it has one. It reports the
// errors.
func (c *Evaluation) Evaluate(instance *build.Instance, compile func(bundle cue.Value)) {
	c.Build(instance)
	c.habits()
	if err := instance.Err; err != nil {
		c.CUE(err)
		if r := repaired(c.Source, err); r != nil {
			if again, _, err := bundles.Load(r); err == nil {
				c.Build(again)
			}
		}
	}
	c.regexps()
	bundle := c.Root.LookupPath(cue.ParsePath("bundle"))
	err := c.Root.Validate(cue.Concrete(true))
	if c.broken = err != nil; c.broken {
		if d := c.definition("#Bundle"); d.Exists() {
			c.names(bundle, grammarOf(d), []string{"bundle"})
		}
		c.CUE(err)
	}
	c.topLevel(c.Root)
	switch made := bundle.LookupPath(cue.MakePath(cue.Hid("_kindOwner", DefinitionsPath))).Exists(); {
	case made:
		compile(bundle)
	case bundle.Exists() && !c.broken:
		c.Add(Position(bundle), "bundle", "it is not a policy.#Bundle, so that nothing would check it", "write `bundle: policy.#Bundle & {…}`, with import \""+DefinitionsPath+"\"")
	}
	if c.broken && len(c.Diags) == 0 {
		c.Raw(err) // all errors are followers, but their cause is not reported
	}
}

// Build evaluates a package in its own CUE context, since a context never shrinks.
func (c *Evaluation) Build(instance *build.Instance) {
	c.context, c.instance = cuecontext.New(), instance
	c.Root = c.context.BuildInstance(instance)
	c.Instances = map[string]*build.Instance{}
	c.reach(instance)
	if d := c.Instances[DefinitionsPath]; d != nil {
		c.definitions = c.context.BuildInstance(d)
	}
}

func (c *Evaluation) reach(i *build.Instance) {
	if c.Instances[i.ImportPath] == nil {
		c.Instances[i.ImportPath] = i
		for _, i := range i.Imports {
			c.reach(i)
		}
	}
}

// Packages returns the package and its imports.
func (c *Evaluation) Packages() []*build.Instance { return slices.Collect(maps.Values(c.Instances)) }

// definition returns a definition of the bundle format.
func (c *Evaluation) definition(name string) cue.Value {
	return c.definitions.LookupPath(cue.ParsePath(name))
}

// Words returns the words of a list in the definitions.
func (c *Evaluation) Words(name string) (list []string) {
	c.Decode(c.definition(name), &list)
	return list
}

// Sound reports whether a value has no error. Errors have been reported.
func (c *Evaluation) Sound(v cue.Value) bool {
	return !c.broken || v.Validate(cue.Concrete(true)) == nil
}

// Done returns the diagnostics, each once: CUE reports an error at each place that uses the value.
func (c *Evaluation) Done() schemas.Diagnostics {
	c.inEmbedded(c.Diags)
	c.Diags = withoutFollowers(c.Diags)
	for i := range c.Diags {
		d := &c.Diags[i]
		d.Path, d.Message, d.Hint = bundles.Mask(d.Path), bundles.Mask(d.Message), bundles.Mask(d.Hint)
	}
	type key struct {
		pos     schemas.Position
		message string
	}
	said := map[key]bool{}
	return slices.DeleteFunc(c.Diags.Sorted(), func(d schemas.Diagnostic) bool {
		k := key{d.Pos, d.Message}
		again := said[k] && !d.Pos.IsZero()
		said[k] = true
		return again
	})
}

// A path names a place in a bundle as CUE's errors do: by labels, which are quoted if they are not
// identifiers.

// sourceAt returns the position where the user wrote the value at a path; zero if only the
// definitions have it.
func (c *Evaluation) sourceAt(at []string) schemas.Position {
	v := c.Root
	for _, label := range at {
		v = child(v, label)
	}
	return Position(v)
}

// enclosing returns the position of the value at a path, or of the nearest struct around it.
func (c *Evaluation) enclosing(at []string) (pos schemas.Position) {
	values := []cue.Value{c.Root}
	for _, label := range at {
		values = append(values, child(values[len(values)-1], label))
	}
	// Begin with the innermost value: finding the position of all teams or kinds is slow.
	for _, v := range slices.Backward(values[1:]) {
		if pos = Position(v); !pos.IsZero() {
			return pos
		}
	}
	return pos
}

// child returns the value under a label; the zero Value if there is none.
func child(v cue.Value, label string) cue.Value {
	name := wording.Unquoted(label)
	selector := cue.Str(name)
	if strings.HasPrefix(label, "#") {
		selector = cue.Def(name)
	}
	if x := v.LookupPath(cue.MakePath(selector)); x.Exists() {
		return x
	}
	if i, err := strconv.Atoi(label); err == nil && i >= 0 {
		if x := v.LookupPath(cue.MakePath(cue.Index(i))); x.Exists() {
			return x
		}
	}
	return cue.Value{}
}

// FieldsOf yields the regular fields of a struct and the elements of a list, even if it has errors.
func FieldsOf(v cue.Value) func(func(cue.Selector, cue.Value) bool) {
	return func(yield func(cue.Selector, cue.Value) bool) {
		// With hidden fields, Fields does not check the value for errors.
		fields, err := v.Fields(cue.Hidden(true))
		if err != nil {
			return
		}
		for fields.Next() {
			s := fields.Selector()
			if t := s.LabelType(); t != cue.StringLabel && t != cue.IndexLabel {
				continue
			}
			if !yield(s, fields.Value()) {
				return
			}
		}
	}
}

// Warn adds a warning, with the id of its lint.
func (c *Evaluation) Warn(lint string, pos schemas.Position, path, message, hint string) {
	c.Warnings = append(c.Warnings, schemas.Diagnostic{Pos: pos, Path: path, Message: message, Hint: hint, Lint: lint})
}

// Within returns the position of a line and column of a text that stands behind a label at a
// position. Lines count from 1, columns from 0. If the text has escapes, the position is less exact.
func (c *Evaluation) Within(at schemas.Position, text string, line, column int) schemas.Position {
	i := slices.IndexFunc(c.Source.Files, func(f bundles.File) bool { return f.Path == at.File })
	if i < 0 || line == 0 {
		return at
	}
	lines := strings.Split(string(c.Source.Files[i].Data), "\n")
	written := strings.Split(text, "\n")
	if line > len(written) {
		return at
	}
	from := at.Column - 1
	for n := at.Line; n <= len(lines); n++ {
		if from < 0 || from > len(lines[n-1]) {
			from = 0
		}
		if found := strings.Index(lines[n-1][from:], written[0]); found >= 0 {
			return schemas.Position{File: at.File, Line: n + line - 1, Column: from + found + column + 1}
		}
		from = 0
		if n > at.Line+1 {
			break
		}
	}
	return at
}
