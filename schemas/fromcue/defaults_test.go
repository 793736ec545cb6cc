package fromcue_test

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestDefaultsThatDataContradicts uses fields that refer to fields with a default. CUE accepts data that
// contradicts the default, as long as the default is not written out.
func TestDefaultsThatDataContradicts(t *testing.T) {
	for _, test := range []struct{ schema, spec, want string }{
		{`a: *1 | int, b: a`, `{}`, `{"a": 1, "b": 1}`},
		{`a: *1 | int, b: a`, `{"a": 2}`, `{"a": 2, "b": 2}`},
		{`a: *1 | int, b: a`, `{"a": 2, "b": 3}`, ""},
		{`a: *1 | int, b: a`, `{"a": 1, "b": 2}`, ""},
		{`r: {d: _ | *5}, l: r, c: *5 | int`, `{"l": {"d": 7}}`, `{"l": {"d": 7}, "c": 5}`},
		{`r: {d: _ | *5}, l: r`, `{"l": {"d": 7}}`, `{"l": {"d": 7}}`},
		{`u: [string]: {r?: #p, l?: #p, a?: [...string]}, v: *"v1" | string, u: main: {r: {path: "/", d: _ | *3}, l: r, a: ["x", "\(v)"]}`, `{"u": {"main": {"l": {"d": 5}}}}`,
			`{"v": "v1", "u": {"main": {"r": {"path": "/"}, "l": {"path": "/", "d": 5}, "a": ["x", "v1"]}}}`},
		{`o: {r: {d: _ | *5, e: *1 | int}, l: r}, x: *[{y: 1}] | [...{y: int}]`, `{"o": {"l": {"d": 7}}}`, `{"o": {"r": {"e": 1}, "l": {"d": 7, "e": 1}}, "x": [{"y": 1}]}`},
		{`i: [...{r: {d: _ | *5, e: *1 | int}, l: r}]`, `{"i": [{"l": {"d": 7}}, {}]}`, `{"i": [{"r": {"e": 1}, "l": {"d": 7, "e": 1}}, {"r": {"d": 5, "e": 1}, "l": {"d": 5, "e": 1}}]}`},
		{`r: {d: _ | *5}, l: r`, `{"r": {"d": 6}}`, `{"r": {"d": 6}, "l": {"d": 6}}`},
		{`r: {d: _ | *5}, l: r`, `{"r": {"d": 6}, "l": {"d": 7}}`, ""},
		{`defaults: {cpu: *1 | int}, pools: [string]: defaults & {n!: int}`, `{"pools": {"a": {"n": 1, "cpu": 3}, "b": {"n": 2}}}`,
			`{"pools": {"a": {"n": 1, "cpu": 3}, "b": {"n": 2, "cpu": 1}}}`},
		{`defaults: {cpu: *1 | int}, pools: [string]: defaults & {n!: int}`, `{"pools": {"a": {"n": 1}}}`,
			`{"defaults": {"cpu": 1}, "pools": {"a": {"n": 1, "cpu": 1}}}`},
		{`defaults: {cpu: *1 | int}, pools: [string]: defaults & {n!: int}`, `{"defaults": {"cpu": 2}, "pools": {"a": {"n": 1, "cpu": 3}}}`, ""},
	} {
		p := reloaded(t, mustCompile(t, "#p: {d?: int, path?: string}\n#schema: spec: {"+test.schema+"}"))
		object := decoded(t, `{"spec": `+test.spec+`}`)
		p.Prepare(object)
		if errs := p.Validate(object); (len(errs) == 0) != (test.want != "") {
			t.Errorf("{%s}: %s: %v", test.schema, test.spec, errs)
			continue
		}
		if test.want == "" {
			continue
		}
		if want := decoded(t, test.want); !reflect.DeepEqual(object["spec"], any(want)) {
			got, _ := json.Marshal(object["spec"])
			t.Errorf("{%s}: %s becomes %s, want %s", test.schema, test.spec, got, test.want)
		}
		if _, changed := p.Prepare(object); changed {
			t.Errorf("{%s}: %s changes again", test.schema, test.spec)
		}
	}
}

// TestConditionsOnFieldsThatAreThere uses conditions with several tests.
func TestConditionsOnFieldsThatAreThere(t *testing.T) {
	for _, test := range []struct {
		when  string
		left  bool // left to CUE
		needs []string
		lets  []string
	}{
		{`a != _|_ && b != _|_`, false, []string{`{"a": "x", "b": "y"}`}, []string{`{}`, `{"a": "x"}`, `{"b": "x"}`}},
		{`a == _|_ && b == _|_`, false, []string{`{}`}, []string{`{"a": "x"}`, `{"b": "x"}`, `{"a": "x", "b": "y"}`}},
		{`a != _|_ || b != _|_`, false, []string{`{"a": "x"}`, `{"b": "x"}`}, []string{`{}`}},
		{`!(a != _|_) && b == "y"`, false, []string{`{"b": "y"}`}, []string{`{"a": "x", "b": "y"}`, `{"b": "x"}`}},
		{`a == _|_ && "\(b)" == _|_`, true, []string{`{}`}, []string{`{"a": "x"}`, `{"b": "x"}`}},
	} {
		n := mustCompile(t, `#schema: spec: {a?: string, b?: string, if `+test.when+` {c!: int}}`)
		if left := len(n.Fallbacks()) > 0; left != test.left {
			t.Errorf("%s: left to CUE: %t", test.when, left)
		}
		p := reloaded(t, n)
		for _, spec := range test.needs {
			if len(p.Validate(decoded(t, `{"spec": `+spec+`}`))) == 0 {
				t.Errorf("%s: %s is accepted", test.when, spec)
			}
		}
		for _, spec := range test.lets {
			if errs := p.Validate(decoded(t, `{"spec": `+spec+`}`)); len(errs) > 0 {
				t.Errorf("%s: %s: %v", test.when, spec, errs)
			}
		}
	}
}

// TestNamesInQuotesInRecursion uses definitions that CUE cannot write out with resolved references.
func TestNamesInQuotesInRecursion(t *testing.T) {
	for _, schema := range []string{
		"#schema: spec: {event?: #.\"x-ev\"}\n#: {\"x-ev\": {a!: string, b: a, k?: #.\"x-ev\"}}",
		"#schema: spec: {(#T.\"x-y\"), a!: string, b: a}\n#T: {\"x-y\": {c?: int, d?: #T.\"x-y\"}}",
	} {
		if _, diags := compileText(t, schema); diags != nil && diags[0].Pos.IsZero() {
			t.Errorf("refused without a line: %v", diags)
		}
	}
	p := reloaded(t, mustCompile(t, "#schema: spec: {event?: #.\"x-ev\"}\n#: {\"x-ev\": {a!: string, b: a, k?: #.\"x-ev\"}}"))
	if errs := p.Validate(decoded(t, `{"spec": {"event": {"a": "x", "b": "x", "k": {"a": "y", "b": "y"}}}}`)); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := p.Validate(decoded(t, `{"spec": {"event": {"a": "x", "b": "x", "k": {"a": "y", "b": "z"}}}}`)); len(errs) == 0 {
		t.Error("what contradicts itself is accepted")
	}
}

// TestWhatIsComputedFromData uses expressions whose operands CUE does not return.
func TestWhatIsComputedFromData(t *testing.T) {
	p := reloaded(t, mustCompile(t, `
import "strings"
#schema: spec: {
	id: int
	let p = strings.Split("\(id)", "")
	let r = p[len(p)-2] + p[len(p)-1]
	ref: *"refs/\(r)/\(id)" | string
}`))
	object := decoded(t, `{"spec": {"id": 1234}}`)
	p.Prepare(object)
	if errs := p.Validate(object); len(errs) > 0 {
		t.Fatal(errs)
	}
	if got := object["spec"].(map[string]any)["ref"]; got != "refs/34/1234" {
		t.Errorf("ref is %v", got)
	}
}
