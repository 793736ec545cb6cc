// Package interpreter evaluates CUE expressions in this process.
package interpreter

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
	"stele.dev/stele/schemas"
)

// FieldNotAllowed is CUE's message for a field that a struct is closed to.
const FieldNotAllowed = "field not allowed"

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

// New returns one that knows no expressions yet.
func New() *Interpreter { return &Interpreter{known: map[string]*expression{}} }

// Evaluate implements [Evaluator].
func (i *Interpreter) Evaluate(text string, value []byte) schemas.Verdict {
	i.mu.Lock()
	defer i.mu.Unlock()
	schema, err := i.schema(text)
	if err != nil {
		return schemas.Verdict{Failed: fmt.Sprintf("CUE cannot evaluate its schema: %v", err)}
	}
	return evaluated(schema, value)
}

func (i *Interpreter) schema(text string) (cue.Value, error) {
	i.asked++
	if e := i.known[text]; e != nil {
		e.last = i.asked
		return e.schema, nil
	}
	schema, err := Expressed(text)
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

// NewFallback returns the fallback to an expression that CUE can evaluate.
func NewFallback(text, reason string, source schemas.Position) *schemas.Fallback {
	f := &schemas.Fallback{CUE: text, Reason: reason, Source: source}
	if schema, err := Expressed(text); err == nil {
		f.Absent = evaluated(schema, nil).Result
	}
	return f
}

// An expression is the text of a fallback: the field v of a definition.
const (
	expressionField = "v"
	ExpressionLabel = "#expression: " + expressionField
)

// Expressed compiles an expression.
func Expressed(text string) (cue.Value, error) {
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
func evaluated(schema cue.Value, value []byte) schemas.Verdict {
	data := "{}"
	if value != nil {
		data = `{"` + expressionField + `":` + string(value) + "}"
	}
	v := unified(schema, []byte(data))
	if v.Result != nil {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(v.Result, &fields); err != nil {
			return schemas.Verdict{Failed: err.Error()}
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

// AskExpression is evaluated, decoded.
func AskExpression(schema cue.Value, value []byte) schemas.Decoded {
	return evaluated(schema, value).Decode()
}

// Ask has CUE evaluate a value.
func Ask(schema cue.Value, value []byte) schemas.Decoded { return unified(schema, value).Decode() }

// unified has CUE evaluate a value, in a context that goes with it.
func unified(schema cue.Value, value []byte) (v schemas.Verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = schemas.Verdict{Failed: "CUE panicked"} // over what, may be a secret
		}
	}()
	return judge(schema.Unify(cuecontext.New().CompileBytes(value)))
}

// maxFaults bounds the faults of one verdict.
const maxFaults = 16

// judge returns the verdict on a value.
func judge(unified cue.Value) (v schemas.Verdict) {
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
		return schemas.Verdict{Failed: "CUE cannot write out what it makes of it"} // why, may be a secret
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

func faultOf(e errors.Error) schemas.Fault {
	msg, args := e.Msg()
	said := fmt.Sprintf(msg, args...)
	f := schemas.Fault{Message: messageOf(e)}
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
	case msg == FieldNotAllowed && hidden == "":
		f.Kind = schemas.NotAllowed
	case strings.HasPrefix(said, "incomplete value"), strings.HasPrefix(said, "field is required"),
		strings.HasPrefix(said, "required field missing"),
		strings.HasPrefix(said, "cannot reference optional field"):
		f.Kind = schemas.Incomplete
	}
	return f
}
