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

// The types of changes.
const (
	Gained    = "Gained"
	Lost      = "Lost"
	Changed   = "Changed"   // the conditions of it
	Denied    = "Denied"    // whoever else grants it to them; what they lose by it themselves is Lost
	NotDenied = "NotDenied" // any more
)

// AccessChange is what one subject gained or lost: each of some verbs, on each of some resources, in each
// of some namespaces; or on paths.
type AccessChange struct {
	Subject policy.Subject `json:"subject"`
	Type    string         `json:"type"`
	Scope   `json:",inline"`
	// Before and After are the conditions; "" if there were none.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// By the bindings and denies that made the difference.
	By []Ground `json:"by,omitempty"`
}

// Scope is what a change is about. "*" in a list is anything, but for what stands in the list
// beside it.
type Scope struct {
	Verbs       []string `json:"verbs,omitempty"`
	ExceptVerbs []string `json:"exceptVerbs,omitempty"`

	APIGroups       []string `json:"apiGroups,omitempty"`
	ExceptAPIGroups []string `json:"exceptAPIGroups,omitempty"`
	Resources       []string `json:"resources,omitempty"`
	ExceptResources []string `json:"exceptResources,omitempty"`
	// Subresources of each of the resources; "" is the resource itself. Left out if it is that alone.
	Subresources       []string `json:"subresources,omitempty"`
	ExceptSubresources []string `json:"exceptSubresources,omitempty"`
	// Names are left out if they are any.
	Names       []string `json:"names,omitempty"`
	ExceptNames []string `json:"exceptNames,omitempty"`
	// Namespaces are names, and patterns of them. "*" is also what is in none, which is "", and
	// requests for all namespaces; "**" is without that.
	Namespaces       []string `json:"namespaces,omitempty"`
	ExceptNamespaces []string `json:"exceptNamespaces,omitempty"`

	Paths       []string `json:"paths,omitempty"`
	ExceptPaths []string `json:"exceptPaths,omitempty"`
}

// Selection is what of a difference is wanted.
type Selection struct {
	// Subjects, all if there are none. Of those that are named all is said, also what they
	// gained or lost as members of the groups that they are in for certain; otherwise that is said of
	// the groups alone.
	Subjects []policy.Subject
	// Namespace to which a change must matter, if AnyNamespace is not set; "" is none.
	Namespace    string
	AnyNamespace bool
}

// Difference is who gained or lost what from one policy to another one, by subject: what each decides is
// compared, and not how it says that. What subjects have as members of groups that the policies do not
// put them in is said of these groups. Its error is [ErrIntricate], or the context's.
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

// comparison is of one subject.
type comparison struct {
	from, to  *Rights
	subject   policy.Subject
	selection *Selection
	found     map[string]*foundChange
	order     []string
}

// foundChange is of one type, for one reason.
type foundChange struct {
	AccessChange
	boxes []box
}

// find compares what rules are about that are not the same in both: of all else the decisions are.
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

// everything is all requests. It MUST NOT be changed.
var everything = []box{{sets: everySet, where: region{in: "*"}}, {path: true, sets: everySet, where: region{in: "*"}}}

// selected is the part of a box that is wanted.
func (d *comparison) selected(b *box) []box {
	if d.selection.AnyNamespace {
		return []box{*b}
	}
	inside, _ := b.split(&box{sets: everySet, where: region{in: d.selection.Namespace}})
	return inside
}

// differing are the boxes of claims that only one side has.
func differing(of covering) (boxes []box) {
	var has [2]map[string]bool
	for side, claims := range of {
		has[side] = map[string]bool{}
		for _, c := range claims {
			has[side][c.same()] = true
		}
	}
	seen := map[string]bool{}
	for side, claims := range of {
		for _, c := range claims {
			if k := c.box.key(); !has[1-side][c.same()] && !seen[k] {
				seen[k] = true
				boxes = append(boxes, c.box)
			}
		}
	}
	return boxes
}

// compare says what changed of a piece.
func (d *comparison) compare(b *box, by *covering) {
	was, is := d.from.verdict(d.subject, by[0]), d.to.verdict(d.subject, by[1])
	if was.key() != is.key() {
		if len(d.selection.Subjects) == 0 && d.ofGroup(by, func(g policy.Subject, part *covering) bool {
			before, after := d.from.verdict(g, part[0]), d.to.verdict(g, part[1])
			return before.key() == was.key() && after.key() == is.key()
		}) {
			return
		}
		c := AccessChange{Type: Changed, Before: was.text(), After: is.text()}
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
	if c.Before, c.After = strings.TrimPrefix(before, "always"), strings.TrimPrefix(after, "always"); c.Type == Changed {
		c.Before, c.After = "denied: "+before, "denied: "+after
	}
	d.add(b, c, d.only(by, func(c *claim) bool { return c.denies }))
}

// ofGroup tells whether something is so of a group that the subject is in for certain: then it is said of that.
func (d *comparison) ofGroup(by *covering, is func(g policy.Subject, part *covering) bool) bool {
	return slices.ContainsFunc(implied(d.subject), func(g policy.Subject) bool {
		in := append(implied(g), g)
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

// reasons are the rules that made the difference.
func (d *comparison) reasons(by *covering, was, is *verdict) []Ground {
	only := d.only(by, func(*claim) bool { return true })
	if len(only) == 0 { // it is the order of the chain
		return nil
	}
	switch {
	case was.never() && is.allowed:
		if granted := grounds(by[1]); len(grounds(by[0])) == 0 {
			return granted
		}
	case is.never():
		if denied := d.only(by, func(c *claim) bool { return c.denies }); len(denied) > 0 && len(grounds(by[1])) > 0 {
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

// only are the rules of claims that one side alone has.
func (d *comparison) only(by *covering, wanted func(*claim) bool) (list []Ground) {
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

// changes are what was found, in as few as is easily had.
func (d *comparison) changes() (list []AccessChange) {
	for _, k := range d.order {
		f := d.found[k]
		var whole []box
		where := map[string][]string{} // patterns, by all else
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

// scope says a box.
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
