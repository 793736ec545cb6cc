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

// ValidateUpdate returns the violations of an object that replaces old, in the order of Validate, and
// then the changes of immutable fields.
//
// A violation is excused if the invalid value, or a value around it, is unchanged (ratcheting,
// KEP-4008). Values correspond by field name, and items of lists of type map by their keys. Items of
// other lists do not correspond, so only the whole list can be unchanged. If any list of type set or
// map in old has duplicates, duplicates in all such lists are excused, as in Kubernetes.
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

// repeats reports whether a list of type set or map in the object has duplicates.
func (p *Program) repeats(obj map[string]any) bool {
	v := &inspection{}
	v.parts(p.root, obj, true)
	return v.repeats
}

// A ratchet holds the old object during an update. Its trail follows the path of the inspection as far
// as values correspond, so that each value is compared once.
type ratchet struct{ trail []pair }

// A pair is a new value and the old value that it replaces.
type pair struct {
	step     step
	check    *check // nil: no schema for the value
	obj, old any
	lost     bool // there is no corresponding old value
	compared bool
	same     bool
	items    map[string]any // items of the old list by key; made on first use
}

// joinErrors makes errors from here on concern the whole value at the path, because the applicable rules
// depend on several of its parts. It returns the previous setting, with which the caller restores
// v.whole.
func (v *inspection) joinErrors() (before int) {
	before = v.whole
	if v.whole == 0 {
		v.whole = len(v.path) + 1
	}
	return before
}

// excused reports whether the value of an error at the path is unchanged.
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

// excuses reports whether the value of an error at the path is unchanged. An error about a duplicate
// item concerns the list.
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

// child returns the pair of the parts at a step.
func (p *pair) child(s step) pair {
	c := pair{step: s, lost: true}
	switch obj := p.obj.(type) {
	case map[string]any:
		old, _ := p.old.(map[string]any)
		var inNew, inOld bool
		c.obj, inNew = obj[s.name]
		c.old, inOld = old[s.name]
		c.lost = !inNew || !inOld
		c.check = p.check.child(s.name)
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

// mapKeys returns the keys of a list of type map, or nil.
func (c *check) mapKeys() []string {
	if c == nil || c.node.List == nil || c.node.List.Type != schemas.ListMap {
		return nil
	}
	return c.node.List.MapKeys
}

// byKeys returns the items indexed by key. Of several items with the same key, it takes the first.
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

// keyOf returns the key of an item of a list of type map. ok is false if a part of the key is missing.
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

// sameAs reports whether two values are equal. The order of items in a list of type map is ignored.
func sameAs(c *check, x, y any) bool {
	switch x := x.(type) {
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, ok := y[k]; !ok || !sameAs(c.child(k), v, w) {
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
			delete(before, key) // match each key once
		}
		return true
	}
	return jsonvalue.SameScalar(x, y)
}

// A frozen describes which parts of a value are immutable.
type frozen struct {
	at      *schemas.Position // the line that makes the value immutable; nil if it may change
	secret  bool              // the value is a secret
	fields  map[string]*frozen
	names   []string // field names in declared order
	entries []frozenEntries
	items   *frozen
	keys    []string
}

type frozenEntries struct {
	key    *check
	values *frozen
}

// newFrozen returns the immutable parts of n, or nil if everything may change. n has already been
// checked.
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

// addStruct adds the immutable fields of s. With several alternatives, a field is immutable if any of
// them says so.
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

// join adds the immutable parts of another frozen for the same value.
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

// changes reports changed immutable parts of a value that existed before. A field may be neither added
// nor removed. Entries of maps and items of lists may.
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
