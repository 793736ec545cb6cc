// Package samples generates values that a schema admits, or almost admits.
package samples

import (
	"math"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/textforms"
)

// A Maker generates random values that a form admits or almost admits. They serve to compare programs
// with CUE.
type Maker struct {
	*rand.Rand
	Unknown int      // percentage of structs that get an unknown field
	Keys    []string // possible names of unknown fields
	Full    int      // percentage of optional fields that are present
}

// OneOf returns one of the options.
func (g Maker) OneOf(options ...string) string { return options[g.IntN(len(options))] }

// Chance returns true with a probability of percent in a hundred.
func (g Maker) Chance(percent int) bool { return g.IntN(100) < percent }

// Near returns a value that n admits or almost admits.
func (g Maker) Near(n *schemas.Node) any {
	x := g.Witness(n)
	for range max(0, g.IntN(4)-1) {
		x = g.Mutate(x)
	}
	return x
}

// Witness returns a value that n usually admits, or a value just beyond the limit of a rule.
func (g Maker) Witness(n *schemas.Node) any {
	if n == nil {
		return g.Noise(1)
	}
	kinds := n.Kinds.Split()
	switch kind := kinds[g.IntN(len(kinds))]; kind {
	case schemas.NullKind:
		return nil
	case schemas.ListKind:
		return g.witnessList(n.List)
	case schemas.StructKind:
		if n.Union != nil && g.Chance(90) {
			return g.witnessStruct(n.Union.Arms[g.IntN(len(n.Union.Arms))].Struct)
		}
		return g.witnessStruct(n.Struct)
	default:
		return g.witnessScalar(n, kind)
	}
}

func (g Maker) witnessList(l *schemas.List) any {
	if l == nil {
		return []any{g.Noise(1)}
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
		items = append(items, g.Witness(l.At(len(items))))
	}
	return items
}

func (g Maker) witnessStruct(s *schemas.Struct) any {
	m := make(map[string]any)
	if s == nil {
		return m
	}
	for _, f := range s.Fields {
		if f.Schema.Forbidden() && !g.Chance(5) {
			continue
		}
		if f.Presence == schemas.Required && g.Chance(95) || f.Presence == schemas.Regular && g.Chance(max(70, g.Full)) || g.Chance(max(40, g.Full)) {
			m[f.Name] = g.Witness(f.Schema)
		}
	}
	g.agree(s, m)
	for _, condition := range s.Conditions {
		for _, f := range condition.Fields {
			if g.Chance(max(50, g.Full/2)) {
				m[f.Name] = g.Witness(f.Schema)
			}
		}
	}
	for _, p := range s.Patterns {
		if key, ok := Key(p.Key, s); ok && g.Chance(60) && (!p.Value.Forbidden() || g.Chance(5)) {
			m[key] = g.Witness(p.Value)
		}
	}
	if s.Open && g.Chance(20) || g.Chance(g.Unknown) {
		m[g.OneOf(append(slices.Clip(g.Keys), "open", "x-open", "0open")...)] = g.Noise(1)
	}
	return m
}

// agree makes most reference fields of m equal to the value of their reference, or removes them.
func (g Maker) agree(s *schemas.Struct, m map[string]any) {
	for _, f := range s.Fields {
		r := f.Schema.From
		if r == nil || r.Default || !g.Chance(75) {
			continue
		}
		delete(m, f.Name)
		if p := r.Parts[0]; !r.Joined && !p.Key && p.Up == 0 && len(p.Path) == 1 && g.Chance(50) {
			if x, ok := m[p.Path[0]]; ok {
				m[f.Name] = x
			}
		}
	}
}

func (g Maker) witnessScalar(n *schemas.Node, kind schemas.Kinds) any {
	var rules []schemas.Scalar
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
		if v, err := jsonvalue.Decode(text); err == nil {
			values = append(values, v)
		}
	}
	for _, not := range s.Not {
		if v, err := jsonvalue.Decode(not.Value); err == nil {
			values = append(values, v)
		}
	}
	for _, b := range []*schemas.Bound{s.Minimum, s.Maximum} {
		if b == nil {
			continue
		}
		r, err := jsonvalue.ParseDecimal(b.Value)
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
			Text(&b, re.Simplify(), g.Rand, 2)
			values = append(values, b.String(), b.String()+"b", "x"+b.String())
		}
	}
	for _, f := range s.Forms {
		form, _ := textforms.Named(f.Name)
		for _, sample := range form.Samples {
			values = append(values, sample)
		}
	}
	for _, l := range []*schemas.Limit{s.MinRunes, s.MaxRunes} {
		if l != nil {
			values = append(values, strings.Repeat("é", l.Count), strings.Repeat("a", l.Count+1), strings.Repeat("b", max(0, l.Count-1)))
		}
	}
	if len(values) == 0 {
		return g.plain(kind)
	}
	return values[g.IntN(len(values))]
}

// plain returns an arbitrary scalar of the kind.
func (g Maker) plain(kind schemas.Kinds) any {
	switch kind {
	case schemas.BoolKind:
		return g.Chance(50)
	case schemas.IntegerKind:
		return int64(g.IntN(2000) - 1000)
	case schemas.NumberKind:
		return float64(g.IntN(100)) + 0.25
	}
	return g.OneOf("", "a", "b", "text", "日本語")
}

// Noise returns a random JSON value.
func (g Maker) Noise(depth int) any {
	n := 14
	if depth > 0 {
		n = 18
	}
	switch g.IntN(n) {
	case 0:
		return nil
	case 1:
		return g.Chance(50)
	case 2, 3, 4:
		return []any{int64(0), int64(1), int64(-1), int64(5), int64(7), int64(1000), int64(1001)}[g.IntN(7)]
	case 5, 6:
		return []any{1.5, 0.1, -0.5, 5.5, 1e100}[g.IntN(5)]
	case 7, 8, 9, 10, 11:
		return g.OneOf("", "a", "b", "ab", "zzz", "const", "x1", "é")
	case 12:
		return map[string]any{}
	case 13:
		return []any{}
	case 14, 15:
		return []any{g.Noise(depth - 1)}
	}
	return map[string]any{g.OneOf("a", "b", "x"): g.Noise(depth - 1)}
}

// Mutate changes one random part of x and returns the result.
func (g Maker) Mutate(x any) any {
	switch x := x.(type) {
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		if len(keys) == 0 || g.Chance(15) {
			x[g.OneOf("a", "b", "zz", "x-y", "e", "ab", "0")] = g.Noise(1)
			return x
		}
		k := keys[g.IntN(len(keys))]
		switch g.IntN(6) {
		case 0:
			delete(x, k)
		case 1:
			x[k] = g.Noise(1)
		default:
			x[k] = g.Mutate(x[k])
		}
		return x
	case []any:
		if len(x) == 0 || g.Chance(20) {
			return append(x, g.Noise(1))
		}
		i := g.IntN(len(x))
		switch g.IntN(6) {
		case 0:
			return slices.Delete(x, i, i+1)
		case 1:
			return append(x, jsonvalue.Clone(x[i]))
		default:
			x[i] = g.Mutate(x[i])
		}
		return x
	}
	return g.Noise(1)
}
