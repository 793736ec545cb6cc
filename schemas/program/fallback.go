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

// maxEvaluated bounds a value that CUE is asked about, in bytes of JSON.
const maxEvaluated = 128 << 10

// asking is how the fallbacks of one program ask CUE.
type asking struct {
	evaluator schemas.Evaluator
	// made: the program is. Until then CUE is not asked, and what it would be asked
	// about counts as valid: the one who made the form has compared what comes of that
	// with what CUE says.
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

// building is where in a form a check is made.
type building struct {
	asking *asking
	depth  int
}

func (b building) below() building { return building{b.asking, b.depth + 1} }

// A fallbackCheck is an expression in CUE made ready to be asked about. It is safe for
// concurrent use.
type fallbackCheck struct {
	form   *schemas.Fallback
	asking *asking
	absent any // what a field is that is missing; if fills
	fills  bool
}

func (b building) fallback(f *schemas.Fallback) (c *fallbackCheck, err error) {
	c = &fallbackCheck{form: f, asking: b.asking, fills: len(f.Absent) > 0}
	if c.fills {
		c.absent, err = jsonvalue.Decode(f.Absent)
	}
	return c, err
}

// evaluate asks CUE about a value, decoded JSON, which it does not change. It fails
// closed: what is too large, or cannot be evaluated, is invalid.
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

// A patience bounds what CUE is asked about one object: it may have as many parts that only CUE
// can check as a client likes.
type patience struct {
	questions int
	until     time.Time
}

// How often CUE is asked about one object, and for how long.
const (
	maxQuestions = 1000
	maxPatience  = 2 * time.Second
)

// ask says why CUE is not asked again; "" if it is.
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

// fallback checks x, which has passed everything else, with CUE.
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

// unchecked is the error of a value that CUE could not be asked about.
func (c *check) unchecked(v schemas.Decoded) *field.Error {
	e := &field.Error{Type: field.ErrorTypeInternal, BadValue: field.OmitValueType{}, Detail: at("could not be checked: "+v.Failed, c.fallbackCheck.form.Source)}
	if v.Busy {
		e.Origin = originBusy
	}
	return e
}

// originBusy marks the errors of values that could not be checked because the machine is busy.
const originBusy = "stele.dev/busy"

// Retryable reports whether all errors are about values that could not be checked because the
// machine is busy: the same object may be valid a moment later.
func Retryable(errs field.ErrorList) bool {
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Origin != originBusy })
}

// fault reports what CUE says, at its path, with the line of the field if that is known.
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
	message, bad := f.Message, shown(value)
	if v.secret > 0 || c0.node.HasSensitive() { // CUE's own text has values in it
		switch f.Kind {
		case schemas.Conflicting:
			message, bad = "is not what the schema allows", field.OmitValueType{}
		case schemas.Incomplete:
			message = "something is missing"
		}
	}
	e := &field.Error{BadValue: bad, Detail: at(message, source)}
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

// item and child return the check of a part, nil if there is none.
func (c *check) item(i int) *check {
	if c == nil || c.list == nil {
		return nil
	}
	return c.list.at(i)
}

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

// knows reports whether a part of the value that the check is for may have the field at
// the path, for some data.
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

// MaxPrunings is how often CUE is asked again after what it does not know was removed:
// one unknown field can hide others.
const MaxPrunings = 8

// fallback removes from x what CUE does not know and completes it. A value that is not
// valid stays as it is.
func (p *preparation) fallback(c *check, x any) any {
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

// completed returns x with what whole, which CUE has made of it, has beyond it. CUE goes by
// a default only until data says otherwise: of {r: {d: *5 | int}, l: r} it makes r: d: 5 also
// if l.d is 7, and refuses that if it is written. Such a default is left out, so that the object stays
// valid.
func (p *preparation) completed(c *check, x, whole any) (any, bool) {
	all, changed := complete(jsonvalue.Clone(x), whole)
	if !changed || c.fallbackCheck.evaluate(all, &p.patience).Valid() {
		return all, changed
	}
	m, ok1 := x.(map[string]any)
	w, ok2 := whole.(map[string]any)
	if !ok1 || !ok2 {
		return x, false
	}
	changed = false
	for _, key := range slices.Sorted(maps.Keys(w)) {
		next, more := complete(jsonvalue.Clone(m), map[string]any{key: w[key]})
		if more && c.fallbackCheck.evaluate(next, &p.patience).Valid() {
			m, changed = next.(map[string]any), true
		}
	}
	return m, changed
}

// remove deletes the field at a path below the current one.
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

// complete adds to x what whole has beyond it, and reports whether that was anything.
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
