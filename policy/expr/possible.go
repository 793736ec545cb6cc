package expr

import (
	"fmt"

	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"
)

// Comparison is a part of an expression that compares a selection with constants.
type Comparison struct {
	Selection
	// Op is ==, !=, <, <=, > or >=, or in for a list of constants. The selection is on the left.
	Op        string
	Constants []any // int64, float64, string or bool
}

// Comparisons returns the comparisons of a checked expression.
func Comparisons(ast []byte) (list []Comparison, err error) {
	_, err = Possible(ast, true, func(c Comparison, _ bool) bool {
		list = append(list, c)
		return true
	})
	return list, err
}

// Possible reports whether a checked condition can be want, as far as its comparisons with constants
// tell. can reports whether one comparison can have a result. Other parts can be anything.
func Possible(ast []byte, want bool, can func(c Comparison, want bool) bool) (bool, error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return false, fmt.Errorf("expr: %w", err)
	}
	p := possible{selecting{references: checked.ReferenceMap, bound: map[string]Selection{}}, can}
	return p.is(checked.Expr, want), nil
}

type possible struct {
	selecting
	can func(Comparison, bool) bool
}

// mirrored are the operators with their operands exchanged.
var mirrored = map[string]string{"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

// comparing has the names of comparisons in ASTs.
var comparing = map[string]string{"_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}

func (p *possible) is(e *exprpb.Expr, want bool) bool {
	if c := e.GetConstExpr(); c != nil {
		if b, ok := c.ConstantKind.(*exprpb.Constant_BoolValue); ok {
			return b.BoolValue == want
		}
	}
	call := e.GetCallExpr()
	if call == nil {
		return true
	}
	switch call.Function {
	case "_&&_", "_||_":
		a, b := p.is(call.Args[0], want), p.is(call.Args[1], want)
		if (call.Function == "_&&_") == want {
			return a && b
		}
		return a || b
	case "!_":
		return p.is(call.Args[0], !want)
	case "@in":
		s, ok := p.chain(call.Args[0])
		list := call.Args[1].GetListExpr()
		if !ok || list == nil || len(list.Elements) == 0 {
			return true
		}
		c := Comparison{Selection: s, Op: "in"}
		for _, x := range list.Elements {
			value, ok := constantValue(x)
			if !ok {
				return true
			}
			c.Constants = append(c.Constants, value)
		}
		return p.can(c, want)
	}
	op := comparing[call.Function]
	if op == "" {
		return true
	}
	for i, left := range call.Args {
		value, isConstant := constantValue(call.Args[1-i])
		s, ok := p.chain(left)
		if !ok || !isConstant {
			continue
		}
		if i == 1 {
			op = mirrored[op]
		}
		return p.can(Comparison{s, op, []any{value}}, want)
	}
	return true
}

func constantValue(e *exprpb.Expr) (any, bool) {
	c := e.GetConstExpr()
	if c == nil {
		return nil, false
	}
	switch v := c.ConstantKind.(type) {
	case *exprpb.Constant_BoolValue:
		return v.BoolValue, true
	case *exprpb.Constant_Int64Value:
		return v.Int64Value, true
	case *exprpb.Constant_DoubleValue:
		return v.DoubleValue, true
	case *exprpb.Constant_StringValue:
		return v.StringValue, true
	}
	return nil, false
}
