package fromcue_test

import (
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"stele.dev/stele/schemas/fromcue"
)

// constructs are supported constructs: a field, and values that it must accept and reject. CUE must give
// the same verdicts.
var constructs = []struct {
	name   string
	decls  string // next to the schema
	field  string // a field of spec
	accept []string
	refuse []string
	left   bool // CUE evaluates a part
}{
	{
		name: "a string", field: "f!: string",
		accept: []string{`""`, `"x"`}, refuse: []string{`1`, `null`, `true`, `[]`, `{}`},
	},
	{
		name: "a boolean", field: "f!: bool",
		accept: []string{`true`, `false`}, refuse: []string{`"true"`, `0`, `null`},
	},
	{
		name: "an integer", field: "f!: int",
		accept: []string{`0`, `-5`, `9223372036854775807`}, refuse: []string{`1.5`, `"1"`, `null`},
	},
	{
		name: "a number", field: "f!: number",
		accept: []string{`0`, `1.5`, `-1.25`}, refuse: []string{`"1"`},
	},
	{
		name: "null", field: "f!: null",
		accept: []string{`null`}, refuse: []string{`0`, `""`},
	},
	{
		name: "anything", field: "f!: _",
		accept: []string{`null`, `1`, `{"a": [1, {"b": 2}]}`},
	},
	{
		name: "a constant string", field: `f!: "x"`,
		accept: []string{`"x"`}, refuse: []string{`"y"`, `1`},
	},
	{
		name: "a constant number", field: `f!: 1.5`,
		accept: []string{`1.5`}, refuse: []string{`1`, `"1.5"`},
	},
	{
		name: "a constant boolean", field: `f!: true`,
		accept: []string{`true`}, refuse: []string{`false`},
	},
	{
		name: "an enumeration", field: `f!: "a" | "b" | 3 | null`,
		accept: []string{`"a"`, `"b"`, `3`, `null`}, refuse: []string{`"c"`, `4`, `true`},
	},
	{
		name: "an enumeration by reference", decls: `#color: "red" | #cold
#cold: "blue" | "cyan"`,
		field:  `f!: #color`,
		accept: []string{`"red"`, `"blue"`}, refuse: []string{`"green"`},
	},
	{
		name: "an intersection of enumerations", field: `f!: ("a" | "b") & ("b" | "c")`,
		accept: []string{`"b"`}, refuse: []string{`"a"`, `"c"`},
	},
	{
		name: "or of a list", decls: `#all: ["a", "b"]`, field: `f!: or(#all)`,
		accept: []string{`"a"`, `"b"`}, refuse: []string{`"c"`},
	},
	{
		name: "or of the keys of a struct", decls: `#all: {a: 1, b: 2}`, field: `f!: or([for k, _ in #all {k}])`,
		accept: []string{`"a"`, `"b"`}, refuse: []string{`"c"`, `1`},
	},
	{
		name: "or of the values of a struct, with a default", decls: `#all: {a: "x", b: "y"}`, field: `f: or([for _, v in #all {v}]) | *"z"`,
		accept: []string{`"x"`, `"y"`, `"z"`}, refuse: []string{`"a"`},
	},
	{
		name: "or of some of a list", decls: `#all: [{n: "x", old: true}, {n: "y", old: false}]`, field: `f!: string & or([for o in #all if !o.old {o.n}])`,
		accept: []string{`"y"`}, refuse: []string{`"x"`, `"z"`},
	},
	{
		name: "constants by alias", decls: "let low = \"l\"\nhigh: \"h\"\nmore: {most: \"m\"}", field: `f: *more.most | low | high`,
		accept: []string{`"l"`, `"h"`, `"m"`}, refuse: []string{`"x"`},
	},
	{
		name: "a regular field of the package", decls: "Name: =~\"^[a-z]+$\"\nItem: {name!: Name, n?: <=top}\ntop: 9", field: `f!: [...Item]`,
		accept: []string{`[{"name": "a", "n": 9}]`}, refuse: []string{`[{"name": "A"}]`, `[{"name": "a", "n": 10}]`, `[{"name": "a", "x": 1}]`, `[{}]`},
	},
	{
		name: "close", field: `f!: close({a!: int, b?: close({c?: int})})`,
		accept: []string{`{"a": 1}`, `{"a": 1, "b": {"c": 1}}`}, refuse: []string{`{}`, `{"a": 1, "x": 1}`, `{"a": 1, "b": {"x": 1}}`},
	},
	{
		name: "close of an open struct", field: `f!: close({a!: int, ...})`,
		accept: []string{`{"a": 1, "x": 1}`}, refuse: []string{`{"x": 1}`},
	},
	{
		name: "close in an alternative and a list", decls: `#c: close({a!: int})`, field: `f!: string | [...#c]`,
		accept: []string{`"x"`, `[{"a": 1}]`}, refuse: []string{`[{"a": 1, "b": 1}]`, `[{}]`},
	},
	{
		name: "close beside definitions", field: "f!: {\n\tclose({a!: #n})\n\t#n: close({b!: int})\n}",
		accept: []string{`{"a": {"b": 1}}`}, refuse: []string{`{"a": {"b": 1, "x": 1}}`, `{}`},
	},
	{
		name: "bounds", field: `f!: int & >0 & <=10`,
		accept: []string{`1`, `10`}, refuse: []string{`0`, `11`, `5.5`},
	},
	{
		name: "bounds with fractions", field: `f!: int & >0.5 & <2.5`,
		accept: []string{`1`, `2`}, refuse: []string{`0`, `3`},
	},
	{
		name: "bounds of numbers", field: `f!: >=0.1 & <1`,
		accept: []string{`0.1`, `0.99`}, refuse: []string{`0.09`, `1`, `0`},
	},
	{
		name: "bounds from several places", decls: `#port: int & >0 & <65536`, field: `f!: #port & >=1024`,
		accept: []string{`1024`, `65535`}, refuse: []string{`1023`, `65536`},
	},
	{
		name: "bounds that are constants of the package", decls: "max: 10\n#min: 2", field: `f!: int & >=#min & <=max`,
		accept: []string{`2`, `10`}, refuse: []string{`1`, `11`},
	},
	{
		name: "sized integers", field: `f!: int32`,
		accept: []string{`2147483647`, `-2147483648`}, refuse: []string{`2147483648`, `-2147483649`},
	},
	{
		name: "unsigned integers", field: `f!: uint8`,
		accept: []string{`0`, `255`}, refuse: []string{`-1`, `256`},
	},
	{
		name: "a regular expression", field: `f!: =~"b+"`,
		accept: []string{`"abc"`, `"b"`}, refuse: []string{`"ac"`, `1`},
	},
	{
		name: "regular expressions", field: `f!: string & =~"^a" & !~"z$"`,
		accept: []string{`"a"`, `"ab"`}, refuse: []string{`"b"`, `"az"`},
	},
	{
		name: "values that are excluded", field: `f!: string & !="" & !="none"`,
		accept: []string{`"x"`}, refuse: []string{`""`, `"none"`},
	},
	{
		name: "numbers that are excluded", field: `f!: int & !=0`,
		accept: []string{`1`, `-1`}, refuse: []string{`0`},
	},
	{
		name: "lengths in code points", field: `f!: strings.MinRunes(2) & strings.MaxRunes(3)`,
		accept: []string{`"ab"`, `"日本語"`, `"🙂🙂"`}, refuse: []string{`"a"`, `"日"`, `"abcd"`, `"🙂🙂🙂🙂"`},
	},
	{
		name: "a union of kinds", field: `f!: int | string`,
		accept: []string{`1`, `"x"`}, refuse: []string{`1.5`, `null`, `true`},
	},
	{
		name: "a union of rules", field: `f!: "auto" | int & >5 | =~"%$"`,
		accept: []string{`"auto"`, `6`, `"10%"`}, refuse: []string{`"x"`, `5`},
	},
	{
		name: "a union of intervals", field: `f!: int & (<0 | >10)`,
		accept: []string{`-1`, `11`}, refuse: []string{`0`, `10`},
	},
	{
		name: "integers beside numbers", field: `f!: int | number & <0`,
		accept: []string{`5`, `-5`, `-0.5`}, refuse: []string{`0.5`},
	},
	{
		name: "a default beside the rule", field: `f: *1 | (int & >=0 & <=1000)`,
		accept: []string{`1`, `0`, `1000`}, refuse: []string{`-1`, `1001`, `"1"`},
	},
	{
		name: "a default outside the rule", field: `f: *1 | (int & >=10)`,
		accept: []string{`1`, `10`}, refuse: []string{`2`},
	},
	{
		name: "a default of another kind, which CUE's own Expr drops", field: `f?: (*1 | 2 | 3) | string & !=""`,
		accept: []string{`1`, `2`, `"x"`}, refuse: []string{`4`, `""`},
	},
	{
		name: "a boolean with a default", field: `f: bool | *true`,
		accept: []string{`true`, `false`}, refuse: []string{`1`},
	},
	{
		name: "a nullable scalar", field: `f!: null | string`,
		accept: []string{`null`, `""`}, refuse: []string{`0`},
	},
	{
		name: "a nullable struct", field: `f!: null | {a!: int}`,
		accept: []string{`null`, `{"a": 1}`}, refuse: []string{`{}`, `{"a": 1, "b": 2}`, `1`},
	},
	{
		name: "a string or a struct", field: `f!: string | {a!: int}`,
		accept: []string{`"x"`, `{"a": 1}`}, refuse: []string{`{}`, `1`},
	},
	{
		name: "a list", field: `f!: [...int]`,
		accept: []string{`[]`, `[1, 2]`}, refuse: []string{`["a"]`, `{}`, `null`},
	},
	{
		name: "a list of anything", field: `f!: [...]`,
		accept: []string{`[]`, `[1, null, {"a": 1}]`}, refuse: []string{`{}`},
	},
	{
		name: "a list with limits", field: `f!: [...string] & list.MinItems(1) & list.MaxItems(2)`,
		accept: []string{`["a"]`, `["a", "a"]`}, refuse: []string{`[]`, `["a", "b", "c"]`, `[1]`},
	},
	{
		name: "a list without duplicates", field: `f!: [...(string | int)] & list.UniqueItems()`,
		accept: []string{`["a", "b", 1]`, `["1", 1]`}, refuse: []string{`["a", "a"]`, `[1, 2, 1]`},
	},
	{
		name: "a list of structs", decls: `#port: {name!: string, port!: int & >0}`, field: `f!: [...#port] & list.MinItems(1)`,
		accept: []string{`[{"name": "a", "port": 1}]`},
		refuse: []string{`[]`, `[{"name": "a"}]`, `[{"name": "a", "port": 0}]`, `[{"name": "a", "port": 1, "x": 1}]`},
	},
	{
		name: "a list from two places", field: "f!: [...int]\n\tf!: [...<10]",
		accept: []string{`[9]`}, refuse: []string{`[10]`, `["a"]`},
	},
	{
		name: "a list of lists", field: `f!: [...[...int]]`,
		accept: []string{`[[], [1]]`}, refuse: []string{`[1]`, `[["a"]]`},
	},
	{
		name: "a list that begins with something", field: `f!: [string, ...string]`,
		accept: []string{`["a"]`, `["a", "b"]`}, refuse: []string{`[]`, `[1]`, `["a", 1]`},
	},
	{
		name: "a list that is not empty", decls: `#u: {name!: string}`, field: `f!: [_, ...] & [...#u]`,
		accept: []string{`[{"name": "a"}]`}, refuse: []string{`[]`, `[1]`, `[{"name": "a"}, {}]`, `[{"name": "a", "x": 1}]`},
	},
	{
		name: "a pair", field: `f!: [number, number]`,
		accept: []string{`[1, 2.5]`}, refuse: []string{`[1]`, `[1, 2, 3]`, `[1, "a"]`},
	},
	{
		name: "items that differ by their index", decls: `#u: {name!: string}`, field: `f!: ["sh", int, ...#u]`,
		accept: []string{`["sh", 1]`, `["sh", 1, {"name": "a"}]`}, refuse: []string{`["sh"]`, `["bash", 1]`, `["sh", "a"]`, `["sh", 1, {}]`, `["sh", 1, {"name": "a", "x": 1}]`},
	},
	{
		name: "items that differ in being open", field: `f!: [{a!: int}, {a!: int, ...}]`,
		accept: []string{`[{"a": 1}, {"a": 1, "b": 1}]`}, refuse: []string{`[{"a": 1, "b": 1}, {"a": 1}]`, `[{"a": 1}]`},
	},
	{
		name: "items with defaults by their index", field: `f!: [{a: *1 | int}, "x" | *"y", ...{b: *2 | int}]`,
		accept: []string{`[{}, "x"]`, `[{"a": 2}, "y", {}]`}, refuse: []string{`[{}]`, `[{}, "z"]`, `[{}, "x", {"b": "c"}]`},
	},
	{
		name: "a list that is its own default", field: `f: ["sh", "-c", ...string]`,
		accept: []string{`["sh", "-c"]`, `["sh", "-c", "x"]`}, refuse: []string{`[]`, `["sh"]`, `["sh", "-x"]`},
	},
	{
		name: "a list that begins with something, with a default", field: `f: [string, ...string] | *["a", "b"]`,
		accept: []string{`["a", "b"]`, `["c"]`}, refuse: []string{`[]`, `[1]`},
	},
	{
		name: "an empty list", field: `f!: []`,
		accept: []string{`[]`}, refuse: []string{`[1]`, `null`},
	},
	{
		name: "a struct", field: `f!: {a!: int, b?: string, c: *1 | int}`,
		accept: []string{`{"a": 1}`, `{"a": 1, "b": "x", "c": 2}`},
		refuse: []string{`{}`, `{"a": "1"}`, `{"a": 1, "d": 1}`, `{"a": 1, "b": null}`, `[]`},
	},
	{
		name: "an open struct", field: `f!: {a!: int, ...}`,
		accept: []string{`{"a": 1, "b": {"c": 1}}`}, refuse: []string{`{"b": 1}`},
	},
	{
		name: "any struct", field: `f!: {...}`,
		accept: []string{`{}`, `{"a": 1}`}, refuse: []string{`1`, `null`},
	},
	{
		name: "a map", field: `f!: [string]: int`,
		accept: []string{`{}`, `{"a": 1, "b c": 2}`}, refuse: []string{`{"a": "x"}`},
	},
	{
		name: "a map whose keys may be anything", field: `f!: [_]: int`,
		accept: []string{`{}`, `{"a": 1}`}, refuse: []string{`{"a": "x"}`},
	},
	{
		name: "a map with keys by pattern", field: `f!: [=~"^[a-z]+$"]: int`,
		accept: []string{`{"a": 1}`}, refuse: []string{`{"a": "x"}`, `{"A": 1}`},
	},
	{
		name: "a map of structs", field: `f!: [string]: {a!: int}`,
		accept: []string{`{"x": {"a": 1}}`}, refuse: []string{`{"x": {}}`, `{"x": {"a": 1, "b": 1}}`},
	},
	{
		name: "fields beside a pattern", field: `f!: {name!: string, [=~"^x-"]: int, "x-one"?: <5}`,
		accept: []string{`{"name": "a", "x-one": 1, "x-two": 9}`},
		refuse: []string{`{"name": "a", "x-one": 5}`, `{"name": "a", "x-two": "b"}`, `{"name": "a", "y": 1}`},
	},
	{
		name: "a definition", decls: `#d: {a!: int}`, field: `f!: #d`,
		accept: []string{`{"a": 1}`}, refuse: []string{`{}`, `{"a": 1, "b": 1}`},
	},
	{
		name: "a field of a definition", decls: `#d: {a: {b: int & >5}}`, field: `f!: #d.a.b`,
		accept: []string{`6`}, refuse: []string{`5`},
	},
	{
		name: "a hidden field", decls: `_d: {a!: int}`, field: `f!: _d`,
		accept: []string{`{"a": 1}`}, refuse: []string{`{"a": "x"}`},
	},
	{
		name: "a let", decls: `let small = <5`, field: `f!: int & small`,
		accept: []string{`4`}, refuse: []string{`5`},
	},
	{
		name: "a conjunction with a definition", decls: `#d: {a!: int, b?: string}`, field: `f!: #d & {a: <5}`,
		accept: []string{`{"a": 4, "b": "x"}`}, refuse: []string{`{"a": 5}`, `{"a": 4, "c": 1}`},
	},
	{
		name: "an embedded definition", decls: `#d: {a!: int}`, field: `f!: {#d, b?: int}`,
		accept: []string{`{"a": 1, "b": 2}`}, refuse: []string{`{"b": 2}`, `{"a": 1, "c": 1}`},
	},
	{
		name: "nothing but an embedded definition", decls: `#d: {a!: int}`, field: `f!: {#d}`,
		accept: []string{`{"a": 1}`}, refuse: []string{`{}`, `{"a": 1, "c": 1}`},
	},
	{
		name: "a definition with a parameter", decls: `#list: {_of: _, items: [..._of]}`, field: `f!: #list & {_of: int & >3}`,
		accept: []string{`{"items": [4]}`}, refuse: []string{`{"items": [3]}`, `{"items": ["a"]}`},
	},
	{
		name: "a default struct", field: `f: *{a: 1, b: "x"} | {a: int, b?: string}`,
		accept: []string{`{"a": 1, "b": "x"}`, `{"a": 2}`, `{}`}, refuse: []string{`{"a": "x"}`, `{"b": 1}`, `{"c": 1}`},
	},
	{
		name: "a default list", field: `f: *["a"] | [...string]`,
		accept: []string{`[]`, `["b"]`}, refuse: []string{`[1]`},
	},
	{
		name: "a computed constant", decls: `#prefix: "a"`, field: `f!: "\(#prefix)-x" | "\(#prefix)-y"`,
		accept: []string{`"a-x"`, `"a-y"`}, refuse: []string{`"x"`},
	},
	{
		name: "a default of constants beside a struct", field: `f: *{q: "s"} | {p!: int}`,
		accept: []string{`{"q": "s"}`, `{}`, `{"p": 1}`}, refuse: []string{`{"q": "x"}`, `{"q": "s", "p": 1}`, `{"p": "x"}`},
	},
	{
		name: "an empty default beside a struct", field: `f: *{} | {p!: int}`,
		accept: []string{`{}`, `{"p": 1}`}, refuse: []string{`{"p": "x"}`, `{"q": 1}`},
	},
	{
		name: "a default of constants in an optional field", field: `f?: *{q: "s"} | {p!: int}`,
		accept: []string{`{"q": "s"}`, `{}`, `{"p": 1}`}, refuse: []string{`{"q": "x"}`},
	},
	{
		name: "a default of constants in items", field: `f: [...(*{q: "s"} | {p!: int})]`,
		accept: []string{`[]`, `[{}, {"q": "s"}, {"p": 1}]`}, refuse: []string{`[{"q": "x"}]`},
	},
	{
		name: "a default of constants beside a scalar", field: `f: string | *{q: "s"} | {p!: int}`,
		accept: []string{`"x"`, `{"q": "s"}`, `{"p": 1}`}, refuse: []string{`{"q": "x"}`, `1`},
	},
	{
		name: "a default of several constants", field: `f: *{n: 1, b: true} | {n!: >1, b: false}`,
		accept: []string{`{"n": 1}`, `{"n": 2}`, `{"b": true}`, `{}`}, refuse: []string{`{"n": 0}`, `{"n": 2, "b": true}`},
	},
	{
		name: "a struct or a list", decls: `#h: {run!: string, args?: [...string]}`, field: `f?: #h | [...#h]`,
		accept: []string{`{"run": "x"}`, `[]`, `[{"run": "x"}, {"run": "y", "args": []}]`}, refuse: []string{`{}`, `[{}]`, `[{"run": "x", "z": 1}]`, `{"run": "x", "z": 1}`, `"x"`},
	},
	{
		name: "a scalar, a list or a map", field: `f!: string | [...string] | {[string]: [...string]}`,
		accept: []string{`"x"`, `["x"]`, `{"a": []}`}, refuse: []string{`[1]`, `{"a": "x"}`, `1`},
	},
	{
		name: "a union that another part narrows to one", decls: `#s: {type: "oci", image!: string} | {type: "git", repo!: string, tag: string | *""} | {type: "url", url!: string}`, field: `f!: #s & {type: "git", repo: =~"^a"}`,
		accept: []string{`{"repo": "a"}`, `{"type": "git", "repo": "ab", "tag": "v"}`}, refuse: []string{`{}`, `{"repo": "b"}`, `{"type": "oci", "image": "x"}`, `{"repo": "a", "url": "x"}`},
	},
	{
		name: "a union that another part narrows to two", decls: `#s: {type: "oci", image!: string} | {type: "git", repo!: string} | {type: "url", url!: string}`, field: `f!: #s & {type: "git" | "url"}`,
		accept: []string{`{"repo": "a"}`, `{"url": "a"}`, `{"type": "url", "url": "a"}`}, refuse: []string{`{}`, `{"type": "oci", "image": "x"}`, `{"repo": "a", "url": "x"}`},
	},
	{
		name: "alternatives that differ by fields that may be missing", left: true, decls: `#pdb: {min?: int} | {max?: int}`, field: `f!: #pdb & {[string]: <10}`,
		accept: []string{`{"min": 1}`, `{"max": 1}`}, refuse: []string{`{"min": 1, "max": 1}`, `{"min": 10}`, `{"x": 1}`},
	},
	{
		name: "a struct as the default of a union", decls: `#a: {kind: *"a" | "aa", n: *1 | int}
#b: {kind: "b", m!: int}`, field: `f: *#a | #b`,
		accept: []string{`{}`, `{"n": 2}`, `{"kind": "aa"}`, `{"kind": "b", "m": 1}`, `{"m": 1}`}, refuse: []string{`{"kind": "b"}`, `{"n": "x"}`, `{"n": 1, "m": 1}`, `{"kind": "c"}`},
	},
	{
		name: "a default of fields that may be missing", field: `f: *{min?: int} | {max?: int}`,
		accept: []string{`{}`, `{"min": 1}`, `{"max": 1}`}, refuse: []string{`{"min": 1, "max": 1}`, `{"min": "x"}`},
	},
	{
		name: "a default that needs a field", field: `f!: *{a!: int} | {a?: int, b!: int}`,
		accept: []string{`{"a": 1}`, `{"b": 1}`, `{"a": 1, "b": 1}`}, refuse: []string{`{}`, `{"a": "x"}`},
	},
	{
		name: "a default among three structs", field: `f: {a!: int} | *{b: *2 | int} | {c!: int, d?: int}`,
		accept: []string{`{}`, `{"a": 1}`, `{"b": 1}`, `{"c": 1}`, `{"c": 1, "d": 1}`}, refuse: []string{`{"a": 1, "c": 1}`, `{"d": 1}`, `{"b": "x"}`},
	},
	{
		name: "a default that the other alternative does not admit", field: `f: *{b: 7} | {b: int & <5}`,
		accept: []string{`{}`, `{"b": 7}`, `{"b": 3}`}, refuse: []string{`{"b": 6}`, `{"b": 7, "c": 1}`},
	},
	{
		name: "a default that is a type", field: `f!: *{b: int} | {b: int, c?: int}`,
		accept: []string{`{"b": 1}`, `{"b": 1, "c": 1}`}, refuse: []string{`{}`, `{"c": 1}`, `{"b": 1, "d": 1}`},
	},
	{
		name: "a map that knows its keys beside another rule", decls: `#e: {name: !="no", n?: int}`, field: `f!: [K=string]: #e & {name: K}`,
		accept: []string{`{"a": {}}`, `{"a": {"name": "a", "n": 1}}`}, refuse: []string{`{"no": {}}`, `{"a": {"name": "b"}}`, `{"a": {"x": 1}}`},
	},
	{
		name: "a text made of fields beside another rule", field: `f!: {a!: string, b!: string, c: =~"^x" & "\(a)/\(b)"}`,
		accept: []string{`{"a": "x", "b": ""}`, `{"a": "x", "b": "y", "c": "x/y"}`}, refuse: []string{`{"a": "y", "b": ""}`, `{"a": "x", "b": "y", "c": "x"}`},
	},
	{
		name: "a field as the default beside a rule that does not admit each of its values", field: `f!: {a!: string, b: *a | =~"^x"}`,
		accept: []string{`{"a": "y"}`, `{"a": "y", "b": "y"}`, `{"a": "y", "b": "x"}`}, refuse: []string{`{"a": "y", "b": "z"}`, `{"a": "y", "b": 1}`},
	},
	{
		name: "a text as the default of anything", field: `f!: {a!: string, b: _ | *"v\(a)"}`,
		accept: []string{`{"a": "y"}`, `{"a": "y", "b": 1}`, `{"a": "y", "b": {"c": []}}`}, refuse: []string{`{"b": 1}`},
	},
	{
		name: "an integral fraction as the default of a number", field: `f: number & >0 | *1.0`,
		accept: []string{`1`, `0.5`}, refuse: []string{`0`, `"1"`},
	},
	{
		name: "a list or a struct in braces", decls: `#o: {{a!: int} | {b!: int}}`, field: `f?: #o | [#o, ...#o]`,
		accept: []string{`{"a": 1}`, `{"b": 1}`, `[{"a": 1}, {"b": 1}]`}, refuse: []string{`{}`, `[]`, `[{}]`, `{"a": 1, "b": 1}`},
	},
	{
		name: "a text that begins, ends or contains", field: `f!: strings.HasPrefix("a") & strings.HasSuffix("z") & strings.Contains("-")`,
		accept: []string{`"a-z"`}, refuse: []string{`"a-"`, `"-z"`, `"az"`, `1`},
	},
	{
		name: "other keys than the fields", field: `f!: {a!: int, b?: int, [!~"^(a|b)$"]: string}`,
		accept: []string{`{"a": 1}`, `{"a": 1, "b": 2, "c": "x", "": "y"}`}, refuse: []string{`{"a": "x"}`, `{"a": 1, "b": "x"}`, `{"a": 1, "c": 1}`},
	},
	{
		name: "other keys than some", field: `f!: {a!: int, [!~"^(a|x-[ab])$"]: string}`,
		accept: []string{`{"a": 1}`, `{"a": 1, "x-c": "x"}`}, refuse: []string{`{"a": 1, "x-a": "x"}`, `{"a": 1, "c": 1}`},
	},
	{
		name: "an error within another rule", decls: `#text: (string & !="") | error("empty")
#url: (#text & =~"^https:") | error("no URL")`, field: `f!: {u!: #url, t?: #text & =~"^a"}`,
		accept: []string{`{"u": "https:"}`, `{"u": "https:", "t": "a"}`}, refuse: []string{`{"u": ""}`, `{"u": "x"}`, `{"u": "https:", "t": ""}`, `{"u": "https:", "t": "b"}`},
	},
	{
		name: "an empty default list beside a list of at least one", left: true, decls: `#t: {a!: string}`, field: `f: *[] | [#t, ...#t]`,
		accept: []string{`[]`, `[{"a": "x"}]`}, refuse: []string{`[{}]`},
	},
	{
		name: "at least one item with a part for CUE", decls: `#t: {a!: string, b?: strings.MinRunes(1) & !~"^x" & strings.HasPrefix("y")}`, field: `f!: [#t, ...#t]`,
		accept: []string{`[{"a": "x"}]`, `[{"a": "x", "b": "yz"}, {"a": "y"}]`}, refuse: []string{`[]`, `[{"a": "x", "b": "z"}]`, `[{"a": "x"}, {"a": "x", "b": "z"}]`},
	},
	{
		name: "fields that exclude each other", field: `f!: {exec!: string, url?: _|_} | {url!: string, exec?: _|_}`,
		accept: []string{`{"exec": "a"}`, `{"url": "a"}`}, refuse: []string{`{"exec": "a", "url": "b"}`, `{}`, `{"exec": null, "url": "a"}`},
	},
	{
		name: "a forbidden field", field: `f!: {a?: string, b?: _|_}`,
		accept: []string{`{}`, `{"a": "x"}`}, refuse: []string{`{"b": 1}`, `{"b": null}`, `{"b": {}}`, `{"b": []}`},
	},
	{
		name: "a forbidden field of an open struct", field: `f!: {a?: string, b?: _|_, ...}`,
		accept: []string{`{"c": 1}`, `{"a": "x"}`}, refuse: []string{`{"b": 1}`},
	},
	{
		name: "a field that a conjunction forbids", decls: `#d: {a?: string, b?: int}`, field: `f!: #d & {b?: _|_}`,
		accept: []string{`{}`, `{"a": "x"}`}, refuse: []string{`{"b": 1}`},
	},
	{
		name: "a field that a struct around a definition forbids", decls: `#d: {a?: string, b?: {c!: int}}`, field: `f!: {#d, b?: _|_}`,
		accept: []string{`{}`, `{"a": "x"}`}, refuse: []string{`{"b": {"c": 1}}`},
	},
	{
		name: "forbidden keys", field: `f!: {a?: string, [=~"^x-"]: _|_, ...}`,
		accept: []string{`{}`, `{"a": "x", "y": 1}`}, refuse: []string{`{"x-a": 1}`},
	},
	{
		name: "a field that is forbidden with a message", field: `f!: {a?: string, b?: error("use a")}`,
		accept: []string{`{}`, `{"a": "x"}`}, refuse: []string{`{"b": 1}`},
	},
	{
		name: "a field that is forbidden under a condition", left: true, field: `f!: {m!: "a" | "b", c?: string, if m == "a" {c?: _|_}}`,
		accept: []string{`{"m": "a"}`, `{"m": "b", "c": "x"}`}, refuse: []string{`{"m": "a", "c": "x"}`, `{"m": "b", "c": 1}`},
	},
	{
		name: "an entry of a table whose entries know their key", left: true, decls: "#t: [N=string]: {name: N, id: \"id-\\(N)\", level!: int}\n#t: {low: level: 1, high: level: 2}", field: `f!: or([for t in #t {t}])`,
		accept: []string{`{"name": "low", "level": 1, "id": "id-low"}`}, refuse: []string{`{"name": "low", "level": 2}`, `{"name": "other", "level": 1}`},
	},
	{
		name: "an entry of a table with its key", decls: "#t: {low: level: 1, high: level: 2}", field: `f!: or([for k, t in #t {{key: k, t}}])`,
		accept: []string{`{"key": "low", "level": 1}`}, refuse: []string{`{"key": "low", "level": 2}`, `{"key": "other", "level": 1}`},
	},
	{
		name: "recursion through a union", left: true, decls: "_note: {text?: string}\n#a: _note & _o & {optional: bool | *false}\n_o: {type!: string} | {inner!: #b}\n#b: _note & {fields: [=~\"^[a-z]+$\"]: #a}", field: `f!: #a`,
		accept: []string{`{"type": "a"}`, `{"inner": {"fields": {"x": {"type": "b"}}}}`}, refuse: []string{`{}`, `{"inner": {"fields": {"x": {}}}}`, `{"type": 1}`},
	},
	{
		name: "recursion in a language of expressions", left: true, decls: "#e: {and!: [...#e]} | {not!: #e} | {eq!: {left!: string, right!: int}}", field: `f!: #e`,
		accept: []string{`{"and": [{"not": {"eq": {"left": "a", "right": 1}}}]}`}, refuse: []string{`{}`, `{"and": [{}]}`, `{"not": {"eq": {"left": "a"}}}`},
	},
	{
		name: "a day in the form of a layout", field: `f!: time.Format("2006-01-02")`,
		accept: []string{`"2026-01-31"`}, refuse: []string{`"2026-02-30"`, `"2026-01-31 "`, `1`},
	},
	{
		name: "a limit on the number of fields", left: true, field: `f!: struct.MinFields(2) & struct.MaxFields(3) & {a?: int, b?: int, c?: int, d: *1 | int}`,
		accept: []string{`{"a": 1}`, `{"a": 1, "b": 2}`, `{"a": 1, "d": 2}`}, refuse: []string{`{}`, `{"d": 2}`, `{"a": 1, "b": 2, "c": 3}`, `{"a": 1, "e": 2}`},
	},
	{
		name: "a limit on the number of fields beside null", left: true, field: `f!: null | (struct.MaxFields(1) & {a?: int, b?: int}), g?: *null | struct.MinFields(1) & {a?: int, b?: int}`,
		accept: []string{`null`, `{}`, `{"a": 1}`}, refuse: []string{`{"a": 1, "b": 2}`, `{"c": 1}`},
	},
	{
		name: "one of several fields", field: `f!: struct.MaxFields(1) & {a?: {x?: int}, b?: {y!: int}, c?: [...{z?: int}]}`,
		accept: []string{`{}`, `{"a": {"x": 1}}`, `{"c": [{"z": 1}]}`}, refuse: []string{`{"a": {}, "b": {"y": 1}}`, `{"b": {}}`, `{"d": 1}`, `{"a": {"y": 1}}`},
	},
	{
		name: "a limit on the number of entries", field: `f!: struct.MaxFields(1) & {[=~"^[a-z]+$"]: int}`,
		accept: []string{`{}`, `{"a": 1}`}, refuse: []string{`{"a": 1, "b": 2}`},
	},
	{
		name: "two closed parts with different fields", decls: "#a: {a?: int, x?: int}\n#b: {b?: int, x?: int}", field: `f!: #a & #b`,
		accept: []string{`{}`, `{"x": 1}`}, refuse: []string{`{"a": 1}`, `{"b": 1}`, `{"x": "y"}`},
	},
	{
		name: "a field that a closed part does not have", decls: "#a: {a?: int}", field: `f!: #a & {b?: c: int}`,
		accept: []string{`{"a": 1}`}, refuse: []string{`{"b": {"c": 1}}`},
	},
	{
		name: "structs in a list with a limit, of which CUE forgets that they are closed", field: `f!: [...{b!: int, c?: {d?: string}}] & list.MaxItems(1)`,
		accept: []string{`[{"b": 1}]`, `[]`, `[{"b": 1, "x": 2}]`}, refuse: []string{`[{"b": 1}, {"b": 2}]`, `[{"x": 2}]`},
	},
	{
		name: "names that need quotes", field: `f!: {"a-b"!: int, "c.d"?: string}`,
		accept: []string{`{"a-b": 1, "c.d": "x"}`}, refuse: []string{`{"a": 1}`},
	},
}

func TestUnderstood(t *testing.T) {
	for _, test := range constructs {
		t.Run(test.name, func(t *testing.T) {
			text := "import (\n\t\"list\"\n\t\"strings\"\n\t\"struct\"\n\t\"time\"\n)\n_use: [list.MinItems(0), strings.MinRunes(0), struct.MinFields(0), time.Time]\n" +
				test.decls + "\n#schema: spec!: {\n\t" + test.field + "\n}\n"
			ctx := cuecontext.New()
			schema := ctx.CompileString(text, cue.Filename("schema.cue")).LookupPath(cue.ParsePath("#schema"))
			node, diags := fromcue.Schema(schema, locateIn("schema.cue"))
			if diags != nil {
				t.Fatalf("refused: %v\n%s", diags, text)
			}
			if left := node.Fallbacks(); len(left) > 0 != test.left {
				t.Errorf("%d parts are left to CUE: %v", len(left), left)
			}
			judge := judgeOf(t, node, ctx, schema, func(v any) map[string]any { return map[string]any{"spec": map[string]any{"f": v}} })
			for _, value := range test.accept {
				judge(value, true)
			}
			for _, value := range test.refuse {
				judge(value, false)
			}
		})
	}
}
