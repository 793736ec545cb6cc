package rules

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// reviewers compares the webhooks and plugins that review writes. What they decide is not seen.
func (c *comparison) reviewers() {
	id := func(r *policy.Reviewer) string { return r.ID }
	from, to := policy.IndexBy(c.sides.From.Form().Reviewers, id), policy.IndexBy(c.sides.To.Form().Reviewers, id)
	for _, id := range slices.Sorted(maps.Keys(to)) {
		is, was := to[id], from[id]
		f := plan.Finding{Path: id, Source: is.Source}
		switch {
		case was == nil && is.Mutating:
			f.Rule, f.Class, f.Message = "REVIEWER_ADDED", plan.Changes, fmt.Sprintf("A %s may change what is written of %s.", is.What(), reviewed(is))
		case was == nil:
			f.Rule, f.Message = "REVIEWER_ADDED", fmt.Sprintf("Writes of %s must pass a %s more.", reviewed(is), is.What())
		default:
			fields := differences(was, is, reviewerNames)
			if len(fields) == 0 {
				continue
			}
			f.Rule, f.Was, f.Details = "REVIEWER_CHANGED", was.Source, fields
			f.Message = "What it is asked, or what happens if it fails, differs: " + strings.Join(fields, ", ") + "."
			f.Class = classOfFailure(fields, is.Ignore)
			if slices.Equal(fields, []string{"configuration"}) {
				f.Rule, f.Message, f.Details = "OBJECT_RENAMED", "Clients find it in another configuration.", nil
				f.Before, f.After, f.Class = was.ShownName(), is.ShownName(), ""
			}
		}
		c.add(f)
	}
	for _, id := range slices.Sorted(maps.Keys(from)) {
		was := from[id]
		if to[id] != nil {
			continue
		}
		f := plan.Finding{Rule: "REVIEWER_REMOVED", Path: id, Was: was.Source, Message: fmt.Sprintf("The %s is not asked about writes of %s any more.", was.What(), reviewed(was))}
		if was.Mutating {
			f.Class = plan.Changes
		}
		c.add(f)
	}
}

// reviewerNames are the fields of a reviewer whose names in the form are others than in the bundle.
var reviewerNames = map[string]string{"ignore": "failurePolicy", "again": "reinvocationPolicy", "exact": "matchPolicy", "excludes": "excludeResourceRules",
	"conditions": "matchConditions", "webhook": "clientConfig"}

// classOfFailure returns the class of a change of nothing but the failure policy, "" for other changes.
func classOfFailure(fields []string, ignore bool) plan.Class {
	switch {
	case !slices.Equal(fields, []string{"failurePolicy"}):
		return ""
	case ignore:
		return plan.Widens
	}
	return plan.Narrows
}

// reviewed returns the resources that a reviewer is asked about.
func reviewed(r *policy.Reviewer) string {
	var list []string
	for i := range r.Rules {
		if text := resources(r.Rules[i].Reads()); !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return strings.Join(list, ", ")
}

// changedFields returns the JSON names of the fields of two parts of a form that differ, without those that say where they are
// written.
func changedFields(was, is any) (names []string) {
	before, _ := plan.Plain(was, "checked").(map[string]any)
	after, _ := plan.Plain(is, "checked").(map[string]any)
	for _, fields := range []map[string]any{before, after} {
		for name := range fields {
			if !slices.Contains(names, name) && !reflect.DeepEqual(before[name], after[name]) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
