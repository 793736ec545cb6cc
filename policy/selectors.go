package policy

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selectors are the label and field selectors of a list, watch or deletecollection, for authorizers
// (KEP-4601). All requirements hold for the selected objects. Requirements that cannot be parsed are
// left out, so the request appears wider, never narrower. A later stage rejects invalid selectors.
type Selectors struct {
	Fields      fields.Requirements
	FieldsError error
	Labels      labels.Requirements
	LabelsError error
}

// ParseSelectors parses the selectors of a request as kube-apiserver does; it returns nil if there
// are none.
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
