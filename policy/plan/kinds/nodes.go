package kinds

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/textforms"
)

const numeric = schemas.IntegerKind | schemas.NumberKind

// node compares what two nodes say of one value. A nil node admits everything.
func (c *comparison) node(at place, a, b *schemas.Node) {
	if a == nil && b == nil || len(at.names) > schemas.MaxDepth || c.ctx.Err() != nil {
		return
	}
	a, b = orAny(a), orAny(b)
	c.marks(at, a, b)
	if !c.types(at, a, b) {
		return
	}
	both := a.Kinds & b.Kinds
	if both&schemas.ScalarKinds != 0 {
		c.scalars(at, a, b, both)
	}
	if both&schemas.StringKind != 0 {
		c.format(at, a, b)
	}
	if both&schemas.ListKind != 0 {
		c.list(at, a, b)
	}
	if both&schemas.StructKind != 0 {
		c.structsOrUnions(at, a, b)
	}
	c.logic(at, a, b)
	c.compareReferences(at, a, b)
	c.fallback(at, a.Fallback, b.Fallback)
}

func orAny(n *schemas.Node) *schemas.Node {
	if n == nil {
		return &schemas.Node{Kinds: schemas.AnyKind}
	}
	return n
}

// types compares the kinds of values, and reports whether there is something in common to compare further.
func (c *comparison) types(at place, a, b *schemas.Node) bool {
	lost, gained := a.Kinds&^b.Kinds, b.Kinds&^a.Kinds
	if lost == 0 && gained == 0 {
		return true
	}
	d := difference{rule: "FIELD_TYPE_CHANGED", before: types(a), after: types(b), was: a.Source, is: b.Source, message: "The value has another type."}
	if lost != 0 {
		d.way |= loses
	}
	if gained != 0 {
		d.way |= gains
	}
	switch {
	case a.Kinds&b.Kinds == 0:
		d.before, d.after = describe(a), describe(b)
	case d.way == gains:
		d.message = "The value may have further types."
		d.details = []string{"Clients that read it may meet a type that they do not know."}
	case d.way == loses:
		d.message = "The value may no longer have every type that it could have."
	}
	c.add(at, d)
	return a.Kinds&b.Kinds != 0
}

// marks compares what nodes say of a value beside what it may be.
func (c *comparison) marks(at place, a, b *schemas.Node) {
	mark := func(rule string, way direction, was, is bool, message string) {
		if was != is {
			d := difference{rule: rule, way: way, was: a.Source, is: b.Source, message: message}
			c.as(plan.RuleNamed(rule).Class, at, d)
		}
	}
	if a.Immutable == nil && b.Immutable != nil {
		c.add(at, difference{rule: "IMMUTABLE_ADDED", way: loses, after: "immutable", was: a.Source, is: position(*b.Immutable, b.Source),
			message: "Updates that change the value are refused."})
	}
	if a.Immutable != nil && b.Immutable == nil {
		c.add(at, difference{rule: "IMMUTABLE_REMOVED", way: gains, before: "immutable", was: position(*a.Immutable, a.Source), is: b.Source,
			message: "Updates may change the value."})
	}
	if !a.Sensitive {
		mark("SENSITIVE_ADDED", loses, a.Sensitive, b.Sensitive, "The value is a secret now: errors and stele's commands hide it, and less of the past can be read.")
	} else {
		mark("SENSITIVE_REMOVED", gains, a.Sensitive, b.Sensitive, "The value is no secret any more: errors and stele's commands show it, also in the past.")
	}
	if a.Embedded != b.Embedded {
		c.add(at, difference{rule: "CONSTRAINT_CHANGED", way: way(a.Embedded, b.Embedded), before: word(a.Embedded, "an object"), after: word(b.Embedded, "an object"),
			was: a.Source, is: b.Source, message: "Whether apiVersion, kind and metadata of the object inside are checked differs."})
	}
	if kept := func(n *schemas.Node) string {
		return word(n.Keeps && n.Struct == nil, "kept") + word(n.Bare, "removed")
	}; kept(a) != kept(b) {
		c.add(at, difference{rule: "CONSTRAINT_CHANGED", before: kept(a), after: kept(b), was: a.Source, is: b.Source,
			message: "What becomes of fields that are not declared differs."})
	}
	if at.String() == "" && a.Plain != b.Plain {
		rules := map[bool]string{true: "as OpenAPI does", false: "as CUE does"}
		c.add(at, difference{rule: "CONSTRAINT_CHANGED", before: rules[a.Plain], after: rules[b.Plain], was: a.Source, is: b.Source,
			message: "Defaults are filled in, and formats are checked, by other rules."})
	}
	if a.Plain && b.Plain && a.Kinds == b.Kinds && a.DropNull != b.DropNull && !at.key {
		c.add(at, difference{rule: "CONSTRAINT_CHANGED", before: word(a.DropNull, "a null is dropped"), after: word(b.DropNull, "a null is dropped"), was: a.Source, is: b.Source,
			message: "What becomes of a null differs."})
	}
	if a.Message != b.Message {
		c.describe(at, "message", a.Message, b.Message, a, b)
	}
	if clean(a.Doc) != clean(b.Doc) {
		c.describe(at, "comment", clean(a.Doc), clean(b.Doc), a, b)
	}
}

func clean(doc string) string { return strings.Join(strings.Fields(doc), " ") }

func (c *comparison) describe(at place, what, before, after string, a, b *schemas.Node) {
	c.as(plan.Looks, at, difference{rule: "DESCRIPTION_CHANGED", before: short(before), after: short(after), was: a.Source, is: b.Source,
		message: "The " + what + " differs."})
}

// way is the direction of a constraint that one side has.
func way(was, is bool) direction {
	switch {
	case !was && is:
		return loses
	case was && !is:
		return gains
	}
	return unknown
}

func word(yes bool, text string) string {
	if yes {
		return text
	}
	return ""
}

// format compares the formats of OpenAPI. Formats that are not checked are documentation.
func (c *comparison) format(at place, a, b *schemas.Node) {
	if a.Format == b.Format {
		return
	}
	was, is := textforms.FormatOf(a) != nil, textforms.FormatOf(b) != nil
	d := difference{rule: "PATTERN_CHANGED", way: way(was, is), before: a.Format, after: b.Format, was: a.Source, is: b.Source, message: "The format of the string differs."}
	switch {
	case !was && !is:
		c.describe(at, "format, which is not checked,", a.Format, b.Format, a, b)
	case was && is:
		form := func(n *schemas.Node) *schemas.Node {
			return &schemas.Node{Kinds: schemas.StringKind, Format: n.Format, Plain: n.Plain}
		}
		c.decide(at, d, form(a), form(b))
	default:
		c.add(at, d)
	}
}

// list compares two lists.
func (c *comparison) list(at place, na, nb *schemas.Node) {
	a, b := na.List, nb.List
	if a == nil {
		a = &schemas.List{}
	}
	if b == nil {
		b = &schemas.List{}
	}
	c.limits(at, a.MinItems, b.MinItems, a.MaxItems, b.MaxItems, "item", na, nb)
	typeOf := func(l *schemas.List) string {
		switch l.Type {
		case "", schemas.ListAtomic:
			return schemas.ListAtomic
		case schemas.ListMap:
			return "map by " + strings.Join(l.MapKeys, ", ")
		}
		return l.Type
	}
	if was, is := typeOf(a), typeOf(b); was != is {
		c.as(plan.Breaks, at, difference{rule: "LIST_TYPE_CHANGED", before: was, after: is, was: na.Source, is: nb.Source,
			message: "The list is merged in another way, and its items may have to differ otherwise.",
			details: []string{"Server-side apply and strategic merges of clients work otherwise from the push on; field owners of the items are not kept."}})
	} else if a.Unique != b.Unique {
		c.add(at, difference{rule: "CONSTRAINT_CHANGED", way: way(a.Unique, b.Unique), before: word(a.Unique, "unique items"), after: word(b.Unique, "unique items"),
			was: na.Source, is: nb.Source, message: "Whether an item may occur twice differs."})
	}
	first := max(len(a.Prefix), len(b.Prefix))
	for i := range first {
		if was, is := reaches(a, i), reaches(b, i); was && is {
			c.node(place{route: at.route.index(i), when: at.when}, a.At(i), b.At(i))
		}
	}
	if reaches(a, first) && reaches(b, first) {
		c.node(at.items(), a.At(first), b.At(first))
	}
}

// reaches reports whether a list may have an item at an index.
func reaches(l *schemas.List, i int) bool { return l.MaxItems == nil || l.MaxItems.Count > i }

// limits compares the least and the greatest number of items, fields or characters.
func (c *comparison) limits(at place, amin, bmin, amax, bmax *schemas.Limit, noun string, a, b *schemas.Node) {
	say := func(text string, l *schemas.Limit, none int) string {
		if l == nil || l.Count == none {
			return ""
		}
		if l.Count == 1 {
			return fmt.Sprintf("%s 1 %s", text, noun)
		}
		return fmt.Sprintf("%s %d %ss", text, l.Count, noun)
	}
	of := func(l *schemas.Limit, n *schemas.Node) schemas.Position {
		if l != nil {
			return position(l.Source, n.Source)
		}
		return n.Source
	}
	count := func(l *schemas.Limit, none int) int {
		if l == nil {
			return none
		}
		return l.Count
	}
	const endless = int(^uint(0) >> 1)
	bound := func(was, is *schemas.Limit, text string, tighter bool, none int) {
		if count(was, none) == count(is, none) {
			return
		}
		d := difference{rule: "BOUND_LOOSENED", way: gains, before: say(text, was, none), after: say(text, is, none), was: of(was, a), is: of(is, b)}
		if tighter {
			d.rule, d.way = "BOUND_TIGHTENED", loses
		}
		c.add(at, d)
	}
	bound(amin, bmin, "at least", count(bmin, 0) > count(amin, 0), 0)
	bound(amax, bmax, "at most", count(bmax, endless) < count(amax, endless), endless)
}

// logic compares OpenAPI's allOf, anyOf, oneOf and not.
func (c *comparison) logic(at place, na, nb *schemas.Node) {
	a, b := na.Logic, nb.Logic
	if a == nil {
		a = &schemas.Logic{}
	}
	if b == nil {
		b = &schemas.Logic{}
	}
	part := func(name string, was, is []*schemas.Node, more direction) {
		was, is = without(was, is), without(is, was)
		if len(was)+len(is) == 0 {
			return
		}
		d := difference{rule: "CONSTRAINT_CHANGED", before: operators(name, was), after: operators(name, is), was: na.Source, is: nb.Source,
			message: "What the value must satisfy besides differs."}
		switch {
		case more == unknown || len(was) > 0 && len(is) > 0:
			other := *na
			other.Logic = nb.Logic
			c.decide(at, d, na, &other)
			return
		case len(is) > 0:
			d.way = more
		default:
			d.way = more ^ (loses | gains)
		}
		c.add(at, d)
	}
	part("allOf", a.AllOf, b.AllOf, loses)
	anyOf := gains
	if len(a.AnyOf) == 0 || len(b.AnyOf) == 0 {
		anyOf = loses // the first ones restrict
	}
	part("anyOf", a.AnyOf, b.AnyOf, anyOf)
	oneOf := unknown
	if len(a.OneOf) == 0 || len(b.OneOf) == 0 {
		oneOf = loses
	}
	part("oneOf", a.OneOf, b.OneOf, oneOf)
	part("not", alternatives(a.Not), alternatives(b.Not), loses)
}

func alternatives(n *schemas.Node) []*schemas.Node {
	if n == nil {
		return nil
	}
	return []*schemas.Node{n}
}

// without returns the nodes that are not among others.
func without(nodes, others []*schemas.Node) (rest []*schemas.Node) {
	for _, n := range nodes {
		if !slices.ContainsFunc(others, func(o *schemas.Node) bool { return schemas.Same(n, o) }) {
			rest = append(rest, n)
		}
	}
	return rest
}

func operators(name string, nodes []*schemas.Node) string {
	var all []string
	for _, n := range nodes {
		all = append(all, describe(n))
	}
	if all == nil {
		return ""
	}
	return short(name + " " + strings.Join(all, ", "))
}

// compareReferences compares references to other fields. References that are only defaults are compared with the defaults.
func (c *comparison) compareReferences(at place, na, nb *schemas.Node) {
	equal := func(n *schemas.Node) (string, schemas.Position) {
		if n.From == nil || n.From.Default {
			return "", n.Source
		}
		return "= " + n.From.String(), position(n.From.Source, n.Source)
	}
	was, wasAt := equal(na)
	is, isAt := equal(nb)
	if was == is {
		if na.From == nil || nb.From == nil || slices.EqualFunc(na.From.Parts, nb.From.Parts, func(p, q schemas.Part) bool {
			return p.Text == q.Text && p.Up == q.Up && p.Key == q.Key && slices.Equal(p.Path, q.Path)
		}) {
			return
		}
	}
	if was == "" && is == "" {
		return
	}
	c.add(at, difference{rule: "CONSTRAINT_CHANGED", way: way(was != "", is != ""), before: was, after: is, was: wasAt, is: isAt,
		message: "The field must be equal to another one."})
}

// fallback compares what only CUE can check, by its text.
func (c *comparison) fallback(at place, a, b *schemas.Fallback) {
	d := difference{message: "Only CUE can check this part."}
	switch {
	case a == nil && b == nil, a != nil && b != nil && a.CUE == b.CUE:
		return
	case a == nil:
		d.rule, d.after, d.is = "CUE_FALLBACK_ADDED", short(b.Reason), b.Source
		d.details = []string{"Each write takes some tenths of a millisecond longer.", incomparable}
	case b == nil:
		d.rule, d.before, d.was = "CONSTRAINT_CHANGED", short(a.Reason), a.Source
		d.message, d.details = "This part is no longer left to CUE.", []string{incomparable}
	default:
		d.rule, d.was, d.is = "CONSTRAINT_CHANGED", a.Source, b.Source
		d.before, d.after = differing(a.CUE, b.CUE)
		d.message, d.details = "Only CUE can check this part, and its text differs.", []string{incomparable}
	}
	c.add(at, d).Evidence = plan.Possible
}

// differing returns the parts in which two texts differ, shortened.
func differing(a, b string) (was, is string) {
	a, b = clean(a), clean(b)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	for head > 0 && head < max(len(a), len(b)) && !strings.ContainsRune(" {,(", rune(a[head-1])) {
		head--
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	for tail > 0 && !strings.ContainsRune(" },)", rune(a[len(a)-tail])) {
		tail--
	}
	return short(a[head : len(a)-tail]), short(b[head : len(b)-tail])
}
