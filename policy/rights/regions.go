package rights

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

// Sets of requests that can be subtracted from each other. With them, two policies are compared by
// their decisions rather than by their text.
//
// A name can be any text. So a pattern without some other patterns is empty only if one of these
// contains it: replace its stars with a letter that no pattern contains, and no other pattern
// matches.

// set is a finite set of words, or its complement.
type set struct {
	but   bool
	words []string // sorted, without duplicates
}

var anything = set{but: true}

// setOf returns the set of a rule's list, in which "*" is everything.
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

// meet returns the intersection.
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

// region is the names (namespaces or paths) that match one pattern and none of some others. None of
// the others contains the pattern or another one, and each intersects the pattern. So a region is
// never empty.
type region struct {
	in  string
	but []string // sorted
}

func (r region) key() string { return fmt.Sprintf("%q%q", r.in, r.but) }

// globs has the operations on one kind of pattern.
type globs struct {
	// contains reports whether outer matches everything that inner matches.
	contains func(outer, inner string) bool
	// meet returns patterns for the intersection of two patterns.
	meet func(a, b string) []string
}

// outside is the pattern of cluster-scoped requests and requests for all namespaces. Among the
// patterns of bindings, only "*" contains it.
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

// commonGlobs returns patterns for the intersection of two patterns, or for more than that if exact
// ones would be too many.
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

// globMeeting finds patterns for the intersection of two patterns.
type globMeeting struct {
	steps int // remaining steps
	found map[string]bool
}

// meet finds the patterns that start with head. It shortens one star at a time.
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

// widest returns the patterns that no other pattern contains.
func widest(found map[string]bool) (list []string) {
	for p := range found {
		if p = anyNamed(p); !slices.ContainsFunc(list, func(q string) bool { return containsGlob(q, p) }) {
			list = append(slices.DeleteFunc(list, func(q string) bool { return containsGlob(p, q) }), p)
		}
	}
	slices.Sort(list)
	return list
}

// anyNamed gives the patterns of all namespaced requests one form, which is not "*".
func anyNamed(glob string) string {
	if len(glob) > 0 && strings.Trim(glob, "*") == "" {
		return "**"
	}
	return glob
}

// pathGlobs are literal paths, or end in one star.
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

// split divides a region into the part inside a pattern and the rest.
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

// without returns a pattern minus some others; false if that is empty.
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

// join returns the union of two regions; false if it is not a region.
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

// Dimensions of a box, except its region.
const (
	ofVerbs = iota
	ofGroups
	ofResources
	ofSubresources
	ofNames
	dimensions
)

// box is a set of requests: each part of the request is in a set, and its namespace or path is in a
// region.
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

// split divides a box by another one, whose region is a pattern: into the intersection and the rest,
// both as disjoint boxes.
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

// meets reports whether two boxes intersect.
func (b *box) meets(by *box) bool {
	inside, _ := b.split(by)
	return len(inside) > 0
}

// joined returns the same requests in fewer boxes: it merges boxes that differ in one dimension
// only.
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

// joinedIn merges boxes that are the same except in one dimension.
func joinedIn(boxes []box, but func(box) string, join func(into, b *box) bool) []box {
	var kept []box
	same := map[string][]int{} // in kept
	for i := range boxes {
		k := but(boxes[i])
		if !slices.ContainsFunc(same[k], func(j int) bool { return join(&kept[j], &boxes[i]) }) {
			same[k] = append(same[k], len(kept))
			kept = append(kept, boxes[i])
		}
	}
	return kept
}
