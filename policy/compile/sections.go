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

func (c *compiler) flow(v cue.Value) (f policy.Flow) {
	levels := c.Words("#BuiltinLevels")
	for name, x := range c.Fields(v, "priorityLevels") {
		level := policy.PriorityLevel{ID: "flow/priorityLevels/" + name, Name: name, Source: evaluation.Position(x)}
		c.DecodeField(x, "nominalConcurrencyShares", &level.NominalConcurrencyShares)
		c.DecodeField(x, "lendablePercent", &level.LendablePercent)
		c.DecodeField(x, "borrowingLimitPercent", &level.BorrowingLimitPercent)
		c.DecodeField(x, "queuing", &level.Queuing)
		f.PriorityLevels = append(f.PriorityLevels, level)
		levels = append(levels, name)
	}
	for name, x := range c.Fields(v, "flowSchemas") {
		s := policy.FlowSchema{ID: "flow/flowSchemas/" + name, Name: name, Source: evaluation.Position(x)}
		c.DecodeField(x, "matchingPrecedence", &s.MatchingPrecedence)
		c.DecodeField(x, "priorityLevel", &s.PriorityLevel)
		c.reference(x.LookupPath(cue.ParsePath("priorityLevel")), levels)
		c.DecodeField(x, "distinguisher", &s.Distinguisher)
		s.Subjects = c.subjects(x)
		c.DecodeField(x, "watches", &s.Watches)
		s.Rules = c.flowRules(x, s.ID)
		f.FlowSchemas = append(f.FlowSchemas, s)
	}
	// As in Kubernetes, the lesser name comes first among flow schemas of one precedence.
	slices.SortStableFunc(f.FlowSchemas, func(a, b policy.FlowSchema) int { return cmp.Compare(a.MatchingPrecedence, b.MatchingPrecedence) })
	if len(f.PriorityLevels)+len(f.FlowSchemas) > 0 {
		c.carried(v)
	}
	return f
}

// flowRules compiles the rules of a flow schema.
func (c *compiler) flowRules(v cue.Value, of string) (rules []policy.FlowRule) {
	for id, x := range c.Fields(v, "rules") {
		if !c.Sound(x) {
			continue
		}
		var rule policy.FlowRule
		c.Decode(x, &rule)
		rule.ID, rule.Source = of+"/"+id, evaluation.Position(x)
		c.checkRule(x, rule.Verbs, rule.APIGroups, rule.Resources, rule.NonResourceURLs)
		rules = append(rules, rule)
	}
	return rules
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
