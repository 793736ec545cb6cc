package kinds

import (
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// views compares the views of two policies. Who may read them is compared with all other access.
func views(s plan.Sides) (findings []plan.Finding) {
	find := func(in *policy.Policy, name string) *policy.View {
		for _, k := range in.Views() {
			if k.Plural == name {
				return k.View
			}
		}
		return nil
	}
	for _, k := range s.From.Views() {
		was := k.View
		is := find(s.To, was.Name)
		f := plan.Finding{Class: plan.Breaks, Kind: was.Resource().String(), Path: was.ID, Was: was.Source, Evidence: plan.Proved}
		switch {
		case is == nil:
			f.Rule, f.Message = "VIEW_REMOVED", "The view is no longer served: clients that read it get 404."
		case was.Same(is):
			continue
		default:
			f.Rule, f.Source, f.Path, f.Class = "VIEW_CHANGED", is.Source, is.ID, plan.Changes
			f.Message = "The view shows other rows or columns. It is computed anew, and its watches end."
			f.Before, f.After = describeView(was), describeView(is)
			if gone := lost(was, is); len(gone) > 0 {
				f.Class, f.Message = plan.Breaks, "The view has no "+strings.Join(gone, ", ")+" any more, or of another type: clients that read it fail. It is computed anew, and its watches end."
			}
		}
		findings = append(findings, f)
	}
	for _, k := range s.To.Views() {
		if find(s.From, k.Plural) == nil {
			findings = append(findings, plan.Finding{Rule: "VIEW_ADDED", Class: plan.Changes, Kind: k.Resource(), Path: k.View.ID, After: describeView(k.View), Source: k.View.Source, Evidence: plan.Proved,
				Message: "The view is new. Whoever may read it sees its columns, without a right to read " + k.View.Kind + "."})
		}
	}
	return findings
}

// describeView returns what a view is: its kind, its columns and its filter.
func describeView(v *policy.View) string {
	text := v.Kind + ": " + strings.Join(typed(v), ", ")
	if v.Filter != nil {
		text += " where " + v.Filter.Text
	}
	return text
}

// typed returns the names and types of columns and aggregates.
func typed(v *policy.View) (list []string) {
	for _, c := range v.Columns {
		list = append(list, c.Name+" "+c.Type)
	}
	for _, a := range v.Aggregates {
		list = append(list, a.Name+" "+a.Type)
	}
	return list
}

// lost returns the columns and aggregates that clients of a view do not find any more.
func lost(was, is *policy.View) (list []string) {
	if was.Grouped != is.Grouped {
		list = append(list, "rows of the same kind")
	}
	for _, t := range typed(was) {
		if !slices.Contains(typed(is), t) {
			name, _, _ := strings.Cut(t, " ")
			list = append(list, name)
		}
	}
	return list
}
