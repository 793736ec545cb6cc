package regexps_test

import (
	"context"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
	"unicode/utf8"

	"stele.dev/stele/policy/plan/kinds/regexps"
	"stele.dev/stele/schemas/samples"
)

func language(patterns ...string) regexps.Language {
	l := regexps.Language{Max: -1}
	for _, p := range patterns {
		text, negated := strings.CutPrefix(p, "not ")
		l.Patterns = append(l.Patterns, regexps.Pattern{Regexp: text, Negated: negated})
	}
	return l
}

func limited(least, most int, patterns ...string) regexps.Language {
	l := language(patterns...)
	l.Min, l.Max = least, most
	return l
}

func TestRelations(t *testing.T) {
	for _, c := range []struct {
		a, b         regexps.Language
		onlyA, onlyB string // "-": none
	}{
		{language("^a+$"), language("^aa*$"), "-", "-"},
		{language("^[a-z]+$"), language("^[a-y]+$"), "z", "-"},
		{language("^a"), language("a"), "-", "ba"},
		{language("^a$"), language("^b$"), "a", "b"},
		{language("^(a|b)*$"), language("^(b*a*)*$"), "-", "-"},
		{language("(?i)^k$"), language("^[kK\u212a]$"), "-", "-"},
		{language(`\bab\b`), language("ab"), "-", "aab"},
		{language("^a$", "not b"), language("^a$"), "-", "-"},
		{language("", "not ^$"), limited(1, -1), "-", "-"},
		{limited(0, 3, "^[ab]+$"), language("^[ab]{1,3}$"), "-", "-"},
		{limited(0, 3), limited(0, 2), "aaa", "-"},
		{language(`(?s)^.$`), limited(1, 1), "-", "-"},
		{language(`^.$`), limited(1, 1), "-", "\n"},
		{language(`(?m)^a$`), language(`^a$`), "\na", "-"},
	} {
		r, err := regexps.Compare(context.Background(), c.a, c.b)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Decided {
			t.Errorf("%v and %v: not decided", c.a, c.b)
		}
		for _, side := range []struct {
			want, got string
			has       bool
			in, out   regexps.Language
		}{{c.onlyA, r.OnlyFirst, r.HasOnlyFirst, c.a, c.b}, {c.onlyB, r.OnlySecond, r.HasOnlySecond, c.b, c.a}} {
			if (side.want != "-") != side.has {
				t.Errorf("%v and %v: %q, want %q", c.a, c.b, side.got, side.want)
			} else if side.has && (!has(side.in, side.got) || has(side.out, side.got) || len(side.got) > len(side.want)) {
				t.Errorf("%v and %v: %q is no example as short as %q", c.a, c.b, side.got, side.want)
			}
		}
	}
}

// has reports what package regexp says.
func has(l regexps.Language, text string) bool {
	n := utf8.RuneCountInString(text)
	if n < l.Min || l.Max >= 0 && n > l.Max {
		return false
	}
	for _, p := range l.Patterns {
		if regexp.MustCompile(p.Regexp).MatchString(text) == p.Negated {
			return false
		}
	}
	return true
}

// Random pairs of expressions: each example is one, and what is proved holds for generated strings.
func TestRelationsOfRandomExpressions(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var make func(depth int) string
	make = func(depth int) string {
		if depth == 0 {
			return []string{"a", "b", "[ab]", "[^a]", ".", "", `\b`, "^", "$", `\w`, "(?i:a)"}[rng.IntN(11)]
		}
		switch rng.IntN(6) {
		case 0:
			return "(" + make(depth-1) + "|" + make(depth-1) + ")"
		case 1:
			return "(" + make(depth-1) + ")*"
		case 2:
			return "(" + make(depth-1) + "){1,2}"
		case 3:
			return "^" + make(depth-1) + "$"
		}
		return make(depth-1) + make(depth-1)
	}
	decided, equal := 0, 0
	for range 400 {
		a, b := language(make(3)), language(make(3))
		if rng.IntN(3) == 0 {
			a.Max = rng.IntN(4)
		}
		r, err := regexps.Compare(context.Background(), a, b)
		if err != nil {
			t.Fatal(err)
		}
		if r.HasOnlyFirst && (!has(a, r.OnlyFirst) || has(b, r.OnlyFirst)) || r.HasOnlySecond && (!has(b, r.OnlySecond) || has(a, r.OnlySecond)) {
			t.Errorf("%v and %v: %+v", a, b, r)
		}
		if !r.Decided {
			continue
		}
		decided++
		if r.Equal() {
			equal++
		}
		for i := range 60 {
			re, _ := syntax.Parse([]regexps.Language{a, b}[i%2].Patterns[0].Regexp, syntax.Perl)
			var text strings.Builder
			samples.Text(&text, re.Simplify(), rng, 3)
			s := text.String() + []string{"", "b", "\n", "é"}[rng.IntN(4)]
			if has(a, s) && !has(b, s) && !r.HasOnlyFirst || has(b, s) && !has(a, s) && !r.HasOnlySecond {
				t.Errorf("%v and %v: %q was missed: %+v", a, b, s, r)
			}
		}
	}
	if decided < 380 || equal < 10 || equal > 300 {
		t.Errorf("%d of 400 decided, %d equal", decided, equal)
	}
}

func TestLargeExpressionsEnd(t *testing.T) {
	a, b := language("(a|b)*a(a|b){15}"), language("(a|b)*a(a|b){16}c")
	r, err := regexps.Compare(context.Background(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	if r.Decided && !r.HasOnlyFirst {
		t.Errorf("%+v", r)
	}
	if _, err := regexps.Compare(context.Background(), language("("), a); err == nil {
		t.Error("no error for an expression that does not parse")
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := regexps.Compare(canceled, a, b); err == nil {
		t.Error("no error when canceled")
	}
}
