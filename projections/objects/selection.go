package objects

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"stele.dev/stele/projections/objects/postings"
)

// Selection selects objects of a resource. The zero value selects all.
type Selection struct {
	Namespace string // "" for all
	Name      string // "" for all
	labels    labels.Selector
	fields    fields.Selector
	// field and value are an equality that fields requires of a selectable field, for the index of
	// watchers; "" if there is none.
	field, value string
	as           *Kind // see As
	// required are the parts of the selectors that an index can answer. All of them must be met.
	required []requirement
}

// As returns a selection that also matches past objects, whose kind may have had other selectable fields:
// it finds the fields of k in their JSON.
func (s Selection) As(k Kind) Selection {
	if s.fields != nil {
		s.as = newKind(k)
	}
	return s
}

// Select makes a selection. The selectors may be nil. If the field selector requires a metadata.name, that
// becomes the Name.
func Select(namespace string, l labels.Selector, f fields.Selector) Selection {
	s := Selection{Namespace: namespace}
	if l != nil && !l.Empty() {
		s.labels = l
		s.requireLabels()
	}
	if f == nil || f.Empty() {
		return s
	}
	s.fields = f
	only := true // the field selector requires nothing but a name
	for _, r := range f.Requirements() {
		equal := r.Operator == selection.Equals || r.Operator == selection.DoubleEquals
		if equal && r.Field != fieldName && r.Field != fieldNamespace && r.Value != "" {
			s.required = append(s.required, requirement{subject{true, r.Field}, postings.Requirement{Values: []string{r.Value}}})
		}
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

// requireLabels sets the requirements of the label selector.
func (s *Selection) requireLabels() {
	all, _ := s.labels.Requirements()
	for _, r := range all {
		required := requirement{subject: subject{name: r.Key()}}
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			required.Values = slices.Clone(r.ValuesUnsorted())
			slices.Sort(required.Values)
			required.Values = slices.Compact(required.Values)
		case selection.Exists, selection.GreaterThan, selection.LessThan: // the object must have the label
		default:
			continue
		}
		s.required = append(s.required, required)
	}
	// Indexes are made for the first ones first.
	slices.SortStableFunc(s.required, func(a, b requirement) int { return cmp.Compare(a.Width(), b.Width()) })
}

// Everything reports whether the selection contains every object of its namespace, or of all.
func (s *Selection) Everything() bool {
	return s.Name == "" && s.labels == nil && s.fields == nil
}

// ByKey reports whether the selection depends on the namespace and the name alone.
func (s *Selection) ByKey() bool { return s.labels == nil && s.fields == nil }

// Matches reports whether the selection contains an object.
func (s *Selection) Matches(o *Object) bool {
	return (s.Namespace == "" || s.Namespace == o.Namespace) &&
		(s.Name == "" || s.Name == o.Name) &&
		(s.labels == nil || s.labels.Matches(objectLabels{o})) &&
		(s.fields == nil || s.fields.Matches(objectFields{o, s.as}))
}
