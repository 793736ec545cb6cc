package program

import (
	"maps"
	"slices"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// An omission is a default that is left out, because a field that must be equal to it was given
// another value. Of {a: *1 | int, b: a} and b: 2, CUE makes a: 1, and refuses that if it is
// written. Without a, the object is and stays valid.
type omission struct {
	in   map[string]any // a struct of the object
	path []string       // from there to the field, which is missing
}

// equates reports whether a field of the form must be equal to another that may have a default.
func equates(n *schemas.Node) bool {
	found := false
	n.Visit("", func(_ string, n *schemas.Node) {
		r := n.From
		found = found || r != nil && !r.Default && !r.Joined && !r.Parts[0].Key
	})
	return found
}

// omit finds the defaults to leave out in x and below.
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
			p.omit(c.list.at(i), item)
			p.pop()
		}
	}
}

// omitIn finds the defaults to leave out in the fields of m.
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

// contradicted leaves out the defaults that a reference leads to, if they are not x.
func (p *preparation) contradicted(r *schemas.Reference, x any) {
	var passed []omission
	if y, given, ok := followReference(r, p.scopes, 0, &passed); ok && !given && !jsonvalue.SameScalar(x, y) {
		p.omitted = append(p.omitted, passed...)
	}
}

// omits reports whether a field of m, which is missing, is to stay so.
func (p *preparation) omits(m map[string]any, name string) bool {
	return slices.ContainsFunc(p.omitted, func(o omission) bool {
		return len(o.path) == 1 && o.path[0] == name && sameMap(o.in, m)
	})
}

// withdraw removes what is to be left out from a field of m that was filled in.
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
