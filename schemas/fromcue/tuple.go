package fromcue

import (
	"cuelang.org/go/cue"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/join"
)

// tuple compiles a list whose items differ by index: [T, U], [T, ...U].
func (c *Compiler) tuple(v cue.Value, s shape, at *place) *schemas.List {
	l := c.limits(s)
	items, err := v.List()
	if err != nil {
		c.reported(err, at)
		return l
	}
	for items.Next() {
		l.Prefix = append(l.Prefix, c.node(items.Value(), at.partPlace("[]", schemas.Required)))
	}
	count := &schemas.Limit{Count: len(l.Prefix), Source: at.source}
	l.MinItems = tighter(count, l.MinItems, func(a, b int) bool { return a > b })
	if rest := v.LookupPath(cue.MakePath(cue.AnyIndex)); rest.Exists() {
		l.Rest = c.node(rest, at.partPlace("[]", schemas.Required))
	} else {
		l.MaxItems = tighter(count, l.MaxItems, func(a, b int) bool { return a < b })
	}
	describe(l)
	if composite := l.Items == nil || l.Items.Kinds&(schemas.ListKind|schemas.StructKind) != 0; s.unique && composite {
		c.leaveTo(at, at, v.Source(), "a list without duplicates whose items may be lists or structs")
	}
	if s.limited() && len(c.diags) == 0 {
		for _, n := range append(l.Prefix, l.Rest) {
			if n != nil && evaluated(n) {
				c.leaveTo(at, at, v.Source(), "a list with fixed items and a limit")
				break
			}
		}
	}
	return l
}

// describe sets Items of a list whose items differ by index to admit what any of the items may be.
func describe(l *schemas.List) {
	if l.Items = nil; l.HasRest() && (l.Rest == nil || l.Rest.AdmitsAll()) {
		return // admits anything
	}
	all := l.Prefix
	if l.HasRest() {
		all = append(all[:len(all):len(all)], l.Rest)
	}
	for i, n := range all {
		if i == 0 {
			l.Items = join.Nodes(n, n)
			continue
		}
		l.Items = join.Nodes(l.Items, n)
	}
}

// uniform converts lists whose items turned out to be the same at each index into ordinary lists, and
// completes the others.
func (c *Compiler) uniform(n *schemas.Node, at *place) {
	n.Visit(at.path, func(path string, n *schemas.Node) {
		l := n.List
		if l == nil || len(l.Prefix) == 0 {
			return
		}
		rest := l.Rest
		if rest == nil {
			rest = &schemas.Node{Kinds: schemas.AnyKind}
		}
		alike := !l.HasRest() || schemas.Same(l.Prefix[0], rest)
		for _, p := range l.Prefix[1:] {
			alike = alike && schemas.Same(l.Prefix[0], p)
		}
		if alike {
			if l.Items = l.Prefix[0]; l.Items.AdmitsAll() {
				l.Items = nil
			}
			l.Prefix, l.Rest = nil, nil
			return
		}
		if describe(l); l.Type == schemas.ListSet || l.Type == schemas.ListMap {
			c.refuse(&place{path: path, source: n.Source}, nil, "a list of type "+l.Type+" whose items differ by their index", "make all items alike")
		}
	})
}
