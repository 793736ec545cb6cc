package policy

import (
	"context"

	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas/celtype"
)

// Rules evaluated one by one, for comparisons of policies.

// AdmitBy evaluates one admission rule, as [Policy.Admit] does. asked is false if the rule does not
// apply to writes of the version, or does not exist.
func (p *Policy) AdmitBy(ctx context.Context, v *Version, a *Admission, id string) (findings []Finding, asked bool) {
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	for _, rule := range v.admission[admissionKey{a.Request.Subresource, a.Operation}] {
		if rule.ID != id {
			continue
		}
		vars := &admissionVars{p: p, v: v, a: a, ctx: ctx, r: rule.admissionRule, budget: expr.NewBudget()}
		vars.see(rule.as)
		return rule.evaluate(vars, nil), true
	}
	return nil, false
}

// AdmittedBy returns the ids of the admission rules that apply to writes of the version, sorted.
func (v *Version) AdmittedBy(subresource string, operation Operation) []string {
	rules := v.admission[admissionKey{subresource, operation}]
	ids := make([]string, len(rules))
	for i := range rules {
		ids[i] = rules[i].ID
	}
	return ids
}

// ConditionProgram is a condition of a binding, or the exception of a deny, that is ready to be
// evaluated. It is safe for concurrent use.
type ConditionProgram struct{ condition *condition }

// LoadCondition makes the program of a condition, which is not nil.
func LoadCondition(c *Condition) (*ConditionProgram, error) {
	loaded, err := newCondition(c)
	return &ConditionProgram{loaded}, err
}

// Holds reports whether the condition is true for a request, as a decision evaluates it. object is the
// object to be written and old the current one, of version v; both and v may be nil. The error says
// that it cannot be evaluated: then it does not hold.
func (c *ConditionProgram) Holds(ctx context.Context, v *Version, r *Request, object, old *Object) (bool, error) {
	vars := &accessVars{request: r}
	if v != nil {
		v = v.Seen(r.Subresource)
		vars.object, vars.before = v.value(object), v.value(old)
	} else {
		vars.object, vars.before = celtype.Dynamic.Value(nil), celtype.Dynamic.Value(nil)
	}
	return c.condition.decide(ctx, vars)
}
