package views

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// TestQuickFormsDecideLikeCEL evaluates expressions in their quick form and by CEL, on objects with and without their fields.
func TestQuickFormsDecideLikeCEL(t *testing.T) {
	filters := []string{
		"object.spec.n > 3", "object.spec.n == 3", "object.spec.s != 'a'", "object.spec.s < 'b' && object.spec.n >= 2", "object.spec.n < 2 || object.spec.s == 'a'",
		"!(object.spec.n <= 4)", "has(object.spec.s)", "has(object.spec.sub.x)", "!has(object.spec.sub.x) && object.spec.n > 1", "has(object.metadata.labels) && object.metadata.labels.app == 'a'",
		"object.spec.sub.x == 1 || has(object.spec.s)", "object.metadata.labels.app == 'a'", "has(object.metadata.labels.app)", "object.spec.f > 1.5", "object.spec.open.x == 'a'", "object.spec.b", "object.spec.n > 3 && object.spec.l.all(x, x > 2)",
	}
	var ofViews strings.Builder
	for i, f := range filters {
		fmt.Fprintf(&ofViews, `"view-%d": {kind: "things.example.com", version: "v1", filter: %q, groupBy: ["s", "x", "b", "app", "t"], columns: {
			s: {expression: "object.spec.s", type: "string"}, x: {expression: "object.spec.sub.x", type: "integer"}, b: {expression: "object.spec.b", type: "boolean"}, app: {expression: "object.metadata.labels.app", type: "string"}, t: {expression: "object.metadata.creationTimestamp", type: "date"}}
			aggregates: {f: {function: "sum", expression: "object.spec.f"}, n: {function: "count", expression: %q}}}
`, i, f, f)
	}
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue": {Data: []byte(`package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["example.com"], namespaces: ["*"]
	kinds: "things.example.com": {group: "example.com", names: {kind: "Thing", plural: "things"}, storageVersion: "v1"
		versions: v1: #schema: spec?: {n?: int, s?: string, f?: number, b?: bool, l?: [...int], sub?: {x?: int}, open?: [string]: string}}
	views: {` + ofViews.String() + `}}}`)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	form, _ := compiled.Form.Encode()
	p, err := policy.New(form)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	maybe := func(text string, values ...any) string {
		if random.IntN(3) == 0 {
			return ""
		}
		if random.IntN(20) == 0 {
			return fmt.Sprintf(text, "null")
		}
		return fmt.Sprintf(text, values[random.IntN(len(values))])
	}
	quick := 0
	for _, k := range p.Views() {
		v, err := Of(k.Versions[0])
		if err != nil {
			t.Fatal(err)
		}
		slow := *v
		plain := *v.filter
		plain.chain, plain.quick = nil, nil
		slow.filter, slow.columns, slow.aggregates = &plain, append([]column(nil), v.columns...), append([]aggregate(nil), v.aggregates...)
		for i := range slow.columns {
			p := *slow.columns[i].program
			p.chain, p.quick, slow.columns[i].program = nil, nil, &p
		}
		for i := range slow.aggregates {
			p := *slow.aggregates[i].program
			p.chain, p.quick, slow.aggregates[i].program = nil, nil, &p
		}
		if v.filter.quick != nil {
			quick++
		}
		reader := NewReader([]*View{v})
		for range 400 {
			spec := maybe(`"n":%v,`, 1, 2, 3, 4, 5) + maybe(`"s":%v,`, `"a"`, `"b"`) + maybe(`"f":%v,`, 1, 1.5, 2.5) + maybe(`"b":%v,`, true, false) + maybe(`"l":%v,`, "[1,2]", "[3]") + maybe(`"sub":%v,`, "{}", `{"x":1}`, `{"x":2}`, `{"x":null}`, "7") + maybe(`"open":%v,`, "{}", `{"x":"a"}`)
			object := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{%s"creationTimestamp":"2026-01-01T00:00:00Z","name":"x"},"spec":{%s}}`, maybe(`"labels":%v,`, "{}", `{"app":"a"}`), strings.TrimSuffix(spec, ","))
			row, in := v.Row(reader.Read([]byte(object)))
			want, wantIn := slow.Row(reader.Read([]byte(object)))
			if in != wantIn || fmt.Sprint(row) != fmt.Sprint(want) {
				t.Fatalf("%s of %s is %v %+v, and %v %+v by CEL", v.Form.Filter.Text, object, in, row, wantIn, want)
			}
		}
	}
	if quick < 11 {
		t.Errorf("only %d filters have a quick form", quick)
	}
}
