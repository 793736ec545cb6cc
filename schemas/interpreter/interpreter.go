// Package interpreter evaluates CUE expressions in this process.
package interpreter

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// FieldNotAllowed is CUE's message for a field that a closed struct does not have.
const FieldNotAllowed = "field not allowed"

// An Interpreter evaluates expressions in this process, one at a time. CUE can be neither interrupted
// nor limited in memory, and it overflows the stack on some values, which ends the process. So use it
// only in workers and in compilers.
type Interpreter struct {
	mu    sync.Mutex
	known map[string]*expression // by their text
	asked uint64
}

// An expression is a compiled expression with its own CUE context. Values are compiled in other
// contexts, because a context keeps all of its values.
type expression struct {
	schema cue.Value
	last   uint64 // number of the question that used it last
}

// maxKnown is the maximum number of expressions that an Interpreter keeps.
const maxKnown = 64

// New returns an Interpreter without cached expressions.
func New() *Interpreter { return &Interpreter{known: map[string]*expression{}} }

// Evaluate implements [schemas.Evaluator].
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

// NewFallback returns a fallback with the given expression. It also computes the value of an absent
// field.
func NewFallback(text, reason string, source schemas.Position) *schemas.Fallback {
	f := &schemas.Fallback{CUE: text, Reason: reason, Source: source}
	if schema, err := Expressed(text); err == nil {
		f.Absent = evaluated(schema, nil).Result
	}
	return f
}

// The text around the expression of a fallback: the expression is the field v of a definition.
const (
	expressionField = "v"
	ExpressionLabel = "#expression: " + expressionField
)

// Expressed compiles the expression of a fallback.
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

// evaluated unifies a JSON value with the schema. A nil value is a missing field.
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

// AskExpression unifies a JSON value with the schema and returns the decoded verdict. A nil value is a
// missing field.
func AskExpression(schema cue.Value, value []byte) schemas.Decoded {
	return evaluated(schema, value).Decode()
}

// Ask unifies a JSON value with the schema and returns the decoded verdict.
func Ask(schema cue.Value, value []byte) schemas.Decoded { return unified(schema, value).Decode() }

// unified unifies a JSON value with the schema. It recovers from panics of CUE.
func unified(schema cue.Value, value []byte) (v schemas.Verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = schemas.Verdict{Failed: "CUE panicked"} // the cause may contain a secret
		}
	}()
	return judge(schema.Unify(cuecontext.New().CompileBytes(value)))
}

// maxFaults is the maximum number of faults in a verdict.
const maxFaults = 16

// judge returns the verdict on a unified value.
func judge(unified cue.Value) (v schemas.Verdict) {
	if err := unified.Validate(cue.Concrete(true), cue.Final()); err != nil {
		v.Contradicted = unified.Validate() != nil
		all := errors.Errors(err)
		for _, e := range all {
			format, _ := e.Msg()
			if header := strings.HasSuffix(format, "errors in empty disjunction:"); header && len(all) > 1 {
				continue // the error only summarizes those that follow
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
		return schemas.Verdict{Failed: "CUE cannot write out what it makes of it"} // the cause may contain a secret
	}
	v.Result = result
	return v
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
			continue // a definition that the exporter put around the value
		}
		f.Path = append(f.Path, wording.Unquoted(label))
	}
	if hidden != "" { // hidden fields are not in the object, so report the enclosing struct
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
