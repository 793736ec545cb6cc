package expr_test

import (
	"testing"

	"stele.dev/stele/policy/expr"
)

// Each use of a variable is renamed, and nothing else of the text.
func TestRename(t *testing.T) {
	for text, want := range map[string]string{
		"params.max > 1 && params['a b'] == 'params'":     "v.p.max > 1 && v.p['a b'] == 'params'",
		"'ü' + params.a  // params":                       "'ü' + v.p.a  // params",
		"has(params.a) && object.params == params":        "has(v.p.a) && object.params == v.p",
		"params.list.exists(x, x == params.a)":            "v.p.list.exists(x, x == v.p.a)",
		"params.list.all(params, params > 1) && params.b": "v.p.list.all(params, params > 1) && v.p.b",
		"[1].map(x, {'params': params, 'x': x})[0]":       "[1].map(x, {'params': v.p, 'x': x})[0]",
		"Object{spec: Object.spec{params: params.a}}":     "Object{spec: Object.spec{params: v.p.a}}",
		"params.?a.orValue(params.b)":                     "v.p.?a.orValue(v.p.b)",
		"true":                                            "true",
	} {
		got, err := expr.Rename(text, "params", "v.p")
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	if _, err := expr.Rename("params.", "params", "x"); err == nil {
		t.Error("a text that cannot be parsed was renamed")
	}
}
