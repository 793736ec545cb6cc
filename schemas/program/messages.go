package program

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/textforms"
)

// How much of a value and of an enumeration a message shows.
const (
	maxShownRunes  = 64
	maxShownValues = 20
)

// fail records an error at the current path. Everything that a program has to
// say goes through here.
func (v *inspection) fail(e *field.Error) {
	if v.quiet > 0 {
		v.failed = v.failed || !v.lenient || !lacks(e)
		return
	}
	e.Field = fieldPath(v.path).String()
	if len(v.path) == 0 {
		e.Field = ""
	}
	if v.secret > 0 {
		e.BadValue = field.OmitValueType{}
	}
	v.report(e)
}

// hush reports whether only the verdict counts, and notes that it is bad.
func (v *inspection) hush() bool {
	v.failed = v.failed || v.quiet > 0
	return v.quiet > 0
}

// report adds an error about the value at the path, or something in it.
func (v *inspection) report(e *field.Error) {
	switch {
	case v.quiet > 0:
		v.failed = true
	case !v.excused(e):
		v.errs = append(v.errs, e)
	}
}

func (v *inspection) invalid(x any, detail string, source schemas.Position) {
	v.fail(&field.Error{Type: field.ErrorTypeInvalid, BadValue: shown(x), Detail: at(detail, source)})
}

// at appends the line of the rule to what the rule says.
func at(detail string, source schemas.Position) string {
	if source.IsZero() {
		return detail
	}
	return detail + " (" + source.String() + ")"
}

// Place is the end of an error's detail that says where the rule stands, empty if none does.
func Place(e *field.Error) string {
	start := strings.LastIndex(e.Detail, " (")
	if start < 0 || !strings.HasSuffix(e.Detail, ")") || !strings.Contains(e.Detail[start:], ":") {
		return ""
	}
	return e.Detail[start:]
}

// shown returns as much of a bad value as belongs in a message.
func shown(x any) any {
	switch x := x.(type) {
	case string:
		if utf8.RuneCountInString(x) <= maxShownRunes {
			return x
		}
		end := 0
		for i := range x {
			if end == maxShownRunes {
				return x[:i] + "…"
			}
			end++
		}
		return x
	case []any, map[string]any:
		return field.OmitValueType{}
	}
	return x
}

func (v *inspection) missing(f *fieldCheck) {
	if v.quiet > 0 {
		v.failed = v.failed || !v.lenient
		return
	}
	v.push(step{name: f.name})
	v.fail(&field.Error{
		Type:     field.ErrorTypeRequired,
		BadValue: "",
		Detail:   at("must be "+nounOf(f.check), f.check.node.Source),
	})
	v.pop()
}

func (v *inspection) wrongKind(c *check, x any) {
	if v.hush() {
		return
	}
	detail := "must be " + nounOf(c)
	switch x := x.(type) {
	case float64:
		if c.kinds.Has(schemas.IntegerKind) && x == math.Trunc(x) {
			detail += " of at most 64 bits"
		}
	case []any:
		detail += ", not a list"
	case map[string]any:
		detail += ", not an object"
	}
	bad := shown(x)
	if c.node.HasSensitive() {
		bad = field.OmitValueType{} // a secret at the wrong place
	}
	v.fail(&field.Error{
		Type:     field.ErrorTypeTypeInvalid,
		BadValue: bad,
		Detail:   at(detail, c.node.Source),
	})
}

func (v *inspection) badFormat(c *check, x string) {
	if v.hush() {
		return
	}
	switch c.node.Format {
	case schemas.FormatByte:
		v.invalid(x, "must be base64", c.node.Source)
	case schemas.FormatDateTime:
		v.invalid(x, "must be a date and time as in RFC 3339, such as 2006-01-02T15:04:05Z", c.node.Source)
	default:
		v.invalid(x, "must be of the format "+c.node.Format, c.node.Source)
	}
}

// alternatives returns the alternatives that speak of one of the kinds.
func (c *check) alternatives(k schemas.Kinds) []*schemas.Scalar { return c.node.Alternatives(k) }

// bad reports a scalar that no alternative for its kind admits. It returns the
// only alternative if there is just one, for the caller to say what is wrong in
// particular, and nil if everything is said.
func (v *inspection) bad(c *check, x any, kinds schemas.Kinds) *schemas.Scalar {
	found := c.alternatives(kinds)
	var enum []json.RawMessage
	for _, s := range found {
		if len(s.Enum) == 0 {
			enum = nil
			break
		}
		enum = append(enum, s.Enum...)
	}
	switch {
	case enum != nil && c.kinds&^kinds&^schemas.NullKind == 0, len(found) == 1 && enum != nil:
		v.fail(&field.Error{
			Type:     field.ErrorTypeNotSupported,
			BadValue: shown(x),
			Detail:   at("supported values: "+listOf(enum), c.node.Source),
		})
		return nil
	case len(found) == 1:
		return found[0]
	}
	var said []string
	for _, s := range found {
		said = append(said, describeScalar(s))
	}
	v.invalid(x, "must be "+orList(said), c.node.Source)
	return nil
}

func (v *inspection) badBool(c *check, x bool) {
	if v.hush() {
		return
	}
	if s := v.bad(c, x, schemas.BoolKind); s != nil {
		v.invalid(x, "must be "+strconv.FormatBool(!x), c.node.Source)
	}
}

func (v *inspection) badText(c *check, x string) {
	if v.hush() {
		return
	}
	s := v.bad(c, x, schemas.StringKind)
	if s == nil {
		return
	}
	for i := range c.texts {
		if t := &c.texts[i]; t.rule == s {
			v.violations(t, x)
			return
		}
	}
}

// violations reports each rule of the only alternative that x breaks.
func (v *inspection) violations(t *textCheck, x string) {
	s := t.rule
	if t.tooShort(x) {
		v.fail(&field.Error{
			Type: field.ErrorTypeTooShort, BadValue: shown(x),
			Detail: at("must have "+lengthPhrase(s), s.MinRunes.Source),
		})
	}
	if t.tooLong(x) {
		v.fail(&field.Error{
			Type: field.ErrorTypeTooLong, BadValue: "<value omitted>",
			Detail: at("must have "+lengthPhrase(s), s.MaxRunes.Source),
		})
	}
	for i, re := range t.patterns {
		if p := &s.Patterns[i]; re.MatchString(x) == p.Negated {
			v.invalid(x, "must "+patternPhrase(p), p.Source)
		}
	}
	for i, admits := range t.forms {
		if !admits(x) {
			v.invalid(x, "must be "+textforms.ByName[s.Forms[i].Name].Phrase, s.Forms[i].Source)
		}
	}
	v.forbidden(s, x)
}

// forbidden reports x if it is one of the values that s excludes.
func (v *inspection) forbidden(s *schemas.Scalar, x any) {
	for _, not := range s.Not {
		if y, err := jsonvalue.Decode(not.Value); err == nil && jsonvalue.SameScalar(x, y) {
			v.invalid(x, "must not be "+string(not.Value), not.Source)
		}
	}
}

func (v *inspection) badNumber(c *check, x any) {
	if v.hush() {
		return
	}
	s := v.bad(c, x, schemas.IntegerKind|schemas.NumberKind)
	if s == nil {
		return
	}
	below, above := outside(s, x)
	switch {
	case below:
		v.invalid(x, "must be "+boundsPhrase(s), s.Minimum.Source)
	case above:
		v.invalid(x, "must be "+boundsPhrase(s), s.Maximum.Source)
	case !s.Kinds.Has(schemas.NumberKind):
		if _, ok := x.(int64); !ok {
			v.wrongKind(c, x)
		}
	}
	v.forbidden(s, x)
	for i := range c.numbers {
		if n := &c.numbers[i]; n.rule == s && n.multiple != nil && !n.multiple.has(x) {
			v.invalid(x, "must be a multiple of "+s.MultipleOf.Value, s.MultipleOf.Source)
		}
	}
}

// outside reports on which side of the interval x lies, if it does.
func outside(s *schemas.Scalar, x any) (below, above bool) {
	in := func(lower, upper *schemas.Bound) bool {
		iv, err := newInterval(lower, upper)
		if err != nil {
			return false
		}
		switch x := x.(type) {
		case int64:
			return iv.hasInt(x)
		case float64:
			return iv.hasFloat(x)
		}
		return false
	}
	return s.Minimum != nil && !in(s.Minimum, nil), s.Maximum != nil && !in(nil, s.Maximum)
}

func (v *inspection) unknown(c *check) {
	if v.hush() {
		return
	}
	var names []string
	for _, f := range c.node.Struct.Fields {
		if len(names) == maxShownValues {
			names = append(names, "…")
			break
		}
		names = append(names, f.Name)
	}
	detail := "unknown field; no fields are known here"
	if len(names) > 0 {
		detail = "unknown field; known are " + strings.Join(names, ", ")
	}
	v.fail(&field.Error{Type: field.ErrorTypeForbidden, BadValue: "", Detail: at(detail, c.node.Source)})
}

func (v *inspection) badKey(c *check, key string) {
	if v.hush() {
		return
	}
	var said []string
	source := c.node.Source
	for i := range c.object.patterns {
		k := c.object.patterns[i].key.node
		said = append(said, describeNode(k))
		source = k.Source
	}
	v.invalid(key, "a key must be "+orList(said), source)
}

func (v *inspection) tooFew(c *check, n int) {
	if v.hush() {
		return
	}
	v.fail(&field.Error{
		Type: field.ErrorTypeTooFew, BadValue: n,
		Detail: at("must have at least "+counted(c.list.min, "item"), c.node.List.MinItems.Source),
	})
}

func (v *inspection) tooMany(c *check, n int) {
	if v.hush() {
		return
	}
	v.fail(&field.Error{
		Type: field.ErrorTypeTooMany, BadValue: n,
		Detail: at("must have at most "+counted(c.list.max, "item"), c.node.List.MaxItems.Source),
	})
}

func (v *inspection) duplicate(c *check, x any) {
	if v.hush() {
		return
	}
	v.fail(&field.Error{
		Type: field.ErrorTypeDuplicate, BadValue: shown(x),
		Detail: at("items must be unique", c.node.Source),
	})
}

// nounOf says what kinds of value a check admits: "a string or an integer".
func nounOf(c *check) string { return noun(c.kinds) }

func noun(k schemas.Kinds) string {
	if k == schemas.AnyKind {
		return "a value of any kind"
	}
	var nouns []string
	for _, n := range [...]struct {
		kind schemas.Kinds
		noun string
	}{
		{schemas.StringKind, "a string"},
		{schemas.IntegerKind, "an integer"},
		{schemas.NumberKind, "a number"},
		{schemas.BoolKind, "a boolean"},
		{schemas.ListKind, "a list"},
		{schemas.StructKind, "an object"},
		{schemas.NullKind, "null"},
	} {
		if k.Has(n.kind) && !(n.kind == schemas.IntegerKind && k.Has(schemas.NumberKind)) {
			nouns = append(nouns, n.noun)
		}
	}
	return orList(nouns)
}

// describeNode says what a node admits, for nodes of scalars.
func describeNode(n *schemas.Node) string {
	said := make([]string, 0, len(n.Scalars))
	spoken := schemas.Kinds(0)
	for i := range n.Scalars {
		said = append(said, describeScalar(&n.Scalars[i]))
		spoken |= n.Scalars[i].Kinds
	}
	if rest := n.Kinds &^ spoken; rest != 0 {
		said = append(said, noun(rest))
	}
	return orList(said)
}

// describeScalar says what an alternative admits: "an integer of at least 5".
func describeScalar(s *schemas.Scalar) string {
	if len(s.Enum) == 1 {
		return string(s.Enum[0])
	}
	if len(s.Enum) > 1 {
		return "one of " + listOf(s.Enum)
	}
	var rules []string
	if b := boundsPhrase(s); b != "" {
		rules = append(rules, "is "+b)
	}
	if l := lengthPhrase(s); l != "" {
		rules = append(rules, "has "+l)
	}
	for _, p := range s.Patterns {
		rules = append(rules, choose(p.Negated, "does not match ", "matches ")+p.Regexp)
	}
	for _, f := range s.Forms {
		rules = append(rules, "is "+textforms.ByName[f.Name].Phrase)
	}
	for _, not := range s.Not {
		rules = append(rules, "is not "+string(not.Value))
	}
	if s.MultipleOf != nil {
		rules = append(rules, "is a multiple of "+s.MultipleOf.Value)
	}
	if len(rules) == 0 {
		return noun(s.Kinds)
	}
	return noun(s.Kinds) + " that " + strings.Join(rules, " and ")
}

func patternPhrase(p *schemas.Pattern) string {
	if p.Negated {
		return "not match " + p.Regexp
	}
	return "match " + p.Regexp
}

// boundsPhrase says where a number must lie: "at least 1 and at most 1000".
func boundsPhrase(s *schemas.Scalar) string {
	var said []string
	if b := s.Minimum; b != nil {
		said = append(said, choose(b.Exclusive, "greater than ", "at least ")+b.Value)
	}
	if b := s.Maximum; b != nil {
		said = append(said, choose(b.Exclusive, "less than ", "at most ")+b.Value)
	}
	return strings.Join(said, " and ")
}

// lengthPhrase says how long a string must be.
func lengthPhrase(s *schemas.Scalar) string {
	var said []string
	if s.MinRunes != nil {
		said = append(said, "at least "+counted(s.MinRunes.Count, "character"))
	}
	if s.MaxRunes != nil {
		said = append(said, "at most "+counted(s.MaxRunes.Count, "character"))
	}
	return strings.Join(said, " and ")
}

func choose[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func listOf(values []json.RawMessage) string {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == maxShownValues {
			b.WriteString("…")
			break
		}
		b.Write(v)
	}
	return b.String()
}

// orList joins alternatives as a sentence does.
func orList(said []string) string {
	switch len(said) {
	case 0:
		return "nothing"
	case 1:
		return said[0]
	}
	return strings.Join(said[:len(said)-1], ", ") + " or " + said[len(said)-1]
}
