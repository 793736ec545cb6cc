package samples

import (
	"math/rand/v2"
	"regexp/syntax"
	"strconv"
	"strings"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// Key returns a key that satisfies key, the key node of a pattern, and is not a field of s. If the
// pattern admits every string, the key is one that few other rules admit.
func Key(key *schemas.Node, s *schemas.Struct) (string, bool) {
	c, err := program.NewChecker(key)
	if err != nil {
		return "", false
	}
	taken := func(k string) bool {
		for _, f := range s.Fields {
			if f.Name == k {
				return true
			}
		}
		return false
	}
	if k := "any \u2020 key"; c.AdmitsKey(k) && !taken(k) {
		return k, true
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var sources []*syntax.Regexp
	for i := range key.Scalars {
		for _, p := range key.Scalars[i].Patterns {
			if re, err := syntax.Parse(p.Regexp, syntax.Perl); err == nil && !p.Negated {
				sources = append(sources, re.Simplify())
			}
		}
		for _, text := range key.Scalars[i].Enum {
			if v, err := jsonvalue.Decode(text); err == nil {
				if k, ok := v.(string); ok && c.AdmitsKey(k) && !taken(k) {
					return k, true
				}
			}
		}
	}
	const attempts = 1000
	for i := range attempts {
		k := "key" + strconv.Itoa(i)
		if len(sources) > 0 {
			var b strings.Builder
			Text(&b, sources[i/3%len(sources)], rng, 1+i/100)
			k = b.String()
			switch i % 3 { // the expression need not be anchored
			case 1:
				k = "x" + strconv.Itoa(i) + k
			case 2:
				k += "x" + strconv.Itoa(i)
			}
		}
		if c.AdmitsKey(k) && !taken(k) {
			return k, true
		}
	}
	return "", false
}

// UnknownKey returns a key that is not a field of s and matches none of its patterns.
func UnknownKey(s *schemas.Struct) (string, bool) {
	var patterns []*program.Checker
	for _, p := range s.Patterns {
		c, err := program.NewChecker(p.Key)
		if err != nil {
			return "", false
		}
		patterns = append(patterns, c)
	}
	candidates := []string{
		"unknown key", "unknown", "k", "UNKNOWN", "Unknown_1", "9", "-", "_", ".", "/", "\u2020", " ", "\n", "",
		"an-unknown.key/9", strings.Repeat("k", 1000), strings.Repeat("9", 1000),
	}
	for _, p := range s.Patterns {
		candidates = append(candidates, excluded(p.Key)...)
	}
next:
	for _, key := range candidates {
		for _, c := range patterns {
			if c.AdmitsKey(key) {
				continue next
			}
		}
		for _, f := range s.Fields {
			if f.Name == key {
				continue next
			}
		}
		return key, true
	}
	return "", false
}

// excluded returns some strings that the key of a pattern excludes.
func excluded(key *schemas.Node) (some []string) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range key.Scalars {
		all, _ := excludedBy(&key.Scalars[i])
		some = append(some, all...)
		for _, p := range key.Scalars[i].Patterns {
			re, err := syntax.Parse(p.Regexp, syntax.Perl)
			if err != nil || !p.Negated {
				continue
			}
			for range 16 {
				var b strings.Builder
				Text(&b, re.Simplify(), rng, 2)
				some = append(some, b.String())
			}
		}
	}
	return some
}

// Text writes a string that probably matches re. extra is the maximum number of repetitions beyond those
// that re requires.
func Text(b *strings.Builder, re *syntax.Regexp, rng *rand.Rand, extra int) {
	times := func(low, high int) {
		if high < 0 || high > low+extra {
			high = low + extra
		}
		for range low + rng.IntN(high-low+1) {
			Text(b, re.Sub[0], rng, extra)
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			b.WriteRune(r)
		}
	case syntax.OpCharClass:
		b.WriteRune(sampleRune(re.Rune, rng))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('x')
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			Text(b, sub, rng, extra)
		}
	case syntax.OpAlternate:
		Text(b, re.Sub[rng.IntN(len(re.Sub))], rng, extra)
	case syntax.OpStar:
		times(0, -1)
	case syntax.OpPlus:
		times(1, -1)
	case syntax.OpQuest:
		times(0, 1)
	case syntax.OpRepeat:
		times(re.Min, re.Max)
	}
}

// sampleRune returns a rune of the class, in printable ASCII if possible.
func sampleRune(class []rune, rng *rand.Rand) rune {
	var ranges [][2]rune
	for i := 0; i+1 < len(class); i += 2 {
		if lo, hi := max(class[i], ' '+1), min(class[i+1], '~'); lo <= hi {
			ranges = append(ranges, [2]rune{lo, hi})
		}
	}
	if ranges == nil {
		if len(class) == 0 {
			return 'x'
		}
		return class[0]
	}
	r := ranges[rng.IntN(len(ranges))]
	return r[0] + rng.Int32N(r[1]-r[0]+1)
}
