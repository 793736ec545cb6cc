package blame

import (
	"maps"
	"reflect"
	"slices"

	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/schemas"
)

// Leaf is a scalar of the object, an empty list or struct, or a value that is compared as a whole. Its paths are only
// valid until the fold takes the next version.
type Leaf struct {
	Value any
	// Order is the position among the leaves of the object, from 0.
	Order int
	part  *pending
}

// Path returns the path in the object as it is shown.
func (l *Leaf) Path() difference.Path {
	return l.part.path(func(p *pending) difference.Step { return p.shown })
}

// Then returns the path in the version that set the leaf.
func (l *Leaf) Then() difference.Path {
	return l.part.path(func(p *pending) difference.Step { return p.step })
}

// Fold finds the version that set each leaf of an object. It is for use by one goroutine.
type Fold struct {
	schema  *schemas.Node
	state   map[string]any // the version that was added last
	root    *pending
	found   []Leaf
	pending int
}

// pending is a part of the object with leaves whose version is not known yet.
type pending struct {
	parent *pending
	shown  difference.Step // in the object as it is shown
	step   difference.Step // in the version that was added last
	parts  []*pending
	leaf   bool
	value  any // if the part is a leaf
	order  int
}

// left maps a parent field to the fields that are left out: those that identify the object, and those that the server
// maintains.
var left = map[string][]string{"": {"apiVersion", "kind"}, "metadata": {"managedFields", "resourceVersion", "selfLink"}}

// NewFold returns a fold of an object as it is shown. The schema is that of the object's content, or nil if it is not
// known.
func NewFold(object map[string]any, schema *schemas.Node) *Fold {
	f := &Fold{schema: schema, state: object, root: &pending{}}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(left[""], name) {
			f.grow(f.root, nil, difference.Step{Field: name}, difference.Step{Field: name}, object[name], difference.Top(schema, name))
		}
	}
	return f
}

// grow adds a part at a path to its parent. shown is the step as clients see it: items of a list of type map are shown
// by their keys.
func (f *Fold) grow(parent *pending, at difference.Path, shown, step difference.Step, value any, n *schemas.Node) {
	p := &pending{parent: parent, shown: shown, step: step}
	parent.parts = append(parent.parts, p)
	parts := value
	switch value.(type) {
	case map[string]any, []any:
		if at = at.Join(shown); at.Whole() {
			parts = nil
		}
	}
	switch v := parts.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if len(at) > 1 || !slices.Contains(left[at[0].Field], name) {
				f.grow(p, at, difference.Step{Field: name}, difference.Step{Field: name}, v[name], difference.Field(n, name))
			}
		}
	case []any:
		steps, keyed := difference.Keyed(v, n)
		for i, item := range v {
			step := difference.Step{Item: true, Index: i}
			shown := step
			if keyed {
				shown = steps[i]
			}
			f.grow(p, at, shown, step, item, difference.Items(n))
		}
	}
	if len(p.parts) > 0 {
		return
	}
	if m, ok := parts.(map[string]any); ok && len(m) > 0 { // all fields are left out
		parent.parts = parent.parts[:len(parent.parts)-1]
		return
	}
	p.leaf, p.value, p.order = true, value, f.pending
	f.pending++
}

// Left returns the number of leaves whose version is not known yet.
func (f *Fold) Left() int { return f.pending }

// Older adds the previous version, nil if the object did not exist. It returns the leaves that the version added
// before this one has set.
func (f *Fold) Older(state map[string]any) []Leaf {
	f.found = nil
	if state == nil {
		f.attribute(f.root)
		f.root.parts = nil
	} else {
		f.fields(f.root, f.state, state, nil)
	}
	f.state = state
	return f.found
}

func (f *Fold) fields(p *pending, newer, older map[string]any, n *schemas.Node) {
	p.parts = slices.DeleteFunc(p.parts, func(c *pending) bool {
		name := c.step.Field
		was, ok := older[name]
		schema := difference.Field(n, name)
		if p == f.root {
			schema = difference.Top(f.schema, name)
		}
		return !f.remains(c, newer[name], was, ok, schema)
	})
}

// remains compares a part with the previous version, and reports whether any leaf of it is older.
func (f *Fold) remains(p *pending, newer, older any, there bool, n *schemas.Node) bool {
	if !there {
		f.attribute(p)
		return false
	}
	if p.leaf {
		if equalValues(p.value, older) {
			return true
		}
		f.attribute(p)
		return false
	}
	switch x := newer.(type) {
	case map[string]any:
		if was, ok := older.(map[string]any); ok {
			f.fields(p, x, was, n)
			return len(p.parts) > 0
		}
	case []any:
		if was, ok := older.([]any); ok {
			f.items(p, x, was, n)
			return len(p.parts) > 0
		}
	}
	f.attribute(p)
	return false
}

func (f *Fold) items(p *pending, newer, older []any, n *schemas.Node) {
	before := make(map[int]int, len(newer))
	for _, pair := range difference.Correspond(older, newer, n) {
		before[pair[1]] = pair[0]
	}
	p.parts = slices.DeleteFunc(p.parts, func(c *pending) bool {
		i, ok := before[c.step.Index]
		var was any
		if ok {
			was = older[i]
		}
		if !f.remains(c, newer[c.step.Index], was, ok, difference.Items(n)) {
			return true
		}
		c.step.Index = i
		return false
	})
}

// equalValues reports whether a leaf equals the older value.
func equalValues(leaf, older any) bool {
	switch leaf.(type) {
	case map[string]any, []any:
		return reflect.DeepEqual(leaf, older)
	}
	switch older.(type) {
	case map[string]any, []any: // they cannot be compared with ==
		return false
	}
	return leaf == older
}

// attribute adds all leaves of a part to the result.
func (f *Fold) attribute(p *pending) {
	if p.leaf {
		f.pending--
		f.found = append(f.found, Leaf{Value: p.value, Order: p.order, part: p})
		return
	}
	for _, c := range p.parts {
		f.attribute(c)
	}
}

// path returns the path to the part. step selects the step of each part on the way.
func (p *pending) path(step func(*pending) difference.Step) difference.Path {
	if p.parent == nil {
		return nil
	}
	return append(p.parent.path(step), step(p))
}
