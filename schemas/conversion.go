package schemas

import "encoding/json"

// A Conversion says how objects of a version become objects of the hub, and back. The hub is the form that all versions
// of the kind without a conversion share. Objects of two other versions are converted through it.
type Conversion struct {
	// Steps are taken in order on the way to the hub ("up"), and in reverse order on the way back ("down").
	Steps  []ConversionStep `json:"steps,omitempty"`
	Source Position         `json:"source,omitzero"`
}

// The kinds of steps, as bundles name them.
const (
	StepRename  = "rename"
	StepMove    = "move"
	StepSplit   = "split"
	StepJoin    = "join"
	StepWrap    = "wrap"
	StepUnwrap  = "unwrap"
	StepDefault = "default"
	StepMap     = "map"
	StepDrop    = "drop"
	StepCEL     = "cel"
)

// A ConversionStep is one step of a conversion. Paths are names of fields with dots, and [*] for each item of a list or
// value of a map. A name with other characters is quoted in brackets: spec["a.b"].
type ConversionStep struct {
	Do string `json:"do"`

	// From are fields of the version, and To fields of the hub. Steps with one field have it in both.
	From []string `json:"from,omitempty"`
	To   []string `json:"to,omitempty"`

	// Separator stands between the parts of split and join.
	Separator string `json:"separator,omitempty"`

	// Value is the value of default, as canonical JSON.
	Value json.RawMessage `json:"value,omitempty"`

	// Values are the values of map. Other values stay as they are.
	Values []MappedValue `json:"values,omitempty"`

	// Up are the fields of the hub that cel computes from the object in the version, and Down those of the version that
	// it computes from the object in the hub.
	Up   []ComputedField `json:"up,omitempty"`
	Down []ComputedField `json:"down,omitempty"`

	// Drop is the reason why the step may lose values; empty if it must not.
	Drop string `json:"drop,omitempty"`

	Source Position `json:"source,omitzero"`
}

// A MappedValue is a scalar of the version, and what it is in the hub. Both are canonical JSON.
type MappedValue struct {
	From json.RawMessage `json:"from"`
	To   json.RawMessage `json:"to"`
}

// A ComputedField is a field, and the CEL expression of its value. The variable self is the object before the conversion.
type ComputedField struct {
	Field  string   `json:"field"`
	Text   string   `json:"text"`
	AST    []byte   `json:"checked,omitempty"` // set by package policy/compile
	Source Position `json:"source,omitzero"`
}

// Converted reports whether a version of the kind declares how its objects are converted.
func (k *Kind) Converted() bool {
	for i := range k.Versions {
		if k.Versions[i].Conversion != nil {
			return true
		}
	}
	return false
}

// Hub returns the first version without a conversion, to whose form the others are converted; nil if there is none.
func (k *Kind) Hub() *Version {
	for i := range k.Versions {
		if k.Versions[i].Conversion == nil {
			return &k.Versions[i]
		}
	}
	return nil
}
