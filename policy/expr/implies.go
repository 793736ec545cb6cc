package expr

import (
	"fmt"
	"slices"

	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"
)

// A Form is an expression with the canonical texts of its variables, see [Canonical].
type Form struct {
	AST       []byte
	Variables map[string]string
}

// An Implication is what the form of two expressions shows: whether one is true for whatever the other one is true.
type Implication struct {
	Holds bool
	// InOrder is set if the operands that both have come first and in the same order. Then they are evaluated in both before anything
	// else, so limits of the cost make no difference. Otherwise the implication holds as long as both can be evaluated.
	InOrder bool
	// Conjunction is set if it is about a chain of &&, and not of ||.
	Conjunction bool
}

// Implies returns whether the form of two expressions shows that other is true for whatever e is true: other has all operands of e in a
// chain of ||, or e has all operands of other in a chain of &&.
func (e Form) Implies(other Form) (Implication, error) {
	for _, function := range []string{"_||_", "_&&_"} {
		fewer, err := e.operands(function)
		if err != nil {
			return Implication{}, err
		}
		more, err := other.operands(function)
		if err != nil {
			return Implication{}, err
		}
		conjunction := function == "_&&_"
		if conjunction {
			fewer, more = more, fewer
		}
		if !slices.ContainsFunc(fewer, func(text string) bool { return !slices.Contains(more, text) }) {
			return Implication{Holds: true, InOrder: slices.Equal(fewer, more[:min(len(fewer), len(more))]), Conjunction: conjunction}, nil
		}
	}
	return Implication{}, nil
}

// operands returns the canonical texts of the operands of a chain; of another expression, its own text.
func (e Form) operands(function string) ([]string, error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(e.AST, &checked); err != nil {
		return nil, fmt.Errorf("expr: %w", err)
	}
	c := canonical{checked: &checked, variables: e.Variables, bound: map[string]string{}}
	if call := checked.Expr.GetCallExpr(); call != nil && call.Function == function {
		return c.operands(call, function), nil
	}
	return []string{c.text(checked.Expr)}, nil
}
