package schemas

import (
	"math"
	"regexp/syntax"
	"strings"
)

// witness makes data from a form: valid data mostly, and values at and just
// beyond the limits of a rule.
func (g *grammar) witness(n *Node) any {
	if n == nil {
		return g.noise(1)
	}
	var kinds []Kinds
	for _, k := range kindNames {
		if n.Kinds.Has(k.kind) {
			kinds = append(kinds, k.kind)
		}
	}
	switch kind := kinds[g.IntN(len(kinds))]; kind {
	case NullKind:
		return nil
	case ListKind:
		return g.witnessList(n.List)
	case StructKind:
		return g.witnessStruct(n.Struct)
	default:
		return g.witnessScalar(n, kind)
	}
}

func (g *grammar) witnessList(l *List) any {
	if l == nil {
		return []any{g.noise(1)}
	}
	counts := []int{0, 1, 2}
	if l.MinItems != nil {
		counts = append(counts, l.MinItems.Count, max(0, l.MinItems.Count-1))
	}
	if l.MaxItems != nil {
		counts = append(counts, l.MaxItems.Count, l.MaxItems.Count+1)
	}
	items := []any{}
	for range min(counts[g.IntN(len(counts))], 5) {
		items = append(items, g.witness(l.Items))
	}
	return items
}

func (g *grammar) witnessStruct(s *Struct) any {
	m := make(map[string]any)
	if s == nil {
		return m
	}
	for _, f := range s.Fields {
		if f.Presence == Required && g.chance(95) || f.Presence == Regular && g.chance(70) || g.chance(40) {
			m[f.Name] = g.witness(f.Schema)
		}
	}
	for _, p := range s.Patterns {
		if key, ok := sampleKey(p.Key, s); ok && g.chance(60) {
			m[key] = g.witness(p.Value)
		}
	}
	if s.Open && g.chance(20) || g.chance(3) {
		m[g.oneOf("open", "x-open", "0open")] = g.noise(1)
	}
	return m
}

func (g *grammar) witnessScalar(n *Node, kind Kinds) any {
	var rules []Scalar
	for _, s := range n.Scalars {
		if s.Kinds.Has(kind) {
			rules = append(rules, s)
		}
	}
	if len(rules) == 0 {
		return g.plain(kind)
	}
	s := rules[g.IntN(len(rules))]
	var values []any
	for _, text := range s.Enum {
		if v, err := decode(text); err == nil {
			values = append(values, v)
		}
	}
	for _, not := range s.Not {
		if v, err := decode(not.Value); err == nil {
			values = append(values, v)
		}
	}
	for _, b := range []*Bound{s.Minimum, s.Maximum} {
		if b == nil {
			continue
		}
		r, err := parseDecimal(b.Value)
		if err != nil {
			continue
		}
		f, _ := r.Float64()
		if math.Abs(f) < 1<<53 {
			values = append(values, int64(math.Floor(f)), int64(math.Floor(f))+1, int64(math.Floor(f))-1, math.Floor(f)+0.5, math.Floor(f)-0.5)
			if f != math.Trunc(f) {
				values = append(values, f)
			}
		}
	}
	for _, p := range s.Patterns {
		if re, err := syntax.Parse(p.Regexp, syntax.Perl); err == nil {
			var b strings.Builder
			sample(&b, re.Simplify(), g.Rand, 2)
			values = append(values, b.String(), b.String()+"b", "x"+b.String())
		}
	}
	for _, l := range []*Limit{s.MinRunes, s.MaxRunes} {
		if l != nil {
			values = append(values, strings.Repeat("é", l.Count), strings.Repeat("a", l.Count+1), strings.Repeat("b", max(0, l.Count-1)))
		}
	}
	if len(values) == 0 {
		return g.plain(kind)
	}
	return values[g.IntN(len(values))]
}

// plain returns some scalar of the kind.
func (g *grammar) plain(kind Kinds) any {
	switch kind {
	case BoolKind:
		return g.chance(50)
	case IntegerKind:
		return int64(g.IntN(2000) - 1000)
	case NumberKind:
		return float64(g.IntN(100)) + 0.25
	}
	return g.oneOf("", "a", "b", "text", "日本語")
}
