package program

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// A step is one element of the path to a value: a field name, an item index, or a map key.
type step struct {
	name  string
	index int
	kind  stepKind
}

type stepKind uint8

const (
	stepField stepKind = iota
	stepItem
	stepKey
)

// fieldPath builds the path for an error. It is only called on failure. Until then a path is a stack of
// steps, which allocates nothing.
func fieldPath(steps []step) *field.Path {
	var p *field.Path
	for _, s := range steps {
		switch s.kind {
		case stepField:
			p = p.Child(s.name)
		case stepItem:
			p = p.Index(s.index)
		case stepKey:
			p = p.Key(s.name)
		}
	}
	return p
}

// An inspection is one run of Validate.
type inspection struct {
	path   []step
	scopes []scope // enclosing structs, as far as references may lead to them
	errs   field.ErrorList

	// quiet is above 0 while errors are not recorded. failed then reports whether there was one.
	quiet int
	// lenient ignores missing values.
	lenient bool
	failed  bool

	mayRepeat bool // duplicates in lists of type set and map are excused
	repeats   bool // such a duplicate was found

	ratchet  *ratchet  // the old object, if unchanged invalid values are excused
	whole    int       // depth of the value, from 1, that errors concern as a whole; 0: none
	secret   int       // number of sensitive values around the current value
	patience *patience // the limit on evaluations; nil before the first
}

// Pools of inspections and preparations: a run that finds no error allocates nothing.
var (
	inspections  = sync.Pool{New: func() any { return &inspection{path: make([]step, 0, 16)} }}
	preparations = sync.Pool{New: func() any { return &preparation{path: make([]step, 0, 16)} }}
)

func (v *inspection) push(s step) { v.path = append(v.path, s) }

func (v *inspection) pop() { v.path = v.path[:len(v.path)-1] }

// value checks x and its parts.
func (v *inspection) value(c *check, x any) {
	if v.quiet > 0 && v.failed {
		return
	}
	if c.node.Sensitive {
		v.secret++
		defer func() { v.secret-- }()
	}
	before := len(v.errs)
	if c.node.Message != "" {
		defer func() { v.explain(c, x, before) }()
	}
	if c.logic != nil && x != nil && c.kinds&schemas.KindOf(x) != 0 {
		v.logic(c.logic, x, c.node.Source)
	}
	if v.isDefault(c, x) {
		return
	}
	switch x := x.(type) {
	case string:
		if !c.kinds.Has(schemas.StringKind) {
			v.wrongKind(c, x)
			return
		}
		if len(c.texts) > 0 && !c.admitsText(x) {
			v.badText(c, x)
		}
		if c.format != nil && !c.format(x) {
			v.badFormat(c, x)
		}
	case int64:
		v.integer(c, x)
	case float64:
		if n, ok := jsonvalue.Int64(x); ok && c.narrows {
			v.integer(c, n)
			return
		}
		if !c.kinds.Has(schemas.NumberKind) {
			v.wrongKind(c, x)
			return
		}
		if len(c.numbers) > 0 && !c.admitsFloat(x) {
			v.badNumber(c, x)
		}
	case bool:
		if !c.kinds.Has(schemas.BoolKind) {
			v.wrongKind(c, x)
			return
		}
		if c.enum && !c.bools[b2i(x)] {
			v.badBool(c, x)
		}
	case map[string]any:
		if !c.kinds.Has(schemas.StructKind) {
			v.wrongKind(c, x)
			return
		}
		if c.node.Embedded {
			v.embedded(c, x)
		}
		if c.object != nil && !(c.completes && jsonvalue.PartOf(x, c.fallback)) {
			v.parts(c, x, c.node.Embedded)
		}
		return
	case []any:
		if !c.kinds.Has(schemas.ListKind) {
			v.wrongKind(c, x)
			return
		}
		if c.list != nil && !(c.completes && jsonvalue.PartOf(x, c.fallback)) {
			v.list(c, x)
		}
	case nil:
		if !c.kinds.Has(schemas.NullKind) {
			v.wrongKind(c, x)
		}
	default:
		v.fail(&field.Error{
			Type:     field.ErrorTypeTypeInvalid,
			BadValue: field.OmitValueType{},
			Detail:   fmt.Sprintf("a Go value of type %T is not decoded JSON", x),
		})
	}
	if c.node.From != nil && len(v.errs) == before {
		v.taken(c, x)
	}
	if c.fallbackCheck != nil {
		v.askCUE(c, x, before)
	}
}

// explain replaces the errors of a value by the policy's own message.
func (v *inspection) explain(c *check, x any, before int) {
	if len(v.errs) == before {
		return
	}
	e := v.errs[before]
	v.errs = v.errs[:before]
	if v.secret == 0 {
		e.BadValue = shortValue(x)
	}
	e.Type, e.Detail = field.ErrorTypeInvalid, withLine(c.node.Message, c.node.Source)
	v.errs = append(v.errs, e)
}

// parts checks the fields of the struct m, including unions.
func (v *inspection) parts(c *check, m map[string]any, root bool) {
	before := len(v.errs)
	if c.union != nil {
		before := v.joinErrors()
		v.choose(c, m, root)
		v.whole = before
	} else {
		v.object(c, m, root)
	}
	if c.fallbackCheck != nil {
		v.askCUE(c, content(m, root), before)
	}
}

// content returns the fields of an object that the schema constrains.
func content(m map[string]any, root bool) map[string]any {
	if !root {
		return m
	}
	own := maps.Clone(m)
	for key := range own {
		if schemas.ServerOwned(key) {
			delete(own, key)
		}
	}
	return own
}

// askCUE evaluates the fallback of x in CUE if all other checks passed.
func (v *inspection) askCUE(c *check, x any, before int) {
	if len(v.errs) == before {
		whole := v.joinErrors()
		v.fallback(c, x)
		v.whole = whole
	}
}

func (v *inspection) integer(c *check, x int64) {
	if !c.kinds.Has(schemas.IntegerKind) {
		v.wrongKind(c, x)
		return
	}
	if len(c.numbers) > 0 && !c.admitsInt(x) {
		v.badNumber(c, x)
	}
}

// object checks the fields of m. At the root, and in an embedded object, it skips apiVersion, kind and
// metadata.
func (v *inspection) object(c *check, m map[string]any, root bool) {
	o := c.object
	if o.refers {
		v.scopes = append(v.scopes, enter(o, m, v.path))
		defer func() { v.scopes = v.scopes[:len(v.scopes)-1] }()
	}
	known := 0
	var added map[string]bool
	if o.conditions != nil {
		before := v.joinErrors()
		added = v.added(o, m)
		v.whole = before
	}
	for i := range o.fields {
		f := &o.fields[i]
		x, ok := m[f.name]
		if added[f.name] {
			if ok {
				known++
			}
			continue // conditions declare the field
		}
		if !ok {
			if f.check.refers && v.absent(f) {
				continue
			}
			if f.presence == schemas.Required || f.presence == schemas.Regular && !f.fills {
				v.missing(f)
			}
			continue
		}
		known++
		v.push(step{name: f.name})
		v.value(f.check, x)
		v.pop()
	}
	if o.comparisons != nil {
		before := v.joinErrors()
		v.compare(o, m)
		v.whole = before
	}
	if o.min > 0 || o.max >= 0 {
		v.count(c, m, root)
	}
	if known == len(m) || o.open && len(o.patterns) == 0 {
		return
	}
	// Map iteration has no fixed order. If there are errors, check the keys again in sorted order.
	before := len(v.errs)
	for key, x := range m {
		v.extra(c, key, x, root)
	}
	if len(v.errs) == before {
		return
	}
	v.errs = v.errs[:before]
	for _, key := range slices.Sorted(maps.Keys(m)) {
		v.extra(c, key, m[key], root)
	}
}

// extra checks a key that may be undeclared.
func (v *inspection) extra(c *check, key string, x any, root bool) {
	o := c.object
	if _, ok := o.index[key]; ok || root && schemas.ServerOwned(key) {
		return
	}
	matched := false
	for i := range o.patterns {
		p := &o.patterns[i]
		if !p.key.admitsKey(key) {
			continue
		}
		matched = true
		v.push(step{name: key, kind: stepKey})
		v.value(p.value, x)
		v.pop()
	}
	if matched || o.open {
		return
	}
	if len(o.patterns) > 0 {
		v.badKey(c, key)
		return
	}
	v.push(step{name: key})
	v.unknown(c)
	v.pop()
}

func (v *inspection) list(c *check, items []any) {
	l := c.list
	if len(items) < l.min {
		v.tooFew(c, len(items))
	}
	if l.max >= 0 && len(items) > l.max {
		v.tooMany(c, len(items))
	}
	if l.items != nil || l.prefix != nil {
		for i, x := range items {
			if of := l.itemCheck(i); of != nil {
				v.push(step{index: i, kind: stepItem})
				v.value(of, x)
				v.pop()
			}
		}
	}
	if l.unique {
		if i := firstDuplicate(items); i >= 0 {
			v.push(step{index: i, kind: stepItem})
			v.duplicate(c, items[i])
			v.pop()
		}
	}
	if v.mayRepeat {
		return
	}
	before := len(v.errs)
	if l.set && len(items) > 1 {
		v.set(c, items)
	}
	if l.keys != nil {
		v.keyed(c, items)
	}
	v.repeats = v.repeats || len(v.errs) > before
}

// firstDuplicate returns the index of the first item that equals an earlier one, or -1. Items that are
// not scalars were rejected before.
func firstDuplicate(items []any) int {
	const few = 16
	if len(items) <= few {
		for i, x := range items {
			for _, y := range items[:i] {
				if jsonvalue.SameScalar(x, y) {
					return i
				}
			}
		}
		return -1
	}
	seen := make(map[any]struct{}, len(items))
	for i, x := range items {
		switch n := x.(type) {
		case float64:
			if exact, ok := jsonvalue.Int64(n); ok {
				x = exact
			}
		case []any, map[string]any:
			continue
		}
		if _, ok := seen[x]; ok {
			return i
		}
		seen[x] = struct{}{}
	}
	return -1
}

// admitsKey reports whether a map key satisfies c, the key node of a pattern.
func (c *check) admitsKey(key string) bool {
	return c.kinds.Has(schemas.StringKind) && (len(c.texts) == 0 || c.admitsText(key))
}

func (c *check) admitsText(s string) bool {
	for i := range c.texts {
		if c.texts[i].admits(s) {
			return true
		}
	}
	return false
}

func (c *check) admitsInt(x int64) bool {
	for i := range c.numbers {
		if c.numbers[i].admitsInt(x) {
			return true
		}
	}
	return false
}

func (c *check) admitsFloat(x float64) bool {
	for i := range c.numbers {
		if c.numbers[i].admitsFloat(x) {
			return true
		}
	}
	return false
}

func (t *textCheck) admits(s string) bool {
	if t.enum != nil && !slices.Contains(t.enum, s) || len(t.not) > 0 && slices.Contains(t.not, s) {
		return false
	}
	for i, re := range t.patterns {
		if re.MatchString(s) == t.rule.Patterns[i].Negated {
			return false
		}
	}
	for _, admits := range t.forms {
		if !admits(s) {
			return false
		}
	}
	return !t.tooShort(s) && !t.tooLong(s)
}

// tooShort reports whether s has too few code points. It counts them only if the length in bytes leaves
// a doubt: a code point has one to four bytes.
func (t *textCheck) tooShort(s string) bool {
	return t.min > 0 && (len(s) < t.min || len(s) < t.min*utf8.UTFMax && utf8.RuneCountInString(s) < t.min)
}

func (t *textCheck) tooLong(s string) bool {
	return t.max >= 0 && len(s) > t.max && (len(s)/utf8.UTFMax > t.max || utf8.RuneCountInString(s) > t.max)
}

func (n *numberCheck) admitsInt(x int64) bool {
	if n.enum && !slices.Contains(n.ints, x) && !slices.Contains(n.floats, float64(x)) {
		return false
	}
	return n.bounds.HasInt(x) && !slices.Contains(n.notInt, x) && (n.multiple == nil || n.multiple.HasInt(x)) &&
		(len(n.notFloat) == 0 || !slices.Contains(n.notFloat, float64(x)))
}

func (n *numberCheck) admitsFloat(x float64) bool {
	if exact, ok := jsonvalue.Int64(x); ok {
		return n.admitsInt(exact)
	}
	if n.integer || n.enum && !slices.Contains(n.floats, x) {
		return false
	}
	return n.bounds.HasFloat(x) && !slices.Contains(n.notFloat, x) && (n.multiple == nil || n.multiple.HasFloat(x))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
