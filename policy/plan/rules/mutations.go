package rules

import (
	"encoding/json"
	"fmt"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
)

// mutations compares the rules of mutating admission.
func (c *comparison) mutations() {
	from, to := c.sides.From.Form().Mutations, c.sides.To.Form().Mutations
	before := map[string]*policy.Mutation{}
	for i := range from {
		before[from[i].ID] = &from[i]
	}
	for i := range to {
		is := &to[i]
		was := before[is.ID]
		delete(before, is.ID)
		switch {
		case was == nil:
			c.add(plan.Finding{Rule: "MUTATION_ADDED", Path: is.ID, Kind: kind(&is.Match), Source: is.Source, Details: changesOf(is),
				Message: fmt.Sprintf("Writes of %s are changed by it, in place %d.", resources(&is.Match), is.Order)})
		case meaningOfMutation(was) != meaningOfMutation(is):
			c.add(plan.Finding{Rule: "MUTATION_CHANGED", Path: is.ID, Kind: kind(&is.Match), Source: is.Source, Was: was.Source, Details: changesOf(is),
				Message: fmt.Sprintf("Writes of %s are changed in another way.", resources(&is.Match))})
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

// meaningOfMutation returns the rule as JSON, without its positions.
func meaningOfMutation(r *policy.Mutation) string {
	plain := *r
	plain.Source = schemas.Position{}
	text := func(list []policy.Variable) (copies []policy.Variable) {
		for _, v := range list {
			copies = append(copies, policy.Variable{Name: v.Name, Expression: policy.Expression{Text: v.Text}})
		}
		return copies
	}
	plain.Variables, plain.Match.Conditions = text(r.Variables), text(r.Match.Conditions)
	plain.Mutations = nil
	for _, s := range r.Mutations {
		plain.Mutations = append(plain.Mutations, policy.MutationStep{ID: s.ID, PatchType: s.PatchType, Expression: policy.Expression{Text: s.Expression.Text}})
	}
	encoded, err := json.Marshal(&plain)
	if err != nil {
		panic(err) // plain data always encodes
	}
	return string(encoded)
}
