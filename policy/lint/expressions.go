package lint

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/plan/rules"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// expressions finds expressions in CEL that are constants, and parts of them that never matter.
func (c *checking) expressions() {
	for i := range c.Form.Bindings {
		if b := &c.Form.Bindings[i]; b.When != nil {
			c.expression(&b.When.Expression, b.Source, b.ID+"/when", "the condition has no effect", "the binding grants nothing")
		}
	}
	for i := range c.Form.Denies {
		if d := &c.Form.Denies[i]; d.Unless != nil {
			c.expression(&d.Unless.Expression, d.Source, d.ID+"/unless", "the deny refuses nothing", "the exception has no effect")
		}
	}
	for i := range c.Form.Validations {
		c.rule(&c.Form.Validations[i])
	}
	for i := range c.Form.Mutations {
		c.mutation(&c.Form.Mutations[i])
	}
	for i := range c.Form.Kinds {
		k := &c.Form.Kinds[i]
		if k.Builtin {
			continue
		}
		for j := range k.Versions {
			for n := range k.Versions[j].Rules {
				r := &k.Versions[j].Rules[n]
				at := r.RuleSource
				if at.IsZero() {
					at = r.Source
				}
				c.expression(&policy.Expression{Text: r.Rule, Checked: r.Checked, Source: at}, at, policy.RuleID(k, r), refusesNothing, refusesAll)
			}
		}
	}
}

// tried finds what shows when the policy decides generated requests, or is compared with its schemas.
func (c *checking) tried() {
	encoded, _ := c.Form.Encode()
	p, err := policy.New(encoded)
	if err != nil {
		c.add("NOT_CHECKED", schemas.Position{}, "", "conditions were not compared with the schemas, and mutations were not tried: "+err.Error(), "")
		return
	}
	c.decided(p)
	c.mutations(p)
}

// decided finds conditions and rules that the schemas decide, whatever the request is. Those that are constants have been
// reported.
func (c *checking) decided(p *policy.Policy) {
	known := map[schemas.Position]bool{}
	for _, f := range c.findings {
		if f.Lint == "CEL_ALWAYS_TRUE" || f.Lint == "CEL_NEVER_TRUE" {
			known[f.Pos] = true
		}
	}
	for _, d := range append(rules.NeverHolds(p), rules.AlwaysTrue(p)...) {
		if !known[d.Pos] {
			c.add(d.Lint, d.Pos, d.Path, d.Message, d.Hint)
		}
	}
}

const (
	refusesNothing = "it refuses nothing"
	refusesAll     = "it refuses every object"
)

// mutation looks at the expressions of a rule that changes objects.
func (c *checking) mutation(r *policy.Mutation) {
	read := c.match(r.ID, &r.Match, r.Source)
	for i := range r.Mutations {
		read = append(read, references(r.Mutations[i].Expression.Checked)...)
	}
	c.variables(r.ID, r.Variables, read)
}

// match looks at the conditions of an admission rule. It returns what they read.
func (c *checking) match(id string, m *policy.Match, at schemas.Position) (read []string) {
	for i := range m.Conditions {
		x := &m.Conditions[i]
		c.expression(&x.Expression, at, id+"/conditions/"+x.Name, "the condition has no effect", "the rule is never evaluated")
		read = append(read, references(x.Checked)...)
	}
	return read
}

// rule looks at the expressions of an admission rule.
func (c *checking) rule(r *policy.Validation) {
	read := c.match(r.ID, &r.Match, r.Source)
	for i := range r.Validations {
		x := &r.Validations[i]
		c.expression(&x.Expression, x.Source, x.ID, refusesNothing, "it refuses every request that the rule matches")
		read = append(read, references(x.Expression.Checked)...)
		if x.MessageExpression != nil {
			read = append(read, references(x.MessageExpression.Checked)...)
		}
	}
	for i := range r.Annotations {
		read = append(read, references(r.Annotations[i].Checked)...)
	}
	c.variables(r.ID, r.Variables, read)
}

// variables looks at the variables of an admission rule. read is what its other expressions read.
func (c *checking) variables(id string, variables []policy.Variable, read []string) {
	for i := len(variables) - 1; i >= 0; i-- { // each comes after those that it reads
		x := &variables[i]
		if !slices.Contains(read, expr.VarVariables+x.Name) {
			c.add("CEL_UNREACHED", x.Source, id+"/variables/"+x.Name, "no expression of the rule reads the variable", "leave it out")
			continue
		}
		read = append(read, references(x.Checked)...)
		c.parts(&x.Expression, x.Source, id+"/variables/"+x.Name)
	}
}

func references(checked []byte) []string {
	names, _ := expr.References(checked) // it was encoded by the compiler
	return names
}

// expression looks at a condition. always and never say what follows if it is a constant.
func (c *checking) expression(e *policy.Expression, around schemas.Position, path, always, never string) {
	at := e.Source
	if at.IsZero() {
		at = around
	}
	value, known, err := expr.Constant(e.Checked)
	switch {
	case err != nil:
	case known && value:
		c.add("CEL_ALWAYS_TRUE", at, path, "the expression is true for every request and object: "+always, "")
	case known && strings.HasPrefix(never, "it refuses") && strings.TrimSpace(e.Text) == "false": // it is meant
	case known:
		c.add("CEL_NEVER_TRUE", at, path, "the expression is false for every request and object: "+never, "")
	default:
		c.parts(e, at, path)
	}
}

// parts finds the parts of an expression that never matter.
func (c *checking) parts(e *policy.Expression, at schemas.Position, path string) {
	parts, err := expr.Unreached(e.Checked)
	if err != nil {
		return
	}
	for _, p := range parts {
		what := "a part of the expression"
		if p.Text != "" {
			what = fmt.Sprintf("the part %q", wording.Cut(p.Text, 80))
		}
		c.add("CEL_UNREACHED", at, path, fmt.Sprintf("%s never matters, as what it is combined with is always %t", what, p.Because), "")
	}
}
