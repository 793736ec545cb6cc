package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"
)

// Canonical returns a text that two expressions share only if they always have the same result:
// spaces, parentheses, names of loop variables, the order of operands of && and ||, mirrored
// comparisons and computed constants make no difference. variables are the canonical texts of
// variables that are expressions themselves, by name. A checked AST does not keep the macros of its
// source, so the text is for comparing and not for reading.
func Canonical(ast []byte, variables map[string]string) (string, error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return "", fmt.Errorf("expr: %w", err)
	}
	c := canonical{checked: &checked, variables: variables, bound: map[string]string{}}
	return c.text(checked.Expr), nil
}

type canonical struct {
	checked   *exprpb.CheckedExpr
	variables map[string]string
	bound     map[string]string // the variables of loops
	depth     int               // of loops
}

func (c *canonical) text(e *exprpb.Expr) string {
	switch x := e.GetExprKind().(type) {
	case *exprpb.Expr_ConstExpr:
		return literalText(x.ConstExpr)
	case *exprpb.Expr_IdentExpr:
		if name, ok := c.bound[x.IdentExpr.Name]; ok {
			return name
		}
		return c.variable(e, x.IdentExpr.Name)
	case *exprpb.Expr_SelectExpr:
		if r := c.checked.ReferenceMap[e.Id]; r != nil && r.Name != "" {
			return c.variable(e, r.Name)
		}
		text := c.text(x.SelectExpr.Operand) + "." + fieldName(x.SelectExpr.Field)
		if x.SelectExpr.TestOnly {
			return "has(" + text + ")"
		}
		return text
	case *exprpb.Expr_CallExpr:
		if value := c.folded(e); value != "" {
			return value
		}
		return c.call(x.CallExpr)
	case *exprpb.Expr_ListExpr:
		elements := c.texts(x.ListExpr.Elements)
		for _, i := range x.ListExpr.OptionalIndices {
			elements[i] = "?" + elements[i]
		}
		return "[" + strings.Join(elements, ",") + "]"
	case *exprpb.Expr_StructExpr:
		var entries []string
		for _, entry := range x.StructExpr.Entries {
			key := fieldName(entry.GetFieldKey())
			if k := entry.GetMapKey(); k != nil {
				key = c.text(k)
			}
			if entry.OptionalEntry {
				key = "?" + key
			}
			entries = append(entries, key+":"+c.text(entry.Value))
		}
		return x.StructExpr.MessageName + "{" + strings.Join(entries, ",") + "}"
	case *exprpb.Expr_ComprehensionExpr:
		return c.loop(x.ComprehensionExpr)
	}
	return e.String()
}

// fieldName returns the name of a field, quoted if it is no identifier: x.`a.b` is one field, and x.a.b is another.
func fieldName(name string) string {
	if identifier.MatchString(name) {
		return name
	}
	return "`" + strconv.Quote(name) + "`"
}

var identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

func (c *canonical) texts(list []*exprpb.Expr) []string {
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = c.text(list[i])
	}
	return texts
}

func (c *canonical) variable(e *exprpb.Expr, name string) string {
	if r := c.checked.ReferenceMap[e.Id]; r != nil && r.Name != "" {
		name = r.Name
	}
	if text, ok := c.variables[name]; ok {
		return "(" + text + ")"
	}
	return name
}

func (c *canonical) call(x *exprpb.Expr_Call) string {
	args := c.texts(x.Args)
	if x.Target != nil {
		return c.text(x.Target) + "." + x.Function + "(" + strings.Join(args, ",") + ")"
	}
	function := x.Function
	switch function {
	case "_&&_", "_||_":
		args = c.operands(x, function)
		slices.Sort(args)
		if args = slices.Compact(args); len(args) == 1 {
			return args[0]
		}
	case "_==_", "_!=_":
		slices.Sort(args)
	case "_>_", "_>=_":
		function = map[string]string{"_>_": "_<_", "_>=_": "_<=_"}[function]
		slices.Reverse(args)
	case "!_":
		switch inner := x.Args[0].GetCallExpr(); {
		case inner != nil && inner.Function == "!_":
			return c.text(inner.Args[0])
		case inner != nil && (inner.Function == "_==_" || inner.Function == "_!=_"):
			opposite := proto.CloneOf(inner)
			opposite.Function = map[string]string{"_==_": "_!=_", "_!=_": "_==_"}[inner.Function]
			return c.call(opposite)
		}
	case "@in":
		if list := x.Args[1].GetListExpr(); list != nil && !slices.ContainsFunc(list.Elements, func(e *exprpb.Expr) bool { return e.GetConstExpr() == nil }) {
			words := c.texts(list.Elements)
			slices.Sort(words)
			args[1] = "[" + strings.Join(slices.Compact(words), ",") + "]"
		}
	}
	return function + "(" + strings.Join(args, ",") + ")"
}

// operands returns the operands of a chain of && or of ||.
func (c *canonical) operands(x *exprpb.Expr_Call, function string) (list []string) {
	for _, a := range x.Args {
		if inner := a.GetCallExpr(); inner != nil && inner.Function == function {
			list = append(list, c.operands(inner, function)...)
		} else {
			list = append(list, c.text(a))
		}
	}
	return list
}

func (c *canonical) loop(x *exprpb.Expr_Comprehension) string {
	over, start := c.text(x.IterRange), c.text(x.AccuInit)
	outer := map[string]string{}
	c.depth++
	for i, name := range []string{x.IterVar, x.IterVar2, x.AccuVar} {
		if text, ok := c.bound[name]; ok {
			outer[name] = text
		}
		if name != "" {
			c.bound[name] = fmt.Sprintf("#%d.%d", c.depth, i)
		}
	}
	text := fmt.Sprintf("loop(%s,%s,%s,%s,%s,%t)", over, start, c.text(x.LoopCondition), c.text(x.LoopStep), c.text(x.Result), x.IterVar2 != "")
	c.depth--
	for _, name := range []string{x.IterVar, x.IterVar2, x.AccuVar} {
		delete(c.bound, name)
		if text, ok := outer[name]; ok {
			c.bound[name] = text
		}
	}
	return text
}

// folded returns the value of a call of constants; "" if it is another call, or has no scalar value.
func (c *canonical) folded(e *exprpb.Expr) string {
	if !foldable(e) {
		return ""
	}
	part := &exprpb.CheckedExpr{ReferenceMap: c.checked.ReferenceMap, TypeMap: c.checked.TypeMap, Expr: e}
	loaded, err := cel.CheckedExprToAstWithSource(part, nil)
	if err != nil {
		return ""
	}
	program, err := base().Program(loaded, cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return ""
	}
	value, _, err := program.Eval(cel.NoVars())
	if err != nil {
		return ""
	}
	return scalar(value)
}

// foldable reports whether an expression consists of constants and calls only.
func foldable(e *exprpb.Expr) bool {
	switch x := e.GetExprKind().(type) {
	case *exprpb.Expr_ConstExpr:
		return true
	case *exprpb.Expr_CallExpr:
		return (x.CallExpr.Target == nil || foldable(x.CallExpr.Target)) && !slices.ContainsFunc(x.CallExpr.Args, func(a *exprpb.Expr) bool { return !foldable(a) })
	}
	return false
}

// scalar returns the text of a literal with a value. A type and an optional value are no literals, though Go shows them as one.
func scalar(v ref.Val) string {
	switch x := v.(type) {
	case types.Bool:
		return strconv.FormatBool(bool(x))
	case types.Int:
		return "int " + strconv.FormatInt(int64(x), 10)
	case types.Uint:
		return "uint " + strconv.FormatUint(uint64(x), 10)
	case types.Double:
		return "double " + strconv.FormatFloat(float64(x), 'g', -1, 64)
	case types.String:
		return strconv.Quote(string(x))
	}
	return ""
}

func literalText(x *exprpb.Constant) string {
	switch v := x.ConstantKind.(type) {
	case *exprpb.Constant_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	case *exprpb.Constant_Int64Value:
		return "int " + strconv.FormatInt(v.Int64Value, 10)
	case *exprpb.Constant_Uint64Value:
		return "uint " + strconv.FormatUint(v.Uint64Value, 10)
	case *exprpb.Constant_DoubleValue:
		return "double " + strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
	case *exprpb.Constant_StringValue:
		return strconv.Quote(v.StringValue)
	}
	return x.String()
}

// Constants returns the constants of a checked expression: bools, int64s, float64s and strings, in the
// order of the expression.
func Constants(ast []byte) ([]any, error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return nil, fmt.Errorf("expr: %w", err)
	}
	var list []any
	eachExpr(checked.Expr, func(e *exprpb.Expr) {
		c := e.GetConstExpr()
		if c == nil {
			return
		}
		switch v := c.ConstantKind.(type) {
		case *exprpb.Constant_BoolValue:
			list = append(list, v.BoolValue)
		case *exprpb.Constant_Int64Value:
			list = append(list, v.Int64Value)
		case *exprpb.Constant_Uint64Value:
			list = append(list, int64(v.Uint64Value&(1<<63-1)))
		case *exprpb.Constant_DoubleValue:
			list = append(list, v.DoubleValue)
		case *exprpb.Constant_StringValue:
			list = append(list, v.StringValue)
		}
	})
	return list, nil
}

// eachExpr calls f for an expression and all parts of it, in order.
func eachExpr(e *exprpb.Expr, f func(*exprpb.Expr)) {
	if e == nil {
		return
	}
	f(e)
	switch x := e.GetExprKind().(type) {
	case *exprpb.Expr_SelectExpr:
		eachExpr(x.SelectExpr.Operand, f)
	case *exprpb.Expr_CallExpr:
		eachExpr(x.CallExpr.Target, f)
		for _, a := range x.CallExpr.Args {
			eachExpr(a, f)
		}
	case *exprpb.Expr_ListExpr:
		for _, a := range x.ListExpr.Elements {
			eachExpr(a, f)
		}
	case *exprpb.Expr_StructExpr:
		for _, entry := range x.StructExpr.Entries {
			eachExpr(entry.GetMapKey(), f)
			eachExpr(entry.Value, f)
		}
	case *exprpb.Expr_ComprehensionExpr:
		c := x.ComprehensionExpr
		for _, part := range []*exprpb.Expr{c.IterRange, c.AccuInit, c.LoopCondition, c.LoopStep, c.Result} {
			eachExpr(part, f)
		}
	}
}
