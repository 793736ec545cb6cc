package schemas

import (
	"math"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"
)

// A maker makes random data that is near what a form admits, for comparing what different
// programs make of it.
type maker struct {
	*rand.Rand
	unknown int      // how many in a hundred structs get a field that the form does not know
	keys    []string // of which such fields may have names
	full    int      // how many in a hundred fields are there that may be missing
}

func (g maker) oneOf(options ...string) string { return options[g.IntN(len(options))] }

func (g maker) chance(percent int) bool { return g.IntN(100) < percent }

// near returns a value that n admits, or almost.
func (g maker) near(n *Node) any {
	x := g.witness(n)
	for range max(0, g.IntN(4)-1) {
		x = g.mutate(x)
	}
	return x
}

// witness makes data from a form: valid data mostly, and values at and just
// beyond the limits of a rule.
func (g maker) witness(n *Node) any {
	if n == nil {
		return g.noise(1)
	}
	kinds := n.Kinds.Split()
	switch kind := kinds[g.IntN(len(kinds))]; kind {
	case NullKind:
		return nil
	case ListKind:
		return g.witnessList(n.List)
	case StructKind:
		if n.Union != nil && g.chance(90) {
			return g.witnessStruct(n.Union.Arms[g.IntN(len(n.Union.Arms))].Struct)
		}
		return g.witnessStruct(n.Struct)
	default:
		return g.witnessScalar(n, kind)
	}
}

func (g maker) witnessList(l *List) any {
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
		items = append(items, g.witness(l.at(len(items))))
	}
	return items
}

func (g maker) witnessStruct(s *Struct) any {
	m := make(map[string]any)
	if s == nil {
		return m
	}
	for _, f := range s.Fields {
		if f.Presence == Required && g.chance(95) || f.Presence == Regular && g.chance(max(70, g.full)) || g.chance(max(40, g.full)) {
			m[f.Name] = g.witness(f.Schema)
		}
	}
	g.agree(s, m)
	for _, condition := range s.Conditions {
		for _, f := range condition.Fields {
			if g.chance(max(50, g.full/2)) {
				m[f.Name] = g.witness(f.Schema)
			}
		}
	}
	for _, p := range s.Patterns {
		if key, ok := sampleKey(p.Key, s); ok && g.chance(60) {
			m[key] = g.witness(p.Value)
		}
	}
	if s.Open && g.chance(20) || g.chance(g.unknown) {
		m[g.oneOf(append(slices.Clip(g.keys), "open", "x-open", "0open")...)] = g.noise(1)
	}
	return m
}

// agree makes most fields of m that are taken from elsewhere what they must be, or leaves
// them out.
func (g maker) agree(s *Struct, m map[string]any) {
	for _, f := range s.Fields {
		r := f.Schema.From
		if r == nil || r.Default || !g.chance(75) {
			continue
		}
		delete(m, f.Name)
		if p := r.Parts[0]; !r.Joined && !p.Key && p.Up == 0 && len(p.Path) == 1 && g.chance(50) {
			if x, ok := m[p.Path[0]]; ok {
				m[f.Name] = x
			}
		}
	}
}

func (g maker) witnessScalar(n *Node, kind Kinds) any {
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
	for _, f := range s.Forms {
		for _, sample := range formRules[f.Name].samples {
			values = append(values, sample)
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
func (g maker) plain(kind Kinds) any {
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

// noise returns a random JSON value.
func (g maker) noise(depth int) any {
	n := 14
	if depth > 0 {
		n = 18
	}
	switch g.IntN(n) {
	case 0:
		return nil
	case 1:
		return g.chance(50)
	case 2, 3, 4:
		return []any{int64(0), int64(1), int64(-1), int64(5), int64(7), int64(1000), int64(1001)}[g.IntN(7)]
	case 5, 6:
		return []any{1.5, 0.1, -0.5, 5.5, 1e100}[g.IntN(5)]
	case 7, 8, 9, 10, 11:
		return g.oneOf("", "a", "b", "ab", "zzz", "const", "x1", "é")
	case 12:
		return map[string]any{}
	case 13:
		return []any{}
	case 14, 15:
		return []any{g.noise(depth - 1)}
	}
	return map[string]any{g.oneOf("a", "b", "x"): g.noise(depth - 1)}
}

// mutate makes one edit somewhere in x, and returns the result.
func (g maker) mutate(x any) any {
	switch x := x.(type) {
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		if len(keys) == 0 || g.chance(15) {
			x[g.oneOf("a", "b", "zz", "x-y", "e", "ab", "0")] = g.noise(1)
			return x
		}
		k := keys[g.IntN(len(keys))]
		switch g.IntN(6) {
		case 0:
			delete(x, k)
		case 1:
			x[k] = g.noise(1)
		default:
			x[k] = g.mutate(x[k])
		}
		return x
	case []any:
		if len(x) == 0 || g.chance(20) {
			return append(x, g.noise(1))
		}
		i := g.IntN(len(x))
		switch g.IntN(6) {
		case 0:
			return slices.Delete(x, i, i+1)
		case 1:
			return append(x, clone(x[i]))
		default:
			x[i] = g.mutate(x[i])
		}
		return x
	}
	return g.noise(1)
}
