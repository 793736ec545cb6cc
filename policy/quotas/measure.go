package quotas

import (
	"fmt"
	"slices"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
)

// Item is an object that is measured. It is for one goroutine.
type Item struct {
	kind   *Kind
	json   string // "" if there is no object
	sums   []measured
	labels labels.Set // nil until needed
	// top is the value of a field of the object, topName its name. Most paths begin with the same.
	top     gjson.Result
	topName string
}

type measured struct {
	known  bool
	value  Amount
	format resource.Format // of the first quantity; "" if there is none
	err    error
}

// Item returns an object of the kind, given as the JSON that clients get in the version in which it is stored; "" stands for
// no object, which uses nothing.
func (k *Kind) Item(json string) Item { return Item{kind: k, json: json} }

var one = Units(1)

// Use returns how much the object uses. The error says what is no quantity, or is negative; what has an error counts as
// nothing.
func (i *Item) Use(m Measure) (Amount, error) {
	switch {
	case i.json == "" || m.Kind != i.kind:
		return Amount{}, nil
	case m.Counts():
		return one, nil
	}
	s := i.sum(m)
	return s.value, s.err
}

// Format returns the format in which the object writes what it uses; "" if it writes nothing.
func (i *Item) Format(m Measure) resource.Format {
	if i.json == "" || m.Kind != i.kind || m.Counts() {
		return ""
	}
	return i.sum(m).format
}

func (i *Item) sum(m Measure) *measured {
	if i.sums == nil {
		i.sums = make([]measured, len(i.kind.sums))
	}
	s := &i.sums[m.sum]
	if !s.known {
		s.known = true
		s.add(i, i.kind.sums[m.sum])
	}
	return s
}

// visit calls f for the values at a path.
func (i *Item) visit(path fieldPath, f func(gjson.Result)) {
	if i.topName != path.top {
		i.top, i.topName = gjson.Get(i.json, path.top), path.top
	}
	path.visit(i.top, f)
}

// add adds the quantities at a path.
func (s *measured) add(i *Item, path fieldPath) {
	i.visit(path, func(v gjson.Result) {
		q, err := quantity(v)
		switch {
		case err != nil:
			s.err = err
		case q.Sign() < 0:
			s.err = fmt.Errorf("%s is negative", q.String())
		default:
			if s.value = s.value.Add(AmountOf(q)); s.format == "" {
				s.format = q.Format
			}
		}
	})
}

func quantity(v gjson.Result) (resource.Quantity, error) {
	text := v.Raw
	if v.Type == gjson.String {
		text = v.Str
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("%s: %w", v.Raw, err)
	}
	return q, nil
}

// Requirement is a condition that a quota sets for the objects that it counts.
type Requirement struct {
	Scope    string
	Operator string // In, NotIn, Exists or DoesNotExist
	Values   []string
}

// In reports whether an object meets a requirement of a quota. As in Kubernetes, an object of a kind that a scope is not
// about meets none, and a scope that is not known here has no objects.
func (r *Rules) In(i *Item, q *Requirement) bool {
	s := r.scopes[q.Scope]
	if s == nil || i.json == "" || s.kinds != nil && !s.kinds[i.kind.GroupResource] {
		return false
	}
	value, has := s.holds(i)
	switch q.Operator {
	case "Exists":
		return has
	case "DoesNotExist":
		return !has
	case "In":
		return has && slices.Contains(q.Values, value)
	case "NotIn":
		return !has || !slices.Contains(q.Values, value)
	}
	return false
}

// holds reports whether an object is in the scope, or has a value in it, which it returns.
func (s *scope) holds(i *Item) (value string, has bool) {
	switch {
	case s.of.ValueLabel != "":
		value, has = i.labelSet()[s.of.ValueLabel]
		return value, has
	case s.of.ValueField != "":
		i.visit(s.value, func(v gjson.Result) { value, has = v.String(), true })
		return value, has
	}
	if s.selector != nil && !s.selector.Matches(i.labelSet()) {
		return "", false
	}
	for _, f := range s.fields {
		equal := false
		i.visit(f.path, func(v gjson.Result) { equal = v.Type == f.want.Type && v.String() == f.want.String() })
		if !equal {
			return "", false
		}
	}
	return "", true
}

func (i *Item) labelSet() labels.Set {
	if i.labels == nil {
		i.labels = labels.Set{}
		gjson.Get(i.json, "metadata.labels").ForEach(func(k, v gjson.Result) bool {
			i.labels[k.Str] = v.Str
			return true
		})
	}
	return i.labels
}
