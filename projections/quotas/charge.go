package quotas

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy/quotas"
	"stele.dev/stele/projections/objects"
)

// count adds to the quotas of a namespace what a change of one of its objects adds. The state is not published yet.
func (s *State) count(c *objects.Change) {
	kind := s.rules.Kind(c.Object.Resource())
	if kind == nil {
		return
	}
	before, after := text(c.Before), ""
	if !c.Deleted {
		after = view(c.Object.JSON)
	}
	w := write{rules: s.rules, before: kind.Item(before), after: kind.Item(after)}
	all := s.Quotas(c.Object.Namespace)
	var next []*Quota
	for i, q := range all {
		var counted *Quota
		w.charge(kind, q, func(line int, more, less resource.Quantity, _ error) {
			if more.Cmp(less) == 0 {
				return
			}
			if counted == nil {
				own := *q
				own.Lines = slices.Clone(q.Lines)
				counted = &own
			}
			l := &counted.Lines[line]
			used := l.Used.DeepCopy()
			used.Add(more)
			used.Sub(less)
			used.Format = l.Hard.Format
			l.Used = used
		})
		if counted != nil {
			if next == nil {
				next = slices.Clone(all)
			}
			next[i] = counted
		}
	}
	if next != nil {
		s.set(c.Object.Namespace, next)
	}
}

func text(o *objects.Object) string {
	if o == nil {
		return ""
	}
	return view(o.JSON)
}

// write is the write of an object, which has been another one before.
type write struct {
	rules         *quotas.Rules
	before, after quotas.Item
}

// charge calls f for each line of a quota that the kind of the object is counted in: with what the line counts of the object
// after the write, and before it. err says what of the new object is no quantity, and was one before.
func (w *write) charge(kind *quotas.Kind, q *Quota, f func(line int, more, less resource.Quantity, err error)) {
	known, was, is := false, false, false
	for i := range q.Lines {
		var more, less resource.Quantity
		var err error
		counted, wrongBefore := false, false
		for _, m := range q.Lines[i].measures {
			if m.Kind != kind {
				continue
			}
			counted = true
			if !known {
				known, was, is = true, q.counts(w.rules, &w.before), q.counts(w.rules, &w.after)
			}
			if was {
				use, wrong := w.before.Use(m)
				less, wrongBefore = plus(less, use), wrongBefore || wrong != nil
			}
			if is {
				use, wrong := w.after.Use(m)
				more = plus(more, use)
				if wrong != nil {
					err = wrong
				}
			}
		}
		if wrongBefore {
			err = nil // it is stored
		}
		if counted {
			f(i, more, less, err)
		}
	}
}

// plus returns the sum of two quantities, which it does not change.
func plus(a, b resource.Quantity) resource.Quantity {
	if a.IsZero() {
		return b
	}
	sum := a.DeepCopy()
	sum.Add(b)
	return sum
}

// Charge is what a write adds to a line of a quota.
type Charge struct {
	Quota *Quota
	*Line
	// Requested is how much the write adds; zero or less if it adds nothing.
	Requested resource.Quantity
	// Err says what of the object is no quantity; nil if nothing is wrong.
	Err error
}

// Exceeds reports whether the line has no room for the charge. A write that adds nothing always has room.
func (c *Charge) Exceeds() bool {
	if c.Requested.Sign() <= 0 {
		return false
	}
	total := plus(c.Used, c.Requested)
	return total.Cmp(c.Hard) > 0
}

// Charges returns what a write of an object of a resource would add to the quotas of its namespace, ordered by the names of
// quotas and of what they limit. before is the stored object; nil if there is none. after is the object to be stored, as JSON
// in the version in which it is stored; nil for a delete.
func (s *State) Charges(r schema.GroupResource, namespace string, before *objects.Object, after []byte) (all []Charge) {
	of := s.Quotas(namespace)
	if len(of) == 0 {
		return nil
	}
	kind := s.rules.Kind(r)
	if kind == nil {
		return nil
	}
	w := write{rules: s.rules, before: kind.Item(text(before)), after: kind.Item(view(after))}
	for _, q := range of {
		w.charge(kind, q, func(line int, more, less resource.Quantity, err error) {
			more = more.DeepCopy()
			more.Sub(less)
			all = append(all, Charge{Quota: q, Line: &q.Lines[line], Requested: more, Err: err})
		})
	}
	return all
}

// Check returns why a write, as of [State.Charges], does not fit into the quotas of its namespace; nil if it does. The quota
// of the error is the first one by name.
func (s *State) Check(r schema.GroupResource, namespace string, before *objects.Object, after []byte) *Exceeded {
	if len(s.Quotas(namespace)) == 0 || len(after) == 0 {
		return nil
	}
	var x *Exceeded
	for _, c := range s.Charges(r, namespace, before, after) {
		if x != nil && x.Quota != c.Quota {
			break
		}
		switch {
		case c.Err != nil:
			return &Exceeded{Quota: c.Quota, Charges: []Charge{c}}
		case c.Exceeds():
			if x == nil {
				x = &Exceeded{Quota: c.Quota}
			}
			x.Charges = append(x.Charges, c)
		}
	}
	return x
}

// Exceeded is the error of a write that does not fit into a quota.
type Exceeded struct {
	Quota *Quota
	// Charges are those without room, or one that cannot be counted.
	Charges []Charge
}

// Error returns the message of Kubernetes.
func (x *Exceeded) Error() string {
	if err := x.Charges[0].Err; err != nil {
		return fmt.Sprintf("failed quota: %s: %s: %v", x.Quota.Name, x.Charges[0].Name, err)
	}
	list := func(of func(*Charge) resource.Quantity) string {
		parts := make([]string, len(x.Charges))
		for i := range x.Charges {
			q := of(&x.Charges[i]).DeepCopy()
			parts[i] = x.Charges[i].Name + "=" + q.String()
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprintf("exceeded quota: %s, requested: %s, used: %s, limited: %s", x.Quota.Name,
		list(func(c *Charge) resource.Quantity { return c.Requested }),
		list(func(c *Charge) resource.Quantity { return c.Used }),
		list(func(c *Charge) resource.Quantity { return c.Hard }))
}
