package program

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/jsonvalue"
)

// maxEvaluated is the maximum size, in bytes of JSON, of a value that CUE evaluates.
const maxEvaluated = 128 << 10

// asking configures how the fallbacks of one program are evaluated.
type asking struct {
	evaluator schemas.Evaluator
	// made reports that the program is complete. Until then CUE is not evaluated, and values with a
	// fallback count as valid: the compiler has already compared the form's defaults with CUE.
	made bool
}

func (a *asking) newCheck(n *schemas.Node, depth int) (*check, error) {
	if a.evaluator == nil {
		a.evaluator = interpreter.New()
	}
	c, err := building{a, depth}.check(n)
	a.made = true
	return c, err
}

// building holds the settings and the depth with which a check is compiled.
type building struct {
	asking *asking
	depth  int
}

func (b building) deeper() building { return building{b.asking, b.depth + 1} }

// A fallbackCheck is a compiled fallback. It is safe for concurrent use.
type fallbackCheck struct {
	form   *schemas.Fallback
	asking *asking
	absent any // the value of a missing field, if fills
	fills  bool
}

func (b building) fallback(f *schemas.Fallback) (c *fallbackCheck, err error) {
	c = &fallbackCheck{form: f, asking: b.asking, fills: len(f.Absent) > 0}
	if c.fills {
		c.absent, err = jsonvalue.Decode(f.Absent)
	}
	return c, err
}

// evaluate evaluates the fallback for x, decoded JSON, and does not change x. It fails closed: a value
// that is too large or cannot be evaluated is invalid.
func (f *fallbackCheck) evaluate(x any, p **patience) schemas.Decoded {
	if !f.asking.made {
		return schemas.Decoded{Result: x}
	}
	if *p == nil {
		*p = &patience{until: time.Now().Add(maxPatience)}
	}
	if why := (*p).ask(); why != "" {
		return schemas.Decoded{Failed: why}
	}
	text, err := json.Marshal(x)
	switch {
	case err != nil:
		return schemas.Decoded{Failed: err.Error()}
	case len(text) > maxEvaluated:
		return schemas.Decoded{Failed: fmt.Sprintf("it is %d bytes long, and what only CUE can check may have %d", len(text), maxEvaluated)}
	}
	return f.asking.evaluator.Evaluate(f.form.CUE, text).Decode()
}

// A patience limits the evaluations for one object, because a client decides how many parts of an object
// need CUE.
type patience struct {
	questions int
	until     time.Time
}

// The maximum number of evaluations for one object, and their maximum total time.
const (
	maxQuestions = 1000
	maxPatience  = 2 * time.Second
)

// ask counts an evaluation. It returns why the evaluation is refused, or "" if it is allowed.
func (p *patience) ask() string {
	p.questions++
	switch {
	case p.questions > maxQuestions:
		return fmt.Sprintf("more than %d parts of the object are for CUE to check", maxQuestions)
	case time.Now().After(p.until):
		return fmt.Sprintf("checking the object has taken more than %v", maxPatience)
	}
	return ""
}

// fallback validates x with CUE, after all other checks passed.
func (v *inspection) fallback(c *check, x any) {
	said := c.fallbackCheck.evaluate(x, &v.patience)
	if said.Failed != "" {
		v.fail(c.unchecked(said))
		return
	}
	seen := map[string]bool{}
	for _, f := range said.Faults {
		if key := strings.Join(append(slices.Clip(f.Path), f.Message), "\x00"); seen[key] {
			continue
		} else {
			seen[key] = true
		}
		v.fault(c, x, f, said.Contradicted)
	}
}

// unchecked returns the error for a value that CUE could not evaluate.
func (c *check) unchecked(v schemas.Decoded) *field.Error {
	e := &field.Error{Type: field.ErrorTypeInternal, BadValue: field.OmitValueType{}, Detail: withLine("could not be checked: "+v.Failed, c.fallbackCheck.form.Source)}
	if v.Busy {
		e.Origin = originBusy
	}
	return e
}

// originBusy is the origin of errors for values that were not checked because the machine is busy.
const originBusy = "stele.dev/busy"

// Retryable reports whether every error says that the machine was too busy to evaluate CUE. The same
// object may be valid when the client tries again.
func Retryable(errs field.ErrorList) bool {
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Origin != originBusy })
}

// fault reports one of CUE's faults at its path, with the line of the field if known.
func (v *inspection) fault(c *check, x any, f schemas.Fault, contradicted bool) {
	c0, depth, source := c, len(v.path), c.fallbackCheck.form.Source
	defer func() { v.path = v.path[:depth] }()
	var value any = x
	for _, label := range f.Path {
		switch y := value.(type) {
		case []any:
			i, err := strconv.Atoi(label)
			if err != nil || i < 0 || i >= len(y) {
				value = nil
				v.push(step{name: label})
				continue
			}
			v.push(step{index: i, kind: stepItem})
			value = y[i]
			c = c.item(i)
		case map[string]any:
			v.push(step{name: label})
			value = y[label]
			c = c.child(label)
		default:
			v.push(step{name: label})
			value, c = nil, nil
		}
		if c != nil && !c.node.Source.IsZero() {
			source = c.node.Source
		}
	}
	message, bad := f.Message, shortValue(value)
	if v.secret > 0 || c0.node.HasSensitive() { // CUE's message may show the secret
		switch f.Kind {
		case schemas.Conflicting:
			message, bad = "is not what the schema allows", field.OmitValueType{}
		case schemas.Incomplete:
			message = "something is missing"
		}
	}
	e := &field.Error{BadValue: bad, Detail: withLine(message, source)}
	switch f.Kind {
	case schemas.Incomplete:
		e.Type, e.BadValue = field.ErrorTypeRequired, ""
		if contradicted {
			e.Type = field.ErrorTypeInvalid
		}
	case schemas.NotAllowed:
		e.Type, e.BadValue = field.ErrorTypeForbidden, ""
	default:
		e.Type = field.ErrorTypeInvalid
	}
	v.fail(e)
}

// item returns the check of the item at index i, or nil if there is none.
func (c *check) item(i int) *check {
	if c == nil || c.list == nil {
		return nil
	}
	return c.list.itemCheck(i)
}

// child returns the check of the field or entry with the given name, or nil if there is none or only
// conditions declare the field.
func (c *check) child(name string) *check {
	if c == nil || c.object == nil {
		return nil
	}
	if i, ok := c.object.index[name]; ok && i >= 0 {
		return c.object.fields[i].check
	}
	for i := range c.object.patterns {
		if c.object.patterns[i].key.admitsKey(name) {
			return c.object.patterns[i].value
		}
	}
	return nil
}

// knows reports whether the schema may admit the field at a path, for some data.
func (c *check) knows(path []string) bool {
	for _, name := range path[:len(path)-1] {
		if i, err := strconv.Atoi(name); err == nil && c.item(i) != nil {
			c = c.item(i)
			continue
		}
		if c = c.child(name); c == nil {
			return true
		}
	}
	if c.object == nil || len(c.object.patterns) > 0 {
		return true
	}
	_, ok := c.object.index[path[len(path)-1]]
	return ok
}

// MaxPrunings is how often CUE evaluates a value again after unknown fields were removed. One unknown
// field can hide others.
const MaxPrunings = 8

// fallback removes the fields that CUE does not know from x, and completes x. An invalid value is left
// unchanged. A value that was converted from another version is not evaluated: reads do not wait for CUE.
func (p *preparation) fallback(c *check, x any) any {
	if p.converts {
		return x
	}
	for range MaxPrunings {
		said := c.fallbackCheck.evaluate(x, &p.patience)
		if said.Valid() {
			if !p.fill {
				return x
			}
			completed, changed := p.completed(c, x, said.Result)
			p.changed = p.changed || changed
			return completed
		}
		if said.Failed != "" {
			if p.failed == nil {
				p.failed = c.unchecked(said)
				if len(p.path) > 0 {
					p.failed.Field = fieldPath(p.path).String()
				}
			}
			break
		}
		pruned := false
		for _, f := range said.Faults {
			if f.Kind == schemas.NotAllowed && len(f.Path) > 0 && !c.knows(f.Path) && p.remove(x, f.Path) {
				pruned = true
			}
		}
		if !pruned {
			break
		}
	}
	return x
}

// completed adds to x the defaults in whole, which is x as completed by CUE. Some of CUE's defaults are
// not valid once they are written out: CUE completes {r: {d: *5 | int}, l: r} with r: d: 5 even if l.d
// is 7, and then rejects the result. completed leaves out such defaults, and adds all others. changed reports
// whether it added any.
func (p *preparation) completed(c *check, x, whole any) (_ any, changed bool) {
	all, changed := complete(jsonvalue.Clone(x), whole)
	if !changed || c.fallbackCheck.evaluate(all, &p.patience).Valid() {
		return all, changed
	}
	part := partly{p: p, c: c, whole: x}
	part.add(nil, x, whole)
	return part.whole, part.changed
}

// partly adds parts of a completion to a value, those with which it stays valid.
type partly struct {
	p       *preparation
	c       *check
	whole   any // the value so far
	changed bool
	left    int // how many parts, or parts around them, are left out
}

// add adds what y has to the part of the value at a path, which is x: each part as a whole, or else what is valid of it.
func (a *partly) add(path []any, x, y any) {
	switch y := y.(type) {
	case map[string]any:
		m, _ := x.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(y)) {
			a.one(append(slices.Clip(path), key), m[key], y[key])
		}
	case []any:
		if l, _ := x.([]any); len(l) == len(y) {
			for i := range y {
				a.one(append(slices.Clip(path), i), l[i], y[i])
			}
		}
	}
}

func (a *partly) one(path []any, x, y any) {
	next, changed := completeAt(jsonvalue.Clone(a.whole), path, y)
	switch {
	case !changed:
	case a.c.fallbackCheck.evaluate(next, &a.p.patience).Valid():
		a.whole, a.changed = next, true
	default:
		before := a.left
		if a.add(path, x, y); a.left == before && a.p.left != nil {
			a.p.leave(path)
		}
		a.left++
	}
}

// leave reports the default at a path below the current one as left out.
func (p *preparation) leave(path []any) {
	depth := len(p.path)
	defer func() { p.path = p.path[:depth] }()
	for _, s := range path {
		switch s := s.(type) {
		case string:
			p.push(step{name: s})
		case int:
			p.push(step{index: s, kind: stepItem})
		}
	}
	p.left(fieldPath(p.path).String())
}

// completeAt completes the part of x at a path. It reports whether that changed x.
func completeAt(x any, path []any, y any) (any, bool) {
	if len(path) == 0 {
		return complete(x, y)
	}
	changed := false
	switch step := path[0].(type) {
	case string:
		m, ok := x.(map[string]any)
		if !ok {
			m = map[string]any{}
		}
		m[step], changed = completeAt(m[step], path[1:], y)
		return m, changed
	case int:
		l := x.([]any) // as long as the one that it is completed to
		l[step], changed = completeAt(l[step], path[1:], y)
		return l, changed
	}
	return x, false
}

// remove deletes the field at a path relative to the current path.
func (p *preparation) remove(x any, path []string) bool {
	depth := len(p.path)
	defer func() { p.path = p.path[:depth] }()
	for i, label := range path {
		switch y := x.(type) {
		case map[string]any:
			next, ok := y[label]
			if !ok {
				return false
			}
			if i == len(path)-1 {
				delete(y, label)
				p.drop(label)
				return true
			}
			p.push(step{name: label})
			x = next
		case []any:
			n, err := strconv.Atoi(label)
			if err != nil || n < 0 || n >= len(y) {
				return false
			}
			p.push(step{index: n, kind: stepItem})
			x = y[n]
		default:
			return false
		}
	}
	return false
}

// complete adds the fields of whole that x lacks, and reports whether it added any.
func complete(x, whole any) (any, bool) {
	switch w := whole.(type) {
	case map[string]any:
		m, ok := x.(map[string]any)
		if !ok {
			return whole, true
		}
		changed := false
		for key, y := range w {
			old, had := m[key]
			if !had {
				m[key], changed = y, true
				continue
			}
			next, more := complete(old, y)
			if more {
				m[key], changed = next, true
			}
		}
		return m, changed
	case []any:
		l, ok := x.([]any)
		if !ok || len(l) != len(w) {
			return whole, true
		}
		changed := false
		for i, y := range w {
			next, more := complete(l[i], y)
			if more {
				l[i], changed = next, true
			}
		}
		return l, changed
	}
	if jsonvalue.SameScalar(x, whole) {
		return x, false
	}
	return whole, true
}
