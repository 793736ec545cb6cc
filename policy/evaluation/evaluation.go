// Package evaluation evaluates the CUE of a bundle. It reports each mistake once, where the user made it, and in words
// that say what to write.
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
	"stele.dev/stele/policy/wording"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
)

func (c *Evaluation) Add(pos schemas.Position, path, message, hint string) {
	c.found[path] |= said
	c.AddAll(schemas.Diagnostics{{Pos: pos, Path: path, Message: message, Hint: hint}})
}

func (c *Evaluation) AddAll(diags schemas.Diagnostics) {
	for _, d := range diags {
		if !strings.Contains(d.Message, meaningless) { // the name has been reported
			c.Diags = append(c.Diags, d)
		}
	}
}

// topLevel refuses exported fields beside the bundle, which are probably meant to be
// in it.
func (c *Evaluation) topLevel(v cue.Value) {
	for label, x := range FieldsOf(v) {
		if name := label.String(); name != "bundle" && name != "tests" {
			c.Add(Position(x), name, "a field beside `bundle` has no effect", "move it into the bundle, or make it a definition: #"+name)
		}
	}
}

// position is that of the first conjunct that the user wrote.
func Position(v cue.Value) schemas.Position {
	return fromcue.PositionOf(v, bundles.Locate)
}

// fields yields the regular fields of a part of a value in the order of their names,
// also where something is in error.
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
			if label.IsString() { // it may be a list where a struct should be
				all = append(all, named{label.Unquoted(), x})
			}
		}
		slices.SortFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })
		for _, n := range all {
			if !yield(n.name, n.value) {
				return
			}
		}
	}
}

// decode reads a concrete value; the definitions have already checked its shape. What
// is in error is left out.
func (c *Evaluation) Decode(v cue.Value, into any) {
	if !c.Sound(v) {
		return
	}
	if err := v.Decode(into); err != nil {
		c.CUE(cueerrors.Promote(err, v.Path().String()))
	}
}

func (c *Evaluation) DecodeField(v cue.Value, name string, into any) {
	if x := v.LookupPath(cue.ParsePath(name)); x.Exists() {
		c.Decode(x, into)
	}
}

// evaluation is what CUE made of a source, and what is wrong with that.
type Evaluation struct {
	Source      *bundles.Source
	folder      string                     // of the package that is evaluated
	Instances   map[string]*build.Instance // it, and what it imports, by path
	context     *cue.Context
	Root        cue.Value
	definitions cue.Value // of bundles, if the source uses them
	broken      bool      // something in it is in error

	found           map[string]finding // by path
	FieldsSeen      int                // of a kind, see lostDefaults
	Diags, Warnings schemas.Diagnostics
}

func New(source *bundles.Source) *Evaluation {
	return &Evaluation{Source: source, folder: source.Package, found: map[string]finding{}}
}

// definitionsPath is the path by which bundles import their definitions.
const DefinitionsPath = "stele.dev/policy"

// evaluate evaluates a package, and has what is sound of its bundle compiled, if there is one.
func (c *Evaluation) Evaluate(instance *build.Instance, compile func(bundle cue.Value)) {
	c.Build(instance)
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
		c.Raw(err) // all of it follows from something, but nobody said from what
	}
}

// build evaluates a package in a context of its own: contexts grow with what is compiled
// in them.
func (c *Evaluation) Build(instance *build.Instance) {
	c.context = cuecontext.New()
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

// packages returns those that the bundle is made of.
func (c *Evaluation) Packages() []*build.Instance { return slices.Collect(maps.Values(c.Instances)) }

// definition is one of those of bundles.
func (c *Evaluation) definition(name string) cue.Value {
	return c.definitions.LookupPath(cue.ParsePath(name))
}

// words are those of a list in the definitions.
func (c *Evaluation) Words(name string) (list []string) {
	c.Decode(c.definition(name), &list)
	return list
}

// sound tells whether there is no error in a value: errors have been reported.
func (c *Evaluation) Sound(v cue.Value) bool {
	return !c.broken || v.Validate(cue.Concrete(true)) == nil
}

// done is what was said, each thing once: of a value that is used at several places
// CUE speaks at each.
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

// Places in a bundle are found by their paths, as CUE's errors have them: the labels,
// quoted where they are not identifiers.

// sourceAt is where the user wrote what is at a path; zero if it is from the
// definitions alone.
func (c *Evaluation) sourceAt(at []string) schemas.Position {
	v := c.Root
	for _, label := range at {
		v = child(v, label)
	}
	return Position(v)
}

// enclosing is the position of what is at a path, or else of what it is in.
func (c *Evaluation) enclosing(at []string) (pos schemas.Position) {
	values := []cue.Value{c.Root}
	for _, label := range at {
		values = append(values, child(values[len(values)-1], label))
	}
	// From the inside: the position of all teams or kinds takes time to find.
	for _, v := range slices.Backward(values[1:]) {
		if pos = Position(v); !pos.IsZero() {
			return pos
		}
	}
	return pos
}

// child is what stands under a label; the zero Value if there is nothing.
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

// fieldsOf yields the regular fields of a struct and the elements of a list, also of
// one that is in error.
func FieldsOf(v cue.Value) func(func(cue.Selector, cue.Value) bool) {
	return func(yield func(cue.Selector, cue.Value) bool) {
		// With hidden fields, Fields does not ask whether the value is in error.
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

func (c *Evaluation) Warn(pos schemas.Position, path, message, hint string) {
	c.Warnings = append(c.Warnings, schemas.Diagnostic{Pos: pos, Path: path, Message: message, Hint: hint})
}
