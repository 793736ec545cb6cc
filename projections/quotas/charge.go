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
func (s *State) count(c *objects.Change, known *Write) {
	kind := s.rules.Kind(c.Object.Resource())
	if kind == nil {
		return
	}
	w := known
	if w == nil || w.of != c.Before || w.rules != s.rules {
		after := ""
		if !c.Deleted {
			after = view(c.Object.JSON)
		}
		w = s.measure(kind, c.Before, after)
	}
	all := s.Quotas(c.Object.Namespace)
	var next []*Quota
	for i, q := range all {
		var counted *Quota
		w.charge(q, func(line int, more, less quotas.Amount, _ error) {
			if more.Cmp(less) == 0 {
				return
			}
			if counted == nil {
				own := *q
				own.Lines = slices.Clone(q.Lines)
				counted = &own
			}
			l := &counted.Lines[line]
			l.Used = l.Used.Add(more).Sub(less)
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

// Write is what is measured of the write of an object. It is for one goroutine.
type Write struct {
	rules         *quotas.Rules
	kind          *quotas.Kind
	of            *objects.Object // the stored object; nil if there is none
	before, after quotas.Item
}

func (s *State) measure(kind *quotas.Kind, before *objects.Object, after string) *Write {
	return &Write{rules: s.rules, kind: kind, of: before, before: kind.Item(text(before)), after: kind.Item(after)}
}

// charge calls f for each line of a quota that counts objects of the kind: with what the line counts of the object
// after the write, and before it. err says what of the new object is no quantity, and was one before.
func (w *Write) charge(q *Quota, f func(line int, more, less quotas.Amount, err error)) {
	known, was, is := false, false, false
	for i := range q.Lines {
		var more, less quotas.Amount
		var err error
		counted, wrongBefore := false, false
		for _, m := range q.Lines[i].measures {
			if m.Kind != w.kind {
				continue
			}
			counted = true
			if !known {
				known, was, is = true, q.counts(w.rules, &w.before), q.counts(w.rules, &w.after)
			}
			if was {
				use, wrong := w.before.Use(m)
				less, wrongBefore = less.Add(use), wrongBefore || wrong != nil
			}
			if is {
				use, wrong := w.after.Use(m)
				more = more.Add(use)
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

// Charge is what a write adds to a line of a quota.
type Charge struct {
	Quota *Quota
	*Line
	// Requested is how much the write adds; zero or less if it adds nothing.
	Requested quotas.Amount
	// Format is that of the object's quantity.
	Format resource.Format
	// Err says what of the object is no quantity; nil if nothing is wrong.
	Err error
}

// Exceeds reports whether the line has no room for the charge. A write that adds nothing always has room.
func (c *Charge) Exceeds() bool {
	if c.Requested.Sign() <= 0 {
		return false
	}
	return c.Used.Add(c.Requested).Cmp(c.Hard) > 0
}

// String describes the charge: "count/x: adds 1 to 4 of 5, 1 left".
func (c *Charge) String() string {
	if c.Err != nil {
		return c.Name + ": " + c.Err.Error()
	}
	adds := "adds nothing"
	if c.Requested.Sign() != 0 {
		adds = "adds " + c.Requested.Text(c.Format)
	}
	return fmt.Sprintf("%s: %s to %s of %s, %s left", c.Name, adds, c.Used.Text(c.Line.Format), c.Hard.Text(c.Line.Format), c.Hard.Sub(c.Used).Text(c.Line.Format))
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
	w := s.measure(kind, before, view(after))
	for _, q := range of {
		w.charge(q, func(line int, more, less quotas.Amount, err error) {
			all = append(all, w.newCharge(q, line, more, less, err))
		})
	}
	return all
}

func (w *Write) newCharge(q *Quota, line int, more, less quotas.Amount, err error) Charge {
	c := Charge{Quota: q, Line: &q.Lines[line], Requested: more.Sub(less), Format: q.Lines[line].Format, Err: err}
	for _, m := range c.measures {
		if format := w.after.Format(m); format != "" {
			c.Format = format
			break
		}
	}
	return c
}

// Check returns why a write, as of [State.Charges], does not fit into the quotas of its namespace; nil if it does. The quota
// of the error is the first one by name.
func (s *State) Check(r schema.GroupResource, namespace string, before *objects.Object, after []byte) *Exceeded {
	x, _ := s.Fits(r, namespace, before, after)
	return x
}

// Fits is Check. It also returns what it has measured, for [State.Apply]; nil if the namespace has no quotas.
func (s *State) Fits(r schema.GroupResource, namespace string, before *objects.Object, after []byte) (x *Exceeded, w *Write) {
	of := s.Quotas(namespace)
	if len(of) == 0 || len(after) == 0 {
		return nil, nil
	}
	kind := s.rules.Kind(r)
	if kind == nil {
		return nil, nil
	}
	w = s.measure(kind, before, view(after))
	for _, q := range of {
		var wrong *Exceeded
		w.charge(q, func(line int, more, less quotas.Amount, err error) {
			if more.Cmp(less) <= 0 && err == nil {
				return
			}
			c := w.newCharge(q, line, more, less, err)
			switch {
			case err != nil && wrong == nil:
				wrong = &Exceeded{Quota: q, Charges: []Charge{c}}
			case c.Exceeds() && x == nil:
				x = &Exceeded{Quota: q, Charges: []Charge{c}}
			case c.Exceeds():
				x.Charges = append(x.Charges, c)
			}
		})
		if wrong != nil {
			return wrong, w
		}
		if x != nil {
			return x, w
		}
	}
	return nil, w
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
	list := func(text func(*Charge) string) string {
		parts := make([]string, len(x.Charges))
		for i := range x.Charges {
			parts[i] = x.Charges[i].Name + "=" + text(&x.Charges[i])
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprintf("exceeded quota: %s, requested: %s, used: %s, limited: %s", x.Quota.Name,
		list(func(c *Charge) string { return c.Requested.Text(c.Format) }),
		list(func(c *Charge) string { return c.Used.Text(c.Line.Format) }),
		list(func(c *Charge) string { return c.Hard.Text(c.Line.Format) }))
}
