package compile

import (
	"cmp"
	"fmt"
	"slices"

	"cuelang.org/go/cue"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas"
)

// carried warns of a section that is in the form but not enforced.
func (c *compiler) carried(v cue.Value) {
	c.Warnings = append(c.Warnings, schemas.Diagnostic{Pos: evaluation.Position(v), Path: v.Path().String(),
		Message: "carried in the policy, but not enforced yet by this version of stele", Lint: "NOT_ENFORCED"})
}

func (c *compiler) audit(v cue.Value) (a policy.Audit) {
	type ordered struct {
		order int
		rule  policy.AuditRule
		at    cue.Value
	}
	var rules []ordered
	for name, x := range c.Fields(v, "rules") {
		r := ordered{at: x, rule: policy.AuditRule{ID: "audit/rules/" + name, Source: evaluation.Position(x)}}
		c.DecodeField(x, "level", &r.rule.Level)
		r.rule.Subjects = c.subjects(x)
		c.DecodeField(x, "verbs", &r.rule.Verbs)
		c.DecodeField(x, "apiGroups", &r.rule.APIGroups)
		c.DecodeField(x, "resources", &r.rule.Resources)
		c.DecodeField(x, "namespaces", &r.rule.Namespaces)
		c.DecodeField(x, "omitStages", &r.rule.OmitStages)
		c.globs(x)
		n := naming{groups: r.rule.APIGroups, resources: r.rule.Resources, at: x}
		if n.groups == nil {
			n.groups = []string{"*"}
		}
		c.namings = append(c.namings, n)
		if order := x.LookupPath(cue.ParsePath("order")); c.Sound(order) {
			c.Decode(order, &r.order)
			rules = append(rules, r)
		}
	}
	slices.SortStableFunc(rules, func(a, b ordered) int { return cmp.Compare(a.order, b.order) })
	for i, r := range rules {
		if i > 0 && rules[i-1].order == r.order {
			before := rules[i-1].rule
			c.Add(evaluation.Position(r.at.LookupPath(cue.ParsePath("order"))), r.at.Path().String()+".order",
				fmt.Sprintf("%s and %s have the same order, %d", before.ID, r.rule.ID, r.order), "one has to come first; the other one is at "+before.Source.String())
		}
		a.Rules = append(a.Rules, r.rule)
	}
	if len(rules) > 0 {
		c.carried(v)
	}
	return a
}
