package expr

import (
	"context"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"
)

// constantCost limits the cost of finding out whether an expression is a constant.
const constantCost = 100_000

// Constant returns the value of a checked expression that is true or false whatever its variables are. known is false
// if the value depends on them, or if finding out costs too much. An expression that is known may still fail for
// some values: CEL's && and || do not ask for the operand that fails.
func Constant(ast []byte) (value, known bool, err error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return false, false, fmt.Errorf("expr: %w", err)
	}
	return constant(&checked)
}

func constant(checked *exprpb.CheckedExpr) (value, known bool, err error) {
	loaded, err := cel.CheckedExprToAstWithSource(checked, nil)
	if err != nil {
		return false, false, fmt.Errorf("expr: %w", err)
	}
	program, err := base().Program(loaded, cel.EvalOptions(cel.OptPartialEval), cel.CostLimit(constantCost), cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return false, false, fmt.Errorf("expr: %w", err)
	}
	var unknown []*cel.AttributePatternType
	for _, name := range names(checked) {
		unknown = append(unknown, cel.AttributePattern(name))
	}
	vars, err := cel.PartialVars(map[string]any{}, unknown...)
	if err != nil {
		return false, false, fmt.Errorf("expr: %w", err)
	}
	v, _, err := program.ContextEval(context.Background(), interpreter.Activation(vars))
	if err != nil {
		return false, false, nil // it always fails, or it costs too much
	}
	b, ok := v.(types.Bool)
	return bool(b), ok, nil
}

// References returns the names of the variables that a checked expression reads, and of its loops' variables.
func References(ast []byte) ([]string, error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return nil, fmt.Errorf("expr: %w", err)
	}
	return names(&checked), nil
}

// Part is a part of an expression that is never evaluated, or whose value never matters.
type Part struct {
	// Text is the part, as CEL prints it; empty if it cannot be printed.
	Text string
	// Because is the value of the other part, which decides.
	Because bool
}

// maxConstants limits the parts of an expression that are evaluated.
const maxConstants = 200

// Unreached returns the operands of &&, || and ?: in a checked expression that never matter, because another operand
// is always true or always false. It does not look into the parts that it returns.
func Unreached(ast []byte) ([]Part, error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return nil, fmt.Errorf("expr: %w", err)
	}
	s := &unreached{checked: &checked, left: maxConstants}
	s.visit(checked.Expr)
	return s.parts, nil
}

type unreached struct {
	checked *exprpb.CheckedExpr
	left    int
	parts   []Part
}

func (s *unreached) visit(e *exprpb.Expr) {
	call := e.GetCallExpr()
	if call == nil {
		return
	}
	switch call.Function {
	case "_&&_", "_||_":
		decides := call.Function == "_||_" // the value of an operand that decides alone
		for i, arg := range call.Args {
			if value, known := s.constant(arg); known && value == decides {
				s.add(call.Args[1-i], value)
				return
			}
		}
	case "_?_:_":
		if value, known := s.constant(call.Args[0]); known {
			dead := call.Args[1]
			if value {
				dead = call.Args[2]
			}
			s.add(dead, value)
			return
		}
	}
	for _, arg := range call.Args {
		s.visit(arg)
	}
}

func (s *unreached) add(e *exprpb.Expr, because bool) {
	text := ""
	if loaded, err := cel.CheckedExprToAstWithSource(s.part(e), nil); err == nil {
		text, _ = cel.AstToString(loaded) // not every loop can be printed
	}
	s.parts = append(s.parts, Part{text, because})
}

// constant returns the value of a part, if it is a constant.
func (s *unreached) constant(e *exprpb.Expr) (value, known bool) {
	if s.left--; s.left < 0 {
		return false, false
	}
	value, known, _ = constant(s.part(e))
	return value, known
}

func (s *unreached) part(e *exprpb.Expr) *exprpb.CheckedExpr {
	return &exprpb.CheckedExpr{ReferenceMap: s.checked.ReferenceMap, TypeMap: s.checked.TypeMap, Expr: e}
}
