package changes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/core/past"
)

// Selection selects changes.
type Selection struct {
	Namespace string // "" selects all changes, also those without a namespace
	// Since and Until are the first and the last moment of the selection; nil means unbounded.
	Since, Until *past.Moment
	// Path selects changes in which this field, a part of it, or a field around it differs. "" selects all.
	Path  string
	terms []fields.Requirement
}

// selectable maps the names of selectable fields to functions that return their values.
var selectable = map[string]func(*Change) string{
	"metadata.name":        func(c *Change) string { return c.Name },
	"metadata.namespace":   func(c *Change) string { return c.ObjectMeta.Namespace },
	"type":                 func(c *Change) string { return c.Type },
	"policy":               func(c *Change) string { return c.Policy },
	"actor.user":           func(c *Change) string { return c.actor().User },
	"actor.impersonator":   func(c *Change) string { return c.actor().Impersonator },
	"request.verb":         func(c *Change) string { return c.request().Verb },
	"request.subresource":  func(c *Change) string { return c.request().Subresource },
	"request.auditID":      func(c *Change) string { return c.request().AuditID },
	userAgent:              func(c *Change) string { return c.request().UserAgent },
	"request.fieldManager": func(c *Change) string { return c.request().FieldManager },
	"object.group":         func(c *Change) string { return c.object().Group },
	"object.version":       func(c *Change) string { return c.object().Version },
	"object.resource":      func(c *Change) string { return c.object().Resource },
	"object.kind":          func(c *Change) string { return c.object().Kind },
	"object.namespace":     func(c *Change) string { return c.object().Namespace },
	"object.name":          func(c *Change) string { return c.object().Name },
	"object.uid":           func(c *Change) string { return c.object().UID },
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

// userAgent is the only field whose selected value may end with *, which matches any ending: user agents are long.
const userAgent = "request.userAgent"

// These fields are not fields of a Change. They select by the place in the log, and by the path of a difference.
const (
	since = "since"
	until = "until"
	path  = "difference.path"
)

// Select returns the selection of a namespace ("" for all) and a field selector (nil for none). Clients see its error.
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
		if q.Field == path {
			if q.Operator == selection.NotEquals || q.Value == "" || s.Path != "" {
				return nil, fmt.Errorf("%s takes =, one path, and is given once", path)
			}
			s.Path = q.Value
			continue
		}
		if selectable[q.Field] == nil {
			return nil, fmt.Errorf("field label not supported: %s (changes have %s, %s, %s and %s)",
				q.Field, strings.Join(slices.Sorted(maps.Keys(selectable)), ", "), path, since, until)
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

// Selects reports whether the selection has a field selector.
func (s *Selection) Selects() bool {
	return len(s.terms) > 0 || s.Since != nil || s.Until != nil || s.Path != ""
}

// Exactly returns the value that the selection requires of a field, if it requires one.
func (s *Selection) Exactly(field string) (string, bool) {
	for _, q := range s.terms {
		if q.Field == field && q.Operator != selection.NotEquals {
			return q.Value, true
		}
	}
	return "", false
}

// Matches reports whether the selection matches a change. It does not compare the time.
func (s *Selection) Matches(c *Change) bool {
	if s.Namespace != "" && c.ObjectMeta.Namespace != s.Namespace {
		return false
	}
	return !slices.ContainsFunc(s.terms, func(q fields.Requirement) bool {
		return has(q.Field, selectable[q.Field](c), q.Value) == (q.Operator == selection.NotEquals)
	})
}

func has(field, value, want string) bool {
	if prefix, ok := strings.CutSuffix(want, "*"); ok && field == userAgent {
		return strings.HasPrefix(value, prefix)
	}
	return value == want
}

// MatchesDifference reports whether a change affects the selected field: the field itself, a part of it, or a field
// around it.
func (s *Selection) MatchesDifference(c *Change) bool {
	return s.Path == "" || slices.ContainsFunc(c.Difference, func(d difference.Entry) bool {
		return isWithinPath(d.Path, s.Path) || isWithinPath(s.Path, d.Path) && mentions(d, s.Path)
	})
}

// isWithinPath reports whether a path equals another path or leads into it.
func isWithinPath(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// mentions reports whether a value that was added or removed as a whole contained a field. The path is that of the
// value or of a field in it. mentions does not search items of lists.
func mentions(d difference.Entry, path string) bool {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, d.Path), ".")
	for _, value := range []any{d.From, d.To} {
		for name := range strings.SplitSeq(rest, ".") {
			if fields, ok := value.(map[string]any); ok {
				value = fields[name]
			} else if name != "" {
				value = nil
			}
		}
		if value != nil {
			return true
		}
	}
	return false
}
