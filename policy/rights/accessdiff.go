package rights

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

// Types of changes.
const (
	Gained    = "Gained"
	Lost      = "Lost"
	Changed   = "Changed"   // the conditions changed
	Denied    = "Denied"    // a deny now applies to others who have a grant; what the subject itself loses is Lost
	NotDenied = "NotDenied" // that deny no longer applies
)

// AccessChange is what one subject gained or lost: all of the verbs, on all of the resources, in all
// of the namespaces; or on paths.
type AccessChange struct {
	Subject policy.Subject `json:"subject"`
	Type    string         `json:"type"`
	Scope   `json:",inline"`
	// Before and After are the conditions; "" if there are none.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Wider and Narrower are set for a type Changed if the conditions themselves say that more, or
	// less, is allowed, whatever they are about. If neither is set, the texts do not decide it.
	Wider    bool `json:"-"`
	Narrower bool `json:"-"`
	// By are the bindings and denies that caused the change.
	By []Ground `json:"by,omitempty"`
}

// Scope is the requests that a change is about. A "*" in a list stands for everything except the
// other words of the list.
type Scope struct {
	Verbs       []string `json:"verbs,omitempty"`
	ExceptVerbs []string `json:"exceptVerbs,omitempty"`

	APIGroups       []string `json:"apiGroups,omitempty"`
	ExceptAPIGroups []string `json:"exceptAPIGroups,omitempty"`
	Resources       []string `json:"resources,omitempty"`
	ExceptResources []string `json:"exceptResources,omitempty"`
	// Subresources of each resource; "" is the resource itself. Empty if only the resource itself is
	// meant.
	Subresources       []string `json:"subresources,omitempty"`
	ExceptSubresources []string `json:"exceptSubresources,omitempty"`
	// Names is empty if all names are meant.
	Names       []string `json:"names,omitempty"`
	ExceptNames []string `json:"exceptNames,omitempty"`
	// Namespaces are names and patterns. "" stands for cluster-scoped requests and requests for all
	// namespaces; "*" includes them, "**" does not.
	Namespaces       []string `json:"namespaces,omitempty"`
	ExceptNamespaces []string `json:"exceptNamespaces,omitempty"`

	Paths       []string `json:"paths,omitempty"`
	ExceptPaths []string `json:"exceptPaths,omitempty"`
}

// Selection selects a part of a difference.
type Selection struct {
	// Subjects limits the result to these subjects; empty means all. For a listed subject, the
	// result includes the changes of its certain groups; otherwise a group's changes are listed for
	// the group only.
	Subjects []policy.Subject
	// Namespace limits the result to changes in a namespace, unless AnyNamespace is set; "" is
	// cluster-scoped.
	Namespace    string
	AnyNamespace bool
}

// Difference returns what each subject gained or lost between two policies. It compares the
// decisions, not the text of the rules. Rights from groups are listed for the group, unless the
// policy itself makes the subject a member. The error is [ErrIntricate], or the context's.
func Difference(ctx context.Context, from, to *Rights, of Selection) ([]AccessChange, error) {
	subjects := of.Subjects
	if len(subjects) == 0 {
		known := map[policy.Subject]bool{{Group: policy.MastersGroup}: true}
		for _, r := range []*Rights{from, to} {
			for s := range r.claims {
				known[s] = true
			}
		}
		subjects = slices.Collect(maps.Keys(known))
		slices.SortFunc(subjects, func(a, b policy.Subject) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.User+a.Group, b.User+b.Group))
		})
	}
	budget := maxPieces
	var changes []AccessChange
	for _, s := range subjects {
		d := &comparison{from: from, to: to, subject: s, selection: &of, found: map[string]*foundChange{}}
		if err := d.find(ctx, &budget); err != nil {
			return nil, err
		}
		changes = append(changes, d.changes()...)
	}
	return changes, nil
}

// comparison compares the rights of one subject.
type comparison struct {
	from, to  *Rights
	subject   policy.Subject
	selection *Selection
	found     map[string]*foundChange
	order     []string
}

// foundChange is a change with its type and reasons.
type foundChange struct {
	AccessChange
	boxes []box
}

// find compares the claims that differ between the policies. For other requests the decisions are
// the same.
func (d *comparison) find(ctx context.Context, budget *int) error {
	of := covering{d.from.all(d.subject), d.to.all(d.subject)}
	var start []box
	if slices.Equal(d.from.inside, d.to.inside) {
		start = differing(of)
	} else {
		start = everything
	}
	p := newPartition(of)
	p.left = *budget
	var done []box
	for i := range start {
		todo := d.selected(&start[i])
		for j := range done {
			if err := ctx.Err(); err != nil {
				return err
			}
			var rest []box
			for k := range todo {
				_, out := todo[k].split(&done[j])
				rest = append(rest, out...)
			}
			if todo = rest; len(todo) > maxPieces {
				return ErrIntricate
			}
		}
		done = append(done, start[i])
		for j := range todo {
			if err := p.pieces(ctx, &todo[j], d.compare); err != nil {
				return err
			}
		}
	}
	*budget = p.left
	return nil
}

var everySet = [dimensions]set{anything, anything, anything, anything, anything}

// everything is the set of all requests. It must not be changed.
var everything = []box{{sets: everySet, where: region{in: "*"}}, {path: true, sets: everySet, where: region{in: "*"}}}

// selected returns the selected part of a box.
func (d *comparison) selected(b *box) []box {
	if d.selection.AnyNamespace {
		return []box{*b}
	}
	inside, _ := b.split(&box{sets: everySet, where: region{in: d.selection.Namespace}})
	return inside
}

// differing returns the boxes of claims that only one policy has.
func differing(of covering) (boxes []box) {
	var has [2]map[string]bool
	for side, claims := range of {
		has[side] = map[string]bool{}
		for _, c := range claims {
			has[side][c.key()] = true
		}
	}
	seen := map[string]bool{}
	for side, claims := range of {
		for _, c := range claims {
			if k := c.box.key(); !has[1-side][c.key()] && !seen[k] {
				seen[k] = true
				boxes = append(boxes, c.box)
			}
		}
	}
	return boxes
}

// compare records what changed for a piece.
func (d *comparison) compare(b *box, by *covering) {
	was, is := d.from.verdict(d.subject, by[0]), d.to.verdict(d.subject, by[1])
	if was.key() != is.key() {
		if len(d.selection.Subjects) == 0 && d.ofGroup(by, func(g policy.Subject, part *covering) bool {
			before, after := d.from.verdict(g, part[0]), d.to.verdict(g, part[1])
			return before.key() == was.key() && after.key() == is.key()
		}) {
			return
		}
		c := AccessChange{Type: Changed, Before: was.text(), After: is.text(), Wider: is.includes(&was), Narrower: was.includes(&is)}
		switch {
		case was.never():
			c.Type = Gained
		case is.never():
			c.Type = Lost
		}
		d.add(b, c, d.reasons(by, &was, &is))
		return
	}
	before, after := d.from.denied(by[0]), d.to.denied(by[1])
	if before == after || len(d.selection.Subjects) == 0 && d.ofGroup(by, func(_ policy.Subject, part *covering) bool {
		return d.from.denied(part[0]) == before && d.to.denied(part[1]) == after
	}) {
		return
	}
	c := AccessChange{Type: Changed, Before: before, After: after}
	switch {
	case before == "":
		c.Type = Denied
	case after == "":
		c.Type = NotDenied
	}
	if c.Before, c.After = strings.TrimPrefix(before, deniedAlways), strings.TrimPrefix(after, deniedAlways); c.Type == Changed {
		c.Before, c.After = "denied: "+before, "denied: "+after
		c.Wider, c.Narrower = before == deniedAlways, after == deniedAlways
	}
	d.add(b, c, d.onlyIn(by, func(c *claim) bool { return c.denies }))
}

// ofGroup reports whether something is true for a group that the subject is certainly in. Then it is
// listed for the group.
func (d *comparison) ofGroup(by *covering, is func(g policy.Subject, part *covering) bool) bool {
	return slices.ContainsFunc(Implied(d.subject), func(g policy.Subject) bool {
		in := append(Implied(g), g)
		var part covering
		for side := range by {
			for _, c := range by[side] {
				if slices.Contains(in, c.subject) {
					part[side] = append(part[side], c)
				}
			}
		}
		return is(g, &part)
	})
}

// reasons returns the rules that caused a change.
func (d *comparison) reasons(by *covering, was, is *verdict) []Ground {
	only := d.onlyIn(by, func(*claim) bool { return true })
	if len(only) == 0 { // the order of the chain caused it
		return nil
	}
	switch {
	case was.never() && is.allowed:
		if granted := grounds(by[1]); len(grounds(by[0])) == 0 {
			return granted
		}
	case is.never():
		if denied := d.onlyIn(by, func(c *claim) bool { return c.denies }); len(denied) > 0 && (len(grounds(by[1])) > 0 || len(grounds(by[0])) == 0) {
			return denied
		}
		if len(grounds(by[1])) == 0 {
			return grounds(by[0])
		}
	}
	return only
}

func grounds(claims []*claim) (list []Ground) {
	for _, c := range claims {
		if !c.denies && !slices.Contains(list, c.ground) {
			list = append(list, c.ground)
		}
	}
	return list
}

// onlyIn returns the rules of wanted claims that only one policy has.
func (d *comparison) onlyIn(by *covering, wanted func(*claim) bool) (list []Ground) {
	for side := range by {
		for _, c := range by[side] {
			if wanted(c) && !slices.Contains(list, c.ground) && !slices.ContainsFunc(by[1-side], func(o *claim) bool { return o.denies == c.denies && o.condition == c.condition }) {
				list = append(list, c.ground)
			}
		}
	}
	return list
}

func (d *comparison) add(b *box, c AccessChange, by []Ground) {
	slices.SortFunc(by, func(a, b Ground) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Source, b.Source)) })
	c.Subject, c.By = d.subject, by
	k := fmt.Sprintf("%s%q%q%q", c.Type, c.Before, c.After, by)
	if d.found[k] == nil {
		d.found[k] = &foundChange{AccessChange: c}
		d.order = append(d.order, k)
	}
	d.found[k].boxes = append(d.found[k].boxes, *b)
}

// changes merges the found changes into few.
func (d *comparison) changes() (list []AccessChange) {
	for _, k := range d.order {
		f := d.found[k]
		var whole []box
		where := map[string][]string{} // patterns, by everything else
		for _, b := range joined(f.boxes) {
			pattern := b.where.in
			b.where.in = ""
			k := b.key()
			if where[k] == nil {
				whole = append(whole, b)
			}
			where[k] = append(where[k], pattern)
		}
		for i := range whole {
			c := f.AccessChange
			c.Scope = whole[i].scope(distinct(where[whole[i].key()]))
			list = append(list, c)
		}
	}
	types := []string{Gained, Changed, Lost, Denied, NotDenied}
	slices.SortStableFunc(list, func(a, b AccessChange) int {
		return cmp.Or(cmp.Compare(slices.Index(types, a.Type), slices.Index(types, b.Type)), slices.Compare(a.APIGroups, b.APIGroups),
			slices.Compare(a.Resources, b.Resources), slices.Compare(a.Subresources, b.Subresources), slices.Compare(a.Names, b.Names),
			slices.Compare(a.Namespaces, b.Namespaces), slices.Compare(a.Paths, b.Paths), slices.Compare(a.Verbs, b.Verbs))
	})
	return list
}

// scope returns the scope of a box.
func (b *box) scope(patterns []string) (s Scope) {
	list := func(x set) (words, except []string) {
		if x.but {
			return []string{"*"}, x.words
		}
		return x.words, nil
	}
	s.Verbs, s.ExceptVerbs = list(b.sets[ofVerbs])
	if b.path {
		s.Paths, s.ExceptPaths = patterns, b.where.but
		return s
	}
	s.APIGroups, s.ExceptAPIGroups = list(b.sets[ofGroups])
	s.Resources, s.ExceptResources = list(b.sets[ofResources])
	if sub := b.sets[ofSubresources]; sub.but || len(sub.words) != 1 || sub.words[0] != "" {
		s.Subresources, s.ExceptSubresources = list(sub)
	}
	if names := b.sets[ofNames]; !names.but || len(names.words) > 0 {
		s.Names, s.ExceptNames = list(names)
	}
	s.Namespaces, s.ExceptNamespaces = patterns, b.where.but
	return s
}
