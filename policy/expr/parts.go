package expr

import (
	"fmt"
	"slices"

	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/schemas"
)

// Selection is a chain of fields that an expression selects from a variable: params.limits["max"].
// The name "*" stands for an item of a list or a value of a map.
type Selection struct {
	Variable string
	Fields   []string
	Tested   bool // by has()
}

// Selections returns the longest selections of a checked expression.
func Selections(ast []byte) ([]Selection, error) { return selections(ast, false) }

// SelectionsWithOptional is [Selections] in which an optional selection, object.spec.?size, is one like others.
func SelectionsWithOptional(ast []byte) ([]Selection, error) { return selections(ast, true) }

// ReadsAny returns the first of the paths whose field an expression reads from the object: the field, a part of it, or a value that
// contains it. It returns nil if the expression reads none. "*" in a path stands for any entry.
func ReadsAny(ast []byte, paths [][]string) []string {
	if len(paths) == 0 {
		return nil
	}
	selections, err := Selections(ast)
	if err != nil {
		return nil
	}
	for _, s := range selections {
		if s.Tested || s.Variable != VarObject {
			continue
		}
		for _, p := range paths {
			if schemas.Overlap(p, s.Fields) {
				return p
			}
		}
	}
	return nil
}

func selections(ast []byte, optional bool) ([]Selection, error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return nil, fmt.Errorf("expr: %w", err)
	}
	s := selecting{references: checked.ReferenceMap, bound: map[string]Selection{}, optional: optional}
	s.all(checked.Expr)
	return s.found, nil
}

type selecting struct {
	references map[int64]*exprpb.Reference
	bound      map[string]Selection // the variables of loops, by name
	found      []Selection
	optional   bool // optional selections are selections
}

// chain returns the selection that an expression is; false if it is something else.
func (s *selecting) chain(e *exprpb.Expr) (Selection, bool) {
	switch x := e.GetExprKind().(type) {
	case *exprpb.Expr_IdentExpr:
		name := x.IdentExpr.Name
		if r := s.references[e.Id]; r != nil && r.Name != "" {
			name = r.Name
		}
		if to, ok := s.bound[x.IdentExpr.Name]; ok {
			return to, to.Variable != ""
		}
		return Selection{Variable: name}, true
	case *exprpb.Expr_SelectExpr:
		if r := s.references[e.Id]; r != nil && r.Name != "" { // a variable with dots in its name
			return Selection{Variable: r.Name}, true
		}
		of, ok := s.chain(x.SelectExpr.Operand)
		return Selection{of.Variable, append(slices.Clip(of.Fields), x.SelectExpr.Field), x.SelectExpr.TestOnly}, ok
	case *exprpb.Expr_CallExpr:
		may := x.CallExpr.Function == "_[_]" || s.optional && (x.CallExpr.Function == "_?._" || x.CallExpr.Function == "_[?_]")
		if !may || len(x.CallExpr.Args) != 2 {
			return Selection{}, false
		}
		name := "*"
		if c := x.CallExpr.Args[1].GetConstExpr(); c != nil && c.GetStringValue() != "" {
			name = c.GetStringValue()
		}
		of, ok := s.chain(x.CallExpr.Args[0])
		return Selection{Variable: of.Variable, Fields: append(slices.Clip(of.Fields), name)}, ok
	}
	return Selection{}, false
}

// all finds the selections in an expression.
func (s *selecting) all(e *exprpb.Expr) {
	if e == nil {
		return
	}
	if chain, ok := s.chain(e); ok {
		s.found = append(s.found, chain)
		s.indices(e)
		return
	}
	switch x := e.GetExprKind().(type) {
	case *exprpb.Expr_SelectExpr:
		s.all(x.SelectExpr.Operand)
	case *exprpb.Expr_CallExpr:
		s.all(x.CallExpr.Target)
		for _, a := range x.CallExpr.Args {
			s.all(a)
		}
	case *exprpb.Expr_ListExpr:
		for _, a := range x.ListExpr.Elements {
			s.all(a)
		}
	case *exprpb.Expr_StructExpr:
		for _, entry := range x.StructExpr.Entries {
			s.all(entry.GetMapKey())
			s.all(entry.Value)
		}
	case *exprpb.Expr_ComprehensionExpr:
		s.loop(x.ComprehensionExpr)
	}
}

// indices finds the selections in the brackets of a chain.
func (s *selecting) indices(e *exprpb.Expr) {
	switch x := e.GetExprKind().(type) {
	case *exprpb.Expr_SelectExpr:
		s.indices(x.SelectExpr.Operand)
	case *exprpb.Expr_CallExpr:
		s.indices(x.CallExpr.Args[0])
		if x.CallExpr.Args[1].GetConstExpr() == nil {
			s.all(x.CallExpr.Args[1])
		}
	}
}

// loop finds the selections in a comprehension, whose variable stands for each item.
func (s *selecting) loop(x *exprpb.Expr_Comprehension) {
	s.all(x.IterRange)
	s.all(x.AccuInit)
	outer := map[string]Selection{}
	for _, name := range []string{x.IterVar, x.IterVar2, x.AccuVar} {
		if to, ok := s.bound[name]; ok {
			outer[name] = to
		}
		s.bound[name] = Selection{} // not a selection from a variable
	}
	if of, ok := s.chain(x.IterRange); ok && x.IterVar2 == "" {
		s.bound[x.IterVar] = Selection{Variable: of.Variable, Fields: append(slices.Clip(of.Fields), "*")}
	}
	s.all(x.LoopCondition)
	s.all(x.LoopStep)
	s.all(x.Result)
	for _, name := range []string{x.IterVar, x.IterVar2, x.AccuVar} {
		delete(s.bound, name)
		if to, ok := outer[name]; ok {
			s.bound[name] = to
		}
	}
}

// CanHold reports whether a checked condition can be true. It calls holds with each operand of &&
// and ||, and combines the results.
func CanHold(ast []byte, text string, holds func(*Program) bool) (bool, error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return false, fmt.Errorf("expr: %w", err)
	}
	var can func(e *exprpb.Expr) (bool, error)
	can = func(e *exprpb.Expr) (bool, error) {
		if call := e.GetCallExpr(); call != nil && (call.Function == "_&&_" || call.Function == "_||_") {
			a, err := can(call.Args[0])
			if err != nil || a != (call.Function == "_&&_") {
				return a, err
			}
			return can(call.Args[1])
		}
		part := &exprpb.CheckedExpr{ReferenceMap: checked.ReferenceMap, TypeMap: checked.TypeMap, Expr: e}
		program, err := newProgram(evaluating(), part, text)
		if err != nil {
			return false, fmt.Errorf("expr: %w", err)
		}
		return holds(program), nil
	}
	return can(checked.Expr)
}
