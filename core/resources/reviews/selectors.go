package reviews

import (
	"cmp"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/policy"
)

// Selectors of a review are read as kube-apiserver reads them (KEP-4601). A requirement that cannot be parsed is left
// out, so that the review asks for more, and the answer says so. Only the first error is kept, because a body can
// cause very many.

// selectors returns the selectors of a review, or nil if there are none.
func selectors(a *authorizationv1.ResourceAttributes) *policy.Selectors {
	if a.FieldSelector == nil && a.LabelSelector == nil {
		return nil
	}
	fieldText, labelText := "", ""
	if a.FieldSelector != nil {
		fieldText = a.FieldSelector.RawSelector
	}
	if a.LabelSelector != nil {
		labelText = a.LabelSelector.RawSelector
	}
	s := policy.ParseSelectors(fieldText, labelText)
	if s == nil {
		s = &policy.Selectors{}
	}
	if a.FieldSelector != nil && len(a.FieldSelector.Requirements) > 0 {
		s.Fields, s.FieldsError = fieldRequirements(a.FieldSelector.Requirements)
	}
	if a.LabelSelector != nil && len(a.LabelSelector.Requirements) > 0 {
		s.Labels, s.LabelsError = labelRequirements(a.LabelSelector.Requirements)
	}
	return s
}

func fieldRequirements(list []metav1.FieldSelectorRequirement) (out fields.Requirements, err error) {
	operators := map[metav1.FieldSelectorOperator]selection.Operator{metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals}
	for _, r := range list {
		operator, known := operators[r.Operator]
		if !known || len(r.Values) != 1 {
			err = cmp.Or(err, fmt.Errorf("%s %s with %d values is no selector of fields", r.Key, r.Operator, len(r.Values)))
			continue
		}
		out = append(out, fields.Requirement{Field: r.Key, Operator: operator, Value: r.Values[0]})
	}
	return out, err
}

func labelRequirements(list []metav1.LabelSelectorRequirement) (out labels.Requirements, err error) {
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	for _, r := range list {
		operator, known := operators[r.Operator]
		if !known {
			err = cmp.Or(err, fmt.Errorf("%q is no operator of label selectors", r.Operator))
			continue
		}
		requirement, invalid := labels.NewRequirement(r.Key, operator, r.Values)
		if invalid != nil {
			err = cmp.Or(err, invalid)
			continue
		}
		out = append(out, *requirement)
	}
	return out, err
}

// unread returns a text that lists the requirements that were left out.
func unread(s *policy.Selectors) string {
	if s == nil {
		return ""
	}
	var texts []string
	say := func(name string, err error, some bool) {
		switch {
		case err != nil && some:
			texts = append(texts, "spec.resourceAttributes."+name+" partially ignored due to parse error")
		case err != nil:
			texts = append(texts, "spec.resourceAttributes."+name+" ignored due to parse error")
		}
	}
	say("fieldSelector", s.FieldsError, len(s.Fields) > 0)
	say("labelSelector", s.LabelsError, len(s.Labels) > 0)
	return strings.Join(texts, "; ")
}

func validSelectors(a *authorizationv1.ResourceAttributes, at *field.Path) (errs field.ErrorList) {
	// selectors leaves out operators that only newer clients know.
	if s := a.FieldSelector; s != nil {
		at := at.Child("fieldSelector")
		errs = append(errs, eitherForm(s.RawSelector, len(s.Requirements), at)...)
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(r, metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, at.Child("requirements").Index(i))...)
		}
	}
	if s := a.LabelSelector; s != nil {
		at := at.Child("labelSelector")
		errs = append(errs, eitherForm(s.RawSelector, len(s.Requirements), at)...)
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(r, metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

func eitherForm(raw string, requirements int, at *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(at.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(at.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at))}
	}
	return nil
}
