package compile

import (
	"cmp"
	"fmt"
	"slices"

	"cuelang.org/go/cue"
	"github.com/google/cel-go/cel"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// mutator is one that changes objects, in the sequence of all of them.
type mutator struct {
	id string
	at schemas.Position
}

// inOrder records the order of one that changes objects, and rejects it if another one has the same. v is the value
// that has the field order.
func (c *compiler) inOrder(v cue.Value, id string) (order int64) {
	x := v.LookupPath(cue.ParsePath("order"))
	if !x.Exists() || !c.Sound(x) {
		return 0
	}
	c.Decode(x, &order)
	m := mutator{id, c.positionOf(x)}
	if c.mutators == nil {
		c.mutators = map[int64]mutator{}
	}
	if other, taken := c.mutators[order]; taken {
		c.Add(m.at, x.Path().String(), fmt.Sprintf("the order %d is that of %s%s, too: which one is first is not known", order, other.id, wording.At(other.at.String())), "give it another number")
		return order
	}
	c.mutators[order] = m
	return order
}

// mutation compiles a rule of mutating admission.
func (c *compiler) mutation(team, name string, v cue.Value) policy.Mutation {
	r := policy.Mutation{ID: team + "/mutate/" + name, Source: evaluation.PositionOfRule(v, "mutations")}
	c.ruleAt = r.Source
	defer func() { c.ruleAt = schemas.Position{} }()
	r.Order = c.inOrder(v, r.ID)
	if !c.Sound(v) {
		return r
	}
	said := len(c.Diags)
	of, scope, ok := c.admissionRule(v, admissionParts{&r.Match, &r.Params, &r.ParamSource, &r.Objects, &r.Variables}, c.scopes.forMutation)
	if !ok {
		return r
	}
	c.mutatedOperations(v, &r.Match)
	var failurePolicy, reinvocationPolicy string
	c.DecodeField(v, "failurePolicy", &failurePolicy)
	c.DecodeField(v, "reinvocationPolicy", &reinvocationPolicy)
	r.Ignore, r.Reinvoke = failurePolicy == "Ignore", reinvocationPolicy == "IfNeeded"
	r.Mutations = c.mutationSteps(v, r.ID, of, scope)
	if len(r.Mutations) == 0 && len(c.Diags) == said {
		c.Add(r.Source, v.Path().String(), "a rule without mutations", "add mutations: name: {patchType: …, expression: …}")
	}
	if len(c.Diags) == said {
		c.paramsOf(v, r.Expressions())
		c.unreadObjects(r.Objects, r.Expressions())
	}
	return r
}

// mutationSteps compiles the changes of a rule, in their order.
func (c *compiler) mutationSteps(v cue.Value, rule string, of []objectType, scope scopeOf) []policy.MutationStep {
	type ordered struct {
		policy.MutationStep
		order int64
	}
	var steps []ordered
	for id, x := range c.Fields(v, "mutations") {
		s := ordered{MutationStep: policy.MutationStep{ID: rule + "/" + id, Source: c.positionOf(x)}}
		c.DecodeField(x, "order", &s.order)
		c.DecodeField(x, "patchType", &s.PatchType)
		want := expr.ApplyType
		if s.PatchType == policy.JSONPatch {
			want = expr.PatchType
		}
		if i := slices.IndexFunc(steps, func(o ordered) bool { return o.order == s.order }); i >= 0 {
			c.Add(s.Source, x.Path().String(), fmt.Sprintf("the order %d is that of %s, too: which one is first is not known", s.order, steps[i].ID), "give each of them an order")
		}
		at := x.LookupPath(cue.ParsePath("expression"))
		if e := c.mutationExpression(at, want, of, scope); e != nil {
			s.Expression = *e
		}
		steps = append(steps, s)
	}
	slices.SortStableFunc(steps, func(a, b ordered) int { return cmp.Compare(a.order, b.order) })
	list := make([]policy.MutationStep, len(steps))
	for i := range steps {
		list[i] = steps[i].MutationStep
	}
	return list
}

// mutationExpression compiles the expression of a change. What CEL's types do not show is checked here: the names of
// parts of objects whose type is not known, and parts that an apply configuration must not have.
func (c *compiler) mutationExpression(x cue.Value, want *cel.Type, of []objectType, scope scopeOf) *policy.Expression {
	text, err := x.String()
	if err != nil {
		c.Decode(x, &text)
		return nil
	}
	at, path := c.positionOf(x), x.Path().String()
	e, checked := c.expression(text, path, at, want, of, scope)
	if e == nil {
		return nil
	}
	for i, t := range of {
		var atomic func(path []string) bool
		if want == expr.ApplyType && t.schema != nil {
			atomic = func(path []string) bool { return isAtomic(t.schema, path) }
		}
		if fault := expr.CheckParts(checked[i].AST, atomic); fault != nil {
			c.fault(fault, text, path, at, t, len(of) > 1)
			return nil
		}
	}
	return e
}

// isAtomic reports whether a part of an object is a list or a struct that server-side apply replaces as a whole.
func isAtomic(n *schemas.Node, path []string) bool {
	if path[0] == "metadata" || path[0] == "apiVersion" || path[0] == "kind" {
		return false
	}
	for _, name := range path {
		if n = fieldOf(n, name); n == nil {
			return false // it is merged, as far as the schema says
		}
	}
	if list := n.List; list != nil && n.Struct == nil {
		return list.Type == "" || list.Type == schemas.ListAtomic
	}
	return n.Struct != nil && n.Struct.Type == schemas.MapAtomic
}

// fieldOf returns the schema of a field of a struct, or of the structs in a list or a map.
func fieldOf(n *schemas.Node, name string) *schemas.Node {
	for {
		switch {
		case n == nil || n.Union != nil || n.Fallback != nil:
			return nil
		case n.List != nil && n.Struct == nil:
			n = n.List.Items
			continue
		case n.Struct == nil:
			return nil
		case len(n.Struct.Fields) == 0 && len(n.Struct.Patterns) == 1:
			n = n.Struct.Patterns[0].Value
			continue
		}
		i := slices.IndexFunc(n.Struct.Fields, func(f schemas.Field) bool { return f.Name == name })
		if i < 0 {
			return nil
		}
		return n.Struct.Fields[i].Schema
	}
}

// mutatedOperations rejects a mutation of requests that have no object.
func (c *compiler) mutatedOperations(v cue.Value, match *policy.Match) {
	if i := slices.Index(match.Operations, "DELETE"); i >= 0 {
		m := v.LookupPath(cue.ParsePath("match"))
		c.Add(element(m, "operations", i), fmt.Sprintf("%s.operations.%d", m.Path(), i), "a DELETE has no object that could be changed", "there are CREATE and UPDATE")
	}
}
