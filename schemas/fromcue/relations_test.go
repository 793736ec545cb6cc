package fromcue_test

import (
	"os"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// A relation is a schema with alternatives, or with parts of an object that depend on each other.
type relation struct {
	name   string
	decls  string
	top    string // before the struct of spec
	spec   string
	left   string
	accept []string
	refuse []string
}

// relations are schemas of spec with values that must be accepted and values that must be rejected. CUE
// must give the same verdicts and complete accepted values alike. left are the paths that only CUE
// evaluates.
var relations = []relation{
	{
		name:   "a union told apart by a constant",
		spec:   `u!: {t: "a", x: int} | {t: "b", y: *3 | int}`,
		accept: []string{`{"u": {"t": "a", "x": 1}}`, `{"u": {"t": "b"}}`, `{"u": {"t": "b", "y": 5}}`, `{"u": {"x": 1}}`},
		refuse: []string{`{"u": {"t": "a"}}`, `{"u": {"t": "c"}}`, `{"u": {"t": "a", "x": 1, "y": 2}}`, `{"u": {}}`, `{}`, `{"u": null}`, `{"u": {"t": 1}}`},
	},
	{
		name: "a union of definitions", decls: "#A: {t!: \"a\", x?: int}\n#B: {t!: \"b\" | \"c\", y?: string}",
		spec:   `u?: #A | #B`,
		accept: []string{`{}`, `{"u": {"t": "a"}}`, `{"u": {"t": "c", "y": "z"}}`},
		refuse: []string{`{"u": {"t": "a", "y": "z"}}`, `{"u": {"x": 1}}`, `{"u": {"t": "d"}}`},
	},
	{
		name: "a union told apart by what is there", decls: "#Secret: {secret!: {name!: string}}\n#Env: {env!: string}",
		spec:   `from!: #Secret | #Env`,
		accept: []string{`{"from": {"secret": {"name": "x"}}}`, `{"from": {"env": "X"}}`},
		refuse: []string{`{"from": {}}`, `{"from": {"secret": {"name": "x"}, "env": "X"}}`, `{"from": {"secret": {}}}`, `{"from": {"env": 1}}`},
	},
	{
		name:   "a union in which one part is common",
		spec:   `u!: {name: string, {t: "a", x: int} | {t: "b", y?: int}}`,
		accept: []string{`{"u": {"name": "n", "t": "a", "x": 1}}`, `{"u": {"name": "n", "t": "b"}}`},
		refuse: []string{`{"u": {"t": "b"}}`, `{"u": {"name": "n", "t": "b", "x": 1}}`},
	},
	{
		name: "a nullable union", spec: `u: null | {t: "a"} | {t: "b", n?: int}`,
		accept: []string{`{"u": null}`, `{"u": {"t": "b", "n": 1}}`},
		refuse: []string{`{"u": {"t": "a", "n": 1}}`, `{}`},
	},
	{
		name: "unions in unions", decls: "#X: {x: 1} | {x: 2, z?: int}",
		spec:   `u!: {t: "a", v: #X} | {t: "b", v: [...#X]}`,
		accept: []string{`{"u": {"t": "a", "v": {"x": 2, "z": 1}}}`, `{"u": {"t": "b", "v": [{"x": 1}, {"x": 2}]}}`},
		refuse: []string{`{"u": {"t": "a", "v": {"x": 1, "z": 1}}}`, `{"u": {"t": "b", "v": [{"x": 3}]}}`},
	},
	{
		name:   "alternatives that come to the same",
		spec:   `u!: {a: int, c: *1 | int} | {a: int, c: *2 | int}`,
		accept: []string{`{"u": {"a": 1, "c": 1}}`},
		refuse: []string{`{"u": {"a": 1}}`, `{"u": {"c": 1}}`},
	},
	{
		name: "a bound that is another field", spec: "min: int\nmax: int & >min",
		accept: []string{`{"min": 1, "max": 2}`},
		refuse: []string{`{"min": 1, "max": 1}`, `{"max": 1}`, `{"min": 1}`, `{"min": 1, "max": "x"}`},
	},
	{
		name: "a bound on an optional field", spec: "min: *1 | int\nmax?: number & >=min & <=100",
		accept: []string{`{}`, `{"max": 1}`, `{"max": 1.5}`, `{"min": 5, "max": 5}`},
		refuse: []string{`{"max": 0}`, `{"max": 0.5}`, `{"min": 5, "max": 4}`, `{"max": 101}`},
	},
	{
		name: "a bound that is an optional field", spec: "min?: int\nmax?: int & >min",
		accept: []string{`{}`, `{"min": 1}`, `{"min": 1, "max": 2}`},
		refuse: []string{`{"max": 2}`, `{"min": 2, "max": 2}`},
	},
	{
		name: "another value than that of another field", spec: "a!: int\nb!: int & !=a",
		accept: []string{`{"a": 1, "b": 2}`}, refuse: []string{`{"a": 1, "b": 1}`},
	},
	{
		name:   "a field that a constant brings",
		spec:   "kind: *\"a\" | \"b\"\nif kind == \"a\" {z: string}\nif kind == \"b\" {y?: int}",
		accept: []string{`{"z": "s"}`, `{"kind": "b"}`, `{"kind": "b", "y": 1}`},
		refuse: []string{`{}`, `{"kind": "b", "z": "s"}`, `{"kind": "a", "z": "s", "y": 1}`, `{"kind": "c"}`},
	},
	{
		name:   "a field that another one brings",
		spec:   "tls?: {cert!: string}\nif tls != _|_ {port: *443 | int}\nif tls == _|_ {port: *80 | int}",
		accept: []string{`{}`, `{"tls": {"cert": "c"}}`, `{"tls": {"cert": "c"}, "port": 8443}`},
		refuse: []string{`{"port": "x"}`, `{"tls": {}}`},
	},
	{
		name: "a field that becomes required", spec: "on: *false | bool\nsize?: int & >0\nif on {size!: _}",
		accept: []string{`{}`, `{"size": 1}`, `{"on": true, "size": 1}`},
		refuse: []string{`{"on": true}`, `{"on": true, "size": 0}`, `{"size": 0}`},
	},
	{
		name: "a condition on an optional field", spec: "k?: \"a\" | \"b\"\nif k != _|_ if k == \"a\" {z!: string}",
		accept: []string{`{}`, `{"k": "b"}`, `{"k": "a", "z": "s"}`},
		refuse: []string{`{"k": "a"}`, `{"z": "s"}`},
	},
	{
		name: "a condition that needs a field which may be missing", spec: "k?: \"a\" | \"b\"\nif k == \"a\" {z!: string}",
		accept: []string{`{"k": "b"}`, `{"k": "a", "z": "s"}`},
		refuse: []string{`{}`, `{"k": "a"}`},
	},
	{
		name: "a condition on a number", spec: "replicas: *1 | int & >=0\nif replicas > 1 && replicas < 10 {spread: *\"zone\" | string}",
		accept: []string{`{}`, `{"replicas": 3}`, `{"replicas": 3, "spread": "host"}`, `{"replicas": 20}`},
		refuse: []string{`{"spread": "zone"}`, `{"replicas": 3, "spread": 1}`, `{"replicas": -1}`},
	},
	{
		name: "a condition with a pattern", spec: "host!: string\nif host =~ \"^https\" {ca?: string}\nif !(host =~ \"^https\") || host == \"x\" {plain?: true}",
		accept: []string{`{"host": "https://x", "ca": "c"}`, `{"host": "http", "plain": true}`},
		refuse: []string{`{"host": "http", "ca": "c"}`, `{"host": "https", "plain": true}`},
	},
	{
		name: "a condition in a definition that is embedded", decls: "#base: {\na?: int\nif a != _|_ {b: string}\n}",
		spec:   "#base\nc: int",
		accept: []string{`{"c": 1}`, `{"c": 1, "a": 1, "b": "x"}`},
		refuse: []string{`{"c": 1, "a": 1}`, `{"c": 1, "b": "x"}`, `{}`},
	},
	{
		name: "a tuple", spec: `a!: [string, int, ...bool]`,
		accept: []string{`{"a": ["x", 1]}`, `{"a": ["x", 1, true]}`},
		refuse: []string{`{"a": []}`, `{"a": [1, 1]}`, `{"a": ["x", 1, 2]}`},
	},
	{
		name: "lists of different things", left: "spec.a", spec: `a!: [...int] | [...string]`,
		accept: []string{`{"a": [1, 2]}`, `{"a": ["x"]}`}, refuse: []string{`{"a": [1, "x"]}`, `{"a": 1}`},
	},
	{
		name: "matchN over types", spec: "a!: matchN(1, [string, [...string]])\nb?: matchN(>=1, [int, string]) & (int | =~\"^[0-9]+%$\")\nc?: matchN(>0, [int & >=0 & <=10, \"auto\"])\nd?: [string]: matchN(1, [string, number, bool])",
		accept: []string{`{"a": "x"}`, `{"a": [], "b": 1, "c": "auto", "d": {"x": true, "y": 1.5}}`, `{"a": ["x"], "b": "5%", "c": 10}`},
		refuse: []string{`{}`, `{"a": 1}`, `{"a": [1]}`, `{"a": "x", "b": "5"}`, `{"a": "x", "c": 11}`, `{"a": "x", "c": "x"}`, `{"a": "x", "d": {"x": null}}`},
	},
	{
		name: "matchN over types that overlap", left: "spec.a spec.b", spec: "a!: matchN(1, [int, number])\nb?: matchN(<=1, [int, string])",
		accept: []string{`{"a": 1.5}`, `{"a": 1.5, "b": true}`}, refuse: []string{`{"a": 1}`, `{"a": "x"}`},
	},
	{
		name: "if several fields are there", spec: "a?: int\nb?: int\nif a != _|_ && b != _|_ {c: *1 | int}\nif a != _|_ || b != _|_ {d?: int}",
		accept: []string{`{}`, `{"a": 1}`, `{"a": 1, "b": 2}`, `{"a": 1, "b": 2, "c": 3}`, `{"b": 1, "d": 2}`}, refuse: []string{`{"c": 1}`, `{"a": 1, "c": 1}`, `{"d": 1}`},
	},
	{
		name: "what an error says", spec: "level!: \"debug\" | \"info\" | error(\"level is debug or info\")\nport?: (int & >0) | error(\"port is above 0\")",
		accept: []string{`{"level": "info"}`, `{"level": "debug", "port": 1}`}, refuse: []string{`{"level": "x"}`, `{}`, `{"level": "info", "port": 0}`, `{"level": "info", "port": "x"}`},
	},
	{
		name: "matchN", left: "spec.a", spec: `a!: matchN(1, [{x!: int}, {y!: int}])`,
		accept: []string{`{"a": {"x": 1}}`}, refuse: []string{`{"a": {"x": "s"}}`},
	},
	{
		name: "a comprehension over a list", left: "spec", decls: "#P: {name!: string, port: int}",
		spec:   "ports: [...#P]\n_names: [for p in ports {p.name}]\nnames: list.UniqueItems & _names",
		accept: []string{`{"ports": []}`, `{"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}`},
		refuse: []string{`{"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}`, `{"ports": [{"port": 1}]}`},
	},
	{
		name: "what is computed from other fields", left: "spec", spec: "cpus: int & >0\nmemory: *(cpus * 2) | int",
		accept: []string{`{"cpus": 2}`, `{"cpus": 2, "memory": 1}`}, refuse: []string{`{}`, `{"cpus": 0}`, `{"cpus": 1, "memory": "x"}`},
	},
	{
		name: "what is computed from fields that are deep", left: "spec.a", spec: "a: {b: {n: int}, c: [...{m: <b.n}]}\nother?: int & >0",
		accept: []string{`{"a": {"b": {"n": 2}, "c": [{"m": 1}]}}`},
		refuse: []string{`{"a": {"b": {"n": 2}, "c": [{"m": 1}, {"m": 2}]}}`, `{"a": {"b": {"n": 2}}, "other": 0}`},
	},
	{
		name: "each item by itself", left: "spec.items[]", spec: `items: [...{lo: int, hi: lo + 1}]`,
		accept: []string{`{"items": []}`, `{"items": [{"lo": 1}, {"lo": 2, "hi": 3}]}`},
		refuse: []string{`{"items": [{"lo": 1, "hi": 3}]}`},
	},
	{
		name: "each value by itself", spec: `m: [string]: {n: int, text?: "\(n)"}`,
		accept: []string{`{"m": {"a": {"n": 1, "text": "1"}}}`}, refuse: []string{`{"m": {"a": {"n": 1, "text": "2"}}}`},
	},
	{
		name: "let", left: "spec", spec: "let n = size\nsize: int\nhalf: <n",
		accept: []string{`{"size": 2, "half": 1}`}, refuse: []string{`{"size": 2, "half": 2}`},
	},
	{
		name: "a recursive definition", left: "spec.tree", decls: `#tree: {value!: int, child?: #tree}`, spec: `tree?: #tree`,
		accept: []string{`{"tree": {"value": 1, "child": {"value": 2, "child": {"value": 3, "child": {"value": 4}}}}}`},
		refuse: []string{`{"tree": {"value": 1, "child": {"value": 2, "child": {"value": 3, "child": {"value": "x"}}}}}`},
	},
}

func TestRelations(t *testing.T) {
	for _, test := range append(relations, references...) {
		t.Run(test.name, func(t *testing.T) {
			text := "import (\n\t\"list\"\n\t\"strings\"\n)\n_use: [list.MinItems(0), strings.MinRunes(0)]\n" +
				test.decls + "\n#schema: spec!: " + test.top + "{\n" + test.spec + "\n}\n"
			ctx := cuecontext.New()
			schema := ctx.CompileString(text, cue.Filename("schema.cue")).LookupPath(cue.ParsePath("#schema"))
			node, diags := fromcue.Schema(schema, locateIn("schema.cue"))
			if diags != nil {
				t.Fatalf("refused: %v\n%s", diags, text)
			}
			var left []string
			for _, f := range node.Fallbacks() {
				left = append(left, f.Path)
			}
			if got := strings.Join(left, " "); got != test.left {
				t.Errorf("left to CUE: %q, want %q", got, test.left)
				for _, f := range node.Fallbacks() {
					t.Logf("%s: %s", f.Path, f.Reason)
				}
			}
			judge := judgeOf(t, node, ctx, schema, func(v any) map[string]any { return map[string]any{"spec": v} })
			for _, value := range test.accept {
				judge(value, true)
			}
			for _, value := range test.refuse {
				judge(value, false)
			}
		})
	}
}

// judgeOf returns a function that validates a value with a program and with CUE. It fails the test if
// they disagree or if the verdict is not the expected one.
func judgeOf(t *testing.T, node *schemas.Node, ctx *cue.Context, schema cue.Value, with func(any) map[string]any) func(value string, want bool) {
	program := reloaded(t, node)
	return func(value string, want bool) {
		t.Helper()
		v, err := jsonvalue.Decode([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		object := with(v)
		if problem := compare(program, ctx, schema, object); problem != "" {
			t.Errorf("%s: %s", value, problem)
		}
		if errs := program.Validate(object); (len(errs) == 0) != want {
			t.Errorf("%s: accepted %t, want %t: %v", value, !want, want, errs)
		}
	}
}

// The example of docs/POLICY.md needs no fallback.
func TestTheExampleOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/POLICY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n#Backup:")
	example, _, found := strings.Cut(rest, "\n```")
	if !found {
		t.Fatal("the page has no such example")
	}
	n := mustCompile(t, "import (\n\t\"net\"\n\t\"strings\"\n)\n#Backup:"+example)
	if left := n.Fallbacks(); len(left) > 0 {
		t.Errorf("%s is left to CUE: %s", left[0].Path, left[0].Reason)
	}
	p, err := program.New(n)
	if err != nil {
		t.Fatal(err)
	}
	object := decoded(t, `{"spec": {"size": "large", "backup": {"type": "s3", "bucket": "b"}, "engine": "e", "users": [], "minimum": 1, "maximum": 2}}`)
	p.Prepare(object)
	if errs := p.Validate(object); errs != nil {
		t.Error(errs)
	}
	spec := object["spec"].(map[string]any)
	if spec["zone"] != "a" || spec["backup"].(map[string]any)["keep"] != int64(7) || spec["replicas"] != int64(1) {
		t.Errorf("it becomes %v", spec)
	}
	for _, bad := range []string{
		`{"size": "small", "backup": {"type": "s3"}, "engine": "e", "users": []}`,
		`{"size": "small", "zone": "a", "backup": {"type": "none"}, "engine": "e", "users": []}`,
		`{"size": "small", "backup": {"type": "none"}, "engine": "e", "users": [], "minimum": 2, "maximum": 1}`,
		`{"size": "small", "backup": {"type": "none"}, "engine": "e", "users": [{"name": "a", "roles": []}, {"name": "a", "roles": []}]}`,
	} {
		if object := decoded(t, `{"spec": `+bad+`}`); p.Validate(object) == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// A field of a condition that does not hold is an unknown field.
func TestFieldsOfOtherConditionsArePruned(t *testing.T) {
	p, err := program.New(mustCompile(t, "#schema: spec: {on: *false | bool\nif on {days: *30 | int}\nif !on {why?: string}}"))
	if err != nil {
		t.Fatal(err)
	}
	object := decoded(t, `{"spec": {"on": true}}`)
	p.Prepare(object)
	spec := object["spec"].(map[string]any)
	if spec["days"] != int64(30) {
		t.Fatal(spec)
	}
	spec["on"] = false
	if unknown, changed := p.Prepare(object); !changed || len(unknown) != 1 || unknown[0] != "spec.days" {
		t.Errorf("pruned %v", unknown)
	}
	if errs := p.Validate(object); errs != nil {
		t.Error(errs)
	}
}
