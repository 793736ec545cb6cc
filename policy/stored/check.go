package stored

import (
	"fmt"
	"slices"

	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
)

// Kind is what a rule may do with the objects of a kind.
type Kind struct {
	// Name is the kind for messages: databases.data.example.com.
	Name       string
	Namespaced bool
	// Fields are the types of the selectable fields by path: string, int, bool, or "" if the type is not known.
	Fields map[string]string
	// Own is set if the objects that are written may be of the kind.
	Own bool
}

// Mistake is a call that types allow and that is wrong.
type Mistake struct {
	// Expr is the id of the expression.
	Expr    int64
	Message string
	// Name is a misspelled field, and Known are those that there are.
	Name  string
	Known []string
	Hint  string
}

// Use is a call of a function that reads, in an expression.
type Use struct {
	Kind     string // name of the CEL type of the objects
	Function string
	// Narrowed reports whether the selection is narrowed by a name, labels or a field.
	Narrowed bool
	Expr     int64
}

// Check returns the first mistake in a checked expression, and the calls that read. kinds has the kinds by the name of the CEL
// type of their objects.
func Check(checked *exprpb.CheckedExpr, kinds map[string]*Kind) (*Mistake, []Use) {
	c := &checking{CheckedExpr: checked, kinds: kinds}
	c.walk(checked.Expr)
	return c.mistake, c.uses
}

type checking struct {
	*exprpb.CheckedExpr
	kinds   map[string]*Kind
	mistake *Mistake
	uses    []Use
}

// typeOfSelection returns the CEL type of the objects that an expression selects; "" if it is something else.
func (c *checking) typeOfSelection(e *exprpb.Expr) string {
	t := c.TypeMap[e.GetId()].GetAbstractType()
	if t == nil || t.Name != TypeName || len(t.ParameterTypes) != 1 {
		return ""
	}
	return t.ParameterTypes[0].GetMessageType()
}

func (c *checking) walk(e *exprpb.Expr) {
	switch x := e.GetExprKind().(type) {
	case *exprpb.Expr_CallExpr:
		if of := c.typeOfSelection(x.CallExpr.Target); of != "" {
			c.call(e, x.CallExpr, of)
		}
		c.walk(x.CallExpr.Target)
		for _, a := range x.CallExpr.Args {
			c.walk(a)
		}
	case *exprpb.Expr_SelectExpr:
		c.walk(x.SelectExpr.Operand)
	case *exprpb.Expr_ListExpr:
		for _, a := range x.ListExpr.Elements {
			c.walk(a)
		}
	case *exprpb.Expr_StructExpr:
		for _, entry := range x.StructExpr.Entries {
			c.walk(entry.GetMapKey())
			c.walk(entry.Value)
		}
	case *exprpb.Expr_ComprehensionExpr:
		for _, part := range []*exprpb.Expr{x.ComprehensionExpr.IterRange, x.ComprehensionExpr.AccuInit, x.ComprehensionExpr.LoopCondition, x.ComprehensionExpr.LoopStep, x.ComprehensionExpr.Result} {
			c.walk(part)
		}
	}
}

// call checks a call of a function of objects.
func (c *checking) call(e *exprpb.Expr, call *exprpb.Expr_Call, of string) {
	kind := c.kinds[of]
	if kind == nil {
		return
	}
	switch {
	case call.Function == funcGet && kind.Namespaced && len(call.Args) == 1:
		c.fail(&Mistake{Expr: e.Id, Message: "get needs a namespace and a name: " + kind.Name + " are in namespaces"})
	case call.Function == funcGet && !kind.Namespaced && len(call.Args) == 2:
		c.fail(&Mistake{Expr: e.Id, Message: "get needs a name only: " + kind.Name + " are not in namespaces"})
	case call.Function == funcNamespace && !kind.Namespaced:
		c.fail(&Mistake{Expr: e.Id, Message: kind.Name + " are not in namespaces"})
	case call.Function == funcOthers && !kind.Own:
		c.fail(&Mistake{Expr: e.Id, Message: "others leaves out nothing: the rule is about no " + kind.Name, Hint: "leave it out"})
	case call.Function == funcWhere:
		c.checkWhere(kind, call)
	case call.Function == "exists" || call.Function == "count" || call.Function == funcList || call.Function == funcGet:
		c.uses = append(c.uses, Use{of, call.Function, call.Function == funcGet || isNarrowed(call.Target), e.Id})
	}
}

// isNarrowed reports whether a chain of calls narrows a selection by a name, labels or a field.
func isNarrowed(e *exprpb.Expr) bool {
	for call := e.GetCallExpr(); call != nil; call = call.Target.GetCallExpr() {
		if slices.Contains([]string{"name", "labels", funcWhere}, call.Function) {
			return true
		}
	}
	return false
}

// checkWhere checks the field of a where, and the type of its value.
func (c *checking) checkWhere(kind *Kind, call *exprpb.Expr_Call) {
	if len(call.Args) != 2 {
		return
	}
	constant, ok := call.Args[0].GetConstExpr().GetConstantKind().(*exprpb.Constant_StringValue)
	if !ok {
		c.fail(&Mistake{Expr: call.Args[0].Id, Message: "the field of where must be a constant text, so that it can be checked"})
		return
	}
	path := constant.StringValue
	want, known := kind.Fields[path]
	if !known {
		m := &Mistake{Expr: call.Args[0].Id, Message: fmt.Sprintf("%s of %s has no index", path, kind.Name), Name: path, Hint: fmt.Sprintf(`add index: [".%s"] to the kind`, path)}
		for f := range kind.Fields {
			m.Known = append(m.Known, f)
		}
		slices.Sort(m.Known)
		c.fail(m)
		return
	}
	got := ""
	switch c.TypeMap[call.Args[1].Id].GetPrimitive() {
	case exprpb.Type_STRING:
		got = "string"
	case exprpb.Type_INT64:
		got = "int"
	case exprpb.Type_BOOL:
		got = "bool"
	}
	if want != "" && got != "" && want != got {
		c.fail(&Mistake{Expr: call.Args[1].Id, Message: fmt.Sprintf("%s of %s is a %s, and is compared with a %s", path, kind.Name, want, got)})
	}
}

func (c *checking) fail(m *Mistake) {
	if c.mistake == nil {
		c.mistake = m
	}
}
