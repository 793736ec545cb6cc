package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"stele.dev/stele/schemas"
)

// evaluation is what CUE made of a source.
type evaluation struct {
	folder      string                     // of the package that is compiled
	instances   map[string]*build.Instance // it, and what it imports, by path
	context     *cue.Context
	root        cue.Value
	definitions cue.Value // of bundles, if the source uses them
	broken      bool      // something in it is in error
}

// definitionsPath is the path by which bundles import their definitions.
const definitionsPath = "stele.dev/policy"

// evaluate makes a form of what is sound; nil if there is no bundle.
func (c *compiler) evaluate(source *Source, instance *build.Instance) (form *Form) {
	c.build(instance)
	if err := instance.Err; err != nil {
		c.cue(err)
		if r := source.repaired(err); r != nil {
			if again, _, err := loadInstance(r); err == nil {
				c.build(again)
			}
		}
	}
	c.regexps()
	bundle := c.root.LookupPath(cue.ParsePath("bundle"))
	err := c.root.Validate(cue.Concrete(true))
	if c.broken = err != nil; c.broken {
		if d := c.definition("#Bundle"); d.Exists() {
			c.names(bundle, grammarOf(d), []string{"bundle"})
		}
		c.cue(err)
	}
	c.topLevel(c.root)
	switch made := bundle.LookupPath(cue.MakePath(cue.Hid("_kindOwner", definitionsPath))).Exists(); {
	case made:
		form = c.bundle(bundle)
	case bundle.Exists() && !c.broken:
		c.add(position(bundle), "bundle", "it is not a policy.#Bundle, so that nothing would check it", "write `bundle: policy.#Bundle & {…}`, with import \""+definitionsPath+"\"")
	}
	if c.broken && len(c.diags) == 0 {
		c.raw(err) // all of it follows from something, but nobody said from what
	}
	return form
}

// build evaluates a package in a context of its own: contexts grow with what is compiled
// in them.
func (c *compiler) build(instance *build.Instance) {
	c.context = cuecontext.New()
	c.root = c.context.BuildInstance(instance)
	c.instances = map[string]*build.Instance{}
	c.reach(instance)
	if d := c.instances[definitionsPath]; d != nil {
		c.definitions = c.context.BuildInstance(d)
	}
}

func (c *compiler) reach(i *build.Instance) {
	if c.instances[i.ImportPath] == nil {
		c.instances[i.ImportPath] = i
		for _, i := range i.Imports {
			c.reach(i)
		}
	}
}

// packages returns those that the bundle is made of.
func (c *compiler) packages() []*build.Instance { return slices.Collect(maps.Values(c.instances)) }

// definition is one of those of bundles.
func (c *compiler) definition(name string) cue.Value {
	return c.definitions.LookupPath(cue.ParsePath(name))
}

// words are those of a list in the definitions.
func (c *compiler) words(name string) (list []string) {
	c.decode(c.definition(name), &list)
	return list
}

// sound tells whether there is no error in a value: errors have been reported.
func (c *compiler) sound(v cue.Value) bool {
	return !c.broken || v.Validate(cue.Concrete(true)) == nil
}

// done is what was said, each thing once: of a value that is used at several places
// CUE speaks at each.
func (c *compiler) done() schemas.Diagnostics {
	c.inEmbedded(c.diags)
	c.diags = withoutFollowers(c.diags)
	for i := range c.diags {
		d := &c.diags[i]
		d.Path, d.Message, d.Hint = masked(d.Path), masked(d.Message), masked(d.Hint)
	}
	type key struct {
		pos     schemas.Position
		message string
	}
	said := map[key]bool{}
	return slices.DeleteFunc(c.diags.Sorted(), func(d schemas.Diagnostic) bool {
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
func (c *compiler) sourceAt(at []string) schemas.Position {
	v := c.root
	for _, label := range at {
		v = child(v, label)
	}
	return position(v)
}

// enclosing is the position of what is at a path, or else of what it is in.
func (c *compiler) enclosing(at []string) (pos schemas.Position) {
	values := []cue.Value{c.root}
	for _, label := range at {
		values = append(values, child(values[len(values)-1], label))
	}
	// From the inside: the position of all teams or kinds takes time to find.
	for _, v := range slices.Backward(values[1:]) {
		if pos = position(v); !pos.IsZero() {
			return pos
		}
	}
	return pos
}

// child is what stands under a label; the zero Value if there is nothing.
func child(v cue.Value, label string) cue.Value {
	name := unquoted(label)
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
func fieldsOf(v cue.Value) func(func(cue.Selector, cue.Value) bool) {
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
