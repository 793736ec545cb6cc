package changes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"stele.dev/stele/core/past"
)

// Selection says which changes are meant.
type Selection struct {
	Namespace string // "" for all, and for those in none
	// Since and Until bound them, both included; nil where they do not.
	Since, Until *past.Moment
	terms        []fields.Requirement
}

// selectable are the fields that can be selected by.
var selectable = map[string]func(*Change) string{
	"metadata.name":       func(c *Change) string { return c.Name },
	"metadata.namespace":  func(c *Change) string { return c.ObjectMeta.Namespace },
	"type":                func(c *Change) string { return c.Type },
	"policy":              func(c *Change) string { return c.Policy },
	"actor.user":          func(c *Change) string { return c.actor().User },
	"actor.impersonator":  func(c *Change) string { return c.actor().Impersonator },
	"request.verb":        func(c *Change) string { return c.request().Verb },
	"request.subresource": func(c *Change) string { return c.request().Subresource },
	"request.auditID":     func(c *Change) string { return c.request().AuditID },
	"object.group":        func(c *Change) string { return c.object().Group },
	"object.version":      func(c *Change) string { return c.object().Version },
	"object.resource":     func(c *Change) string { return c.object().Resource },
	"object.kind":         func(c *Change) string { return c.object().Kind },
	"object.namespace":    func(c *Change) string { return c.object().Namespace },
	"object.name":         func(c *Change) string { return c.object().Name },
	"object.uid":          func(c *Change) string { return c.object().UID },
}

func orZero[T any](x *T) *T {
	if x == nil {
		return new(T)
	}
	return x
}

func (c *Change) actor() *Actor     { return orZero(c.Actor) }
func (c *Change) request() *Request { return orZero(c.Request) }
func (c *Change) object() *Object   { return orZero(c.Object) }

// The fields that no change has, but a place in the log.
const (
	since = "since"
	until = "until"
)

// Select makes a selection, of a namespace or "" and by fields; the selector may be nil. Its
// error is for people.
func Select(namespace string, selector fields.Selector) (*Selection, error) {
	s := &Selection{Namespace: namespace}
	if selector == nil {
		return s, nil
	}
	for _, q := range selector.Requirements() {
		if q.Field == since || q.Field == until {
			if err := s.bound(q); err != nil {
				return nil, err
			}
			continue
		}
		if selectable[q.Field] == nil {
			return nil, fmt.Errorf("field label not supported: %s (changes have %s, %s and %s)",
				q.Field, strings.Join(slices.Sorted(maps.Keys(selectable)), ", "), since, until)
		}
		s.terms = append(s.terms, q)
	}
	return s, nil
}

func (s *Selection) bound(q fields.Requirement) error {
	end := &s.Since
	if q.Field == until {
		end = &s.Until
	}
	if q.Operator == selection.NotEquals {
		return fmt.Errorf("%s takes = and no other operator", q.Field)
	}
	if *end != nil {
		return fmt.Errorf("%s is given twice", q.Field)
	}
	m, err := past.Parse(q.Value)
	if err != nil {
		return fmt.Errorf("%s: %w", q.Field, err)
	}
	*end = &m
	return nil
}

// Selects reports whether a field selector was given.
func (s *Selection) Selects() bool { return len(s.terms) > 0 || s.Since != nil || s.Until != nil }

// Exactly is the value that a field must have, if the selection names one.
func (s *Selection) Exactly(field string) (string, bool) {
	for _, q := range s.terms {
		if q.Field == field && q.Operator != selection.NotEquals {
			return q.Value, true
		}
	}
	return "", false
}

// Matches tells whether a change is meant, as far as that does not depend on when it was.
func (s *Selection) Matches(c *Change) bool {
	if s.Namespace != "" && c.ObjectMeta.Namespace != s.Namespace {
		return false
	}
	return !slices.ContainsFunc(s.terms, func(q fields.Requirement) bool {
		return (selectable[q.Field](c) == q.Value) == (q.Operator == selection.NotEquals)
	})
}
