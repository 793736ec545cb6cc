// Package conversion converts objects between versions of a kind by the steps that a bundle declares.
//
// Each version with a conversion is converted to the hub, the form of the versions without one, and back. [Conversion] does
// that for one version, and [Way] for two versions of a kind. CUE is not evaluated, and nothing but the object is read.
package conversion

import (
	"fmt"
	"strings"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/wording"
)

// An Error says why an object cannot be converted.
type Error struct {
	Step   string // the kind of the step
	Field  string // the first field that the step reads
	Source schemas.Position
	Err    error
}

func failed(form *schemas.ConversionStep, up bool, err error) error {
	fields, others := Fields(form)
	if !up {
		fields, others = others, fields
	}
	e := &Error{Step: form.Do, Source: form.Source, Err: err}
	if fields = append(fields, others...); len(fields) > 0 {
		e.Field = fields[0]
	}
	return e
}

func (e *Error) Error() string {
	return e.Step + ": " + e.Err.Error() + wording.At(e.Source.String())
}

func (e *Error) Unwrap() error { return e.Err }

// A Conversion converts objects between one version and the hub. It is immutable and safe for concurrent use.
type Conversion struct {
	steps    []step
	computed bool            // some steps evaluate CEL
	tops     map[string]bool // the top-level fields that steps read or write
	up, down *celtype.Type   // self of expressions: objects of the version, and of the hub
}

// A step is a compiled step: what it does with each struct at a path.
type step struct {
	items Path
	op    operation
	form  *schemas.ConversionStep
}

// An operation changes a struct on the way to the hub, and back.
type operation interface {
	up(m map[string]any) error
	down(m map[string]any) error
}

// New compiles the conversion of a version to the hub.
func New(k *schemas.Kind, v, hub *schemas.Version) (*Conversion, error) {
	c := &Conversion{tops: map[string]bool{}}
	for i := range v.Conversion.Steps {
		form := &v.Conversion.Steps[i]
		if form.Do == schemas.StepCEL && c.up == nil {
			c.up, c.down = SelfOf(k, v), SelfOf(k, hub)
		}
		if err := c.add(form, v.Schema, hub.Schema); err != nil {
			return nil, failed(form, true, err)
		}
	}
	return c, nil
}

// SelfOf returns the type of self in expressions: an object of a version without apiVersion, kind and metadata.
func SelfOf(k *schemas.Kind, v *schemas.Version) *celtype.Type {
	group := k.Group
	if group == "" {
		group = "core"
	}
	return celtype.Of(fmt.Sprintf("%s.%s.%s", group, v.Name, k.Kind), v.Schema)
}

// Up converts the content of an object of the version to the hub, in place. After an error, the content is neither.
func (c *Conversion) Up(content map[string]any) error {
	results, err := c.compute(content, true)
	if err != nil {
		return err
	}
	for i := range c.steps {
		if err := c.steps[i].run(content, results, true); err != nil {
			return err
		}
	}
	return nil
}

// Down converts the content of an object of the hub to the version, in place. After an error, the content is neither.
func (c *Conversion) Down(content map[string]any) error {
	results, err := c.compute(content, false)
	if err != nil {
		return err
	}
	for i := len(c.steps) - 1; i >= 0; i-- {
		if err := c.steps[i].run(content, results, false); err != nil {
			return err
		}
	}
	return nil
}

// Touches reports whether steps read or write a top-level field.
func (c *Conversion) Touches(name string) bool { return c.computed || c.tops[name] }

func (s *step) run(content map[string]any, results map[*computed][]any, up bool) error {
	var err error
	if op, ok := s.op.(*computed); ok {
		err = op.run(content, results[op], up)
	} else {
		_, err = walk(content, s.items, func(x any) (any, error) {
			m, ok := x.(map[string]any)
			if !ok {
				return x, nil
			}
			if up {
				return x, s.op.up(m)
			}
			return x, s.op.down(m)
		})
	}
	if err != nil {
		return failed(s.form, up, err)
	}
	return nil
}

// Schemas are those of a version and of the hub.
type sides struct{ version, hub *schemas.Node }

// add compiles a step.
func (c *Conversion) add(form *schemas.ConversionStep, version, hub *schemas.Node) error {
	if form.Do == schemas.StepCEL {
		op, err := newComputed(form)
		c.steps, c.computed = append(c.steps, step{op: op, form: form}), true
		return err
	}
	from, err := parseAll(form.From)
	if err != nil {
		return err
	}
	to, err := parseAll(form.To)
	if err != nil {
		return err
	}
	items, err := itemsOf(append(append([]Path{}, from...), to...))
	if err != nil {
		return err
	}
	for _, p := range append(append([]Path{}, from...), to...) {
		c.tops[p[0].name] = true
	}
	op, err := newOperation(form, items, from, to, sides{version, hub})
	c.steps = append(c.steps, step{items: items, op: op, form: form})
	return err
}

func parseAll(texts []string) (all []Path, err error) {
	for _, text := range texts {
		p, err := ParsePath(text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// itemsOf returns the path to the items that the fields of a step are in. It must be the same for all of them.
func itemsOf(paths []Path) (items Path, err error) {
	for i, p := range paths {
		in, _ := p.split()
		if i > 0 && in.String() != items.String() {
			return nil, fmt.Errorf("%s and %s are not in the same items: both have the same path up to the last [*]", paths[0], p)
		}
		items = in
	}
	return items, nil
}

// names returns the names of fields behind the last [*].
func names(paths []Path) (all [][]string) {
	for _, p := range paths {
		_, list := p.split()
		all = append(all, list)
	}
	return all
}

// emptied returns how many structs around a field are not in the other schema, so that they are removed with it.
func emptied(items Path, field []string, other *schemas.Node) (n int) {
	for i := len(field) - 1; i > 0; i-- {
		p := append(Path{}, items...)
		for _, name := range field[:i] {
			p = append(p, part{name: name})
		}
		if is, ok := p.Node(other); ok && (is == nil || is.Kinds&schemas.StructKind != 0) {
			break
		}
		n++
	}
	return n
}

// Fields returns the paths of all fields of a step, in the version and in the hub.
func Fields(form *schemas.ConversionStep) (version, hub []string) {
	version, hub = append(version, form.From...), append(hub, form.To...)
	for i := range form.Down {
		version = append(version, form.Down[i].Field)
	}
	for i := range form.Up {
		hub = append(hub, form.Up[i].Field)
	}
	return version, hub
}

// fieldText returns names of fields as a path, for messages.
func fieldText(names []string) string { return strings.Join(names, ".") }
