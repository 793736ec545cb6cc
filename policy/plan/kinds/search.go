package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

// examples are values that only one side accepts.
type examples struct {
	lost, gained       any
	hasLost, hasGained bool
	decided            bool // all values were considered
}

func (e examples) way() (d direction) {
	if e.hasLost {
		d |= loses
	}
	if e.hasGained {
		d |= gains
	}
	return d
}

// merge adds the examples of another search.
func (e examples) merge(more examples) examples {
	if !e.hasLost {
		e.lost, e.hasLost = more.lost, more.hasLost
	}
	if !e.hasGained {
		e.gained, e.hasGained = more.gained, more.hasGained
	}
	return e
}

const (
	searchTries = 200     // values of each side
	maxTried    = 200_000 // values for one kind
)

// search generates values that one of two nodes admits or almost admits, and looks for one that only a, and one that
// only b admits. It finds nothing if the nodes cannot be checked by themselves. The same nodes give the same examples.
func (c *comparison) search(a, b *schemas.Node) (found examples) {
	if !isIndependent(a) || !isIndependent(b) || c.tried > maxTried {
		return found
	}
	x, err1 := program.NewChecker(a)
	y, err2 := program.NewChecker(b)
	if err1 != nil || err2 != nil {
		return found
	}
	g := builder{samples.Maker{Rand: rand.New(rand.NewPCG(7, 11)), Full: 50}}
	values := append(tested(a), tested(b)...)
	for i := range 2 * searchTries {
		n := []*schemas.Node{a, b}[i%2]
		value := g.Witness(n)
		if i%4 > 1 {
			value = g.Near(n)
		}
		if i%8 > 3 && len(values) > 0 {
			value = g.sprinkled(value, values)
		}
		value, ok := plain(value)
		c.tried++
		if !ok {
			continue
		}
		switch was, is := accepts(x, value), accepts(y, value); {
		case was && !is && !found.hasLost:
			found.lost, found.hasLost = value, true
		case is && !was && !found.hasGained:
			found.gained, found.hasGained = value, true
		}
		if found.hasLost && found.hasGained {
			break
		}
	}
	return found
}

// tested returns the values that the guards of a node test for, and the integers next to them.
func tested(n *schemas.Node) (values []any) {
	var collect func(g *schemas.Guard)
	collect = func(g *schemas.Guard) {
		if g == nil {
			return
		}
		for _, of := range g.Of {
			collect(of)
		}
		x, err := jsonvalue.Decode(g.Value)
		if g.Value == nil || err != nil {
			return
		}
		if values = append(values, x); schemas.KindOf(x) == schemas.IntegerKind {
			if i, ok := x.(int64); ok {
				values = append(values, i-1, i+1)
			}
		}
	}
	for _, s := range n.Structs() {
		for i := range s.Conditions {
			collect(s.Conditions[i].When)
		}
	}
	return values
}

// plain returns a value as JSON would transport it.
func plain(x any) (any, bool) {
	text, err := json.Marshal(x)
	if err != nil {
		return nil, false
	}
	x, err = jsonvalue.Decode(text)
	return x, err == nil
}

// accepts reports whether a server that knows just this node would accept a value, if unknown fields are refused.
func accepts(c *program.Checker, value any) bool {
	prepared, unknown := c.Prepare(jsonvalue.Clone(value))
	return len(unknown) == 0 && len(c.Validate(prepared)) == 0
}

// decide adds a finding whose direction generated values tell.
func (c *comparison) decide(at place, d difference, a, b *schemas.Node) {
	c.addWithExamples(at, d, c.search(a, b), a, b)
}

// addWithExamples adds a finding with examples. The direction of the finding is kept if it is known from the forms.
func (c *comparison) addWithExamples(at place, d difference, found examples, a, b *schemas.Node) {
	evidence := plan.Proved
	switch {
	case found.decided:
		d.way = found.way()
	case d.way != unknown:
	case found.way() != unknown:
		d.way, evidence = found.way(), plan.Shown
		if found.way() != loses|gains {
			d.details = append(d.details, "It is told from generated values, none of which shows the opposite.")
		}
	default:
		evidence = plan.Possible
		d.details = append(d.details, incomparable)
	}
	if found.hasLost && found.hasGained {
		d.details = append(d.details, "Accepted only until now: "+example(found.lost)+". Accepted only from the push on: "+example(found.gained)+".")
	} else if found.hasLost {
		d.details = append(d.details, "Accepted only until now: "+example(found.lost)+".")
	} else if found.hasGained {
		d.details = append(d.details, "Accepted only from the push on: "+example(found.gained)+".")
	}
	f := c.add(at, d)
	f.Evidence = evidence
	if at.key {
		return
	}
	if found.hasLost {
		f.Counterexample = c.counterexample(at, found.lost, c.was, c.is, false)
	}
	if f.Counterexample == nil && found.hasGained {
		f.Counterexample = c.counterexample(at, found.gained, c.is, c.was, true)
	}
	if f.Evidence == plan.Shown && f.Counterexample == nil {
		value, message := found.lost, found.hasLost
		f.Counterexample = &plan.Counterexample{Request: at.String() + ": " + example(value), Before: "accepted", After: "refused"}
		if !message {
			f.Counterexample = &plan.Counterexample{Request: at.String() + ": " + example(found.gained), Before: "refused", After: "accepted"}
		}
	}
}

func example(x any) string {
	text, err := json.Marshal(x)
	if err != nil {
		return fmt.Sprint(x)
	}
	return short(string(text))
}

// counterexample returns an object with a value at a place that the one version accepts and the other refuses, or nil if none is
// found. turned says that the accepting version is the new one.
func (c *comparison) counterexample(at place, value any, accepting, refusing *policy.Version, turned bool) *plan.Counterexample {
	if asksCUE(accepting.Schema) || asksCUE(refusing.Schema) {
		return nil
	}
	b := &builder{Maker: samples.Maker{Rand: rand.New(rand.NewPCG(13, 17)), Full: 20}}
	candidates := b.build(accepting.Schema, at.steps(), value, 0)
	for range 30 {
		if base, ok := plain(b.Witness(accepting.Schema)); ok {
			candidates = append(candidates, placed(base, at.steps(), value))
		}
	}
	for _, candidate := range candidates {
		object, ok := candidate.(map[string]any)
		if !ok {
			continue
		}
		text, err := json.Marshal(object)
		if err != nil || len(verdict(accepting.Program, object)) > 0 || !rulesAccept(accepting, object) {
			continue
		}
		errs := verdict(refusing.Program, object)
		if len(errs) == 0 {
			continue
		}
		found := &plan.Counterexample{Object: text, Before: "accepted", After: errs[0].Error()}
		if turned {
			found.Before, found.After = found.After, found.Before
		}
		return found
	}
	return nil
}

// rulesAccept reports whether the rules of a version accept a new object that its schema admits.
func rulesAccept(v *policy.Version, object map[string]any) bool {
	object, _ = jsonvalue.Clone(object).(map[string]any)
	v.Program.Prepare(object)
	errs, _ := v.ValidateRules(context.Background(), &policy.Object{Meta: &metav1.ObjectMeta{Name: "example", Namespace: "example"}, Content: object}, nil)
	return len(errs) == 0
}

// verdict returns why an object would be refused as a new one, if unknown fields are refused.
func verdict(p *program.Program, object map[string]any) (errs field.ErrorList) {
	object, _ = jsonvalue.Clone(object).(map[string]any)
	unknown, _ := p.Prepare(object)
	errs = p.Validate(object)
	for _, path := range unknown {
		errs = append(errs, field.Invalid(field.NewPath(path), field.OmitValueType{}, "unknown field"))
	}
	return errs
}

// asksCUE reports whether a part of a form is left to CUE.
func asksCUE(n *schemas.Node) (found bool) {
	n.Visit("", func(_ string, n *schemas.Node) {
		found = found || n.Fallback != nil || n.Union != nil && n.Union.Ambiguous != nil
	})
	return found
}

// placed returns a value with x at a path, as far as it has the path.
func placed(base any, steps []string, x any) any {
	if len(steps) == 0 {
		return x
	}
	switch base := base.(type) {
	case map[string]any:
		if steps[0] != schemas.Any {
			base[steps[0]] = placed(base[steps[0]], steps[1:], x)
			return base
		}
		for key := range base {
			base[key] = placed(base[key], steps[1:], x)
		}
		return base
	case []any:
		for i := range base {
			base[i] = placed(base[i], steps[1:], x)
		}
		return base
	case nil:
		if steps[0] != schemas.Any {
			return map[string]any{steps[0]: placed(nil, steps[1:], x)}
		}
	}
	return base
}

// A builder makes small objects that a form admits.
type builder struct{ samples.Maker }

// maxCandidates is the greatest number of objects that are tried for one value.
const maxCandidates = 16

// build returns values of a node that have x at a path.
func (b *builder) build(n *schemas.Node, steps []string, x any, depth int) (all []any) {
	if len(steps) == 0 {
		return []any{jsonvalue.Clone(x)}
	}
	if n == nil || depth > schemas.MaxDepth {
		return nil
	}
	if steps[0] == schemas.Any && n.Kinds.Has(schemas.ListKind) && n.List != nil {
		for _, item := range b.build(n.List.At(0), steps[1:], x, depth+1) {
			list := []any{item}
			for n.List.MinItems != nil && len(list) < min(n.List.MinItems.Count, 8) {
				list = append(list, b.minimal(n.List.At(len(list)), depth+1))
			}
			all = append(all, list)
		}
	}
	for _, s := range armsOf(n) {
		if len(all) >= maxCandidates {
			break
		}
		if steps[0] == schemas.Any {
			for _, p := range s.Patterns {
				key, ok := samples.Key(p.Key, s)
				if !ok {
					continue
				}
				for _, value := range b.build(p.Value, steps[1:], x, depth+1) {
					m := b.needs(s, depth)
					m[key] = value
					all = append(all, m)
				}
			}
			continue
		}
		f, ok := anyField(s, steps[0])
		if !ok {
			continue
		}
		for _, value := range b.build(f.Schema, steps[1:], x, depth+1) {
			m := b.needs(s, depth)
			m[steps[0]] = value
			all = append(all, m)
		}
	}
	return all
}

// armsOf returns the structs of which one must be satisfied.
func armsOf(n *schemas.Node) (all []*schemas.Struct) {
	if n.Union == nil {
		if n.Struct == nil {
			return nil
		}
		return []*schemas.Struct{n.Struct}
	}
	for i := range n.Union.Arms {
		all = append(all, n.Union.Arms[i].Struct)
	}
	return all
}

// needs returns a struct with the fields that it must have.
func (b *builder) needs(s *schemas.Struct, depth int) map[string]any {
	m := map[string]any{}
	for i := range s.Fields {
		if f := &s.Fields[i]; needed(f) && depth < schemas.MaxDepth {
			m[f.Name] = b.minimal(f.Schema, depth+1)
		}
	}
	return m
}

// minimal returns a small value that a node admits.
func (b *builder) minimal(n *schemas.Node, depth int) any {
	if n == nil || depth > schemas.MaxDepth {
		return map[string]any{}
	}
	if n.Default != nil {
		if x, err := jsonvalue.Decode(n.Default); err == nil {
			return x
		}
	}
	switch {
	case n.Kinds.Has(schemas.StructKind):
		if all := armsOf(n); len(all) > 0 {
			return b.needs(all[0], depth)
		}
		return map[string]any{}
	case n.Kinds.Has(schemas.ListKind):
		list := []any{}
		for n.List != nil && n.List.MinItems != nil && len(list) < min(n.List.MinItems.Count, 8) {
			list = append(list, b.minimal(n.List.At(len(list)), depth+1))
		}
		return list
	}
	checker, err := program.NewChecker(&schemas.Node{Kinds: n.Kinds, Scalars: n.Scalars, Format: n.Format, Plain: n.Plain})
	for range 50 {
		x := b.Witness(n)
		if err == nil && len(checker.Validate(x)) == 0 {
			return x
		}
	}
	return nil
}
