package fromcue_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// A wrapper puts a schema inside another schema, and its object inside an object.
type wrapper struct {
	name   string
	schema string // %s is the inner schema
	object func(x any) any
}

func inField(name string, more ...any) func(any) any {
	return func(x any) any {
		m := map[string]any{name: x}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return m
	}
}

func asItem(x any) any { return []any{x} }

func asIs(x any) any { return x }

// wrappers are constructs that may surround a schema. Some are left to CUE entirely.
var wrappers = []wrapper{
	{"field", `{f?: %s}`, inField("f")},
	{"required field", `{f!: %s}`, inField("f")},
	{"list", `[...%s]`, asItem},
	{"map", `{[string]: %s}`, inField("k")},
	{"pattern", `{[=~"^a"]: %s, b?: int}`, inField("ak")},
	{"null", `null | %s`, asIs},
	{"close", `close({f?: %s})`, inField("f")},
	{"tuple", `[%s, string]`, func(x any) any { return []any{x, "s"} }},
	{"open tuple", `[int, ...%s]`, func(x any) any { return []any{int64(1), x} }},
	{"error", `(%s) | error("bad")`, asIs},
	{"alternatives", `{kind!: "a", f?: %s} | {kind!: "b"}`, inField("f", "kind", "a")},
	{"other of a kind", `(%s) | {kind!: "b"} | {kind!: "c"}`, asIs},
	{"number or this", `int | %s`, asIs},
	{"matchN in it", `{f?: %s, z?: int, matchN(1, [{y!: int}, {z!: int}])}`, inField("f", "z", int64(1))},
	{"matchN of fields", `{f?: %s, matchN(1, [{f!: _}, {z!: int}]), z?: int}`, inField("f")},
	{"matchN of it", `matchN(1, [%s, {z!: int}])`, asIs},
	{"MinFields", `{f?: %s} & struct.MinFields(1)`, inField("f")},
	{"MinFields in it", `{struct.MinFields(1), f?: %s}`, inField("f")},
	{"MinItems", `[...%s] & list.MinItems(1)`, asItem},
	{"MatchN of items", `[...] & list.MatchN(>0, %s)`, asItem},
	{"condition", `{on: *true | bool, if on {f?: %s}}`, inField("f", "on", true)},
	{"comprehension", `{y: *1 | int, if y*2 > 0 {f?: %s}}`, inField("f", "y", int64(1))},
	{"comprehension beside", `{y: *1 | int, f?: %s, if y*2 > 7 {f!: _}}`, inField("f", "y", int64(1))},
	{"loop", `{for k in ["a", "b"] {(k)?: %s}}`, inField("a")},
	{"interpolation beside", `{a?: string, b?: "\(a)-x", f?: %s}`, inField("f")},
	{"let", `{let L = %s, f?: L}`, inField("f")},
	{"hidden", `{_h: %s, f?: _h}`, inField("f")},
	{"definition inside", `{#H: %s, f?: #H}`, inField("f")},
	{"or", `or([%s, {z!: int}])`, asIs},
	{"and", `and([%s, _])`, asIs},
	{"fields that depend", `{f?: %s, min: int, max: int & >min}`, inField("f", "min", int64(1), "max", int64(2))},
	{"loop over data", `{l?: [...{name!: string, f?: %s}], names: [for x in l {x.name}]}`, func(x any) any {
		return map[string]any{"l": []any{map[string]any{"name": "n", "f": x}}, "names": []any{"n"}}
	}},
}

// defined are wrappers that need a declaration: %[1]s is a fresh name.
var defined = []wrapper{
	{"reference", "#%[1]s: %[2]s\n", asIs},
	{"selection", "#%[1]s: {c: %[2]s}\n", asIs},
	{"selection of a name in quotes", "#%[1]s: {\"c-d\"?: %[2]s}\n", asIs},
	{"recursion", "#%[1]s: {f?: %[2]s, kid?: #%[1]s}\n", inField("f")},
	{"reference in a comprehension", "#%[1]s: {f?: %[2]s}\n", inField("f", "y", int64(1))},
}

var uses = map[string]string{
	"selection": "#%s.c", "selection of a name in quotes": `#%s."c-d"`,
	"reference in a comprehension": "{y: *1 | int, if y*2 > 0 {#%s}}",
}

// wrapped returns a schema with some wrappers around a field, and a function that wraps the field's
// values.
func wrapped(seed uint64, field string) (text string, names []string, object func(any) map[string]any) {
	g := rand.New(rand.NewPCG(seed, 17))
	inner, declared := "{"+field+"}", ""
	around := []func(any) any{inField("p")}
	for i := range 1 + g.IntN(4) {
		if g.IntN(4) == 0 {
			w := defined[g.IntN(len(defined))]
			name := fmt.Sprintf("D%d", i)
			declared += fmt.Sprintf(w.schema, name, inner)
			use, ok := uses[w.name]
			if !ok {
				use = "#%s"
			}
			inner = fmt.Sprintf(use, name)
			names, around = append(names, w.name), append(around, w.object)
			continue
		}
		w := wrappers[g.IntN(len(wrappers))]
		if strings.Contains(inner, " | ") && !strings.HasPrefix(inner, "{") {
			inner = "(" + inner + ")"
		}
		inner = fmt.Sprintf(w.schema, inner)
		names, around = append(names, w.name), append(around, w.object)
	}
	imports := ""
	for _, name := range []string{"struct", "list"} {
		if strings.Contains(declared+inner, name+".") {
			imports += "import \"" + name + "\"\n"
		}
	}
	return imports + declared + "#schema: spec?: " + inner + "\n", names, func(x any) map[string]any {
		for _, wrap := range around {
			x = wrap(x)
		}
		return map[string]any{"spec": x}
	}
}

// attributed are fields with an attribute, and the effect that it must have.
var attributed = []struct {
	name, field string
	holds       func(p *program.Program, object func(any) map[string]any) string
}{
	{"sensitive", `p!: =~"^s" @stele(sensitive)`, func(p *program.Program, object func(any) map[string]any) string {
		if !p.Sensitive() {
			return "the kind is not one with secrets"
		}
		for _, x := range []any{"hunter2", int64(74_185_296), []any{"hunter2"}} {
			if said := p.Validate(object(x)).ToAggregate(); said == nil || strings.Contains(said.Error(), "hunter2") || strings.Contains(said.Error(), "74185296") {
				return fmt.Sprintf("a secret that is wrong: %v", said)
			}
		}
		return ""
	}},
	{"immutable", `p!: string @k8s(immutable)`, func(p *program.Program, object func(any) map[string]any) string {
		said := p.ValidateUpdate(object("b"), object("a")).ToAggregate()
		if said == nil || !strings.Contains(said.Error(), "field is immutable") {
			return fmt.Sprintf("an update: %v", said)
		}
		return ""
	}},
	{"list of type map", `p!: [...{n!: string, v?: int}] @k8s(listType=map,listMapKeys=n)`, refusesItems(`{"n":"a","v":1}`, `{"n":"a","v":2}`)},
	{"list of type set", `p!: [...string] @k8s(listType=set)`, refusesItems(`"a"`, `"a"`)},
	{"format", `p!: string @k8s(format=ipv4)`, func(p *program.Program, object func(any) map[string]any) string {
		if len(p.Validate(object("somewhere"))) == 0 {
			return "a string of another format is accepted"
		}
		return ""
	}},
}

func refusesItems(items ...string) func(*program.Program, func(any) map[string]any) string {
	return func(p *program.Program, object func(any) map[string]any) string {
		x, err := jsonvalue.Decode([]byte("[" + strings.Join(items, ",") + "]"))
		if err != nil {
			return err.Error()
		}
		if len(p.Validate(object(x))) == 0 {
			return "items that must differ are the same"
		}
		return ""
	}
}

// valid are valid values of the fields.
var valid = map[string]any{"sensitive": "s", "immutable": "a", "list of type map": []any{}, "list of type set": []any{}, "format": "10.0.0.1"}

// TestAttributesAreNeverLost puts a field with an attribute into random schemas. Either the attribute
// has its effect, or the schema is rejected.
func TestAttributesAreNeverLost(t *testing.T) {
	rounds := uint64(60)
	if testing.Short() {
		rounds = 10
	}
	compiled, refused := map[string]int{}, map[string]int{}
	for i, a := range attributed {
		for seed := range rounds {
			text, names, object := wrapped(seed*uint64(len(attributed))+uint64(i), a.field)
			node, diags := tryText(text)
			switch {
			case diags != nil:
				refused[a.name]++
				continue
			case node == nil:
				continue // CUE rejects it
			}
			p := reloaded(t, node)
			if len(p.Validate(object(valid[a.name]))) > 0 {
				continue // a wrapper contradicts it
			}
			compiled[a.name]++
			if how := a.holds(p, object); how != "" {
				t.Errorf("%s in %s is lost: %s\n%s", a.name, strings.Join(names, " in "), how, text)
			}
		}
	}
	t.Logf("held %v, refused %v", compiled, refused)
	for _, a := range attributed {
		if compiled[a.name]*5 < int(rounds) {
			t.Errorf("%s: only %d of %d schemas are compiled", a.name, compiled[a.name], rounds)
		}
	}
}

// TestAttributesThatWouldBeLostAreRefused checks that the error names the line of the attribute.
func TestAttributesThatWouldBeLostAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		schema string
		line   int
		says   string
	}{
		"a type of list in an argument of matchN": {
			"#B: {p!: string @stele(sensitive),\n l?: [...{n!: string}] @k8s(listType=map,listMapKeys=n)}\n#schema: spec: matchN(1, [#B, {z!: int}])",
			2, "the attribute @k8s(listType=map,listMapKeys=n) would be lost: only CUE itself can check this part of the schema (the builtin matchN)",
		},
		"a format of some items": {
			"import \"list\"\n#schema: spec: t: [...] & list.MatchN(<=1, {\n p!: string @k8s(format=ipv4)})",
			3, "the attribute @k8s(format=ipv4) would be lost: only CUE itself can check this part of the schema (the builtin list.MatchN)",
		},
		"a format in a union of lists": {
			"#schema: spec: t: [...{\n p!: string @k8s(format=ipv4)}] | [...string]",
			2, "the attribute @k8s(format=ipv4) would be lost: only CUE itself can check this part of the schema (a union of lists)",
		},
		"what is immutable in a tuple": {
			"#schema: spec: t: [{\n p!: string @k8s(immutable)}, string]",
			2, "the attribute @k8s(immutable) in the items of a list of which it cannot be told which item is which",
		},
		"a format in a comprehension over a definition": {
			"#M: a: {\n p!: string @k8s(format=ipv4)}\n#schema: spec: {for k, v in #M {(k)?: v}}",
			2, "the attribute @k8s(format=ipv4) would be lost: ",
		},
		"what is immutable at any depth": {
			"#Tree: {\n p?: string @k8s(immutable)\n kid?: #Tree}\n#schema: spec: #Tree",
			2, "the attribute @k8s(immutable) would be lost: ",
		},
		"what is immutable in a list without keys": {
			"#schema: spec: l: [...{\n p?: string @k8s(immutable)}]",
			2, "the attribute @k8s(immutable) in the items of a list of which it cannot be told which item is which",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, diags := compileText(t, test.schema)
			if len(diags) == 0 {
				t.Fatal("accepted")
			}
			if d := diags[0]; d.Pos.Line != test.line || !strings.HasPrefix(d.Message, test.says) {
				t.Errorf("%v", diags)
			}
		})
	}
}

// TestSecretsAreKeptInWhatCUEChecks uses schemas written by users.
func TestSecretsAreKeptInWhatCUEChecks(t *testing.T) {
	for name, test := range map[string]struct{ schema, spec string }{
		"matchN beside":         {`#schema: spec: {p!: string @stele(sensitive), matchN(1, [{p!: =~"^s"}, {z!: int}]), z?: int}`, `{"p": "hunter2"}`},
		"matchN of definitions": {"#B: p!: =~\"^s\" @stele(sensitive)\n#schema: spec: matchN(1, [#B, {z!: int}])", `{"p": "hunter2"}`},
		"matchN and a union":    {`#schema: spec: {p!: (string | {x!: int}) @stele(sensitive), matchN(1, [{z!: int}])}`, `{"p": {"x": "hunter2"}}`},
		"a tuple":               {`#schema: spec: t: [{p!: =~"^s" @stele(sensitive)}, string]`, `{"t": [{"p": "hunter2"}, "x"]}`},
		"an error":              {`#schema: spec: {p!: =~"^s" @stele(sensitive)} | error("bad")`, `{"p": "hunter2"}`},
		"a recursive definition": {"#Tree: {p?: =~\"^s\" @stele(sensitive), kid?: #Tree}\n#schema: spec: #Tree",
			`{"kid": {"kid": {"kid": {"kid": {"p": "hunter2"}}}}}`},
		"a field that another one is": {`#schema: spec: {p: =~"^s" @stele(sensitive), b: p, n: *1 | int, m: n + 1}`, `{"p": "s", "b": "hunter2"}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := reloaded(t, mustCompile(t, test.schema))
			if !p.Sensitive() {
				t.Error("the kind is not one with secrets")
			}
			errs := p.Validate(decoded(t, `{"spec": `+test.spec+`}`))
			if len(errs) == 0 {
				t.Fatal("accepted")
			}
			if text := errs.ToAggregate().Error(); strings.Contains(text, "hunter2") {
				t.Error(text)
			}
		})
	}
}
