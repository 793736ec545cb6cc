package policy

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selectors are what a list, a watch or a deletion of a collection selects by, as authorizers get to
// know it (KEP-4601): all requirements hold for what the request is about. Those that could not be parsed
// are left out, which makes the question a wider one, never a narrower one. What is here
// was asked for, not checked: a selector that is none is for a later stage to refuse.
type Selectors struct {
	Fields      fields.Requirements
	FieldsError error
	Labels      labels.Requirements
	LabelsError error
}

// ParseSelectors reads the selectors of a request as kube-apiserver does; nil if it has none.
func ParseSelectors(field, label string) *Selectors {
	if field == "" && label == "" {
		return nil
	}
	s := &Selectors{}
	if field != "" {
		if parsed, err := fields.ParseSelector(field); err != nil {
			s.FieldsError = err
		} else {
			s.Fields = parsed.Requirements()
		}
	}
	if label != "" {
		if parsed, err := labels.Parse(label); err != nil {
			s.LabelsError = err
		} else {
			s.Labels, _ = parsed.Requirements()
		}
	}
	return s
}

func (s *Selectors) empty() bool {
	return len(s.Fields) == 0 && len(s.Labels) == 0 && s.FieldsError == nil && s.LabelsError == nil
}
