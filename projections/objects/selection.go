package objects

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Selection says which objects of a resource are meant. The zero value means all.
type Selection struct {
	Namespace string // "" for all
	Name      string // "" for all
	labels    labels.Selector
	fields    fields.Selector
	// field and value: an equality in fields on a selectable field, for the index
	// of watchers; "" if there is none.
	field, value string
	as           *Kind // see As
}

// As is the selection for objects of the past as well, whose kind may have had other selectable
// fields than the one that the selection was made for.
func (s Selection) As(k Kind) Selection {
	if s.fields != nil {
		s.as = newKind(k)
	}
	return s
}

// Select makes a selection. Selectors may be nil. A metadata.name that the field
// selector requires becomes the Name.
func Select(namespace string, l labels.Selector, f fields.Selector) Selection {
	s := Selection{Namespace: namespace}
	if l != nil && !l.Empty() {
		s.labels = l
	}
	if f == nil || f.Empty() {
		return s
	}
	s.fields = f
	only := true // nothing but what Name and Namespace say
	for _, r := range f.Requirements() {
		equal := r.Operator == selection.Equals || r.Operator == selection.DoubleEquals
		switch {
		case equal && r.Field == fieldName && r.Value != "" && (s.Name == "" || s.Name == r.Value):
			s.Name = r.Value
		case equal && r.Field != fieldName && r.Field != fieldNamespace && r.Value != "" && s.field == "":
			s.field, s.value = r.Field, r.Value
			only = false
		default:
			only = false
		}
	}
	if only {
		s.fields = nil
	}
	return s
}

// Everything tells whether every object of the namespace, or of all, is meant.
func (s *Selection) Everything() bool {
	return s.Name == "" && s.labels == nil && s.fields == nil
}

// ByKey tells whether objects are meant by their namespace and name alone.
func (s *Selection) ByKey() bool { return s.labels == nil && s.fields == nil }

// Matches tells whether an object is meant.
func (s *Selection) Matches(o *Object) bool {
	return (s.Namespace == "" || s.Namespace == o.Namespace) &&
		(s.Name == "" || s.Name == o.Name) &&
		(s.labels == nil || s.labels.Matches(objectLabels{o})) &&
		(s.fields == nil || s.fields.Matches(objectFields{o, s.as}))
}
