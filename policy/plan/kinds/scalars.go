package kinds

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"

	"stele.dev/stele/policy/plan/kinds/regexps"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// scalars compares the scalars that two nodes admit, of the kinds that both have.
func (c *comparison) scalars(at place, a, b *schemas.Node, both schemas.Kinds) {
	for _, kinds := range []schemas.Kinds{schemas.StringKind, numeric, schemas.BoolKind} {
		if kinds &= both; kinds == 0 {
			continue
		}
		x, y := newSet(a, kinds), newSet(b, kinds)
		c.sets(at, x, y)
	}
}

// A set is the scalars of some kinds that a node admits: single values, and alternatives with rules.
type set struct {
	node    *schemas.Node // that admits just the set
	members []json.RawMessage
	rules   []schemas.Scalar
	source  schemas.Position
	checker *program.Checker
}

func newSet(n *schemas.Node, kinds schemas.Kinds) *set {
	s := &set{source: n.Source}
	alternatives := n.Alternatives(kinds)
	var all []schemas.Scalar
	for _, x := range alternatives {
		x := *x
		x.Kinds &= kinds
		all = append(all, x)
	}
	s.node = &schemas.Node{Kinds: kinds, Scalars: all}
	if len(all) == 0 {
		all = []schemas.Scalar{{Kinds: kinds}}
	}
	s.checker, _ = program.NewChecker(s.node)
	for _, x := range all {
		if len(x.Enum) == 0 && kinds == schemas.BoolKind {
			x.Enum = []json.RawMessage{json.RawMessage("false"), json.RawMessage("true")}
		}
		if len(x.Enum) == 0 {
			s.rules = append(s.rules, x)
			continue
		}
		alone, err := program.NewChecker(&schemas.Node{Kinds: kinds, Scalars: []schemas.Scalar{x}})
		for _, v := range x.Enum {
			value, bad := jsonvalue.Decode(v)
			if err == nil && bad == nil && len(alone.Validate(value)) == 0 {
				s.members = append(s.members, json.RawMessage(canonical(v)))
			}
		}
	}
	s.rules = distinctRules(s.rules)
	if len(s.rules) > 0 { // what a rule admits need not be listed
		wide, err := program.NewChecker(&schemas.Node{Kinds: kinds, Scalars: s.rules})
		s.members = slices.DeleteFunc(s.members, func(v json.RawMessage) bool {
			value, bad := jsonvalue.Decode(v)
			return err == nil && bad == nil && len(wide.Validate(value)) == 0
		})
	}
	slices.SortFunc(s.members, func(a, b json.RawMessage) int { return strings.Compare(string(a), string(b)) })
	s.members = slices.CompactFunc(s.members, func(a, b json.RawMessage) bool { return string(a) == string(b) })
	return s
}

func distinctRules(all []schemas.Scalar) (rest []schemas.Scalar) {
	for _, s := range all {
		if !slices.ContainsFunc(rest, func(r schemas.Scalar) bool { return sameScalar(&r, &s) }) {
			rest = append(rest, s)
		}
	}
	return rest
}

func (s *set) admits(v json.RawMessage) bool {
	value, err := jsonvalue.Decode(v)
	return err == nil && s.checker != nil && len(s.checker.Validate(value)) == 0
}

// describe returns the set in words.
func (s *set) describe() string { return describe(s.node) }

// sets compares two sets of scalars.
func (c *comparison) sets(at place, a, b *set) {
	if a.checker == nil || b.checker == nil {
		return
	}
	was := slices.DeleteFunc(slices.Clone(a.rules), func(s schemas.Scalar) bool { return hasRule(b.rules, &s) })
	is := slices.DeleteFunc(slices.Clone(b.rules), func(s schemas.Scalar) bool { return hasRule(a.rules, &s) })
	switch {
	case len(was) == 0 && len(is) == 0:
		c.members(at, a, b)
	case len(was) == 1 && len(is) == 1:
		c.members(at, a, b)
		c.rule(at, a, b, &was[0], &is[0])
	default:
		c.wholes(at, a, b, was, is)
	}
}

func hasRule(rules []schemas.Scalar, s *schemas.Scalar) bool {
	return slices.ContainsFunc(rules, func(r schemas.Scalar) bool { return sameScalar(&r, s) })
}

// members compares the single values.
func (c *comparison) members(at place, a, b *set) {
	only := func(x, y *set) (rest []json.RawMessage) {
		for _, v := range x.members {
			if !y.admits(v) {
				rest = append(rest, v)
			}
		}
		return rest
	}
	if gone := only(a, b); gone != nil {
		c.add(at, difference{rule: "ENUM_VALUE_REMOVED", way: loses, before: short(values(gone)), was: a.source, is: b.source,
			details: []string{"Admitted from the push on: " + b.describe() + "."}})
	}
	if more := only(b, a); more != nil {
		c.add(at, difference{rule: "ENUM_VALUE_ADDED", way: gains, after: short(values(more)), was: a.source, is: b.source,
			details: []string{"Clients that read the field may meet a value that they do not know."}})
	}
}

// wholes compares sets whose alternatives do not correspond.
func (c *comparison) wholes(at place, a, b *set, was, is []schemas.Scalar) {
	d := difference{before: a.describe(), after: b.describe(), was: a.source, is: b.source}
	found := c.search(a.node, b.node)
	way := found.way()
	switch relation, proved := exactly(a, b); {
	case proved && relation == unknown:
		return // equal
	case proved:
		way = relation
	case way == unknown && len(was) == 0:
		way = gains // an alternative more never refuses
	case way == unknown && len(is) == 0:
		way = loses
	}
	d.way = way
	switch {
	case way == loses && len(is) == 0 && len(b.rules) > 0:
		d.rule, d.message = "ALTERNATIVE_REMOVED", "The field admits fewer alternatives."
	case way == gains && len(was) == 0 && len(a.rules) > 0:
		d.rule, d.message = "ALTERNATIVE_ADDED", "The field admits more alternatives."
	case way == loses:
		d.rule, d.message = "BOUND_TIGHTENED", "Fewer values are admitted."
	case way == gains:
		d.rule, d.message = "BOUND_LOOSENED", "More values are admitted."
	case a.node.Kinds == schemas.StringKind:
		d.rule, d.message = "PATTERN_CHANGED", "Other strings are admitted."
	default:
		d.rule, d.message = "CONSTRAINT_CHANGED", "Other values are admitted."
	}
	c.addWithExamples(at, d, found, a.node, b.node)
}

// exactly compares sets of numbers, and sets of strings without named forms, for all values. proved is false if that is
// not possible.
func exactly(a, b *set) (way direction, proved bool) {
	if a.node.Kinds&numeric == 0 {
		return unknown, false
	}
	x, ok1 := newIntervals(a)
	y, ok2 := newIntervals(b)
	if !ok1 || !ok2 {
		return unknown, false
	}
	if !x.isSubset(&y) {
		way |= loses
	}
	if !y.isSubset(&x) {
		way |= gains
	}
	return way, true
}

// rule compares two alternatives part by part.
func (c *comparison) rule(at place, a, b *set, was, is *schemas.Scalar) {
	if was.Kinds&numeric != 0 {
		if way, proved := exactly(a, b); proved && way == unknown {
			return
		}
		c.bounds(at, a, b, was, is)
		c.multiples(at, a, b, was, is)
	} else {
		if relation, ok := c.languages(language(was), language(is)); ok && relation.Equal() && sameForms(was, is) && sameNot(was, is) {
			return
		}
		n := func(s *set) *schemas.Node { return &schemas.Node{Source: s.source} }
		c.limits(at, was.MinRunes, is.MinRunes, was.MaxRunes, is.MaxRunes, "character", n(a), n(b))
		c.patterns(at, a, b, was, is)
		c.forms(at, a, b, was, is)
	}
	c.exclusions(at, a, b, was, is)
}

// bounds compares intervals.
func (c *comparison) bounds(at place, a, b *set, was, is *schemas.Scalar) {
	integer := was.Kinds&is.Kinds&schemas.NumberKind == 0
	bound := func(x, y *schemas.Bound, text func(*schemas.Bound) string, sign int) {
		p, q := newEnd(x, sign, integer), newEnd(y, sign, integer)
		order := p.compare(q)
		if order == 0 {
			return
		}
		d := difference{rule: "BOUND_TIGHTENED", way: loses, before: text(x), after: text(y), was: sourceOfBound(x, a.source), is: sourceOfBound(y, b.source)}
		if order > 0 {
			d.rule, d.way = "BOUND_LOOSENED", gains
		}
		c.add(at, d)
	}
	bound(was.Minimum, is.Minimum, lower, -1)
	bound(was.Maximum, is.Maximum, upper, +1)
}

func sourceOfBound(b *schemas.Bound, otherwise schemas.Position) schemas.Position {
	if b == nil {
		return otherwise
	}
	return position(b.Source, otherwise)
}

// An end is a bound, turned so that a greater end admits more.
type end struct {
	value *big.Rat // nil: no bound
	open  bool
}

func newEnd(b *schemas.Bound, sign int, integer bool) end {
	if b == nil {
		return end{}
	}
	r, err := jsonvalue.ParseDecimal(b.Value)
	if err != nil {
		return end{}
	}
	r = new(big.Rat).Mul(r, big.NewRat(int64(sign), 1))
	if !integer {
		return end{r, b.Exclusive}
	}
	floor := new(big.Int).Div(r.Num(), r.Denom())
	if b.Exclusive && r.IsInt() {
		floor.Sub(floor, big.NewInt(1))
	}
	return end{value: new(big.Rat).SetInt(floor)}
}

// compare returns -1 if q admits less than p, +1 if it admits more.
func (p end) compare(q end) int {
	switch {
	case p.value == nil && q.value == nil:
		return 0
	case p.value == nil:
		return -1
	case q.value == nil:
		return 1
	}
	if order := q.value.Cmp(p.value); order != 0 || p.open == q.open {
		return order
	}
	if q.open {
		return -1
	}
	return 1
}

// multiples compares what a number must be a multiple of.
func (c *comparison) multiples(at place, a, b *set, was, is *schemas.Scalar) {
	say := func(m *schemas.Bound) string {
		if m == nil {
			return ""
		}
		return "multiple of " + m.Value
	}
	d := difference{rule: "BOUND_TIGHTENED", before: say(was.MultipleOf), after: say(is.MultipleOf),
		was: sourceOfBound(was.MultipleOf, a.source), is: sourceOfBound(is.MultipleOf, b.source)}
	d.way = way(was.MultipleOf != nil, is.MultipleOf != nil)
	if was.MultipleOf != nil && is.MultipleOf != nil {
		x, err1 := jsonvalue.ParseDecimal(was.MultipleOf.Value)
		y, err2 := jsonvalue.ParseDecimal(is.MultipleOf.Value)
		if err1 != nil || err2 != nil || x.Sign() <= 0 || y.Sign() <= 0 || x.Cmp(y) == 0 {
			return
		}
		switch {
		case new(big.Rat).Quo(y, x).IsInt():
			d.way = loses
		case new(big.Rat).Quo(x, y).IsInt():
			d.way = gains
		default:
			d.way = loses | gains
		}
	} else if was.MultipleOf == nil && is.MultipleOf == nil {
		return
	}
	if d.way == gains {
		d.rule = "BOUND_LOOSENED"
	}
	if d.way == loses|gains {
		d.rule = "CONSTRAINT_CHANGED"
	}
	c.add(at, d)
}

// exclusions compares the values that an alternative does not admit.
func (c *comparison) exclusions(at place, a, b *set, was, is *schemas.Scalar) {
	only := func(x, y *schemas.Scalar, admitting *set) (rest []json.RawMessage, source schemas.Position) {
		for _, v := range x.Not {
			if !excludes(y, v.Value) && admitting.admits(v.Value) {
				rest = append(rest, v.Value)
				source = position(source, v.Source)
			}
		}
		return rest, source
	}
	if gone, source := only(is, was, a); gone != nil {
		c.add(at, difference{rule: "ENUM_VALUE_REMOVED", way: loses, before: short(values(gone)), was: a.source, is: position(source, b.source),
			message: "The value is excluded."})
	}
	if more, source := only(was, is, b); more != nil {
		c.add(at, difference{rule: "ENUM_VALUE_ADDED", way: gains, after: short(values(more)), was: position(source, a.source), is: b.source,
			message: "The value is no longer excluded."})
	}
}

func excludes(s *schemas.Scalar, v json.RawMessage) bool {
	return slices.ContainsFunc(s.Not, func(n schemas.Constant) bool { return canonical(n.Value) == canonical(v) })
}

// language returns the strings that match the patterns of an alternative and have its length.
func language(s *schemas.Scalar) regexps.Language {
	l := regexps.Language{Max: -1}
	for _, p := range s.Patterns {
		l.Patterns = append(l.Patterns, regexps.Pattern{Regexp: p.Regexp, Negated: p.Negated})
	}
	if s.MinRunes != nil {
		l.Min = s.MinRunes.Count
	}
	if s.MaxRunes != nil {
		l.Max = s.MaxRunes.Count
	}
	return l
}

// languages compares two languages. If both have the same limits of length, it first ignores them, because this needs
// fewer states.
func (c *comparison) languages(a, b regexps.Language) (regexps.Relation, bool) {
	if c.undecided >= maxUndecided {
		return regexps.Relation{}, false
	}
	if a.Min == b.Min && a.Max == b.Max {
		x, y := a, b
		x.Min, x.Max, y.Min, y.Max = 0, -1, 0, -1
		if r, err := regexps.Compare(c.ctx, x, y); err == nil && r.Equal() {
			return r, true
		}
	}
	r, err := regexps.Compare(c.ctx, a, b)
	if err == nil && !r.Decided {
		c.undecided++
	}
	return r, err == nil
}

// maxUndecided is the number of comparisons of expressions for one version of a kind that may give up, which is when they
// take longest. Others are told from generated strings only.
const maxUndecided = 30

// patterns compares regular expressions.
func (c *comparison) patterns(at place, a, b *set, was, is *schemas.Scalar) {
	rest := func(all, others []schemas.Pattern) (rest []schemas.Pattern) {
		for _, p := range all {
			if !slices.ContainsFunc(others, func(q schemas.Pattern) bool { return p.Regexp == q.Regexp && p.Negated == q.Negated }) {
				rest = append(rest, p)
			}
		}
		return rest
	}
	lost, gained := rest(was.Patterns, is.Patterns), rest(is.Patterns, was.Patterns)
	if len(lost)+len(gained) == 0 {
		return
	}
	d := difference{rule: "PATTERN_CHANGED", before: short(strings.Join(patternTexts(lost), " & ")), after: short(strings.Join(patternTexts(gained), " & ")),
		was: a.source, is: b.source, message: "Other strings are admitted."}
	if len(lost) > 0 {
		d.was = position(lost[0].Source, a.source)
	}
	if len(gained) > 0 {
		d.is = position(gained[0].Source, b.source)
	}
	// Lengths are compared by themselves, so here they only must allow the examples.
	x, y := language(was), language(is)
	if x.Min != y.Min || x.Max != y.Max {
		x.Min, x.Max, y.Min, y.Max = 0, -1, 0, -1
	}
	relation, ok := c.languages(x, y)
	if ok && relation.Equal() {
		return
	}
	var found examples
	if ok && relation.HasOnlyFirst {
		found.lost, found.hasLost = relation.OnlyFirst, true
	}
	if ok && relation.HasOnlySecond {
		found.gained, found.hasGained = relation.OnlySecond, true
	}
	found.decided = ok && relation.Decided
	if !found.decided {
		found = c.search(a.node, b.node).merge(found)
		switch {
		case len(lost) == 0:
			d.way = loses // more patterns never admit more
		case len(gained) == 0:
			d.way = gains
		}
	}
	c.addWithExamples(at, d, found, a.node, b.node)
}

// forms compares CUE's named tests of strings.
func (c *comparison) forms(at place, a, b *set, was, is *schemas.Scalar) {
	if sameForms(was, is) {
		return
	}
	names := func(s, other *schemas.Scalar) (text string, source schemas.Position) {
		var all []string
		for _, f := range s.Forms {
			if !slices.ContainsFunc(other.Forms, func(g schemas.Form) bool { return f.Name == g.Name }) {
				all = append(all, f.Name)
				source = position(source, f.Source)
			}
		}
		return strings.Join(all, " & "), source
	}
	before, wasAt := names(was, is)
	after, isAt := names(is, was)
	d := difference{rule: "PATTERN_CHANGED", before: before, after: after, was: position(wasAt, a.source), is: position(isAt, b.source),
		message: "Other strings are admitted.", way: way(before != "", after != "")}
	if d.way != unknown {
		c.add(at, d)
		return
	}
	only := func(s *schemas.Scalar) *schemas.Node {
		return &schemas.Node{Kinds: schemas.StringKind, Scalars: []schemas.Scalar{{Kinds: schemas.StringKind, Forms: s.Forms}}}
	}
	c.addWithExamples(at, d, c.search(only(was), only(is)), a.node, b.node)
}

func sameForms(a, b *schemas.Scalar) bool {
	names := func(s *schemas.Scalar) (all []string) {
		for _, f := range s.Forms {
			all = append(all, f.Name)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return slices.Equal(names(a), names(b))
}

func sameNot(a, b *schemas.Scalar) bool {
	has := func(x, y *schemas.Scalar) bool {
		return !slices.ContainsFunc(x.Not, func(n schemas.Constant) bool { return !excludes(y, n.Value) })
	}
	return has(a, b) && has(b, a)
}

// sameScalar reports whether two alternatives are written alike, apart from order and positions.
func sameScalar(a, b *schemas.Scalar) bool {
	bound := func(x, y *schemas.Bound, sign int) bool {
		return newEnd(x, sign, a.Kinds&schemas.NumberKind == 0).compare(newEnd(y, sign, b.Kinds&schemas.NumberKind == 0)) == 0
	}
	limit := func(x, y *schemas.Limit, none int) bool {
		count := func(l *schemas.Limit) int {
			if l == nil {
				return none
			}
			return l.Count
		}
		return count(x) == count(y)
	}
	text := func(s *schemas.Scalar) []string {
		all := patternTexts(s.Patterns)
		slices.Sort(all)
		return slices.Compact(all)
	}
	multiple := func(s *schemas.Scalar) string {
		if s.MultipleOf == nil {
			return ""
		}
		return s.MultipleOf.Value
	}
	enum := func(s *schemas.Scalar) []string {
		var all []string
		for _, v := range s.Enum {
			all = append(all, canonical(v))
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return a.Kinds == b.Kinds && bound(a.Minimum, b.Minimum, -1) && bound(a.Maximum, b.Maximum, 1) &&
		limit(a.MinRunes, b.MinRunes, 0) && limit(a.MaxRunes, b.MaxRunes, -1) && slices.Equal(text(a), text(b)) &&
		sameForms(a, b) && sameNot(a, b) && multiple(a) == multiple(b) && slices.Equal(enum(a), enum(b))
}

// sameMeaning reports whether two nodes of map keys admit the same, as far as their rules are written alike.
func sameMeaning(a, b *schemas.Node) bool {
	if a.Kinds != b.Kinds || len(a.Scalars) != len(b.Scalars) {
		return false
	}
	for i := range a.Scalars {
		if !hasRule(b.Scalars, &a.Scalars[i]) || !hasRule(a.Scalars, &b.Scalars[i]) {
			return false
		}
	}
	return true
}
