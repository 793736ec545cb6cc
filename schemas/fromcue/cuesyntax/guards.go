package cuesyntax

import (
	"encoding/json"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
)

// A Condition is a comprehension in a struct literal that adds fields if its guard holds. Only its
// syntax has been read.
type Condition struct {
	Node *ast.Comprehension
	When *schemas.Guard
	Body []string // names of the added fields
}

// ConditionOf reads a comprehension as a condition. ok is false if the comprehension does more than add
// fields under a guard.
func ConditionOf(x *ast.Comprehension) (*Condition, bool) {
	p := &Condition{Node: x, When: &schemas.Guard{Op: "then"}}
	for _, clause := range x.Clauses {
		test, ok := clause.(*ast.IfClause)
		if !ok {
			return nil, false
		}
		g, ok := guardOf(test.Condition)
		if !ok {
			return nil, false
		}
		p.When.Of = append(p.When.Of, g)
	}
	body, ok := x.Value.(*ast.StructLit)
	if !ok {
		return nil, false
	}
	for _, d := range body.Elts {
		f, ok := d.(*ast.Field)
		if !ok {
			return nil, false
		}
		name, _, err := ast.LabelName(f.Label)
		if err != nil || strings.HasPrefix(name, "#") || strings.HasPrefix(name, "_") {
			return nil, false
		}
		if _, forbids := SyntaxOf(f.Value).(*ast.BottomLit); forbids {
			return nil, false
		}
		p.Body = append(p.Body, name)
	}
	return p, true
}

// presenceGuard reads the tests x != _|_ and x == _|_.
func presenceGuard(x ast.Expr) (*schemas.Guard, bool) {
	b, ok := Unparen(x).(*ast.BinaryExpr)
	if !ok {
		return nil, false
	}
	id, ok1 := Unparen(b.X).(*ast.Ident)
	_, ok2 := Unparen(b.Y).(*ast.BottomLit)
	if !ok1 || !ok2 || MeaningOf(id) != IsField {
		return nil, false
	}
	switch b.Op {
	case token.NEQ:
		return &schemas.Guard{Op: "present", Field: id.Name}, true
	case token.EQL:
		return &schemas.Guard{Op: "absent", Field: id.Name}, true
	}
	return nil, false
}

// guardOf reads a test of fields: for their presence, or against constants.
func guardOf(x ast.Expr) (*schemas.Guard, bool) {
	if g, ok := presenceGuard(x); ok {
		return g, true
	}
	switch x := Unparen(x).(type) {
	case *ast.Ident:
		if MeaningOf(x) == IsField {
			return &schemas.Guard{Op: "==", Field: x.Name, Value: json.RawMessage("true")}, true
		}
	case *ast.UnaryExpr:
		if of, ok := guardOf(x.X); ok && x.Op == token.NOT {
			return &schemas.Guard{Op: "not", Of: []*schemas.Guard{of}}, true
		}
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			a, ok1 := guardOf(x.X)
			b, ok2 := guardOf(x.Y)
			op := "or"
			if x.Op == token.LAND {
				op = "and"
			}
			return &schemas.Guard{Op: op, Of: []*schemas.Guard{a, b}}, ok1 && ok2
		}
		return testOf(x)
	}
	return nil, false
}

// testOf reads a comparison of a field with a constant, in either order.
func testOf(x *ast.BinaryExpr) (*schemas.Guard, bool) {
	op := x.Op.String()
	id, ok := Unparen(x.X).(*ast.Ident)
	constant := x.Y
	if !ok {
		flipped := map[token.Token]string{token.EQL: "==", token.NEQ: "!=", token.LSS: ">", token.LEQ: ">=", token.GTR: "<", token.GEQ: "<="}
		if id, ok = Unparen(x.Y).(*ast.Ident); !ok {
			return nil, false
		}
		constant, op = x.X, flipped[x.Op]
	}
	if !slices.Contains([]string{"==", "!=", "<", "<=", ">", ">=", "=~", "!~"}, op) || MeaningOf(id) != IsField {
		return nil, false
	}
	value, ok := constantOf(constant)
	return &schemas.Guard{Op: op, Field: id.Name, Value: value}, ok
}

// Tests returns the single tests that a guard consists of.
func Tests(g *schemas.Guard) []*schemas.Guard {
	if g.Field != "" {
		return []*schemas.Guard{g}
	}
	var tests []*schemas.Guard
	for _, of := range g.Of {
		tests = append(tests, Tests(of)...)
	}
	return tests
}
