package schemas

import (
	"encoding/json"

	"stele.dev/stele/schemas/jsonvalue"
)

// An Evaluator has CUE evaluate what the form of a schema cannot say.
type Evaluator interface {
	// Evaluate says what CUE makes of a value, as JSON, that has to satisfy an expression,
	// the text of a [Fallback]; no value is a field that is missing. It is safe for
	// concurrent use, and fails closed: if CUE cannot be asked, [Verdict.Failed] says why.
	Evaluate(expression string, value []byte) Verdict
}

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

// A Decoded is what CUE makes of a value, decoded.
type Decoded struct {
	// result is the completed value, if there are no faults.
	Result any
	Faults []Fault
	// contradicted: no data that is added could make the value valid.
	Contradicted bool
	// failed: CUE could not be asked. Then the value counts as invalid.
	Failed string
	Busy   bool // it failed because the machine is busy
}

func (v Decoded) Valid() bool { return len(v.Faults) == 0 && v.Failed == "" }
