package kinds

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// structsOrUnions compares two nodes that admit structs. A struct counts as a union of one.
func (c *comparison) structsOrUnions(at place, a, b *schemas.Node) {
	if a.Union == nil && b.Union == nil {
		c.object(at, structPair{a: a.Struct, b: b.Struct, from: a.Source, into: b.Source})
		return
	}
	if a.Union != nil && b.Union != nil && a.Union.Discriminator != "" && a.Union.Discriminator == b.Union.Discriminator {
		c.discriminated(at, a, b)
		return
	}
	c.corresponding(at, a, b)
}

// discriminated compares two unions value by value of their discriminator.
func (c *comparison) discriminated(at place, a, b *schemas.Node) {
	name := a.Union.Discriminator
	if was, ok := schemas.FieldNamed(a.Struct, name); ok {
		if is, ok := schemas.FieldNamed(b.Struct, name); ok {
			c.presence(at.field(name), &was, &is)
		}
	}
	was, values := armsByValue(a.Union)
	is, others := armsByValue(b.Union)
	var both [][]plan.Finding
	var which []string
	for _, v := range values {
		y, ok := is[v]
		if !ok {
			c.arm(at, "ALTERNATIVE_REMOVED", name+": "+v, was[v], a, b)
			continue
		}
		x := was[v]
		which = append(which, name+": "+v)
		both = append(both, c.findings(func() {
			c.object(at, structPair{a: x.Struct, b: y.Struct, from: x.Source, into: y.Source, skip: name})
		}))
	}
	for _, v := range others {
		if _, ok := was[v]; !ok {
			c.arm(at, "ALTERNATIVE_ADDED", name+": "+v, is[v], a, b)
		}
	}
	c.join(which, both)
}

// armsByValue returns the arms by the values of the discriminator, as canonical JSON, and the values in order.
func armsByValue(u *schemas.Union) (by map[string]*schemas.Arm, values []string) {
	by = map[string]*schemas.Arm{}
	for i := range u.Arms {
		for _, v := range u.Arms[i].Values {
			text := canonical(v)
			if by[text] == nil {
				values = append(values, text)
			}
			by[text] = &u.Arms[i]
		}
	}
	return by, values
}

func canonical(v json.RawMessage) string {
	if text, err := jsonvalue.Canonical(v); err == nil {
		return string(text)
	}
	return string(v)
}

// arm reports an alternative that only one side has.
func (c *comparison) arm(at place, rule, text string, arm *schemas.Arm, a, b *schemas.Node) {
	d := difference{rule: rule, was: position(a.Source), is: position(b.Source)}
	if rule == "ALTERNATIVE_REMOVED" {
		d.way, d.before, d.was, d.message = loses, text, position(arm.Source, a.Source), "The alternative is no longer admitted."
	} else {
		d.way, d.after, d.is, d.message = gains, text, position(arm.Source, b.Source), "The alternative is new."
	}
	c.add(at, d)
	if rule == "ALTERNATIVE_REMOVED" {
		c.armFields(at, text, arm.Struct, structsOf(b))
	}
}

// armFields reports the fields of an alternative that is gone which none of the alternatives that are left has: stored objects lose them. If one of
// these is open, the fields may be kept.
func (c *comparison) armFields(at place, text string, gone *schemas.Struct, left []*schemas.Struct) {
	if len(left) == 0 || slices.ContainsFunc(left, func(s *schemas.Struct) bool { return s.Open || len(s.Patterns) > 0 }) {
		return
	}
	for _, f := range gone.AllFields() {
		inside := at.field(f.Name)
		var below []*schemas.Struct
		known := false
		for _, s := range left {
			for _, other := range s.EveryField() {
				if other.Name == f.Name {
					known, below = true, append(below, structsOf(other.Schema)...)
				}
			}
		}
		switch {
		case known:
			for _, s := range structsOf(f.Schema) {
				c.armFields(inside, text, s, below)
			}
		case !slices.ContainsFunc(c.found, func(x plan.Finding) bool { return x.Rule == "FIELD_REMOVED" && x.Path == inside.String() }):
			c.removed(inside, &f, &schemas.Struct{})
			last := &c.found[len(c.found)-1]
			last.With = at.String()
			last.Details = append(last.Details, "It is of the alternative "+text+", which is gone.")
		}
	}
}

// structsOf returns the structs that a node admits; nil for no node.
func structsOf(n *schemas.Node) []*schemas.Struct {
	if n == nil {
		return nil
	}
	return n.Structs()
}

// join adds what was found in several alternatives. What is found in all of them is one finding.
func (c *comparison) join(which []string, each [][]plan.Finding) {
	in := map[string][]string{}
	for i, found := range each {
		for _, f := range found {
			in[findingKey(&f)] = append(in[findingKey(&f)], which[i])
		}
	}
	done := map[string]bool{}
	for _, found := range each {
		for _, f := range found {
			key := findingKey(&f)
			if done[key] {
				continue
			}
			done[key] = true
			if len(in[key]) < len(each) {
				f.Details = append(slices.Clip(f.Details), "It concerns the alternative "+strings.Join(slices.Compact(in[key]), " or ")+".")
			}
			c.found = append(c.found, f)
		}
	}
}

// corresponding compares two unions without a common discriminator: arms that are equal, then those that have most
// fields and constants in common.
func (c *comparison) corresponding(at place, a, b *schemas.Node) {
	was, is := arms(a), arms(b)
	matches := correspondence(was, is)
	var both [][]plan.Finding
	var which []string
	taken := map[int]bool{}
	for i, j := range matches {
		x := &was[i]
		if j < 0 {
			c.arm(at, "ALTERNATIVE_REMOVED", describeArm(x), x, a, b)
			continue
		}
		y := &is[j]
		taken[j] = true
		which = append(which, describeArm(x))
		both = append(both, c.findings(func() {
			c.object(at, structPair{a: x.Struct, b: y.Struct, from: position(x.Source, a.Source), into: position(y.Source, b.Source)})
		}))
	}
	for j := range is {
		if !taken[j] {
			c.arm(at, "ALTERNATIVE_ADDED", describeArm(&is[j]), &is[j], a, b)
		}
	}
	c.join(which, both)
}

// arms returns the arms of a union, or the struct of a node as one.
func arms(n *schemas.Node) []schemas.Arm {
	if n.Union != nil {
		return slices.Clone(n.Union.Arms)
	}
	s := n.Struct
	if s == nil {
		s = openStruct
	}
	return []schemas.Arm{{Struct: s, Source: n.Source}}
}

// correspondence returns, for each arm of the one side, the index of an arm of the other side, or -1. Arms that have most
// in common come first; among equals, the first ones.
func correspondence(was, is []schemas.Arm) []int {
	type match struct{ i, j, score int }
	var matches []match
	for i := range was {
		for j := range is {
			matches = append(matches, match{i, j, likeness(was[i].Struct, is[j].Struct)})
		}
	}
	slices.SortStableFunc(matches, func(a, b match) int { return b.score - a.score })
	found := slices.Repeat([]int{-1}, len(was))
	taken := map[int]bool{}
	for _, m := range matches {
		if found[m.i] < 0 && !taken[m.j] {
			found[m.i], taken[m.j] = m.j, true
		}
	}
	return found
}

// likeness is greater the more fields and constants two structs have in common. It looks at no more than the fields, so
// that unions in unions cost no more than their size.
func likeness(a, b *schemas.Struct) (score int) {
	for _, f := range a.Fields {
		if g, ok := schemas.FieldNamed(b, f.Name); ok {
			score += 2
			if f.Schema.Kinds == g.Schema.Kinds {
				score++
			}
			if x, y := finite(f.Schema.Scalars), finite(g.Schema.Scalars); x != "" && x == y {
				score += 8
			} else if x != "" && y != "" {
				score -= 4
			}
		}
	}
	return max(0, 100+10*score-(len(a.Fields)+len(b.Fields)))
}

func finite(scalars []schemas.Scalar) string {
	if len(scalars) == 1 && len(scalars[0].Enum) > 0 {
		return values(scalars[0].Enum)
	}
	return ""
}

func describeArm(arm *schemas.Arm) string {
	var parts []string
	for _, f := range arm.Struct.Fields {
		if v := finite(f.Schema.Scalars); v != "" {
			return f.Name + ": " + v
		}
		parts = append(parts, f.Name)
	}
	return short(fmt.Sprintf("{%s}", strings.Join(parts, ", ")))
}
