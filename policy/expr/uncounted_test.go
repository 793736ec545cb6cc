package expr_test

import (
	"fmt"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas/celtype"
)

// An expression has the same value and the same errors whether its cost is counted or known before. It is charged no more than its cost, or one unit.
func TestExpressionsWhoseCostIsNotCounted(t *testing.T) {
	scope, err := expr.Root().With(map[string]*celtype.Type{"x": celtype.Dynamic, "text": celtype.String})
	if err == nil {
		scope, err = scope.WithPatches(celtype.Dynamic)
	}
	if err != nil {
		t.Fatal(err)
	}
	vars, err := cel.NewActivation(map[string]any{"text": "abc", "object": map[string]any{"a": 1}, "x": map[string]any{
		"size": int64(3), "none": nil, "name": "long-name", "items": []any{int64(1), int64(2), int64(3)}, "labels": map[string]any{"team": "a"}, "half": 0.5, "yes": true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for text, how := range map[string]string{
		`x.size > 2 && x.size < 4`:                    "estimated",
		`x.size + 1 == 4 || x.half > 0.25`:            "estimated",
		`has(x.labels) && has(x.labels.team)`:         "estimated",
		`"team" in x.labels`:                          "counted",
		`x.labels["team"] == "a" ? x.size : x.half`:   "estimated",
		`x.?labels.?team.orValue("none")`:             "estimated",
		`x.?missing.?team.or(optional.of(1)).value()`: "estimated",
		`x.missing`:                      "estimated",
		`x.items[7]`:                     "estimated",
		`x.size / (x.size - 3)`:          "estimated",
		`!x.name`:                        "estimated",
		`x.yes ? x.none == null : false`: "estimated",
		`x.items.size() == 3`:            "estimated",
		`x.size in [1, 2, 3]`:            "estimated",
		`text.startsWith("ab")`:          "estimated",
		`type(x.size) == int`:            "counted",
		`quantity("1Gi").isGreaterThan(quantity("1Mi")) ? x.yes : x.none`: "estimated",
		`"abc".find("[b]") == "b" && x.yes`:                               "estimated",
		`[x.size, x.half].exists(i, i > 2)`:                               "estimated",
		`Object{spec: Object.spec{size: x.size, labels: {"a": "b"}}}`:     "estimated",
		`[JSONPatch{op: "add", path: "/a", value: x.size}]`:               "estimated",
		`Object{metadata: Object.metadata{labels: {"a": "b"}}}`:           "constant",
		`[JSONPatch{op: "add", path: "/a", value: {"b": [1, 2]}}]`:        "constant",
		`"a" + "b"`:                            "constant",
		`1 / 0`:                                "counted",
		`x.items.all(i, i > 0)`:                "counted",
		`text.matches("^[a-z]+$")`:             "counted",
		`text == x.name`:                       "counted",
		`text + x.name`:                        "counted",
		`x.items.map(i, Object.spec{size: i})`: "counted",
	} {
		checked, fault := scope.Compile(text, nil)
		if fault != nil {
			t.Errorf("%s: %v", text, fault)
			continue
		}
		p, err := expr.LoadPatch(checked.AST, text)
		if err != nil {
			t.Fatal(err)
		}
		if p.HowCounted() != how {
			t.Errorf("%s is %s, not %s", text, p.HowCounted(), how)
		}
		counting, err := expr.LoadCounted(checked.AST, text)
		if err != nil {
			t.Fatal(err)
		}
		budget, counted := expr.NewBudget(), expr.NewBudget()
		v, err := p.Eval(t.Context(), vars, &budget)
		want, wantErr := counting.Eval(t.Context(), vars, &counted)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%s: %v, and with its cost counted %v", text, err, wantErr)
			continue
		}
		if err == nil {
			is, _ := celtype.Native(v)
			should, _ := celtype.Native(want)
			if same := v.Equal(want) == types.True || fmt.Sprint(is) == fmt.Sprint(should); !same {
				t.Errorf("%s is %v, and with its cost counted %v", text, v, want)
			}
		}
		cost := expr.NewBudget() - counted
		if charged := expr.NewBudget() - budget; charged > max(cost, 1) || cost-charged > 1000 {
			t.Errorf("%s: charged %d, and costs %d", text, charged, cost)
		}
	}
}

// A budget that is used up ends the evaluation of an expression whose cost is known before.
func TestKnownCostsUseTheBudget(t *testing.T) {
	for _, text := range []string{`1 + 1`, `Object{a: object.a}`} {
		scope, err := expr.Root().WithPatches(celtype.Dynamic)
		if err != nil {
			t.Fatal(err)
		}
		checked, fault := scope.Compile(text, nil)
		if fault != nil {
			t.Fatal(fault)
		}
		p, err := expr.LoadPatch(checked.AST, text)
		if err != nil {
			t.Fatal(err)
		}
		vars, err := cel.NewActivation(map[string]any{"object": map[string]any{"a": 1}})
		if err != nil {
			t.Fatal(err)
		}
		budget, evaluated := expr.Budget(100), 0
		for err == nil && evaluated < 1000 {
			_, err = p.Eval(t.Context(), vars, &budget)
			evaluated++
		}
		if err == nil || err.Error() != expr.ErrBudget.Error() {
			t.Errorf("%s was evaluated %d times: %v", text, evaluated, err)
		}
	}
}
