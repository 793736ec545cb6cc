package rules

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// aggregates compares the servers that answer API groups.
func (c *comparison) aggregates() {
	id := func(a *policy.Aggregate) string { return a.ID }
	from, to := policy.IndexBy(c.sides.From.Form().Aggregates, id), policy.IndexBy(c.sides.To.Form().Aggregates, id)
	for _, id := range eitherNames(from, to) {
		was, is := from[id], to[id]
		switch {
		case was == nil:
			c.add(plan.Finding{Rule: "AGGREGATE_ADDED", Path: id, After: described(is), Source: is.Source,
				Message: fmt.Sprintf("Requests for the API group %s are passed on to another server.", is.Group)})
		case is == nil:
			c.add(plan.Finding{Rule: "AGGREGATE_REMOVED", Path: id, Before: described(was), Was: was.Source,
				Message: fmt.Sprintf("Requests for the API group %s get 404.", was.Group)})
		default:
			c.aggregate(was, is)
		}
	}
}

// aggregate compares a server that both policies name.
func (c *comparison) aggregate(was, is *policy.Aggregate) {
	fields := changedFields(was, is)
	if len(fields) == 0 {
		return
	}
	f := plan.Finding{Rule: "AGGREGATE_CHANGED", Path: is.ID, Before: described(was), After: described(is), Source: is.Source, Was: was.Source,
		Message: "What differs: " + strings.Join(fields, ", ") + "."}
	gone := slices.ContainsFunc(was.Versions, func(v string) bool { return !slices.Contains(is.Versions, v) })
	more := slices.ContainsFunc(is.Versions, func(v string) bool { return !slices.Contains(was.Versions, v) })
	switch {
	case gone || was.Group != is.Group:
		f.Class = plan.Breaks
	case more, was.URL != is.URL, was.CABundle != is.CABundle, was.ServerName != is.ServerName, is.Private && !was.Private:
		f.Class = plan.Widens
	case was.Private && !is.Private:
		f.Class = plan.Narrows
	}
	c.add(f)
}

// described returns the group, the versions and the address of a server.
func described(a *policy.Aggregate) string {
	return fmt.Sprintf("%s %s at %s", a.Group, strings.Join(a.Versions, ", "), a.URL)
}
