package expr_test

import (
	"strings"
	"testing"

	"stele.dev/stele/policy/expr"
)

func TestLiteralsOfOneType(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a":"b","c":"d"}`:              `{"a":"b","c":"d"}`,
		`{"enabled":true,"most":9}`:      `{"enabled":dyn(true),"most":dyn(9)}`,
		`[1,2]`:                          `[1,2]`,
		`[1,2.5,"a",null]`:               `[dyn(1),dyn(2.5),dyn("a"),dyn(null)]`,
		`{"a":{"x":1},"b":{"y":2}}`:      `{"a":{"x":1},"b":{"y":2}}`,
		`{"a":{"x":1},"b":{"y":"2"}}`:    `{"a":dyn({"x":1}),"b":dyn({"y":"2"})}`,
		`{"a":[{"x":1,"y":"z"}],"b":[]}`: `{"a":dyn([{"x":dyn(1),"y":dyn("z")}]),"b":dyn([])}`,
		`{"a":-1,"q\"":1e3}`:             `{"a":dyn(-1),"q\"":dyn(1e3)}`,
	} {
		if got := expr.Literal([]byte(raw)); got != want {
			t.Errorf("%s becomes %s, want %s", raw, got, want)
		}
	}
}

func TestSelectionsAreRenamed(t *testing.T) {
	for text, want := range map[string]string{
		"params.a.b + params.a":                        "<a.b> + <a>",
		"has(params.a) && has(params.a.b)":             "has(<>.a) && has(<a>.b)",
		"params['a'] == params . a . c":                "<>['a'] == <a.c>",
		"params.a.exists(x, x == params.b)":            "<a>.exists(x, x == <b>)",
		"[1].all(params, params > 1) && params.a.b.c":  "[1].all(params, params > 1) && <a.b>.c",
		"'params.a' + string(params.a) + params.?c.d":  "'params.a' + string(<a>) + <>.?c.d",
		"object.params.a == params.a":                  "object.params.a == <a>",
		"'é' + params.a":                               "'é' + <a>",
		"params.list.all(x, params.list.size() > x.y)": "<list>.all(x, <list>.size() > x.y)",
	} {
		got, err := expr.RenameSelections(text, "params", func(path []string) (int, string) {
			path = path[:min(len(path), 2)]
			return len(path), "<" + strings.Join(path, ".") + ">"
		})
		if err != nil || got != want {
			t.Errorf("%s becomes %s, want %s (%v)", text, got, want, err)
		}
	}
}
