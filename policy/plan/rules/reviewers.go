package rules

import (
	"encoding/json"
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
	from, to := reviewersByID(c.sides.From.Form()), reviewersByID(c.sides.To.Form())
	for _, id := range slices.Sorted(maps.Keys(to)) {
		is, was := to[id], from[id]
		f := plan.Finding{Path: id, Source: is.Source}
		switch {
		case was == nil && is.Mutating:
			f.Rule, f.Class, f.Message = "REVIEWER_ADDED", plan.Changes, fmt.Sprintf("A %s may change what is written of %s.", is.What(), reviewed(is))
		case was == nil:
			f.Rule, f.Message = "REVIEWER_ADDED", fmt.Sprintf("Writes of %s must pass a %s more.", reviewed(is), is.What())
		default:
			fields := changedFields(was, is)
			if len(fields) == 0 {
				continue
			}
			f.Rule, f.Was, f.Details = "REVIEWER_CHANGED", was.Source, fields
			f.Message = "What it is asked, or what happens if it fails, differs: " + strings.Join(fields, ", ") + "."
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

func reviewersByID(f *policy.Form) map[string]*policy.Reviewer {
	all := map[string]*policy.Reviewer{}
	for i := range f.Reviewers {
		all[f.Reviewers[i].ID] = &f.Reviewers[i]
	}
	return all
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

// changedFields returns the names of the fields of a reviewer that differ, without those that say where they are written.
func changedFields(was, is *policy.Reviewer) (names []string) {
	before, after := fieldsOf(was), fieldsOf(is)
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

func fieldsOf(r *policy.Reviewer) map[string]any {
	text, err := json.Marshal(r)
	fields := map[string]any{}
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic(err) // it is plain data
	}
	withoutSources(fields)
	return fields
}

func withoutSources(x any) {
	switch x := x.(type) {
	case map[string]any:
		delete(x, "source")
		delete(x, "checked") // the text says it
		for _, value := range x {
			withoutSources(value)
		}
	case []any:
		for _, value := range x {
			withoutSources(value)
		}
	}
}
