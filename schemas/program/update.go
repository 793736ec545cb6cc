package program

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// ValidateUpdate returns every way in which an object that is to take the place of old
// violates the schema, in the order of Validate, and then every change of what must not
// change.
//
// What was wrong before may stay (KEP-4008): a violation does not count if the value that
// it is about is what it was before, or part of such a value. Values correspond by the names
// of their fields, and items of lists of type map by their keys; items of other lists do
// not, so that only the whole list can be what it was. If items of any list of type set or map
// were not all different, no such list counts, as upstream has it.
func (p *Program) ValidateUpdate(obj, old map[string]any) field.ErrorList {
	errs := p.Validate(obj)
	if len(errs) > 0 {
		v := p.ratcheted(obj, old, false)
		if v.repeats && p.repeats(old) {
			v = p.ratcheted(obj, old, true)
		}
		errs = v.errs
	}
	if p.frozen != nil {
		v := &inspection{}
		v.changes(p.frozen, content(obj, true), content(old, true))
		errs = append(errs, v.errs...)
	}
	return errs
}

func (p *Program) ratcheted(obj, old map[string]any, mayRepeat bool) *inspection {
	v := &inspection{mayRepeat: mayRepeat}
	v.ratchet = &ratchet{trail: []pair{{check: p.root, obj: content(obj, true), old: content(old, true)}}}
	v.parts(p.root, obj, true)
	return v
}

// repeats tells whether a list of type set or map in the object is what it must not be.
func (p *Program) repeats(obj map[string]any) bool {
	v := &inspection{}
	v.parts(p.root, obj, true)
	return v.repeats
}

// A ratchet knows what an object was before. Its trail follows the path of the inspection,
// as far as values correspond, so that each value is compared once.
type ratchet struct{ trail []pair }

// A pair is a value and the one that it takes the place of.
type pair struct {
	step     step
	check    *check // nil: nothing is known of the value
	obj, old any
	lost     bool // there is none that corresponds
	compared bool
	same     bool
	items    map[string]any // of old, by their keys; once asked for
}

// together says that rules from here on are about all of the value at the path, and not only
// about the part of it where they are found broken: it depends on other parts which rules
// those are. It returns what to set v.whole to afterwards.
func (v *inspection) together() (before int) {
	before = v.whole
	if v.whole == 0 {
		v.whole = len(v.path) + 1
	}
	return before
}

// excused reports whether what an error at the path is about was so before.
func (v *inspection) excused(e *field.Error) bool {
	if v.ratchet == nil {
		return false
	}
	path := v.path
	if v.whole > 0 {
		path = path[:min(len(path), v.whole-1)]
	}
	return v.ratchet.excuses(path, e)
}

// excuses reports whether what an error at the path is about was so before. An error about
// an item that is there twice is about the list.
func (r *ratchet) excuses(path []step, e *field.Error) bool {
	if n := len(path); e.Type == field.ErrorTypeDuplicate && n > 0 && path[n-1].kind == stepItem {
		path = path[:n-1]
	}
	known := 1
	for known < len(r.trail) && known <= len(path) && r.trail[known].step == path[known-1] {
		known++
	}
	r.trail = r.trail[:known]
	for i := 0; ; i++ {
		at := &r.trail[i]
		if at.lost {
			return false
		}
		if !at.compared {
			at.compared, at.same = true, sameAs(at.check, at.obj, at.old)
		}
		if at.same {
			return true
		}
		if i == len(path) {
			return false
		}
		if i+1 == len(r.trail) {
			r.trail = append(r.trail, at.child(path[i]))
		}
	}
}

// child is the pair below, at a step.
func (p *pair) child(s step) pair {
	c := pair{step: s, lost: true}
	switch obj := p.obj.(type) {
	case map[string]any:
		old, _ := p.old.(map[string]any)
		var inNew, inOld bool
		c.obj, inNew = obj[s.name]
		c.old, inOld = old[s.name]
		c.lost = !inNew || !inOld
		c.check = p.check.below(s.name)
	case []any:
		old, _ := p.old.([]any)
		if s.kind != stepItem || s.index >= len(obj) || p.check == nil || p.check.list == nil {
			return c
		}
		keys := p.check.mapKeys()
		if keys == nil {
			return c
		}
		if p.items == nil {
			p.items = byKeys(keys, old)
		}
		if key, ok := keyOf(keys, obj[s.index]); ok {
			c.obj, c.check = obj[s.index], p.check.list.items
			c.old, ok = p.items[key]
			c.lost = !ok
		}
	}
	return c
}

// below is the check of the values with this name, if it is known.
func (c *check) below(name string) *check {
	if c == nil || c.object == nil {
		return nil
	}
	if i, ok := c.object.index[name]; ok {
		return c.object.fields[i].check
	}
	for i := range c.object.patterns {
		if c.object.patterns[i].key.admitsKey(name) {
			return c.object.patterns[i].value
		}
	}
	return nil
}

// mapKeys are the keys of the items, if it is a list of type map.
func (c *check) mapKeys() []string {
	if c == nil || c.node.List == nil || c.node.List.Type != schemas.ListMap {
		return nil
	}
	return c.node.List.MapKeys
}

// byKeys are items by their keys; of several with the same, the first.
func byKeys(keys []string, items []any) map[string]any {
	found := make(map[string]any, len(items))
	for _, item := range items {
		if key, ok := keyOf(keys, item); ok {
			if _, double := found[key]; !double {
				found[key] = item
			}
		}
	}
	return found
}

// keyOf is the key of an item of a list of type map, if it has all parts of one.
func keyOf(keys []string, item any) (string, bool) {
	m, ok := item.(map[string]any)
	if !ok {
		return "", false
	}
	var b strings.Builder
	for _, name := range keys {
		x, ok := m[name]
		if n, isFloat := x.(float64); isFloat {
			if exact, whole := jsonvalue.Int64(n); whole {
				x = exact
			}
		}
		switch x.(type) {
		case nil, []any, map[string]any:
			return "", false
		}
		text, err := json.Marshal(x)
		if !ok || err != nil {
			return "", false
		}
		b.Write(text)
		b.WriteByte(0)
	}
	return b.String(), true
}

// sameAs reports whether two values are equal. The order of a list of type map is no matter.
func sameAs(c *check, x, y any) bool {
	switch x := x.(type) {
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, ok := y[k]; !ok || !sameAs(c.below(k), v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		var items *check
		if c != nil && c.list != nil {
			items = c.list.items
		}
		keys := c.mapKeys()
		if keys == nil {
			return slices.EqualFunc(x, y, func(v, w any) bool { return sameAs(items, v, w) })
		}
		if slices.EqualFunc(x, y, func(v, w any) bool { return sameAs(nil, v, w) }) {
			return true
		}
		before := byKeys(keys, y)
		for _, v := range x {
			key, ok := keyOf(keys, v)
			w, was := before[key]
			if !ok || !was || !sameAs(items, v, w) {
				return false
			}
			delete(before, key) // once for each
		}
		return true
	}
	return jsonvalue.SameScalar(x, y)
}

// A frozen says what must not change in a value: the value, or something in it.
type frozen struct {
	at      *schemas.Position // where it is said of the value
	secret  bool              // the value is one
	fields  map[string]*frozen
	names   []string // of fields, in declared order
	entries []frozenEntries
	items   *frozen
	keys    []string
}

type frozenEntries struct {
	key    *check
	values *frozen
}

// newFrozen returns nil if everything may change. n has been checked.
func newFrozen(n *schemas.Node, secret bool) *frozen {
	secret = secret || n.Sensitive
	f := &frozen{at: n.Immutable, secret: secret}
	for _, s := range n.Structs() {
		f.addStruct(s, secret)
	}
	if n.List != nil && n.List.Type == schemas.ListMap && n.List.Items != nil {
		f.items, f.keys = newFrozen(n.List.Items, secret), n.List.MapKeys
	}
	if f.at == nil && f.names == nil && f.entries == nil && f.items == nil {
		return nil
	}
	return f
}

// addStruct adds what s says. Of several alternatives, what any of them says holds.
func (f *frozen) addStruct(s *schemas.Struct, secret bool) {
	for _, field := range s.EveryField() {
		if below := newFrozen(field.Schema, secret); below != nil {
			f.addField(field.Name, below)
		}
	}
	for _, p := range s.Patterns {
		if values := newFrozen(p.Value, secret); values != nil {
			if key, err := newCheck(p.Key, 0); err == nil {
				f.entries = append(f.entries, frozenEntries{key, values})
			}
		}
	}
}

func (f *frozen) addField(name string, below *frozen) {
	if was := f.fields[name]; was != nil {
		was.join(below)
		return
	}
	if f.fields == nil {
		f.fields = map[string]*frozen{}
	}
	f.fields[name] = below
	f.names = append(f.names, name)
}

// join adds what another says of the same value.
func (f *frozen) join(other *frozen) {
	if f.at == nil {
		f.at = other.at
	}
	f.secret = f.secret || other.secret
	for _, name := range other.names {
		f.addField(name, other.fields[name])
	}
	f.entries = append(f.entries, other.entries...)
	switch {
	case other.items == nil:
	case f.items == nil:
		f.items, f.keys = other.items, other.keys
	case slices.Equal(f.keys, other.keys):
		f.items.join(other.items)
	}
}

// changes reports what is not as it was in a value that was there before. A field must
// neither come nor go; entries of maps and items of lists may.
func (v *inspection) changes(f *frozen, obj, old any) {
	if f.at != nil && !sameAs(nil, obj, old) {
		v.frozen(f, obj)
		return
	}
	switch obj := obj.(type) {
	case map[string]any:
		old, ok := old.(map[string]any)
		if !ok {
			return
		}
		for _, name := range f.names {
			v.push(step{name: name})
			x, inNew := obj[name]
			y, inOld := old[name]
			below := f.fields[name]
			switch {
			case inNew && inOld:
				v.changes(below, x, y)
			case inNew != inOld && below.at != nil:
				v.frozen(below, x)
			}
			v.pop()
		}
		for _, e := range f.entries {
			for _, key := range slices.Sorted(maps.Keys(obj)) {
				if y, ok := old[key]; ok && f.fields[key] == nil && e.key.admitsKey(key) {
					v.push(step{name: key, kind: stepKey})
					v.changes(e.values, obj[key], y)
					v.pop()
				}
			}
		}
	case []any:
		old, ok := old.([]any)
		if !ok || f.items == nil {
			return
		}
		before := byKeys(f.keys, old)
		for i, x := range obj {
			if key, ok := keyOf(f.keys, x); ok {
				if y, was := before[key]; was {
					v.push(step{index: i, kind: stepItem})
					v.changes(f.items, x, y)
					v.pop()
				}
			}
		}
	}
}

func (v *inspection) frozen(f *frozen, x any) {
	if f.secret {
		x = field.OmitValueType{}
	}
	v.invalid(x, "field is immutable", *f.at)
}
