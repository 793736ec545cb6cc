package kinds

import (
	"context"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
)

// A comparison compares two versions of a kind.
type comparison struct {
	ctx     context.Context // once it is done, nothing more is compared
	was, is *policy.Version
	found   []plan.Finding
	// lost and gained are the fields that only one side has, for renames.
	lost, gained []lone
	undecided    int // comparisons of regular expressions that gave up
	tried        int // values that were generated, see search
}

// A place is where in an object the compared nodes are.
type place struct {
	route
	// when says when the nodes apply: " if size == 3"; empty for always.
	when string
	// key says that the nodes are those of the keys of a map.
	key bool
}

func (p place) field(name string) place { return place{route: p.route.field(name), when: p.when} }
func (p place) items() place            { return place{route: p.route.items(), when: p.when} }
func (p place) values() place           { return place{route: p.route.values(), when: p.when} }

// A direction says what becomes of values: some are refused that were accepted, some are accepted that were refused.
type direction uint8

const (
	loses direction = 1 << iota
	gains
	unknown direction = 0
)

// class returns the class of a finding with a direction. Rules that break keep that unless nothing is lost.
func (d direction) class(rule string) plan.Class {
	switch {
	case d == gains:
		return plan.Widens
	case d&loses != 0 && plan.RuleNamed(rule).Class == plan.Breaks:
		return plan.Breaks
	case d == loses:
		return plan.Narrows
	}
	return plan.Changes
}

// incomparable is said of what neither forms nor generated values decide.
const incomparable = "The two sides cannot be compared; the stored objects decide."

// A difference is a finding before it has a kind.
type difference struct {
	rule          string
	way           direction
	before, after string
	was, is       schemas.Position
	message       string
	details       []string
	fix           []string
}

// add adds a finding that is known from the forms alone.
func (c *comparison) add(at place, d difference) *plan.Finding {
	f := plan.Finding{
		Rule: d.rule, Class: d.way.class(d.rule), Path: at.String(), Before: d.before, After: d.after,
		Source: d.is, Was: d.was, Message: d.message, Details: d.details, Fix: d.fix, Evidence: plan.Proved,
	}
	if at.when != "" {
		f.Details = append(f.Details, "It applies only"+at.when+".")
	}
	if at.key {
		f.Message = strings.TrimSpace(f.Message + " This is about the keys of the map.")
	}
	c.found = append(c.found, f)
	return &c.found[len(c.found)-1]
}

// as adds a finding of a class of its own.
func (c *comparison) as(class plan.Class, at place, d difference) {
	c.add(at, d).Class = class
}

// findings runs a part of the comparison and returns what it finds, without adding it.
func (c *comparison) findings(run func()) []plan.Finding {
	before, lost, gained := c.found, c.lost, c.gained
	c.found = nil
	run()
	found := c.found
	c.found, c.lost, c.gained = before, lost, gained
	return found
}

// position returns the first position that is known.
func position(all ...schemas.Position) schemas.Position {
	for _, p := range all {
		if !p.IsZero() {
			return p
		}
	}
	return schemas.Position{}
}
