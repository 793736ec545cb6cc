package schemas

import (
	"encoding/json"

	"stele.dev/stele/schemas/jsonvalue"
)

// An Evaluator evaluates the CUE expressions of fallbacks.
type Evaluator interface {
	// Evaluate unifies a value, JSON, with the expression of a [Fallback]. A nil value stands
	// for a missing field. It is safe for concurrent use. If the expression cannot be
	// evaluated, [Verdict.Failed] says why, and the value counts as invalid.
	Evaluate(expression string, value []byte) Verdict
}

// A Verdict is the result of an evaluation. It survives encoding as JSON.
type Verdict struct {
	// Result is the completed value, if there are no faults.
	Result json.RawMessage `json:"result,omitempty"`
	Faults []Fault         `json:"faults,omitempty"`
	// Contradicted reports that adding fields cannot make the value valid.
	Contradicted bool `json:"contradicted,omitempty"`
	// Failed says why CUE could not evaluate the value, which then counts as invalid.
	Failed string `json:"failed,omitempty"`
	// Busy reports that it failed because the machine is busy. The caller may retry.
	Busy bool `json:"busy,omitempty"`
}

// A Fault is one error in a value, at a path below it.
type Fault struct {
	Path    []string  `json:"path,omitempty"`
	Kind    FaultKind `json:"kind,omitempty"`
	Message string    `json:"message"`
}

// A FaultKind is the kind of a fault.
type FaultKind string

const (
	Conflicting FaultKind = ""           // the value conflicts with the schema
	Incomplete  FaultKind = "incomplete" // a value is missing
	NotAllowed  FaultKind = "notAllowed" // the field is not allowed
)

// Decode returns the verdict with its result decoded from JSON.
func (v Verdict) Decode() Decoded {
	d := Decoded{Faults: v.Faults, Contradicted: v.Contradicted, Failed: v.Failed, Busy: v.Busy}
	if !d.Valid() {
		return d
	}
	result, err := jsonvalue.Decode(v.Result)
	if err != nil {
		return Decoded{Failed: err.Error()}
	}
	d.Result = jsonvalue.PlainNumbers(result)
	return d
}

// A Decoded is a verdict whose result is decoded JSON.
type Decoded struct {
	// Result is the completed value, if there are no faults.
	Result any
	Faults []Fault
	// Contradicted reports that adding fields cannot make the value valid.
	Contradicted bool
	// Failed says why CUE could not evaluate the value, which then counts as invalid.
	Failed string
	Busy   bool // the evaluation failed because the machine is busy
}

// Valid reports whether the value was evaluated and is valid.
func (v Decoded) Valid() bool { return len(v.Faults) == 0 && v.Failed == "" }
