package lint

import (
	"fmt"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/counterexamples"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// mutations finds rules that change objects and do not go together, by trying them on generated writes.
func (c *checking) mutations(p *policy.Policy) {
	if len(c.Form.Mutations) == 0 {
		return
	}
	found, err := counterexamples.New(plan.Sides{From: p, To: p}).Mutations(c.ctx)
	if err != nil {
		return // the context's
	}
	again := map[string]bool{}
	for i := range c.Form.Mutations {
		for _, s := range c.Form.Mutations[i].Mutations {
			again[s.ID] = c.Form.Mutations[i].Reinvoke
		}
	}
	for _, m := range found.Fights {
		what := "so that the result depends on which of them runs last"
		if again[m.Step.ID] && again[m.Other.ID] {
			what = "and both are reinvoked, so that they do not settle"
		}
		c.add("MUTATIONS_FIGHT", m.Step.Source, m.Step.ID, fmt.Sprintf("it %s, and %s%s changes it back, %s; shown by: %s", m.What, m.Other.ID, wording.At(m.Other.Source.String()), what, sample(&m)), "")
	}
	for _, m := range found.Repeats {
		c.add("MUTATION_REPEATS", m.Step.Source, m.Step.ID, fmt.Sprintf("it can be reinvoked, and then %s; shown by: %s", m.What, sample(&m)), "")
	}
	for _, m := range found.Refused {
		by := "the schema of the kind"
		if m.By != "" {
			by = m.By + wording.At(m.Source)
		}
		c.add("MUTATION_REFUSED", m.Step.Source, m.Step.ID, fmt.Sprintf("%s refuses what it makes, in each of %d generated writes, and not what it is made of: %s; such as: %s", by, m.Tried, m.What, sample(&m)), "")
	}
	for _, m := range found.Fails {
		c.add("MUTATION_FAILS", m.Step.Source, m.Step.ID, fmt.Sprintf("it cannot be made in any of %d generated writes, which are refused for that: %s; such as: %s", m.Tried, m.What, sample(&m)), "")
	}
	for _, m := range found.Dropped {
		c.add("MUTATION_DROPPED", m.Step.Source, m.Step.ID, fmt.Sprintf("it %s, so that nothing comes of it; such as: %s", m.What, sample(&m)), "")
	}
	if found.Cut {
		c.add("NOT_CHECKED", schemas.Position{}, "", "not all rules that change objects were tried with all kinds", "")
	}
}

// sample returns the write that shows a finding. A long object is cut.
func sample(m *counterexamples.Mutated) string {
	const most = 400
	return wording.Cut(m.Sample, most)
}
