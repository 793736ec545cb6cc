package program

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"

	"stele.dev/stele/schemas/textforms"
	"stele.dev/stele/schemas/wording"
)

// maxShownRunes is the maximum length of a value in an error message.
const maxShownRunes = 64

// fail records an error at the current path. All errors of a program pass through it.
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

// hush reports whether errors are not recorded. It then only notes that the value is invalid.
func (v *inspection) hush() bool {
	v.failed = v.failed || v.quiet > 0
	return v.quiet > 0
}

// report adds an error about the value at the path, or about a part of it.
func (v *inspection) report(e *field.Error) {
	switch {
	case v.quiet > 0:
		v.failed = true
	case !v.excused(e):
		v.errs = append(v.errs, e)
	}
}

func (v *inspection) invalid(x any, detail string, source schemas.Position) {
	v.fail(&field.Error{Type: field.ErrorTypeInvalid, BadValue: shortValue(x), Detail: withLine(detail, source)})
}

// withLine appends the line of the rule to an error's detail.
func withLine(detail string, source schemas.Position) string {
	if source.IsZero() {
		return detail
	}
	return detail + " (" + source.String() + ")"
}

// Place returns the suffix of an error's detail that names the line of the rule, or "".
func Place(e *field.Error) string {
	start := strings.LastIndex(e.Detail, " (")
	if start < 0 || !strings.HasSuffix(e.Detail, ")") || !strings.Contains(e.Detail[start:], ":") {
		return ""
	}
	return e.Detail[start:]
}

// shortValue returns a bad value, shortened for an error message.
func shortValue(x any) any {
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
		Detail:   withLine("must be "+nounOf(f.check), f.check.node.Source),
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
	bad := shortValue(x)
	if c.node.HasSensitive() {
		bad = field.OmitValueType{} // a secret in an unexpected place
	}
	v.fail(&field.Error{
		Type:     field.ErrorTypeTypeInvalid,
		BadValue: bad,
		Detail:   withLine(detail, c.node.Source),
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

// alternatives returns the alternatives for one of the kinds.
func (c *check) alternatives(k schemas.Kinds) []*schemas.Scalar { return c.node.Alternatives(k) }

// bad handles a scalar that no alternative for its kind admits. If there is exactly one alternative, bad
// returns it, and the caller reports the details. Otherwise bad reports the error and returns nil.
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
			BadValue: shortValue(x),
			Detail:   withLine("supported values: "+wording.Values(enum), c.node.Source),
		})
		return nil
	case len(found) == 1:
		return found[0]
	}
	var said []string
	for _, s := range found {
		said = append(said, wording.Scalar(s))
	}
	v.invalid(x, "must be "+wording.Or(said), c.node.Source)
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

// violations reports each rule that x breaks. t is the only alternative.
func (v *inspection) violations(t *textCheck, x string) {
	s := t.rule
	if t.tooShort(x) {
		v.fail(&field.Error{
			Type: field.ErrorTypeTooShort, BadValue: shortValue(x),
			Detail: withLine("must have "+wording.Length(s), s.MinRunes.Source),
		})
	}
	if t.tooLong(x) {
		v.fail(&field.Error{
			Type: field.ErrorTypeTooLong, BadValue: "<value omitted>",
			Detail: withLine("must have "+wording.Length(s), s.MaxRunes.Source),
		})
	}
	for i, re := range t.patterns {
		if p := &s.Patterns[i]; re.MatchString(x) == p.Negated {
			v.invalid(x, "must "+wording.Pattern(p), p.Source)
		}
	}
	for i, admits := range t.forms {
		if !admits(x) {
			form, _ := textforms.Named(s.Forms[i].Name)
			v.invalid(x, "must be "+form.Phrase, s.Forms[i].Source)
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
		v.invalid(x, "must be "+wording.Bounds(s), s.Minimum.Source)
	case above:
		v.invalid(x, "must be "+wording.Bounds(s), s.Maximum.Source)
	case !s.Kinds.Has(schemas.NumberKind):
		if _, ok := x.(int64); !ok {
			v.wrongKind(c, x)
		}
	}
	v.forbidden(s, x)
	for i := range c.numbers {
		if n := &c.numbers[i]; n.rule == s && n.multiple != nil && !n.multiple.Has(x) {
			v.invalid(x, "must be a multiple of "+s.MultipleOf.Value, s.MultipleOf.Source)
		}
	}
}

// outside reports whether x is below or above the interval.
func outside(s *schemas.Scalar, x any) (below, above bool) {
	in := func(lower, upper *schemas.Bound) bool {
		iv, err := NewInterval(lower, upper)
		if err != nil {
			return false
		}
		switch x := x.(type) {
		case int64:
			return iv.HasInt(x)
		case float64:
			return iv.HasFloat(x)
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
		if len(names) == wording.MaxShownValues {
			names = append(names, "…")
			break
		}
		names = append(names, f.Name)
	}
	detail := "unknown field; no fields are known here"
	if len(names) > 0 {
		detail = "unknown field; known are " + strings.Join(names, ", ")
	}
	v.fail(&field.Error{Type: field.ErrorTypeForbidden, BadValue: "", Detail: withLine(detail, c.node.Source)})
}

func (v *inspection) badKey(c *check, key string) {
	if v.hush() {
		return
	}
	var said []string
	source := c.node.Source
	for i := range c.object.patterns {
		k := c.object.patterns[i].key.node
		said = append(said, wording.Node(k))
		source = k.Source
	}
	v.invalid(key, "a key must be "+wording.Or(said), source)
}

func (v *inspection) tooFew(c *check, n int) {
	if v.hush() {
		return
	}
	detail := "must have at least " + wording.Count(c.list.min, "item")
	v.fail(&field.Error{Type: field.ErrorTypeTooFew, BadValue: n, Detail: withLine(detail, c.node.List.MinItems.Source)})
}

func (v *inspection) tooMany(c *check, n int) {
	if v.hush() {
		return
	}
	detail := "must have at most " + wording.Count(c.list.max, "item")
	v.fail(&field.Error{Type: field.ErrorTypeTooMany, BadValue: n, Detail: withLine(detail, c.node.List.MaxItems.Source)})
}

func (v *inspection) duplicate(c *check, x any) {
	if v.hush() {
		return
	}
	v.fail(&field.Error{Type: field.ErrorTypeDuplicate, BadValue: shortValue(x), Detail: withLine("items must be unique", c.node.Source)})
}

// nounOf returns the kinds of values that a check admits as text: "a string or an integer".
func nounOf(c *check) string { return wording.Kinds(c.kinds) }
