package conversion

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/schemas"
)

// A part is a field of a struct, or with each all items of a list or values of a map.
type part struct {
	name string
	each bool
}

// A Path leads to fields of an object.
type Path []part

// ParsePath parses a path: names with dots, and [*] for each item of a list or value of a map.
func ParsePath(text string) (p Path, err error) {
	bad := fmt.Errorf("%q is no path of a field", text)
	for rest := text; ; {
		switch {
		case strings.HasPrefix(rest, `["`):
			var name string
			d := json.NewDecoder(strings.NewReader(rest[1:]))
			if err := d.Decode(&name); err != nil {
				return nil, bad
			}
			after, ok := strings.CutPrefix(rest[1+d.InputOffset():], "]")
			if !ok {
				return nil, bad
			}
			p, rest = append(p, part{name: name}), after
		case strings.HasPrefix(rest, "[*]"):
			if len(p) == 0 {
				return nil, bad
			}
			p, rest = append(p, part{each: true}), rest[len("[*]"):]
		default:
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 || strings.ContainsAny(rest[:end], "]*") {
				return nil, bad
			}
			p, rest = append(p, part{name: rest[:end]}), rest[end:]
		}
		if rest == "" {
			return p, nil
		}
		if after, dot := strings.CutPrefix(rest, "."); dot {
			if rest = after; rest == "" || rest[0] == '[' {
				return nil, bad
			}
		} else if rest[0] != '[' {
			return nil, bad
		}
	}
}

// String returns the path as [ParsePath] reads it.
func (p Path) String() string {
	var b strings.Builder
	for _, x := range p {
		switch {
		case x.each:
			b.WriteString("[*]")
		case x.name == "" || strings.ContainsAny(x.name, `.[]*"\`):
			text, _ := json.Marshal(x.name) // a string always encodes
			b.WriteString("[" + string(text) + "]")
		case b.Len() > 0:
			b.WriteString("." + x.name)
		default:
			b.WriteString(x.name)
		}
	}
	return b.String()
}

// Names returns the names of the path, with [schemas.Any] for each item of a list or value of a map.
func (p Path) Names() (names []string) {
	for _, x := range p {
		if x.each {
			x.name = schemas.Any
		}
		names = append(names, x.name)
	}
	return names
}

// split returns the path to the items in which the fields are, and the names from there on.
func (p Path) split() (items Path, names []string) {
	last := 0
	for i, x := range p {
		if x.each {
			last = i + 1
		}
	}
	for _, x := range p[last:] {
		names = append(names, x.name)
	}
	return p[:last], names
}

// In reports whether p is other, or leads into it.
func (p Path) In(other Path) bool {
	return len(p) >= len(other) && slices.Equal(p[:len(other)], other)
}

// Node returns the schema of the values at the path. ok is false if the schema has no such field; a field about which it says
// nothing has the node nil.
func (p Path) Node(n *schemas.Node) (found *schemas.Node, ok bool) {
	for _, x := range p {
		switch {
		case n == nil:
			return nil, true
		case x.each:
			n, ok = each(n)
		default:
			n, ok = field(n, x.name)
		}
		if !ok {
			return nil, false
		}
	}
	return n, true
}

func field(n *schemas.Node, name string) (*schemas.Node, bool) {
	if n.Struct == nil {
		return nil, n.Kinds&schemas.StructKind != 0
	}
	fields := n.Struct.AllFields()
	if i := slices.IndexFunc(fields, func(f schemas.Field) bool { return f.Name == name }); i >= 0 {
		return fields[i].Schema, true
	}
	if len(n.Struct.Patterns) == 1 {
		return n.Struct.Patterns[0].Value, true
	}
	return nil, n.Struct.Open || len(n.Struct.Patterns) > 0
}

func each(n *schemas.Node) (*schemas.Node, bool) {
	switch {
	case n.Kinds&schemas.ListKind != 0 && n.List != nil:
		return n.List.Items, true
	case n.Kinds&schemas.ListKind != 0:
		return nil, true
	case n.Struct != nil && len(n.Struct.Patterns) == 1:
		return n.Struct.Patterns[0].Value, true
	}
	return nil, n.Struct != nil && n.Struct.Open
}

// walk calls do with each value at the path, and replaces the value by the result. Parts of the path that an object does not
// have are left out.
func walk(x any, p Path, do func(any) (any, error)) (any, error) {
	if len(p) == 0 {
		return do(x)
	}
	var err error
	switch at := x.(type) {
	case map[string]any:
		if !p[0].each {
			if next, ok := at[p[0].name]; ok && next != nil {
				at[p[0].name], err = walk(next, p[1:], do)
			}
			return x, err
		}
		for key, next := range at {
			if at[key], err = walk(next, p[1:], do); err != nil {
				return x, err
			}
		}
	case []any:
		if !p[0].each {
			break
		}
		for i, next := range at {
			if at[i], err = walk(next, p[1:], do); err != nil {
				return x, err
			}
		}
	}
	return x, nil
}

// get returns the value at names of fields.
func get(m map[string]any, names []string) (any, bool) {
	for _, name := range names[:len(names)-1] {
		next, ok := m[name].(map[string]any)
		if !ok {
			return nil, false
		}
		m = next
	}
	x, ok := m[names[len(names)-1]]
	return x, ok
}

// take removes the value at names of fields, and up to parents structs around it that are empty then.
func take(m map[string]any, names []string, parents int) (any, bool) {
	if len(names) == 1 {
		x, ok := m[names[0]]
		delete(m, names[0])
		return x, ok
	}
	next, ok := m[names[0]].(map[string]any)
	if !ok {
		return nil, false
	}
	x, ok := take(next, names[1:], parents)
	if len(next) == 0 && len(names)-1 <= parents {
		delete(m, names[0])
	}
	return x, ok
}

// set sets the value at names of fields, and makes the structs around it.
func set(m map[string]any, names []string, x any) error {
	for i, name := range names[:len(names)-1] {
		next, ok := m[name].(map[string]any)
		if is, has := m[name]; !ok && has && is != nil {
			return fmt.Errorf("%s is no struct", strings.Join(names[:i+1], "."))
		}
		if !ok {
			next = map[string]any{}
			m[name] = next
		}
		m = next
	}
	m[names[len(names)-1]] = x
	return nil
}

// Replace replaces each value at the path by the result of do, and reports whether there is one.
func (p Path) Replace(object map[string]any, do func(any) any) (found bool) {
	_, _ = walk(object, p, func(x any) (any, error) {
		found = true
		return do(x), nil
	})
	return found
}

// Remove removes the values at the path.
func (p Path) Remove(object map[string]any) {
	items, names := p.split()
	if len(names) == 0 {
		items, names = items[:len(items)-1].split()
	}
	p.in(object, items, func(m map[string]any) { take(m, names, 0) })
}

// RemoveEmpty removes nulls and empty lists at the path, and structs around it that are empty.
func (p Path) RemoveEmpty(object map[string]any) {
	items, names := p.split()
	if len(names) == 0 {
		return
	}
	p.in(object, items, func(m map[string]any) {
		x, has := get(m, names)
		if list, ok := x.([]any); has && x == nil || ok && len(list) == 0 {
			take(m, names, len(names))
			return
		}
		for i := len(names) - 1; !has && i > 0; i-- {
			x, there := get(m, names[:i])
			if in, ok := x.(map[string]any); there && ok && len(in) == 0 {
				take(m, names[:i], 0)
			}
		}
	})
}

// in calls do with each struct at a path.
func (Path) in(object map[string]any, items Path, do func(map[string]any)) {
	_, _ = walk(object, items, func(x any) (any, error) {
		if m, ok := x.(map[string]any); ok {
			do(m)
		}
		return x, nil
	})
}
