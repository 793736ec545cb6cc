package patches

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/schemas/jsonvalue"
)

// Apply merges an apply configuration into the object, and returns the fields that it changed. Nothing is removed. t is
// the type of the object for server-side apply. A value of the object in the place of one of the
// configuration must be of its type, as in Kubernetes.
func (d *Document) Apply(t typed.ParseableType, configuration map[string]any) ([]Change, error) {
	c := checking{schema: t.Schema, path: d.path[:0]}
	c.value(t.TypeRef, d.root, configuration)
	if len(c.faults) > 0 {
		return nil, errors.Join(c.faults...)
	}
	if len(c.atomic) > 0 {
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s", strings.Join(c.atomic, ", "))
	}
	m := merging{Document: d, schema: t.Schema, path: c.path[:0]}
	d.root, _ = m.value(t.TypeRef, d.root, configuration).(map[string]any)
	d.path = m.path
	return m.changes, nil
}

// checking finds what an apply configuration may not have.
type checking struct {
	schema *schema.Schema
	path   path
	atomic []string
	faults []error
}

func (c *checking) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("%s: %s", c.path.field(), fmt.Sprintf(format, args...)))
}

// path is where a value is. Its text is made when it is needed.
type path []step

// step is the name of a field, or the index of an item of a list if name is empty.
type step struct {
	name  string
	index int
}

func (p *path) push(s step) { *p = append(*p, s) }

func (p *path) pop() { *p = (*p)[:len(*p)-1] }

// field returns the path of a field: .spec.ports[0].
func (p path) field() string {
	var b strings.Builder
	for _, s := range p {
		if s.name == "" {
			fmt.Fprintf(&b, "[%d]", s.index)
		} else {
			b.WriteString("." + s.name)
		}
	}
	return b.String()
}

// pointer returns the path as a JSON pointer.
func (p path) pointer() string {
	var room [64]byte
	b := room[:0]
	for _, s := range p {
		b = append(b, '/')
		if s.name == "" {
			b = strconv.AppendInt(b, int64(s.index), 10)
		} else {
			b = append(b, jsonvalue.Escape(s.name)...)
		}
	}
	return string(b)
}

// keys appends the sorted keys of a map to an empty list.
func keys(list []string, m map[string]any) []string {
	for name := range m {
		list = append(list, name)
	}
	if len(list) > 1 {
		slices.Sort(list)
	}
	return list
}

// fewKeys is memory for the keys of most maps.
type fewKeys [4]string

// value checks a value of a configuration, and the one in the object whose place it takes; nil if there is none.
func (c *checking) value(t schema.TypeRef, live, x any) {
	atom, ok := c.schema.Resolve(t)
	if !ok {
		c.fault("no type found")
		return
	}
	if !admits(atom, live) {
		c.fault("expected %s, and the object has %s", kindOf(atom), typeOf(live))
		return
	}
	switch x := x.(type) {
	case nil:
	case map[string]any:
		if atom.Map == nil {
			c.fault("expected %s, got a map", kindOf(atom))
			return
		}
		if atom.Map.ElementRelationship == schema.Atomic {
			c.atomic = append(c.atomic, c.path.field())
			return
		}
		var few fewKeys
		was, _ := live.(map[string]any)
		for _, name := range keys(few[:0], x) {
			c.path.push(step{name: name})
			if of, ok := fieldType(atom.Map, name); ok {
				c.value(of, was[name], x[name])
			} else {
				c.fault("field not declared in schema")
			}
			c.path.pop()
		}
	case []any:
		was, _ := live.([]any)
		c.list(atom, was, x)
	default:
		if atom.Scalar == nil || !scalarFits(*atom.Scalar, x) {
			c.fault("expected %s, got %v", kindOf(atom), x)
		}
	}
}

func (c *checking) list(atom schema.Atom, live, list []any) {
	if atom.List == nil {
		c.fault("expected %s, got a list", kindOf(atom))
		return
	}
	if atom.List.ElementRelationship == schema.Atomic {
		c.atomic = append(c.atomic, c.path.field())
		return
	}
	has := map[string]any{}
	for _, item := range live {
		if key, err := itemKey(c.schema, atom.List, item); err == nil {
			has[key] = item
		}
	}
	seen := map[string]bool{}
	for i, item := range list {
		c.path.push(step{index: i})
		key, err := itemKey(c.schema, atom.List, item)
		if err != nil {
			c.fault("%v", err)
		} else {
			if seen[key] {
				c.fault("duplicate entries for key %s", key)
			}
			seen[key] = true
			c.value(atom.List.ElementType, has[key], item)
		}
		c.path.pop()
	}
}

// kindOf returns what a type admits, for messages.
func kindOf(a schema.Atom) string {
	switch {
	case a.Scalar != nil && a.Map == nil && a.List == nil:
		return string(*a.Scalar)
	case a.Map != nil && a.Scalar == nil && a.List == nil:
		return "a map"
	case a.List != nil && a.Scalar == nil && a.Map == nil:
		return "a list"
	}
	return "another type"
}

// typeOf returns the type of a value, for messages.
func typeOf(x any) string {
	switch x.(type) {
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	}
	return fmt.Sprint(x)
}

// admits reports whether a value may be of a type. A missing value is of every type.
func admits(a schema.Atom, x any) bool {
	switch x.(type) {
	case nil:
		return true
	case map[string]any:
		return a.Map != nil
	case []any:
		return a.List != nil
	}
	return a.Scalar != nil && scalarFits(*a.Scalar, x)
}

func scalarFits(s schema.Scalar, x any) bool {
	switch x.(type) {
	case bool:
		return s == schema.Boolean || s == schema.Untyped
	case string:
		return s == schema.String || s == schema.Untyped
	}
	return s == schema.Numeric || s == schema.Untyped
}

// fieldType returns the type of a field; false if the type does not have it.
func fieldType(m *schema.Map, name string) (schema.TypeRef, bool) {
	if f, ok := m.FindField(name); ok {
		return f.Type, true
	}
	none := m.ElementType.NamedType == nil && m.ElementType.Inlined == schema.Atom{}
	return m.ElementType, !none
}

// itemKey returns what identifies an item of a set or of a list of type map.
func itemKey(s *schema.Schema, l *schema.List, item any) (string, error) {
	if len(l.Keys) == 0 {
		switch item.(type) {
		case map[string]any, []any:
			return "", errors.New("an item of a set must be a scalar")
		}
		return fmt.Sprintf("%T %v", item, item), nil
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return "", errors.New("an item of a list of type map must be a map")
	}
	var b strings.Builder
	found := false
	for _, name := range l.Keys {
		value, has := fields[name]
		if has {
			found = true
		} else if value, has = keyDefault(s, l, name); !has {
			value = nil
		}
		fmt.Fprintf(&b, "%s=%T %v,", name, value, value)
	}
	if !found {
		return "", fmt.Errorf("the item has none of the keys %s", strings.Join(l.Keys, ", "))
	}
	return b.String(), nil
}

// keyDefault returns the default of a key field.
func keyDefault(s *schema.Schema, l *schema.List, name string) (any, bool) {
	atom, ok := s.Resolve(l.ElementType)
	if !ok || atom.Map == nil {
		return nil, false
	}
	f, ok := atom.Map.FindField(name)
	if !ok || f.Default == nil {
		return nil, false
	}
	return f.Default, true
}

// merging merges a checked configuration into an object.
type merging struct {
	*Document
	schema  *schema.Schema
	path    path
	changes []Change
}

// value returns the merged value. live is nil if there is none.
func (m *merging) value(t schema.TypeRef, live, asked any) any {
	switch asked := asked.(type) {
	case map[string]any:
		was, ok := live.(map[string]any)
		if len(asked) == 0 {
			if !ok {
				m.changes = append(m.changes, Change{Path: m.path.pointer(), Old: live, New: asked})
				return map[string]any{}
			}
			return live
		}
		if !ok {
			if live != nil { // a value of another kind
				m.changes = append(m.changes, Change{Path: m.path.pointer(), Old: live, New: asked})
				return jsonvalue.Clone(asked)
			}
		}
		atom, _ := m.schema.Resolve(t)
		is := m.owned(was)
		var few fewKeys
		for _, name := range keys(few[:0], asked) {
			of, _ := fieldType(atom.Map, name)
			m.path.push(step{name: name})
			is[name] = m.value(of, is[name], asked[name])
			m.path.pop()
		}
		return is
	case []any:
		was, _ := live.([]any)
		if len(asked) == 0 {
			if live == nil {
				m.changes = append(m.changes, Change{Path: m.path.pointer(), New: asked})
				return asked
			}
			return live
		}
		atom, _ := m.schema.Resolve(t)
		return m.list(atom.List, was, asked)
	case nil:
		switch x := live.(type) {
		case map[string]any:
			if len(x) > 0 {
				return live
			}
		case []any:
			if len(x) > 0 {
				return live
			}
		}
	}
	if equal(live, asked) && live != nil {
		return live
	}
	m.changes = append(m.changes, Change{Path: m.path.pointer(), Old: live, New: asked})
	return asked
}

// list merges lists by the keys of their items. Items that only the live list has stay in their order; those of the
// configuration follow its order, and new ones come before the next one that both have, or at the end.
func (m *merging) list(l *schema.List, live, asked []any) any {
	has := make([]string, len(live))
	at := map[string]int{} // of the live items; -1 if several have the key
	for i, item := range live {
		var err error
		if has[i], err = itemKey(m.schema, l, item); err != nil {
			has[i] = fmt.Sprintf("without a key %d", i) // it is kept
		}
		if _, twice := at[has[i]]; twice {
			at[has[i]] = -1
		} else {
			at[has[i]] = i
		}
	}
	wanted := make([]string, len(asked))
	set := map[string]bool{}
	for i, item := range asked {
		wanted[i], _ = itemKey(m.schema, l, item)
		set[wanted[i]] = true
	}
	out, before := make([]any, 0, len(live)+len(asked)), len(m.changes)
	next, moved := 0, false
	upTo := func(key string) { // keeps the live items before the one with the key
		for ; next < len(live) && has[next] != key; next++ {
			if set[has[next]] {
				moved = true
			} else {
				out = append(out, live[next])
			}
		}
	}
	for i, item := range asked {
		if from, both := at[wanted[i]]; both {
			upTo(wanted[i])
			var was any
			if from >= 0 {
				was = live[from]
			}
			out = append(out, m.item(len(out), l.ElementType, was, item))
			if next < len(live) && has[next] == wanted[i] {
				next++
			}
			continue
		}
		upTo(m.nextShared(at, wanted[i:]))
		out = append(out, m.item(len(out), l.ElementType, nil, item))
	}
	upTo("")
	if moved || len(out) < len(live) {
		m.changes = append(m.changes, Change{Path: m.path.pointer(), Old: live, New: out})
	}
	if len(m.changes) == before && live != nil {
		return live
	}
	return out
}

// item merges an item of a list.
func (m *merging) item(index int, t schema.TypeRef, live, asked any) any {
	m.path.push(step{index: index})
	defer m.path.pop()
	return m.value(t, live, asked)
}

// nextShared returns the first key that a live item has, too; "" if there is none.
func (m *merging) nextShared(at map[string]int, keys []string) string {
	for _, k := range keys {
		if _, both := at[k]; both {
			return k
		}
	}
	return ""
}
