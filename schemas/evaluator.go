package schemas

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
)

// An Evaluator has CUE evaluate what the form of a schema cannot say.
type Evaluator interface {
	// Evaluate says what CUE makes of a value, as JSON, that has to satisfy an expression,
	// the text of a [Fallback]; no value is a field that is missing. It is safe for
	// concurrent use, and fails closed: if CUE cannot be asked, [Verdict.Failed] says why.
	Evaluate(expression string, value []byte) Verdict
}

// An Option of [NewProgram].
type Option func(*asking)

// EvaluateWith has another evaluator asked than an [Interpreter] of the program's own.
func EvaluateWith(e Evaluator) Option { return func(a *asking) { a.evaluator = e } }

// A Verdict is what CUE makes of a value. It goes through JSON unchanged.
type Verdict struct {
	// Result is the completed value, if there are no faults.
	Result json.RawMessage `json:"result,omitempty"`
	Faults []Fault         `json:"faults,omitempty"`
	// Contradicted: no data that is added could make the value valid.
	Contradicted bool `json:"contradicted,omitempty"`
	// Failed: CUE could not be asked. Then the value counts as invalid.
	Failed string `json:"failed,omitempty"`
	// Busy: it failed because the machine is busy, and may be tried again.
	Busy bool `json:"busy,omitempty"`
}

// A Fault is one thing that is wrong with a value, at a path below it.
type Fault struct {
	Path    []string  `json:"path,omitempty"`
	Kind    FaultKind `json:"kind,omitempty"`
	Message string    `json:"message"`
}

// A FaultKind is what is wrong.
type FaultKind string

const (
	Conflicting FaultKind = ""           // with what the value must be
	Incomplete  FaultKind = "incomplete" // something is missing
	NotAllowed  FaultKind = "notAllowed" // a field that there must not be
)

func (v Verdict) decoded() verdict {
	d := verdict{faults: v.Faults, contradicted: v.Contradicted, failed: v.Failed, busy: v.Busy}
	if !d.valid() {
		return d
	}
	result, err := decode(v.Result)
	if err != nil {
		return verdict{failed: err.Error()}
	}
	d.result = plainNumbers(result)
	return d
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

// An Interpreter evaluates in this process, one value at a time. CUE can be neither
// interrupted nor told how much memory to use, and overflows the stack on some values, which
// ends the process: it is for a process that may end, and for whoever compiles a schema.
type Interpreter struct {
	mu    sync.Mutex
	known map[string]*expression // by their text
	asked uint64
}

// expression is one that CUE has compiled, in a context of its own: values that are made in
// it while it is kept would never be freed.
type expression struct {
	schema cue.Value
	last   uint64 // when it was asked about, counted in questions
}

// maxKnown is how many expressions an Interpreter keeps.
const maxKnown = 64

// NewInterpreter returns one that knows no expressions yet.
func NewInterpreter() *Interpreter { return &Interpreter{known: map[string]*expression{}} }

// Evaluate implements [Evaluator].
func (i *Interpreter) Evaluate(text string, value []byte) Verdict {
	i.mu.Lock()
	defer i.mu.Unlock()
	schema, err := i.schema(text)
	if err != nil {
		return Verdict{Failed: fmt.Sprintf("CUE cannot evaluate its schema: %v", err)}
	}
	return evaluated(schema, value)
}

func (i *Interpreter) schema(text string) (cue.Value, error) {
	i.asked++
	if e := i.known[text]; e != nil {
		e.last = i.asked
		return e.schema, nil
	}
	schema, err := expressed(text)
	if err != nil {
		return cue.Value{}, err
	}
	if len(i.known) >= maxKnown {
		oldest := text
		for other, o := range i.known {
			if oldest == text || o.last < i.known[oldest].last {
				oldest = other
			}
		}
		delete(i.known, oldest)
	}
	i.known[text] = &expression{schema, i.asked}
	return schema, nil
}

// newFallback returns the fallback to an expression that CUE can evaluate.
func newFallback(text, reason string, source Position) *Fallback {
	f := &Fallback{CUE: text, Reason: reason, Source: source}
	if schema, err := expressed(text); err == nil {
		f.Absent = evaluated(schema, nil).Result
	}
	return f
}

// An expression is the text of a fallback: the field v of a definition.
const (
	expressionField = "v"
	expressionLabel = "#expression: " + expressionField
)

// expressed compiles an expression.
func expressed(text string) (cue.Value, error) {
	whole := cuecontext.New().CompileString(text)
	v := whole.LookupPath(cue.ParsePath("#expression"))
	if err := whole.Err(); err != nil && !v.Exists() {
		return v, err
	}
	if !v.Exists() {
		return v, errors.Newf(token.NoPos, "there is no expression")
	}
	return v, v.Validate()
}

// evaluated has CUE evaluate a value for an expression; nil is none.
func evaluated(schema cue.Value, value []byte) Verdict {
	data := "{}"
	if value != nil {
		data = `{"` + expressionField + `":` + string(value) + "}"
	}
	v := unified(schema, []byte(data))
	if v.Result != nil {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(v.Result, &fields); err != nil {
			return Verdict{Failed: err.Error()}
		}
		v.Result = fields[expressionField]
	}
	for i := range v.Faults {
		if p := v.Faults[i].Path; len(p) > 0 {
			v.Faults[i].Path = p[1:]
		}
	}
	return v
}

// askExpression is evaluated, decoded.
func askExpression(schema cue.Value, value []byte) verdict { return evaluated(schema, value).decoded() }

// ask has CUE evaluate a value.
func ask(schema cue.Value, value []byte) verdict { return unified(schema, value).decoded() }

// unified has CUE evaluate a value, in a context that goes with it.
func unified(schema cue.Value, value []byte) (v Verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = Verdict{Failed: "CUE panicked"} // over what, may be a secret
		}
	}()
	return judge(schema.Unify(cuecontext.New().CompileBytes(value)))
}

// maxFaults bounds the faults of one verdict.
const maxFaults = 16

// judge returns the verdict on a value.
func judge(unified cue.Value) (v Verdict) {
	if err := unified.Validate(cue.Concrete(true), cue.Final()); err != nil {
		v.Contradicted = unified.Validate() != nil
		all := errors.Errors(err)
		for _, e := range all {
			format, _ := e.Msg()
			if header := strings.HasSuffix(format, "errors in empty disjunction:"); header && len(all) > 1 {
				continue // of those that follow
			}
			if len(v.Faults) == maxFaults {
				break
			}
			v.Faults = append(v.Faults, faultOf(e))
		}
		return v
	}
	result, err := unified.MarshalJSON()
	if err != nil {
		return Verdict{Failed: "CUE cannot write out what it makes of it"} // why, may be a secret
	}
	v.Result = result
	return v
}

func unquoted(label string) string {
	if s, err := strconv.Unquote(label); err == nil {
		return s
	}
	return label
}

func faultOf(e errors.Error) Fault {
	msg, args := e.Msg()
	said := fmt.Sprintf(msg, args...)
	f := Fault{Message: messageOf(e)}
	hidden := ""
	for _, label := range e.Path() {
		if hidden != "" || strings.HasPrefix(label, "_") && !strings.HasPrefix(label, "_#") {
			hidden += "." + plainName(label)
			continue
		}
		if strings.HasPrefix(label, "_#") || strings.HasPrefix(label, "#") {
			continue // a definition around the value, of the exporter's
		}
		f.Path = append(f.Path, unquoted(label))
	}
	if hidden != "" { // the object has no such field: what is wrong is the struct that holds it
		f.Message = "the hidden field " + hidden[1:] + ": " + f.Message
	}
	switch {
	case msg == notAllowed && hidden == "":
		f.Kind = NotAllowed
	case strings.HasPrefix(said, "incomplete value"), strings.HasPrefix(said, "field is required"),
		strings.HasPrefix(said, "required field missing"),
		strings.HasPrefix(said, "cannot reference optional field"):
		f.Kind = Incomplete
	}
	return f
}
