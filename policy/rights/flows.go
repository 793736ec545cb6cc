package rights

import (
	"context"
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

// Flow schemas match requests as rules of roles do, with these differences: namespaces are names, "*" for all of them, or ""
// for requests outside of namespaces; a path includes the paths below it; and resources are names or "*". The first flow
// schema that matches a request takes it.

// Part is the requests of a subject that one of several flow schemas takes.
type Part struct {
	Schema int // index of the flow schema
	boxes  []box
}

// Flows divides requests among flow schemas. Its work is limited. It is not safe for concurrent use.
type Flows struct {
	schemas []*policy.FlowSchema
	boxes   map[int][][]box // by schema, for each rule
	search  covers
}

// NewFlows returns a division of requests among flow schemas, which are in the order in which they are tried.
func NewFlows(ctx context.Context, schemas []*policy.FlowSchema) *Flows {
	return &Flows{schemas: schemas, boxes: map[int][][]box{}, search: covers{ctx: ctx, left: maxSplits}}
}

func (f *Flows) boxesOf(schema int) [][]box {
	if f.boxes[schema] == nil {
		boxes := make([][]box, len(f.schemas[schema].Rules))
		for i := range boxes {
			boxes[i] = flowBoxes(&f.schemas[schema].Rules[i])
		}
		f.boxes[schema] = boxes
	}
	return f.boxes[schema]
}

// Parts returns what flow schemas take of the requests of a subject, in their order. A flow schema takes requests of a group if
// it names the group, or one that its members are certainly in. The error is [ErrIntricate], or the context's.
func (f *Flows) Parts(subject policy.Subject) (parts []Part, err error) {
	todo := everyRequest
	for i, s := range f.schemas {
		if len(todo) == 0 {
			break
		}
		if !slices.ContainsFunc(s.Subjects, func(wide policy.Subject) bool { return Includes(wide, subject) }) {
			continue
		}
		var taken []box
		for _, rule := range f.boxesOf(i) {
			for j := range rule {
				var in []box
				if in, todo, err = f.search.divide(todo, &rule[j]); err != nil {
					return nil, err
				}
				taken = append(taken, in...)
			}
		}
		if len(taken) > 0 {
			parts = append(parts, Part{i, taken})
		}
	}
	return parts, nil
}

// divide divides boxes by another one.
func (s *covers) divide(boxes []box, by *box) (inside, rest []box, err error) {
	if err := s.ctx.Err(); err != nil {
		return nil, nil, err
	}
	for i := range boxes {
		patterns := 1 + len(boxes[i].where.but)
		if s.left -= patterns * patterns; s.left < 0 {
			return nil, nil, ErrIntricate
		}
		in, out := boxes[i].split(by)
		inside, rest = append(inside, in...), append(rest, out...)
	}
	return inside, rest, nil
}

// Before returns the earlier flow schemas, by index, that take all requests of a flow schema; nil if some are left to it.
func (f *Flows) Before(schema int) (by []int, err error) {
	for _, s := range f.schemas[schema].Subjects {
		for _, subject := range Everyone(s) {
			found, err := f.takenBefore(schema, subject)
			if err != nil || found == nil {
				return nil, err
			}
			by = append(by, found...)
		}
	}
	slices.Sort(by)
	return slices.Compact(by), nil
}

// takenBefore is [Flows.Before] for one subject.
func (f *Flows) takenBefore(schema int, subject policy.Subject) (by []int, err error) {
	for _, rule := range f.boxesOf(schema) {
		todo := rule
		for i := 0; i < schema && len(todo) > 0; i++ {
			if !slices.ContainsFunc(f.schemas[i].Subjects, func(wide policy.Subject) bool { return Includes(wide, subject) }) {
				continue
			}
			for _, earlier := range f.boxesOf(i) {
				for j := range earlier {
					var in []box
					if in, todo, err = f.search.divide(todo, &earlier[j]); err != nil {
						return nil, err
					}
					if len(in) > 0 {
						by = append(by, i)
					}
				}
			}
		}
		if len(todo) > 0 {
			return nil, nil
		}
	}
	return by, nil
}

// Meet returns requests that two flow schemas match, and who may make them; nil if there are none.
func (f *Flows) Meet(a, b int) (*Scope, policy.Subject, error) {
	subject, possible := f.common(a, b)
	if !possible {
		return nil, subject, nil
	}
	for _, rule := range f.boxesOf(a) {
		for _, other := range f.boxesOf(b) {
			var both []box
			for i := range other {
				inside, _, err := f.search.divide(rule, &other[i])
				if err != nil {
					return nil, subject, err
				}
				both = append(both, inside...)
			}
			if len(both) > 0 {
				return &scopesOf(both)[0], subject, nil
			}
		}
	}
	return nil, subject, nil
}

// common returns a subject of both flow schemas; false if nobody is in both.
func (f *Flows) common(a, b int) (policy.Subject, bool) {
	for _, s := range f.schemas[a].Subjects {
		for _, t := range f.schemas[b].Subjects {
			if subject, possible := Common(s, t); possible {
				return subject, true
			}
		}
	}
	return policy.Subject{}, false
}

// Move is requests that one flow schema took and another one takes.
type Move struct {
	Subject policy.Subject
	// From and To are indices of flow schemas.
	From, To int
	Scopes   []Scope
}

// Moves returns the requests of a subject that moved, without those that moved so for a group that the subject is certainly
// in. same reports whether two flow schemas, by index, are one for the caller.
func Moves(from, to *Flows, subject policy.Subject, same func(from, to int) bool) ([]Move, error) {
	type way struct{ from, to int }
	moves := func(s policy.Subject) (map[way][]box, []way, error) {
		found, order := map[way][]box{}, []way(nil)
		was, err := from.Parts(s)
		if err != nil {
			return nil, nil, err
		}
		is, err := to.Parts(s)
		if err != nil {
			return nil, nil, err
		}
		for _, a := range was {
			for _, b := range is {
				if same(a.Schema, b.Schema) {
					continue
				}
				w := way{a.Schema, b.Schema}
				for i := range b.boxes {
					inside, _, err := to.search.divide(a.boxes, &b.boxes[i])
					if err != nil {
						return nil, nil, err
					}
					found[w] = append(found[w], inside...)
				}
				if len(found[w]) > 0 {
					order = append(order, w)
				}
			}
		}
		return found, order, nil
	}
	found, order, err := moves(subject)
	if err != nil {
		return nil, err
	}
	for _, g := range Implied(subject) {
		others, _, err := moves(g)
		if err != nil {
			return nil, err
		}
		for w := range found {
			for i := range others[w] {
				if _, found[w], err = to.search.divide(found[w], &others[w][i]); err != nil {
					return nil, err
				}
			}
		}
	}
	list := make([]Move, 0, len(order))
	for _, w := range order {
		if len(found[w]) > 0 {
			list = append(list, Move{subject, w.from, w.to, scopesOf(found[w])})
		}
	}
	return list, nil
}

// scopesOf describes boxes by few scopes.
func scopesOf(boxes []box) (list []Scope) {
	var whole []box
	where := map[string][]string{} // patterns, by everything else
	for _, b := range joined(boxes) {
		pattern := b.where.in
		b.where.in = ""
		k := b.key()
		if where[k] == nil {
			whole = append(whole, b)
		}
		where[k] = append(where[k], pattern)
	}
	for i := range whole {
		patterns := distinct(where[whole[i].key()])
		if slices.Contains(patterns, allNamespaces) && slices.Contains(patterns, outside) {
			patterns = []string{"*"}
		}
		list = append(list, whole[i].scope(patterns))
	}
	return list
}

// allNamespaces is the pattern of all requests in namespaces.
const allNamespaces = "**"

// everyRequest is all requests. Those in namespaces and outside of them are apart, as in rules. It must not be changed.
var everyRequest = []box{
	{sets: everySet, where: region{in: allNamespaces}},
	{sets: everySet, where: region{in: outside}},
	{path: true, sets: everySet, where: region{in: "/*"}},
}

// flowBoxes returns the requests of a rule of a flow schema.
func flowBoxes(rule *policy.FlowRule) (boxes []box) {
	for _, path := range rule.NonResourceURLs {
		b := box{path: true, sets: [...]set{setOf(rule.Verbs), anything, anything, anything, anything}}
		prefix, wild := strings.CutSuffix(path, "*")
		if !wild {
			b.where.in = path
			boxes = append(boxes, b)
		}
		if prefix != "" && !strings.HasSuffix(prefix, "/") {
			prefix += "/"
		}
		b.where.in = prefix + "*"
		boxes = append(boxes, b)
	}
	namespaces := rule.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{"*", outside}
	}
	for _, n := range namespaces {
		if n == "*" {
			n = allNamespaces
		}
		for _, x := range resourceBoxes(rule.Resources) {
			boxes = append(boxes, box{where: region{in: n}, sets: [...]set{setOf(rule.Verbs), setOf(rule.APIGroups), x[0], x[1], anything}})
		}
	}
	return boxes
}
