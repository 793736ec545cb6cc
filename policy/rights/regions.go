package rights

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

// What rules are about as sets that can be subtracted from each other: with them two policies
// are compared by what they decide, not by how they are written.
//
// Names are any text here. So what is left of a pattern without some others is nothing only if
// one of these contains it: a text of it whose stars are letters that stand in no pattern
// matches none of the others.

// set is some words, or all but some.
type set struct {
	but   bool
	words []string // sorted, each once
}

var anything = set{but: true}

// setOf reads a list of a rule, in which "*" is anything.
func setOf(words []string) set {
	if slices.Contains(words, "*") {
		return anything
	}
	sorted := slices.Sorted(slices.Values(words))
	return set{words: slices.Compact(sorted)}
}

func (s set) empty() bool { return !s.but && len(s.words) == 0 }

func (s set) has(word string) bool {
	_, found := slices.BinarySearch(s.words, word)
	return found != s.but
}

func (s set) complement() set { return set{!s.but, s.words} }

// meet is what is in both.
func (s set) meet(t set) set {
	switch {
	case s.but && t.but:
		all := slices.Concat(s.words, t.words)
		slices.Sort(all)
		return set{true, slices.Compact(all)}
	case s.but:
		s, t = t, s
	}
	all := true
	for _, w := range s.words {
		all = all && t.has(w)
	}
	if all {
		return s
	}
	var both []string
	for _, w := range s.words {
		if t.has(w) {
			both = append(both, w)
		}
	}
	return set{words: both}
}

func (s set) minus(t set) set { return s.meet(t.complement()) }

func (s set) join(t set) set { return s.complement().meet(t.complement()).complement() }

func (s set) key() string { return fmt.Sprintf("%t%q", s.but, s.words) }

// region is what matches a pattern, and none of some others: namespaces, or paths. Of the
// others none contains it or another one, and each meets it: it is never empty.
type region struct {
	in  string
	but []string // sorted
}

func (r region) key() string { return fmt.Sprintf("%q%q", r.in, r.but) }

// globs are the patterns of one language.
type globs struct {
	// contains tells whether a pattern matches all that another one does.
	contains func(outer, inner string) bool
	// meet are patterns for what two match.
	meet func(a, b string) []string
}

// outside is the pattern of what is in no namespace, and of requests for all of them. Of the
// patterns that bindings have only "*" contains it.
const outside = ""

var namespaceGlobs = globs{containsGlob, commonGlobs}

func containsGlob(outer, inner string) bool {
	switch {
	case outer == "*" || outer == inner:
		return true
	case outer == outside || inner == outside || inner == "*":
		return false
	}
	return policy.GlobMatches(outer, strings.ReplaceAll(inner, "*", "\x00"))
}

// commonGlobs are more than what both match where that would take too many patterns to say.
func commonGlobs(a, b string) []string {
	switch {
	case a == "*" || a == b:
		return []string{b}
	case b == "*":
		return []string{a}
	case a == outside || b == outside:
		return nil
	}
	m := &globMeeting{steps: 4096, found: map[string]bool{}}
	m.meet(a, b, "")
	if m.steps < 0 {
		return []string{a}
	}
	delete(m.found, outside)
	return widest(m.found)
}

// globMeeting finds patterns for what two patterns match.
type globMeeting struct {
	steps int // that are left
	found map[string]bool
}

// meet finds them behind a head. One star is shortened at a time.
func (m *globMeeting) meet(a, b, head string) {
	for a != "" && b != "" && a[0] != '*' && b[0] != '*' {
		if a[0] != b[0] {
			return
		}
		head, a, b = head+a[:1], a[1:], b[1:]
	}
	if m.steps--; m.steps < 0 {
		return
	}
	switch {
	case a == "" || b == "":
		if strings.Trim(a+b, "*") == "" {
			m.found[head] = true
		}
	case a[0] == '*' && b[0] == '*':
		if !strings.HasSuffix(head, "*") {
			head += "*"
		}
		m.meet(a[1:], b, head)
		m.meet(a, b[1:], head)
	case a[0] == '*':
		m.meet(a[1:], b, head)
		m.meet(a, b[1:], head+b[:1])
	default:
		m.meet(b, a, head)
	}
}

// widest are the patterns that no other one contains.
func widest(found map[string]bool) (list []string) {
	for p := range found {
		if p = anyNamed(p); !slices.ContainsFunc(list, func(q string) bool { return containsGlob(q, p) }) {
			list = append(slices.DeleteFunc(list, func(q string) bool { return containsGlob(p, q) }), p)
		}
	}
	slices.Sort(list)
	return list
}

// anyNamed gives the patterns of all that has a name one form, which is not "*".
func anyNamed(glob string) string {
	if len(glob) > 0 && strings.Trim(glob, "*") == "" {
		return "**"
	}
	return glob
}

// pathGlobs are literal, or end in one star.
var pathGlobs = globs{containsPath, func(a, b string) []string {
	switch {
	case containsPath(a, b):
		return []string{b}
	case containsPath(b, a):
		return []string{a}
	}
	return nil
}}

func containsPath(outer, inner string) bool {
	if head, wild := strings.CutSuffix(outer, "*"); wild {
		return strings.HasPrefix(strings.TrimSuffix(inner, "*"), head)
	}
	return outer == inner
}

// split is a region by a pattern: what it has of that, and what it has besides.
func (g *globs) split(r region, pattern string) (inside, rest []region) {
	if g.contains(pattern, r.in) {
		return []region{r}, nil
	}
	but := r.but
	for _, m := range g.meet(r.in, pattern) {
		if x, left := g.without(m, but); left {
			inside = append(inside, x)
			but = append(slices.Clip(but), m)
		}
	}
	if len(inside) == 0 {
		return nil, []region{r}
	}
	out, _ := g.without(r.in, append(slices.Clip(r.but), pattern))
	return inside, []region{out}
}

// without is what a pattern matches and some others do not; false if that is nothing.
func (g *globs) without(in string, but []string) (region, bool) {
	r := region{in: in}
	for _, b := range but {
		if g.contains(b, in) {
			return r, false
		}
		if len(g.meet(in, b)) == 0 || slices.ContainsFunc(r.but, func(o string) bool { return g.contains(o, b) }) {
			continue
		}
		r.but = append(slices.DeleteFunc(r.but, func(o string) bool { return g.contains(b, o) }), b)
	}
	slices.Sort(r.but)
	return r, true
}

// join makes one region of two, where that is one.
func (g *globs) join(a, b region) (region, bool) {
	if a.key() == b.key() {
		return a, true
	}
	if len(b.in) < len(a.in) && !g.contains(a.in, b.in) || g.contains(b.in, a.in) {
		a, b = b, a
	}
	if i := slices.Index(a.but, b.in); i >= 0 {
		but := slices.Delete(slices.Clone(a.but), i, i+1)
		if rest, left := g.without(b.in, but); left && rest.key() == b.key() {
			return region{a.in, but}, true
		}
	}
	return region{}, false
}

// The dimensions of a box, but for where it is.
const (
	ofVerbs = iota
	ofGroups
	ofResources
	ofSubresources
	ofNames
	dimensions
)

// box is some requests: those whose parts are each in a set, and whose namespace, or path, is
// in a region.
type box struct {
	path  bool
	sets  [dimensions]set
	where region
}

func (b *box) key() string {
	var s strings.Builder
	fmt.Fprint(&s, b.path)
	for i := range b.sets {
		s.WriteString(b.sets[i].key())
	}
	return s.String() + b.where.key()
}

func (b *box) globs() *globs {
	if b.path {
		return &pathGlobs
	}
	return &namespaceGlobs
}

// split is a box by another one, whose region is a pattern: what they have in common, and what
// the first has besides, each cut into boxes that have nothing in common.
func (b *box) split(by *box) (inside, rest []box) {
	if b.path != by.path {
		return nil, []box{*b}
	}
	left := *b
	for i := range left.sets {
		in := left.sets[i].meet(by.sets[i])
		if in.empty() {
			return nil, []box{*b}
		}
		if out := left.sets[i].minus(by.sets[i]); !out.empty() {
			o := left
			o.sets[i] = out
			rest = append(rest, o)
		}
		left.sets[i] = in
	}
	in, out := b.globs().split(left.where, by.where.in)
	if len(in) == 0 {
		return nil, []box{*b}
	}
	for _, r := range in {
		left.where = r
		inside = append(inside, left)
	}
	for _, r := range out {
		left.where = r
		rest = append(rest, left)
	}
	return inside, rest
}

// meets tells whether two boxes have something in common.
func (b *box) meets(by *box) bool {
	inside, _ := b.split(by)
	return len(inside) > 0
}

// joined are boxes that are the same requests as some, in as few as is easily had: those that differ
// in one dimension only become one.
func joined(boxes []box) []box {
	for {
		n := len(boxes)
		for d := range dimensions {
			boxes = joinedIn(boxes, func(b box) string { b.sets[d] = anything; return b.key() }, func(a, b *box) bool {
				a.sets[d] = a.sets[d].join(b.sets[d])
				return true
			})
		}
		boxes = joinedIn(boxes, func(b box) string { b.where = region{}; return b.key() }, func(a, b *box) bool {
			where, ok := a.globs().join(a.where, b.where)
			if ok {
				a.where = where
			}
			return ok
		})
		if len(boxes) == n {
			return boxes
		}
	}
}

// joinedIn joins boxes that are the same but for one dimension, where they can be.
func joinedIn(boxes []box, but func(box) string, join func(into, b *box) bool) []box {
	var kept []box
	same := map[string][]int{} // of kept
	for i := range boxes {
		k := but(boxes[i])
		if !slices.ContainsFunc(same[k], func(j int) bool { return join(&kept[j], &boxes[i]) }) {
			same[k] = append(same[k], len(kept))
			kept = append(kept, boxes[i])
		}
	}
	return kept
}
