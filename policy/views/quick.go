package views

import (
	"strings"

	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas/celtype"
)

// Most expressions of views are chains of fields, and comparisons of them with constants. They are evaluated here, without CEL and
// its accounting of costs, with the same results. Whatever they meet that is not as simple is left to CEL: a quick function then
// returns unsure.

// verdict is the result of a quick condition.
type verdict uint8

const (
	unsure verdict = iota
	failed
	no
	yes
)

// condition is a quick condition; nil if the expression has none.
type condition func(content map[string]any) verdict

// chain is a chain of fields from the object.
type chain struct {
	names []string // in JSON
	t     *celtype.Type
}

// find returns the value of a chain. found is false if CEL would fail; sure is false if CEL must decide.
func (c *chain) find(content map[string]any) (value any, found, sure bool) {
	last := len(c.names) - 1
	for _, name := range c.names[:last] {
		next, ok := content[name]
		if !ok {
			return nil, false, true
		}
		if content, ok = next.(map[string]any); !ok {
			return nil, false, false
		}
	}
	value, found = content[c.names[last]]
	return value, found, true
}

// quickly finds the quick form of an expression about an object of a type.
type quickly struct{ reads *celtype.Type }

func (q quickly) parse(e *policy.Expression) *exprpb.Expr {
	var checked exprpb.CheckedExpr
	if proto.Unmarshal(e.Checked, &checked) != nil {
		return nil
	}
	return checked.Expr
}

// chain returns the chain that an expression is; nil if it is something else. tested is set for has().
func (q quickly) chain(e *exprpb.Expr, tested bool) *chain {
	s := e.GetSelectExpr()
	if s == nil || s.TestOnly != tested {
		return nil
	}
	of := &chain{t: q.reads}
	if id := s.Operand.GetIdentExpr(); id == nil || id.Name != expr.VarObject {
		if of = q.chain(s.Operand, false); of == nil {
			return nil
		}
	}
	name, t := s.Field, (*celtype.Type)(nil)
	if of.t != nil && of.t.IsMessage() {
		f := of.t.Field(name)
		if f == nil {
			return nil
		}
		name, t = f.Name, f.Type
	} else if of.t == nil || of.t.Items() == nil {
		return nil // of no known type
	} else {
		t = of.t.Items()
	}
	return &chain{append(of.names[:len(of.names):len(of.names)], name), t}
}

// condition returns the quick form of a condition; nil if it has none.
func (q quickly) condition(e *exprpb.Expr) condition {
	if c := q.chain(e, true); c != nil {
		return func(content map[string]any) verdict {
			_, found, sure := c.find(content)
			switch {
			case !sure:
				return unsure
			case found:
				return yes
			case len(c.names) > 1 && !holds(content, c.names[:len(c.names)-1]):
				return failed
			}
			return no
		}
	}
	call := e.GetCallExpr()
	if call == nil || len(call.Args) == 0 {
		return nil
	}
	switch call.Function {
	case "!_":
		if of := q.condition(call.Args[0]); of != nil {
			return func(content map[string]any) verdict {
				switch v := of(content); v {
				case yes:
					return no
				case no:
					return yes
				default:
					return v
				}
			}
		}
		return nil
	case "_&&_", "_||_":
		a, b := q.condition(call.Args[0]), q.condition(call.Args[1])
		if a == nil || b == nil {
			return nil
		}
		decides := no
		if call.Function == "_||_" {
			decides = yes
		}
		return func(content map[string]any) verdict {
			x := a(content)
			if x == decides || x == unsure {
				return x
			}
			y := b(content)
			if y == decides || y == unsure || x != failed {
				return y
			}
			return failed
		}
	}
	compare := comparisons[call.Function]
	if compare == nil || len(call.Args) != 2 {
		return nil
	}
	c, constant := q.chain(call.Args[0], false), call.Args[1].GetConstExpr()
	if c == nil || constant == nil || c.t == nil {
		return nil
	}
	switch x := constant.ConstantKind.(type) {
	case *exprpb.Constant_Int64Value:
		return c.compared(func(v any) (int, bool) {
			n, ok := v.(int64)
			if !ok || c.t != celtype.Int {
				return 0, false
			}
			return sign(n < x.Int64Value, n > x.Int64Value), true
		}, compare)
	case *exprpb.Constant_StringValue:
		return c.compared(func(v any) (int, bool) {
			s, ok := v.(string)
			return strings.Compare(s, x.StringValue), ok && c.t.IsText()
		}, compare)
	}
	return nil
}

func sign(less, more bool) int {
	switch {
	case less:
		return -1
	case more:
		return 1
	}
	return 0
}

var comparisons = map[string]func(int) bool{
	"_==_": func(n int) bool { return n == 0 }, "_!=_": func(n int) bool { return n != 0 },
	"_<_": func(n int) bool { return n < 0 }, "_<=_": func(n int) bool { return n <= 0 },
	"_>_": func(n int) bool { return n > 0 }, "_>=_": func(n int) bool { return n >= 0 },
}

// compared returns a condition about the value of a chain.
func (c *chain) compared(order func(any) (int, bool), holds func(int) bool) condition {
	return func(content map[string]any) verdict {
		value, found, sure := c.find(content)
		if !sure {
			return unsure
		}
		if !found {
			return failed
		}
		n, ok := order(value)
		switch {
		case !ok:
			return unsure
		case holds(n):
			return yes
		}
		return no
	}
}

// holds reports whether the field at the end of a path is there.
func holds(content map[string]any, path []string) bool {
	for i, name := range path {
		next, ok := content[name]
		if !ok {
			return false
		}
		if content, ok = next.(map[string]any); !ok {
			return i == len(path)-1
		}
	}
	return true
}
