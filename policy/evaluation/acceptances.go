package evaluation

import (
	"fmt"
	"time"

	"cuelang.org/go/cue"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas/wording"
)

// Acceptances returns the entries of the field `accept` beside the bundle: the findings of plans that are wanted. They
// are not part of the policy.
func (c *Evaluation) Acceptances() []plan.Accepted {
	v := c.Root.LookupPath(cue.ParsePath("accept"))
	if !v.Exists() || c.broken {
		return nil
	}
	list, err := v.List()
	if err != nil {
		c.Add(Position(v), "accept", "it is not a list", "write accept: [{rule: …, reason: …}]")
		return nil
	}
	var rules []string
	for i := range plan.Rules {
		rules = append(rules, plan.Rules[i].Name)
	}
	definition := c.definition("#Acceptance")
	var all []plan.Accepted
	for i := 0; list.Next(); i++ {
		entry := list.Value().Unify(definition)
		if err := entry.Validate(cue.Concrete(true)); err != nil {
			c.CUE(err)
			continue
		}
		var a plan.Accepted
		if err := entry.Decode(&a); err != nil {
			c.CUE(err)
			continue
		}
		a.Source = Position(list.Value())
		at := func(field string) string { return fmt.Sprintf("accept.%d.%s", i, field) }
		if plan.RuleNamed(a.Rule) == nil {
			c.Add(a.Source, at("rule"), "there is no rule "+a.Rule, wording.DidYouMean(a.Rule, rules, "`stele policy plan --list-rules` lists them"))
		}
		if _, err := time.Parse(time.DateOnly, a.Until); err != nil {
			c.Add(a.Source, at("until"), a.Until+" is no date", "write YYYY-MM-DD")
		}
		all = append(all, a)
	}
	return all
}
