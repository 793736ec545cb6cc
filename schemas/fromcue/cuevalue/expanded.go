package cuevalue

import (
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/interpreter"
)

// A Choice is one way to choose from the disjunctions of a value.
type Choice struct {
	Value  cue.Value
	Kind   cue.Kind
	Marked bool // each disjunction with a default chooses a default

	// Apart reports that the parts of the value are only joined here. They may be closed to each other, where they are not in v.
	Apart bool
}

// Choices returns the alternatives of v as they are written, without those that contradict another part of v, which no data can change.
// CUE itself merges alternatives that look equal as long as there is no data. ok is false if there are more than limit, or if they
// cannot be told. No literal of v may embed alternatives beside fields of its own: these fields belong to each of them.
func Choices(v cue.Value, limit int) (possible []Choice, ok bool) {
	all, ok := choices(v, limit, maxChoices)
	if !ok {
		return nil, false
	}
	for _, x := range all {
		contradicted := slices.ContainsFunc(errors.Errors(x.Value.Validate()), func(err errors.Error) bool {
			format, _ := err.Msg()
			return format != interpreter.FieldNotAllowed
		})
		if !contradicted && x.Kind != cue.BottomKind {
			possible = append(possible, x)
		}
	}
	return possible, true
}

// maxChoices is the maximum depth of references and operators in a value.
const maxChoices = 16

func choices(v cue.Value, limit, depth int) ([]Choice, bool) {
	if depth == 0 {
		return nil, false
	}
	x := cuesyntax.SyntaxOf(v.Source())
	switch op, args := v.Expr(); op {
	case cue.OrOp:
		if !isDisjunction(x) {
			return []Choice{{Value: v, Kind: v.IncompleteKind()}}, len(args) < 2
		}
		return disjuncts(x, args, limit, depth)
	case cue.AndOp:
		return products(args, limit, depth)
	case cue.SelectorOp, cue.IndexOp:
		t, ok := Target(v, args)
		if !ok {
			return nil, false
		}
		return choices(t, limit, depth-1)
	case cue.NoOp:
		if len(args) == 1 && args[0] != v {
			return nil, false // alternatives, hidden by a default
		}
	}
	return []Choice{{Value: v, Kind: v.IncompleteKind()}}, true
}

func isDisjunction(x ast.Expr) bool {
	b, ok := x.(*ast.BinaryExpr)
	return ok && b.Op == token.OR
}

// disjuncts returns the choices of a disjunction, whose operands in CUE's order are args.
func disjuncts(x ast.Expr, args []cue.Value, limit, depth int) (all []Choice, ok bool) {
	for _, t := range cuesyntax.Disjuncts(x, false, nil) {
		found := false
		for _, a := range args {
			if cuesyntax.SyntaxOf(a.Source()) != t.Expr || found {
				continue
			}
			found = true
			of, ok := choices(a, limit, depth-1)
			if !ok {
				return nil, false
			}
			for _, c := range of {
				if c.Marked {
					return nil, false // a default within an alternative
				}
				c.Marked = t.Marked
				if all = append(all, c); len(all) > limit {
					return nil, false
				}
			}
		}
		if !found {
			return nil, false // CUE leaves it out
		}
	}
	return all, true
}

// products returns the choices of a conjunction.
func products(args []cue.Value, limit, depth int) (all []Choice, ok bool) {
	any := false
	for i, a := range args {
		of, ok := choices(a, limit, depth-1)
		if !ok || len(of)*max(1, len(all)) > limit {
			return nil, false
		}
		marks := false
		for _, c := range of {
			marks = marks || c.Marked
		}
		for j := range of {
			of[j].Marked = of[j].Marked || !marks
		}
		any = any || marks
		if i == 0 {
			all = of
			continue
		}
		var next []Choice
		for _, x := range all {
			for _, y := range of {
				next = append(next, Choice{x.Value.Unify(y.Value), x.Kind & y.Kind, x.Marked && y.Marked, true})
			}
		}
		all = next
	}
	for i := range all {
		all[i].Marked = all[i].Marked && any
	}
	return all, true
}
