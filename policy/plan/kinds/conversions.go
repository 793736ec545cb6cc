package kinds

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
)

// conversions compares how objects are converted to the versions that both kinds have.
func (p pair) conversions() (found []plan.Finding) {
	for _, is := range p.is.Versions {
		was, ok := p.was.Version(is.Name)
		if !ok || schemas.SameConversion(was.Conversion, is.Conversion) {
			continue
		}
		f := plan.Finding{Rule: "CONVERSION_CHANGED", Class: plan.Changes, Path: "versions." + is.Name + ".conversion", Version: is.Name,
			Before: conversionText(was.Conversion), After: conversionText(is.Conversion), Source: conversionSource(is.Conversion, sourceOf(is)), Evidence: plan.Proved,
			Message: fmt.Sprintf("Clients of %s see stored objects in another way.", is.Name)}
		f.Was = conversionSource(was.Conversion, p.was.Source)
		if lost := newLosses(was.Conversion, is.Conversion); len(lost) > 0 {
			f.Class = plan.Narrows
			f.Details = append(f.Details, "Values may be lost: "+strings.Join(lost, "; ")+".")
		}
		found = append(found, f)
	}
	return found
}

func conversionSource(c *schemas.Conversion, otherwise schemas.Position) schemas.Position {
	if c == nil || c.Source.IsZero() {
		return otherwise
	}
	return c.Source
}

// conversionText returns the steps of a conversion in short; "" for none.
func conversionText(c *schemas.Conversion) string {
	if c == nil {
		return ""
	}
	var list []string
	for i := range c.Steps {
		list = append(list, stepText(&c.Steps[i]))
	}
	return strings.Join(list, ", ")
}

// stepText returns a step in short: rename spec.size → spec.replicas.
func stepText(s *schemas.ConversionStep) string {
	from, to := slices.Clone(s.From), slices.Clone(s.To)
	for i := range s.Down {
		from = append(from, s.Down[i].Field+" = "+s.Down[i].Text)
	}
	for i := range s.Up {
		to = append(to, s.Up[i].Field+" = "+s.Up[i].Text)
	}
	text := s.Do + " " + strings.Join(from, " ")
	if len(to) > 0 && !slices.Equal(from, to) {
		text += " → " + strings.Join(to, " ")
	}
	for _, v := range s.Values {
		text += fmt.Sprintf(" %s→%s", v.From, v.To)
	}
	if len(s.Value) > 0 {
		text += " " + string(s.Value)
	}
	if s.Separator != "" {
		separator, _ := json.Marshal(s.Separator) // a string always encodes
		text += " at " + string(separator)
	}
	return text
}

// newLosses returns the reasons of steps that may lose values, as far as the former conversion has no such step.
func newLosses(was, is *schemas.Conversion) (lost []string) {
	if is == nil {
		return nil
	}
	for i := range is.Steps {
		s := &is.Steps[i]
		if s.Drop == "" || was != nil && slices.ContainsFunc(was.Steps, func(o schemas.ConversionStep) bool { return o.Drop != "" && stepText(&o) == stepText(s) }) {
			continue
		}
		lost = append(lost, stepText(s)+" ("+s.Drop+")")
	}
	return lost
}
