package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// mutations compares the rules of mutating admission.
func (c *comparison) mutations() {
	from, to := c.sides.From.Form().Mutations, c.sides.To.Form().Mutations
	before := policy.IndexBy(from, func(m *policy.Mutation) string { return m.ID })
	for i := range to {
		is := &to[i]
		was := before[is.ID]
		delete(before, is.ID)
		if was == nil {
			c.add(plan.Finding{Rule: "MUTATION_ADDED", Path: is.ID, Kind: kind(&is.Match), Source: is.Source, Details: changesOf(is),
				Message: fmt.Sprintf("Writes of %s are changed by it, in place %d.", resources(&is.Match), is.Order)})
		} else {
			c.mutation(was, is)
		}
	}
	for i := range from {
		if was := before[from[i].ID]; was != nil {
			c.add(plan.Finding{Rule: "MUTATION_REMOVED", Path: was.ID, Kind: kind(&was.Match), Was: was.Source, Details: changesOf(was),
				Message: fmt.Sprintf("Writes of %s are not changed by it any more.", resources(&was.Match))})
		}
	}
}

// changesOf returns the expressions of a mutation.
func changesOf(r *policy.Mutation) (list []string) {
	for i := range r.Mutations {
		list = append(list, strings.TrimSpace(r.Mutations[i].Expression.Text))
	}
	return list
}

// mutationDetails says what differs: params by their values, expressions on both sides, the rest by name.
func (c *comparison) mutationDetails(was, is *policy.Mutation, fields []string) (lines []string) {
	if params, err := changedParams(was.Params, is.Params); err == nil {
		for _, p := range params {
			lines = append(lines, fmt.Sprintf("%s: %s → %s", p.path, cmp.Or(p.before, "(none)"), cmp.Or(p.after, "(none)")))
		}
	}
	if rest := slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == "params" }); len(rest) > 0 || len(lines) == 0 {
		lines = append(lines, changed(fields))
	}
	if before, after := changesOf(was), changesOf(is); !slices.Equal(before, after) {
		for _, text := range before {
			lines = append(lines, "before: "+text)
		}
		for _, text := range after {
			lines = append(lines, "after: "+text)
		}
	}
	return lines
}

// mutationNames are the fields of a mutation whose names in the form are others than in the bundle.
var mutationNames = map[string]string{"ignore": "failurePolicy", "reinvoke": "reinvocationPolicy", "paramSource": "paramRef"}

// mutation compares a rule that both policies have. Expressions are compared as text.
func (c *comparison) mutation(was, is *policy.Mutation) {
	fields := differences(was, is, mutationNames)
	if len(fields) == 0 {
		return
	}
	if i := slices.Index(fields, "match"); i >= 0 {
		for _, part := range differences(&was.Match, &is.Match, matchNames) {
			fields = append(fields, "match."+part)
		}
		fields = slices.Delete(fields, i, i+1)
	}
	f := plan.Finding{Rule: "MUTATION_CHANGED", Path: is.ID, Kind: kind(&is.Match), Source: is.Source, Was: was.Source, Details: c.mutationDetails(was, is, fields),
		Message: fmt.Sprintf("Writes of %s are changed in another way.", resources(&is.Match)), Class: classOfFailure(fields, is.Ignore)}
	switch f.Class {
	case plan.Widens:
		f.Message = "Writes that the rule cannot change are accepted unchanged now."
	case plan.Narrows:
		f.Message = "Writes that the rule cannot change are refused now."
	}
	c.add(f)
}
