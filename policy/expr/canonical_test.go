package expr_test

import (
	"fmt"
	"testing"

	"github.com/google/cel-go/cel"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas/celtype"
)

// canonicalTest has an expression, with its canonical text and what it makes of each of some objects.
type canonicalTest struct{ form, results string }

func canonicalOf(t *testing.T, text string) canonicalTest {
	t.Helper()
	scope, err := expr.Root().With(map[string]*celtype.Type{expr.VarObject: celtype.Dynamic})
	if err != nil {
		t.Fatal(err)
	}
	checked, fault := scope.Compile(text, nil)
	if fault != nil {
		t.Fatalf("%s: %v", text, fault)
	}
	form, err := expr.Canonical(checked.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	program, err := expr.Load(checked.AST, text)
	if err != nil {
		t.Fatal(err)
	}
	results := ""
	for _, object := range []map[string]any{
		{},
		{"a": map[string]any{"b": int64(1)}},
		{"a.b": int64(1)},
		{"a": map[string]any{"b": int64(2)}, "a.b": int64(1)},
	} {
		vars, err := cel.NewActivation(map[string]any{expr.VarObject: object})
		if err != nil {
			t.Fatal(err)
		}
		budget := expr.NewBudget()
		v, err := program.Eval(t.Context(), vars, &budget)
		if err != nil {
			results += "error;"
			continue
		}
		results += fmt.Sprintf("%v;", v.Value())
	}
	return canonicalTest{form, results}
}

func TestExpressionsWithOtherResultsHaveOtherCanonicalTexts(t *testing.T) {
	for _, pair := range [][2]string{
		{`[object.?a.?b].size() > 0`, `[?object.?a.?b].size() > 0`},
		{`[?object.?a, ?object.?c].size() > 0`, `[object.?a, object.?c].size() > 0`},
		{`{"a": object.?a}.size() > 0`, `{?"a": object.?a}.size() > 0`},
		{"object.`a.b` == 1", `object.a.b == 1`},
		{"has(object.`a.b`)", `has(object.a.b)`},
		{"object.?`a.b`.hasValue()", `object.?a.?b.hasValue()`},
		{`{"a": optional.of("x")} == {"a": dyn("x")}`, `{"a": dyn("x")} == {"a": dyn("x")}`},
	} {
		a, b := canonicalOf(t, pair[0]), canonicalOf(t, pair[1])
		if a.results == b.results {
			t.Errorf("%s and %s have the same results: %s", pair[0], pair[1], a.results)
		}
		if a.form == b.form {
			t.Errorf("%s and %s are both %s", pair[0], pair[1], a.form)
		}
	}
}

func TestExpressionsThatDifferInFormHaveOneCanonicalText(t *testing.T) {
	for _, pair := range [][2]string{
		{`[?object.?a].size() > 0`, `0 < ([ ?object.?a ]).size()`},
		{"object.`a` == 1", `1 == object.a`},
		{`object.a.b > 1 && has(object.a)`, `has(object.a) && 1 < object.a.b`},
	} {
		a, b := canonicalOf(t, pair[0]), canonicalOf(t, pair[1])
		if a.results != b.results || a.form != b.form {
			t.Errorf("%s is %s with %s, and %s is %s with %s", pair[0], a.form, a.results, pair[1], b.form, b.results)
		}
	}
}
