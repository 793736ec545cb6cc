package program

import (
	"maps"
	"slices"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// An omission is a default that must not be set, because a field that must be equal to it has another
// value in the data. For {a: *1 | int, b: a} and the data b: 2, CUE completes a: 1, and then rejects the
// result. The object stays valid if a is left out.
type omission struct {
	in   map[string]any // the enclosing struct in the object
	path []string       // path from in to the missing field
}

// equates reports whether a field of the form must be equal to another field that may have a default.
func equates(n *schemas.Node) bool {
	found := false
	n.Visit("", func(_ string, n *schemas.Node) {
		r := n.From
		found = found || r != nil && !r.Default && !r.Joined && !r.Parts[0].Key
	})
	return found
}

// omit finds the defaults that must not be set in x and its parts.
func (p *preparation) omit(c *check, x any) {
	if c == nil || !c.refers || x == nil {
		return
	}
	if r := c.node.From; r != nil && !r.Default && !r.Joined {
		p.contradicted(r, x)
	}
	switch x := x.(type) {
	case map[string]any:
		p.omitIn(c, x)
	case []any:
		if c.list == nil {
			return
		}
		for i, item := range x {
			p.push(step{index: i, kind: stepItem})
			p.omit(c.list.itemCheck(i), item)
			p.pop()
		}
	}
}

// omitIn finds the defaults that must not be set in the fields of m.
func (p *preparation) omitIn(c *check, m map[string]any) {
	o := c.object
	if c.union != nil {
		arm, _ := c.union.chosen(m)
		if arm == nil {
			return
		}
		o = arm.object
	}
	if o == nil || !o.refers {
		return
	}
	p.scopes = append(p.scopes, enter(o, m, p.path))
	defer func() { p.scopes = p.scopes[:len(p.scopes)-1] }()
	for i := range o.fields {
		f := &o.fields[i]
		p.push(step{name: f.name})
		p.omit(f.check, m[f.name])
		p.pop()
	}
	for i := range o.patterns {
		pattern := &o.patterns[i]
		if !pattern.value.refers {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if _, known := o.index[key]; known || !pattern.key.admitsKey(key) {
				continue
			}
			p.push(step{name: key, kind: stepKey})
			p.omit(pattern.value, m[key])
			p.pop()
		}
	}
}

// contradicted records the defaults that the reference leads to as omissions, if they differ from x.
func (p *preparation) contradicted(r *schemas.Reference, x any) {
	var passed []omission
	if y, given, ok := followReference(r, p.scopes, 0, &passed); ok && !given && !jsonvalue.SameScalar(x, y) {
		p.omitted = append(p.omitted, passed...)
	}
}

// omits reports whether a missing field of m must stay missing.
func (p *preparation) omits(m map[string]any, name string) bool {
	return slices.ContainsFunc(p.omitted, func(o omission) bool {
		return len(o.path) == 1 && o.path[0] == name && sameMap(o.in, m)
	})
}

// withdraw removes omitted defaults from a field of m that was filled in.
func (p *preparation) withdraw(m map[string]any, name string) {
	filled, ok := m[name].(map[string]any)
	if !ok {
		return
	}
	for _, o := range p.omitted {
		if len(o.path) < 2 || o.path[0] != name || !sameMap(o.in, m) {
			continue
		}
		p.omitted = append(p.omitted, omission{filled, o.path[1:]})
		in := any(filled)
		for _, key := range o.path[1 : len(o.path)-1] {
			below, _ := in.(map[string]any)
			in = below[key]
		}
		if last, ok := in.(map[string]any); ok {
			delete(last, o.path[len(o.path)-1])
		}
	}
}
