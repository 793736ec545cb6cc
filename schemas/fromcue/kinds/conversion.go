package kinds

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/wording"
)

// stepKinds are the steps of a conversion, in the order in which messages list them.
var stepKinds = []string{
	schemas.StepRename, schemas.StepMove, schemas.StepSplit, schemas.StepJoin, schemas.StepWrap, schemas.StepUnwrap,
	schemas.StepDefault, schemas.StepMap, schemas.StepDrop, schemas.StepCEL,
}

// conversion reads how objects of a version are converted; nil if the version does not say it. Package policy/compile checks the
// fields, and that nothing is lost.
func (r reader) conversion(s section) *schemas.Conversion {
	at, ok := s.get("conversion")
	if !ok {
		return nil
	}
	c := &schemas.Conversion{Source: at.source}
	for _, item := range s.items("conversion") {
		if step, ok := r.step(item); ok {
			c.Steps = append(c.Steps, step)
		}
	}
	return c
}

// step reads a step: a struct with the kind of the step as its only field.
func (r reader) step(item section) (step schemas.ConversionStep, ok bool) {
	fields, err := item.v.Fields()
	if err != nil {
		item.reported(err)
		return step, false
	}
	var has []string
	for fields.Next() {
		has = append(has, fields.Selector().Unquoted())
	}
	if len(has) != 1 {
		item.refuse(fmt.Sprintf("a step of a conversion does one thing, and this one does %s", wording.Count(len(has), "thing")), "write each step in braces of its own: [{rename: {…}}, {map: {…}}]")
		return step, false
	}
	if !slices.Contains(stepKinds, has[0]) {
		item.refuse(fmt.Sprintf("a step %q of a conversion", has[0]), wording.DidYouMean(has[0], stepKinds, "there are"))
		return step, false
	}
	s, _ := item.get(has[0])
	step = schemas.ConversionStep{Do: has[0], Drop: s.text("drop"), Source: item.source}
	if dropped, ok := s.get("drop"); ok && strings.TrimSpace(step.Drop) == "" {
		dropped.refuse("a loss without a reason", "say what is lost, and why that is acceptable")
	}
	r.fieldsOf(s, &step)
	return step, true
}

// fieldsOf reads the fields of a step of a known kind.
func (r reader) fieldsOf(s section, step *schemas.ConversionStep) {
	switch step.Do {
	case schemas.StepRename, schemas.StepMove, schemas.StepWrap, schemas.StepUnwrap:
		step.From, step.To = []string{s.text("from")}, []string{s.text("to")}
		if inner := s.text("field"); inner != "" {
			wrapped(step, inner)
		}
	case schemas.StepSplit:
		step.From, step.To, step.Separator = []string{s.text("from")}, s.texts("to"), s.text("separator")
	case schemas.StepJoin:
		step.From, step.To, step.Separator = s.texts("from"), []string{s.text("to")}, s.text("separator")
	case schemas.StepDefault:
		step.From, step.To = []string{s.text("field")}, []string{s.text("field")}
		value, _ := s.get("value")
		step.Value = value.json()
	case schemas.StepDrop:
		step.From, step.To, step.Drop = []string{s.text("field")}, []string{s.text("field")}, s.text("reason")
		if value, ok := s.get("value"); ok {
			step.Value = value.json()
		}
	case schemas.StepMap:
		step.From, step.To = []string{s.text("field")}, []string{s.text("field")}
		values, _ := s.get("values")
		step.Values = values.mapped()
	case schemas.StepCEL:
		up, _ := s.get("up")
		down, _ := s.get("down")
		step.Up, step.Down = up.computed(), down.computed()
	}
}

// wrapped makes a step that wraps a value in a struct, or unwraps it, one that moves it.
func wrapped(step *schemas.ConversionStep, inner string) {
	if step.Do == schemas.StepWrap {
		step.To[0] += "." + inner
	} else {
		step.From[0] += "." + inner
	}
	step.Do = schemas.StepMove
}

// json returns a value as canonical JSON.
func (s section) json() json.RawMessage {
	text, err := s.v.MarshalJSON()
	if err != nil {
		s.reported(err)
		return nil
	}
	canonical, err := jsonvalue.Canonical(text)
	if err != nil {
		s.refuse(err.Error(), "")
	}
	return canonical
}

// mapped returns the fields of a struct as values. A name stands for the string; package policy/compile makes it the number or
// boolean that the schema has.
func (s section) mapped() (list []schemas.MappedValue) {
	fields, err := s.v.Fields()
	if err != nil {
		s.reported(err)
		return nil
	}
	for fields.Next() {
		name := fields.Selector().Unquoted()
		from, _ := json.Marshal(name) // a string always encodes
		to, _ := s.get(name)
		if kind := to.v.IncompleteKind(); kind&^(cue.StringKind|cue.NumberKind|cue.BoolKind) != 0 {
			to.refuse("a value that is no scalar", "map replaces strings, numbers and booleans; cel computes others")
			continue
		}
		list = append(list, schemas.MappedValue{From: from, To: to.json()})
	}
	return list
}

// computed returns the fields of a struct as fields that CEL computes.
func (s section) computed() (list []schemas.ComputedField) {
	fields, err := s.v.Fields()
	if err != nil {
		s.reported(err)
		return nil
	}
	for fields.Next() {
		name := fields.Selector().Unquoted()
		f, _ := s.get(name)
		list = append(list, schemas.ComputedField{Field: name, Text: s.text(name), Source: f.source})
	}
	return list
}
