// Package regexps compares regular expressions by the strings that they match.
//
// Expressions of RE2 are finite automata. [Compare] walks the automata of both sides in step, over one character of each
// class that the expressions distinguish, shortest strings first. So it finds the shortest string that only one side
// matches, or proves that there is none. It gives up when there are too many states.
package regexps

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// A Language is a set of strings: those that match all Patterns, and have at least Min and at most Max code points.
type Language struct {
	Patterns []Pattern
	Min      int
	Max      int // below 0: no maximum
}

// A Pattern is a regular expression in Perl's syntax, not anchored. If it is negated, strings must not match it.
type Pattern struct {
	Regexp  string
	Negated bool
}

// A Relation says how two languages differ.
type Relation struct {
	// OnlyFirst is a shortest string that only the first language has, OnlySecond one that only the second has.
	OnlyFirst, OnlySecond       string
	HasOnlyFirst, HasOnlySecond bool
	// Decided is true if all strings were considered: what was not found does not exist.
	Decided bool
}

// Equal reports whether the languages are proved to be equal.
func (r *Relation) Equal() bool { return r.Decided && !r.HasOnlyFirst && !r.HasOnlySecond }

// maxStates is the greatest number of pairs of states that are visited, and maxWork bounds the steps between them.
const (
	maxStates = 20_000
	maxWork   = 3_000_000
)

// Compare compares two languages. It returns an error for an expression that does not parse, and the context's.
func Compare(ctx context.Context, first, second Language) (Relation, error) {
	w := &walk{}
	var err error
	if w.first, err = w.compile(first); err != nil {
		return Relation{}, err
	}
	if w.second, err = w.compile(second); err != nil {
		return Relation{}, err
	}
	w.divide()
	return w.run(ctx)
}

// A walk visits the pairs of states that strings lead to.
type walk struct {
	first, second language
	programs      []*syntax.Prog // of both sides; equal expressions share one
	known         map[string]int
	alphabet      []rune // one rune of each class
	count         int    // code points are counted up to this; 0: not counted
	work          int
}

type language struct {
	Language
	programs []int // indices of the programs of the patterns
}

func (w *walk) compile(l Language) (language, error) {
	out := language{Language: l}
	if w.known == nil {
		w.known = map[string]int{}
	}
	if l.Min > 0 || l.Max >= 0 {
		w.count = max(w.count, l.Min, l.Max+1)
	}
	for _, p := range l.Patterns {
		i, ok := w.known[p.Regexp]
		if !ok {
			re, err := syntax.Parse(p.Regexp, syntax.Perl)
			if err != nil {
				return out, fmt.Errorf("regexps: %w", err)
			}
			prog, err := syntax.Compile(re.Simplify())
			if err != nil {
				return out, fmt.Errorf("regexps: %w", err)
			}
			i = len(w.programs)
			w.programs = append(w.programs, prog)
			w.known[p.Regexp] = i
		}
		out.programs = append(out.programs, i)
	}
	return out, nil
}

// divide finds the classes of characters that no instruction distinguishes, and one printable character of each.
func (w *walk) divide() {
	starts := map[rune]bool{0: true, unicode.MaxRune + 1: true, 0xD800: true, 0xE000: true}
	between := func(lo, hi rune) { starts[lo], starts[hi+1] = true, true }
	for _, r := range [][2]rune{{'\n', '\n'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {' ', '~'}} {
		between(r[0], r[1])
	}
	for _, prog := range w.programs {
		for i := range prog.Inst {
			inst := &prog.Inst[i]
			switch inst.Op {
			case syntax.InstRune, syntax.InstRune1:
				folded := syntax.Flags(inst.Arg)&syntax.FoldCase != 0
				if len(inst.Rune) == 1 {
					r := inst.Rune[0]
					between(r, r)
					for f := unicode.SimpleFold(r); folded && f != r; f = unicode.SimpleFold(f) {
						between(f, f)
					}
					continue
				}
				for j := 0; j+1 < len(inst.Rune); j += 2 {
					between(inst.Rune[j], inst.Rune[j+1])
				}
			}
		}
	}
	bounds := make([]rune, 0, len(starts))
	for r := range starts {
		bounds = append(bounds, r)
	}
	slices.Sort(bounds)
	// Classes that all instructions treat alike are one: their signatures are equal.
	seen := map[string]bool{}
	var printable, others []rune
	for i := 0; i+1 < len(bounds); i++ {
		r := bounds[i]
		if r >= 0xD800 && r < 0xE000 || r == utf8.RuneError {
			continue // no text has them
		}
		if r >= ' ' && r <= '~' {
			printable = append(printable, r)
		} else {
			others = append(others, r)
		}
	}
	// Letters and digits come first, so that examples can be read.
	slices.SortStableFunc(printable, func(a, b rune) int { return legible(a) - legible(b) })
	for _, r := range append(printable, others...) {
		if s := w.signature(r); !seen[s] {
			seen[s] = true
			w.alphabet = append(w.alphabet, r)
		}
	}
}

func legible(r rune) int {
	switch {
	case r >= 'a' && r <= 'z':
		return 0
	case r >= '0' && r <= '9':
		return 1
	case r >= 'A' && r <= 'Z':
		return 2
	case r != ' ':
		return 3
	}
	return 4
}

// signature says which instructions match a character, and what it is for \b and for lines.
func (w *walk) signature(r rune) string {
	bits := []byte{0}
	if syntax.IsWordChar(r) {
		bits[0] |= 1
	}
	if r == '\n' {
		bits[0] |= 2
	}
	for _, prog := range w.programs {
		for i := range prog.Inst {
			b := byte('0')
			if matches(&prog.Inst[i], r) {
				b = '1'
			}
			bits = append(bits, b)
		}
	}
	return string(bits)
}

func matches(inst *syntax.Inst, r rune) bool {
	switch inst.Op {
	case syntax.InstRune, syntax.InstRune1:
		return inst.MatchRune(r)
	case syntax.InstRuneAny:
		return true
	case syntax.InstRuneAnyNotNL:
		return r != '\n'
	}
	return false
}

// A state is what matters of a string that was read: the threads of each program, whether it matched already, the last
// character, and the length.
type state struct {
	threads [][]uint32 // sorted; nil once matched
	matched []bool
	last    rune // -1 at the start
	length  int
}

func (w *walk) key(s *state) string {
	var b []byte
	kind := byte(0)
	switch {
	case s.last < 0:
		kind = 1
	case s.last == '\n':
		kind = 2
	case syntax.IsWordChar(s.last):
		kind = 3
	}
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(s.length))
	for i, threads := range s.threads {
		if s.matched[i] {
			b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(threads)))
		for _, pc := range threads {
			b = binary.AppendUvarint(b, uint64(pc))
		}
	}
	return string(b)
}

// closure follows the instructions that read nothing, between two characters; -1 is the start or the end. It returns
// the instructions that read a character, and whether the program matches here.
func (w *walk) closure(prog *syntax.Prog, threads []uint32, before, after rune) (reading []uint32, matched bool) {
	cond := syntax.EmptyOpContext(before, after)
	seen := make([]bool, len(prog.Inst))
	stack := append(slices.Clone(threads), uint32(prog.Start)) // a match may begin anywhere
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		w.work++
		inst := &prog.Inst[pc]
		switch inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, inst.Out, inst.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, inst.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^cond == 0 {
				stack = append(stack, inst.Out)
			}
		case syntax.InstMatch:
			return nil, true
		case syntax.InstFail:
		default:
			reading = append(reading, pc)
		}
	}
	return reading, false
}

// step returns the state after a character.
func (w *walk) step(s *state, r rune) *state {
	n := &state{threads: make([][]uint32, len(w.programs)), matched: make([]bool, len(w.programs)), last: r, length: min(s.length+1, w.count)}
	for i, prog := range w.programs {
		if s.matched[i] {
			n.matched[i] = true
			continue
		}
		reading, matched := w.closure(prog, s.threads[i], s.last, r)
		if matched {
			n.matched[i] = true
			continue
		}
		for _, pc := range reading {
			if matches(&prog.Inst[pc], r) {
				n.threads[i] = append(n.threads[i], prog.Inst[pc].Out)
			}
		}
		slices.Sort(n.threads[i])
		n.threads[i] = slices.Compact(n.threads[i])
	}
	return n
}

// has reports whether a language has the string that led to a state, if it ends here.
func (w *walk) has(l *language, s *state) bool {
	if s.length < l.Min || l.Max >= 0 && s.length > l.Max {
		return false
	}
	for i, p := range l.programs {
		matched := s.matched[p]
		if !matched {
			_, matched = w.closure(w.programs[p], s.threads[p], s.last, -1)
		}
		if matched == l.Patterns[i].Negated {
			return false
		}
	}
	return true
}

// run visits the states, shortest strings first.
func (w *walk) run(ctx context.Context) (found Relation, err error) {
	type visit struct {
		state *state
		from  int
		r     rune
	}
	start := &state{threads: make([][]uint32, len(w.programs)), matched: make([]bool, len(w.programs)), last: -1}
	visits := []visit{{start, -1, 0}}
	seen := map[string]bool{w.key(start): true}
	text := func(i int) string {
		var runes []rune
		for ; visits[i].from >= 0; i = visits[i].from {
			runes = append(runes, visits[i].r)
		}
		slices.Reverse(runes)
		return string(runes)
	}
	for i := 0; i < len(visits); i++ {
		if i%256 == 0 && ctx.Err() != nil {
			return found, ctx.Err()
		}
		s := visits[i].state
		switch a, b := w.has(&w.first, s), w.has(&w.second, s); {
		case a && !b && !found.HasOnlyFirst:
			found.OnlyFirst, found.HasOnlyFirst = text(i), true
		case b && !a && !found.HasOnlySecond:
			found.OnlySecond, found.HasOnlySecond = text(i), true
		}
		if found.HasOnlyFirst && found.HasOnlySecond {
			break
		}
		for _, r := range w.alphabet {
			n := w.step(s, r)
			key := w.key(n)
			if seen[key] {
				continue
			}
			if len(visits) >= maxStates || w.work > maxWork {
				return found, nil
			}
			seen[key] = true
			visits = append(visits, visit{n, i, r})
		}
		visits[i].state = nil // no longer needed
	}
	found.Decided = true
	return found, nil
}
