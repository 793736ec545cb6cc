package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/counterexamples"
	"stele.dev/stele/policy/plan/kinds"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// NeverHolds returns the conditions and the expressions of admission rules that no request can satisfy, because they
// compare a field of the object with a value that the schema never admits. An update that keeps a value from an earlier
// schema is not counted.
func NeverHolds(p *policy.Policy) schemas.Diagnostics {
	return decided(p, true, func(c *clause, compared string) schemas.Diagnostic {
		return schemas.Diagnostic{Pos: c.Source, Path: c.id, Lint: "CONDITION_NEVER_HOLDS",
			Message: fmt.Sprintf("it can never hold: %s", compared), Hint: "compare with a value that the schema admits, or change the schema"}
	})
}

// AlwaysTrue returns the conditions and the expressions of admission rules that every request satisfies, because the
// schema admits no other values.
func AlwaysTrue(p *policy.Policy) schemas.Diagnostics {
	return decided(p, false, func(c *clause, compared string) schemas.Diagnostic {
		return schemas.Diagnostic{Pos: c.Source, Path: c.id, Lint: "CONDITION_ALWAYS_HOLDS",
			Message: fmt.Sprintf("it always holds: %s", compared), Hint: "leave it out, or compare with another value"}
	})
}

// clause is an expression that must be true, and the versions whose objects it is about.
type clause struct {
	id string // of the binding, the deny, the check or the match condition
	*policy.Expression
	versions []*policy.Version
	// condition is that of a binding or a deny; nil for a part of an admission rule.
	condition *counterexamples.Condition
	rule      *policy.Validation
}

// clauses returns all conditions and expressions of a policy.
func clauses(p *policy.Policy) (list []clause) {
	f := p.Form()
	roles := policy.IndexBy(f.Roles, func(r *policy.Role) string { return r.Name })
	for i := range f.Bindings {
		b := &f.Bindings[i]
		if role := roles[b.Role]; b.When != nil && role != nil {
			list = append(list, clause{id: b.ID, Expression: &b.When.Expression, versions: counterexamples.Named(p, role.Rules),
				condition: &counterexamples.Condition{Is: b.When, Rules: role.Rules, Namespaces: b.Namespaces, Subjects: b.Subjects}})
		}
	}
	for i := range f.Denies {
		if d := &f.Denies[i]; d.Unless != nil {
			list = append(list, clause{id: d.ID, Expression: &d.Unless.Expression, versions: counterexamples.Named(p, d.Rules),
				condition: &counterexamples.Condition{Is: d.Unless, Rules: d.Rules, Namespaces: []string{"*"}, Subjects: d.Subjects}})
		}
	}
	for i := range f.Validations {
		r := &f.Validations[i]
		versions := counterexamples.Admitted(p, r.ID)
		for j := range r.Match.Conditions {
			m := &r.Match.Conditions[j]
			list = append(list, clause{id: r.ID + "/" + m.Name, Expression: &m.Expression, versions: versions, rule: r})
		}
		for j := range r.Validations {
			list = append(list, clause{id: r.Validations[j].ID, Expression: &r.Validations[j].Expression, versions: versions, rule: r})
		}
	}
	return list
}

// decided returns diagnostics of the clauses that cannot be want.
func decided(p *policy.Policy, want bool, say func(*clause, string) schemas.Diagnostic) (all schemas.Diagnostics) {
	for _, c := range clauses(p) {
		if len(c.versions) == 0 {
			continue
		}
		why := ""
		possible := slices.ContainsFunc(c.versions, func(v *policy.Version) bool {
			is, err := expr.Possible(c.Checked, want, func(x expr.Comparison, want bool) bool {
				can := x.Variable != expr.VarObject || compares(v.Program.Node(), &x, want)
				if !can && why == "" {
					why = fmt.Sprintf("%s %s %s, and the schema %s", strings.Join(append([]string{x.Variable}, x.Fields...), "."), x.Op, constants(x.Constants),
						map[bool]string{true: "never admits that", false: "admits nothing else"}[want])
				}
				return can
			})
			return is || err != nil
		})
		if !possible && why != "" {
			all = append(all, say(&c, why))
		}
	}
	slices.SortStableFunc(all, func(a, b schemas.Diagnostic) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

func constants(list []any) string {
	words := make([]string, len(list))
	for i, x := range list {
		if s, is := x.(string); is {
			words[i] = strconv.Quote(s)
		} else {
			words[i] = fmt.Sprint(x)
		}
	}
	if len(words) == 1 {
		return words[0]
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// compares reports whether a comparison of a field with constants can have a result.
func compares(root *schemas.Node, c *expr.Comparison, want bool) bool {
	if len(c.Fields) == 0 || c.Fields[0] == "metadata" || slices.Contains(c.Fields, "*") {
		return true
	}
	n := counterexamples.NodeAt(root, c.Fields)
	if n == nil || n.Union != nil || n.Logic != nil || n.Fallback != nil || len(n.Scalars) == 0 || n.Kinds&(schemas.NullKind|schemas.ListKind|schemas.StructKind) != 0 {
		return true
	}
	op := c.Op
	if !want {
		opposite := map[string]string{"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<", "in": "not in"}
		op = opposite[op]
		if !always(root, c.Fields) {
			return true // a field that is not set makes it fail, which is no result that is counted
		}
	}
	switch op {
	case "==", "in":
		return slices.ContainsFunc(c.Constants, func(x any) bool {
			admitted, known := kinds.Admits([]*schemas.Node{n}, x)
			return admitted || !known
		})
	case "!=", "not in":
		return !enumerated(n, func(x any) bool { return slices.Contains(c.Constants, x) })
	}
	limit, ok := number(c.Constants[0])
	if !ok {
		return true
	}
	if enumerated(n, func(any) bool { return true }) {
		return !enumerated(n, func(x any) bool { v, ok := number(x); return ok && !holds(v, op, limit) })
	}
	return slices.ContainsFunc(n.Scalars, func(s schemas.Scalar) bool {
		if s.Kinds&(schemas.IntegerKind|schemas.NumberKind) == 0 || len(s.Enum) > 0 {
			return true
		}
		bound := s.Minimum
		if op[0] == '>' {
			bound = s.Maximum
		}
		if bound == nil {
			return true
		}
		v, err := strconv.ParseFloat(bound.Value, 64)
		return err != nil || holds(v, op, limit) && (!bound.Exclusive || v != limit)
	})
}

// holds compares two numbers.
func holds(a float64, op string, b float64) bool {
	switch op {
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	}
	return a >= b
}

func number(x any) (float64, bool) {
	switch v := x.(type) {
	case int64:
		return float64(v), v > -1<<53 && v < 1<<53
	case float64:
		return v, true
	}
	return 0, false
}

// enumerated reports whether a node admits only listed values, all of which pass.
func enumerated(n *schemas.Node, pass func(any) bool) bool {
	for i := range n.Scalars {
		if len(n.Scalars[i].Enum) == 0 {
			return false
		}
		for _, text := range n.Scalars[i].Enum {
			x, err := jsonvalue.Decode(text)
			if err != nil || !pass(x) {
				return false
			}
		}
	}
	return len(n.Scalars) > 0
}

// always reports whether each object has a field.
func always(n *schemas.Node, path []string) bool {
	for _, name := range path {
		if n == nil || n.Struct == nil || n.Union != nil {
			return false
		}
		f, ok := schemas.FieldNamed(n.Struct, name)
		if !ok || f.Presence == schemas.Optional {
			return false
		}
		n = f.Schema
	}
	return true
}

// neverHolds adds the conditions that can never hold in the new policy, and could in the old one, or were not there.
func (c *comparison) neverHolds() {
	before := map[string]bool{}
	if c.sides.From != nil {
		for _, d := range NeverHolds(c.sides.From) {
			before[d.Path+d.Message] = true
		}
	}
	for _, d := range NeverHolds(c.sides.To) {
		if before[d.Path+d.Message] {
			continue
		}
		c.add(plan.Finding{Rule: "CONDITION_NEVER_HOLDS", Path: d.Path, Source: d.Pos, After: strings.TrimPrefix(d.Message, "it can never hold: "),
			Message: "No request can satisfy it.", Fix: []string{"Compare with a value that the schema admits, or change the schema."}})
	}
}

// defaults finds conditions and rules that stayed the same and read a field whose default changed.
func (c *comparison) defaults() {
	was := map[string]*policy.Expression{}
	for _, x := range clauses(c.sides.From) {
		was[x.id] = x.Expression
	}
	affected := kinds.Affected(c.sides)
	for _, x := range clauses(c.sides.To) {
		old := was[x.id]
		if old == nil || old.Text != x.Text {
			continue // compared elsewhere
		}
		selections, err := expr.Selections(x.Checked)
		if err != nil {
			continue
		}
		for _, v := range x.versions {
			for _, f := range affected[v.Kind.GroupResource()] {
				if f.Version != v.Name || !slices.ContainsFunc(selections, func(s expr.Selection) bool {
					return s.Variable == expr.VarObject && len(s.Fields) >= len(f.Steps) && slices.Equal(s.Fields[:len(f.Steps)], f.Steps)
				}) {
					continue
				}
				if f.DefaultChanged() {
					c.meetsDefault(&x, v, &f)
				} else {
					c.meetsValues(&x, v, &f)
				}
			}
		}
	}
}

// meetsDefault evaluates a condition for objects that leave the field out, with the old default and with the new one.
func (c *comparison) meetsDefault(x *clause, v *policy.Version, field *kinds.ChangedField) {
	found, err := c.search.Absent(c.ctx, v, field.Steps, x.condition, x.rule)
	if err != nil {
		return // the context ended, which the caller reports
	}
	f := plan.Finding{Rule: "CONDITION_MEETS_DEFAULT", Kind: v.Kind.Resource(), Path: x.id, Before: string(field.OldDefault), After: string(field.NewDefault), Source: x.Source,
		Message: fmt.Sprintf("It reads %s, whose default changed.", field.Path), Details: []string{x.Text}}
	if found.Set(&f); f.Class == plan.Narrows {
		f.Class = plan.Breaks
		f.Message = fmt.Sprintf("It refuses requests that leave %s out, because the default changed.", field.Path)
		f.Fix = []string{"Let it admit the new default, or keep the old one."}
	} else if f.Class == plan.Widens {
		f.Message = fmt.Sprintf("It accepts requests that leave %s out, because the default changed.", field.Path)
	}
	c.add(f)
}

// meetsValues looks for a value that the clause compares the field with, and that only one side admits.
func (c *comparison) meetsValues(x *clause, v *policy.Version, field *kinds.ChangedField) {
	comparisons, err := expr.Comparisons(x.Checked)
	if err != nil {
		return
	}
	for _, cmp := range comparisons {
		if cmp.Variable != expr.VarObject || !slices.Equal(cmp.Fields, field.Steps) {
			continue
		}
		for _, value := range cmp.Constants {
			before, known := kinds.Admits(field.Before, value)
			after, knows := kinds.Admits(field.After, value)
			if !known || !knows || before == after || len(field.Before) == 0 || len(field.After) == 0 {
				continue
			}
			words := map[bool]string{true: "admitted", false: "not admitted"}
			c.add(plan.Finding{Rule: "CONDITION_MEETS_DEFAULT", Kind: v.Kind.Resource(), Path: x.id, Before: constants([]any{value}) + " " + words[before], After: constants([]any{value}) + " " + words[after], Source: x.Source,
				Message: fmt.Sprintf("It compares %s with a value that only one of the schemas admits.", field.Path), Details: []string{x.Text}})
			return
		}
	}
}
