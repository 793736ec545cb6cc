package schemas

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of what CUE does with the objects of clients. CUE can be neither interrupted nor
// told how much memory to use.
const (
	evaluationDeadline = 2 * time.Second
	maxEvaluated       = 128 << 10 // bytes of JSON
	maxAbandoned       = 2         // evaluations of one fallback, still running after the deadline
	maxFaults          = 16        // that are said of one value
)

// evaluations holds a token for each evaluation that runs, abandoned ones included, so that
// no number of requests gets CUE more than that.
var evaluations = make(chan struct{}, max(4, 2*runtime.GOMAXPROCS(0)))

// A fallbackCheck is an expression in CUE made ready to be evaluated. It is safe for
// concurrent use: values of CUE never change.
type fallbackCheck struct {
	form      *Fallback
	schema    cue.Value
	deadline  time.Duration
	abandoned atomic.Int32
}

func newFallbackCheck(f *Fallback) (*fallbackCheck, error) {
	// A context of its own, which goes with the policy; values that are made in it while
	// it lives would never be freed.
	schema, err := expressed(f.CUE)
	if err != nil {
		return nil, fmt.Errorf("schemas: a fallback that CUE cannot evaluate: %w", err)
	}
	return &fallbackCheck{form: f, schema: schema, deadline: evaluationDeadline}, nil
}

// absent returns what CUE makes of a field that is missing, and whether it makes anything
// of it.
func (f *fallbackCheck) absent() (any, bool) {
	v := askExpression(f.schema, nil)
	return v.result, v.valid()
}

// An expression is the text of a fallback: the field v of a definition.
const (
	expressionField = "v"
	expressionLabel = "#expression: " + expressionField
)

// expressed compiles an expression.
func expressed(text string) (cue.Value, error) {
	v := cuecontext.New().CompileString(text).LookupPath(cue.ParsePath("#expression"))
	if !v.Exists() {
		return v, errors.Newf(token.NoPos, "there is no expression")
	}
	return v, v.Validate()
}

// askExpression has CUE evaluate a value; nil is none.
func askExpression(e cue.Value, text []byte) verdict {
	data := "{}"
	if text != nil {
		data = `{"` + expressionField + `":` + string(text) + "}"
	}
	v := ask(e, []byte(data))
	if m, ok := v.result.(map[string]any); ok {
		v.result = m[expressionField]
	}
	for i := range v.faults {
		if p := v.faults[i].path; len(p) > 0 {
			v.faults[i].path = p[1:]
		}
	}
	return v
}

// A verdict is what CUE makes of a value.
type verdict struct {
	// result is the completed value, if there are no faults.
	result any
	faults []fault
	// contradicted: no data that is added could make the value valid.
	contradicted bool
	// failed: CUE could not be asked. Then the value counts as invalid.
	failed string
}

func (v verdict) valid() bool { return len(v.faults) == 0 && v.failed == "" }

// A fault is one thing that is wrong with a value, at a path below it.
type fault struct {
	path    []string
	kind    faultKind
	message string
}

type faultKind uint8

const (
	conflicting faultKind = iota
	incomplete
	notAllowedHere
)

// evaluate asks CUE about a value, decoded JSON, which it does not change. It fails
// closed: what takes too long, is too large or comes while too much is going on, is invalid.
func (f *fallbackCheck) evaluate(x any) verdict {
	text, err := json.Marshal(x)
	switch {
	case err != nil:
		return verdict{failed: err.Error()}
	case len(text) > maxEvaluated:
		return verdict{failed: fmt.Sprintf("it is %d bytes long, and what only CUE can check may have %d", len(text), maxEvaluated)}
	case f.abandoned.Load() >= maxAbandoned:
		return verdict{failed: "checking values like it has taken too long before, and goes on"}
	}
	timer := time.NewTimer(f.deadline)
	defer timer.Stop()
	select {
	case evaluations <- struct{}{}:
	case <-timer.C:
		return verdict{failed: "too many checks are going on"}
	}
	done := make(chan verdict)
	gone := make(chan struct{})
	go func() {
		defer func() { <-evaluations }()
		v := askExpression(f.schema, text)
		select {
		case done <- v:
		case <-gone:
			f.abandoned.Add(-1)
		}
	}()
	select {
	case v := <-done:
		return v
	case <-timer.C:
		f.abandoned.Add(1)
		close(gone)
		return verdict{failed: fmt.Sprintf("checking it took more than %v", f.deadline)}
	}
}

// ask has CUE evaluate a value, in a context of its own.
func ask(schema cue.Value, text []byte) (v verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = verdict{failed: fmt.Sprintf("CUE panicked: %v\n%s", p, debug.Stack())}
		}
	}()
	return judged(schema.Unify(cuecontext.New().CompileBytes(text)))
}

// judged returns the verdict on a value.
func judged(unified cue.Value) (v verdict) {
	if err := unified.Validate(cue.Concrete(true), cue.Final()); err != nil {
		v.contradicted = unified.Validate() != nil
		for _, e := range errors.Errors(err) {
			if len(v.faults) == maxFaults {
				break
			}
			v.faults = append(v.faults, faultOf(e))
		}
		return v
	}
	encoded, err := unified.MarshalJSON()
	if err == nil {
		v.result, err = decode(encoded)
		v.result = plainNumbers(v.result)
	}
	if err != nil {
		v.failed = err.Error()
	}
	return v
}

// plainNumbers makes integers of all numbers without a fraction, in place: CUE tells 1.0 from
// 1, and JSON does not.
func plainNumbers(x any) any {
	switch x := x.(type) {
	case float64:
		if n, ok := exactInt64(x); ok {
			return n
		}
	case []any:
		for i := range x {
			x[i] = plainNumbers(x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = plainNumbers(x[k])
		}
	}
	return x
}

func faultOf(e errors.Error) fault {
	msg, args := e.Msg()
	f := fault{message: fmt.Sprintf(msg, args...)}
	for _, label := range e.Path() {
		if strings.HasPrefix(label, "_#") || strings.HasPrefix(label, "#") {
			continue // a definition around the value, of the exporter's
		}
		if s, err := strconv.Unquote(label); err == nil {
			label = s
		}
		f.path = append(f.path, label)
	}
	switch {
	case msg == notAllowed:
		f.kind = notAllowedHere
	case strings.HasPrefix(f.message, "incomplete value"), strings.HasPrefix(f.message, "field is required"),
		strings.HasPrefix(f.message, "required field missing"),
		strings.HasPrefix(f.message, "cannot reference optional field"):
		f.kind = incomplete
	}
	return f
}

// fallback checks x, which has passed everything else, with CUE.
func (v *inspection) fallback(c *check, x any) {
	said := c.fallbackCheck.evaluate(x)
	source := c.fallbackCheck.form.Source
	if said.failed != "" {
		v.fail(&field.Error{Type: field.ErrorTypeInternal, BadValue: field.OmitValueType{}, Detail: at("could not be checked: "+said.failed, source)})
		return
	}
	seen := map[string]bool{}
	for _, f := range said.faults {
		if key := strings.Join(append(f.path, f.message), "\x00"); seen[key] {
			continue
		} else {
			seen[key] = true
		}
		v.fault(c, x, f, said.contradicted)
	}
}

// fault reports what CUE says, at its path, with the line of the field if that is known.
func (v *inspection) fault(c *check, x any, f fault, contradicted bool) {
	c0, depth, source := c, len(v.path), c.fallbackCheck.form.Source
	defer func() { v.path = v.path[:depth] }()
	var value any = x
	for _, label := range f.path {
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
			c = c.item()
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
	message, bad := f.message, shown(value)
	if v.secret > 0 || c0.node.HasSensitive() { // CUE's own text has values in it
		switch f.kind {
		case conflicting:
			message, bad = "is not what the schema allows", field.OmitValueType{}
		case incomplete:
			message = "something is missing"
		}
	}
	e := &field.Error{BadValue: bad, Detail: at(message, source)}
	switch f.kind {
	case incomplete:
		e.Type, e.BadValue = field.ErrorTypeRequired, ""
		if contradicted {
			e.Type = field.ErrorTypeInvalid
		}
	case notAllowedHere:
		e.Type, e.BadValue = field.ErrorTypeForbidden, ""
	default:
		e.Type = field.ErrorTypeInvalid
	}
	v.fail(e)
}

// item and child return the check of a part, nil if there is none.
func (c *check) item() *check {
	if c == nil || c.list == nil {
		return nil
	}
	return c.list.items
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
		if _, err := strconv.Atoi(name); err == nil && c.item() != nil {
			c = c.item()
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

// maxPrunings is how often CUE is asked again after what it does not know was removed:
// one unknown field can hide others.
const maxPrunings = 8

// fallback removes from x what CUE does not know and completes it. A value that is not
// valid stays as it is.
func (p *preparation) fallback(c *check, x any) any {
	for range maxPrunings {
		said := c.fallbackCheck.evaluate(x)
		if said.valid() {
			if !p.fill {
				return x
			}
			completed, changed := complete(x, said.result)
			p.changed = p.changed || changed
			return completed
		}
		pruned := false
		for _, f := range said.faults {
			if f.kind == notAllowedHere && len(f.path) > 0 && !c.knows(f.path) && p.remove(x, f.path) {
				pruned = true
			}
		}
		if !pruned {
			break
		}
	}
	return x
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
	if sameScalar(x, whole) {
		return x, false
	}
	return whole, true
}

// Fallbacks returns the parts of a form that CUE evaluates, by their paths, in the order of
// the fields.
func (n *Node) Fallbacks() (found []FallbackAt) {
	n.visit("", func(path string, n *Node) {
		if n.Fallback != nil {
			found = append(found, FallbackAt{path, n.Fallback, n})
		}
	})
	return found
}

// A FallbackAt is a fallback and the path to what it is about.
type FallbackAt struct {
	Path string // spec.ports[]
	*Fallback
	node *Node
}

// visit calls each for n and everything below it.
func (n *Node) visit(path string, each func(string, *Node)) {
	if n == nil {
		return
	}
	each(path, n)
	if n.List != nil {
		n.List.Items.visit(path+"[]", each)
	}
	n.Struct.visit(path, each)
	if n.Union != nil {
		for i := range n.Union.Arms {
			n.Union.Arms[i].Struct.visit(path, each)
		}
	}
}

func (s *Struct) visit(path string, each func(string, *Node)) {
	if s == nil {
		return
	}
	below := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	for _, f := range s.Fields {
		f.Schema.visit(below(f.Name), each)
	}
	for _, p := range s.Patterns {
		p.Value.visit(path+"[]", each)
	}
	for _, condition := range s.Conditions {
		for _, f := range condition.Fields {
			f.Schema.visit(below(f.Name), each)
		}
	}
}

// Busy reports how many evaluations of CUE run at the moment, of how many that may.
func Busy() (running, most int) { return len(evaluations), cap(evaluations) }
