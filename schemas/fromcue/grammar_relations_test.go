package fromcue_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// union returns struct alternatives, mostly distinguished by a constant.
func (g *grammar) union(depth int) term {
	var arms []string
	var samples []func() any
	constants := g.Chance(60)
	optional := g.OneOf("", "", "!", "?")
	for i := range 2 + g.IntN(2) {
		arm := g.structure(depth-1, "a", "b", "c", "d")
		text := arm.text
		value := any(g.OneOf("x", "y", "z"))
		if g.Chance(20) {
			value = int64(i)
		}
		if constants {
			value = fmt.Sprint("t", i)
			if g.Chance(10) {
				value = int64(i)
			}
			more := ""
			if g.Chance(15) {
				more = fmt.Sprintf(` | "u%d"`, i)
			}
			text = "{t" + optional + ": " + asJSON(value) + more + "\n" + strings.TrimPrefix(text, "{")
		}
		if g.Chance(30) {
			name := g.fresh("#U")
			g.decls = append(g.decls, name+": "+text)
			text = name
		}
		arms = append(arms, text)
		samples = append(samples, func() any {
			m, _ := arm.sample().(map[string]any)
			if constants && g.Chance(85) {
				m["t"] = value
			}
			return m
		})
	}
	text := strings.Join(arms, " | ")
	switch g.IntN(12) {
	case 0:
		return term{"{n: int, " + text + "}", func() any {
			m, _ := g.either(samples...)().(map[string]any)
			m["n"] = int64(1)
			return m
		}, "union"}
	case 1:
		text = "null | " + text
	case 2:
		text = "string | " + text
	case 3:
		text = "{...} & (" + text + ")"
	case 4:
		text = "*" + text
	}
	return term{text, g.either(samples...), "union"}
}

// related returns a struct whose fields depend on each other, in supported and unsupported ways.
func (g *grammar) related(depth int) term {
	var decls []string
	samples := map[string]func() any{}
	field := func(name, text string, sample func() any) {
		decls = append(decls, name+": "+text)
		samples[strings.TrimRight(name, "?!")] = sample
	}
	mark := func() string { return g.OneOf("", "", "!", "?") }
	words := func(options ...string) func() any { return func() any { return g.OneOf(options...) } }
	numbers := func() any { return []any{int64(0), int64(1), int64(2), int64(5), 1.5, -0.5}[g.IntN(6)] }
	field("k"+mark(), g.OneOf(`"a" | "b"`, `*"a" | "b"`, `"a" | *"b" | "c"`, "string", `=~"^a"`), words("a", "b", "c", "ab"))
	field("n"+mark(), g.OneOf("int", "*1 | int", "int & >=0", "number", "*2 | number"), numbers)
	if g.Chance(60) {
		field("on"+mark(), g.OneOf("bool", "*true | bool", "*false | bool"), func() any { return g.Chance(50) })
	} else {
		field("on", "*true | bool", func() any { return g.Chance(50) })
	}
	if !g.idioms && g.Chance(60) {
		bound := g.OneOf(">n", ">=n", "<n", "<=n", "!=n", "int & >n", "int & >=n & <100", "number & <=n", "*3 | int & >n", "(*3 | int) & >n", "int & >k", ">n & <n")
		field("m"+mark(), bound, numbers)
	}
	for range 1 + g.IntN(3) {
		guard := g.OneOf(`k == "a"`, `k != "a"`, `k == "b" || on`, `k == "a" && n > 1`, "on", "!on", "n > 1", "n <= 1", "1 < n", "n == 1.5", "n != 1",
			`k =~ "^a"`, `k !~ "b$"`, `k == "z"`, "k != _|_", "k == _|_", "k != _|_ && n != _|_", `k == _|_ || n > 1`, `!(on != _|_) && k != "a"`, `k != _|_ if k == "a"`, "n != _|_ if n > 1 if on", "on == false", `k == n`, "n+1 > 2")
		name := g.OneOf("x", "y", "z", "x", "m2")
		t := g.scalar()
		for strings.Contains(t.text, "and(") || strings.Contains(t.text, "& L") { // CUE recurses without end
			t = g.scalar()
		}
		body := name + g.OneOf("", "", "!", "?") + ": " + t.text
		if g.Chance(20) {
			body += "\n" + g.OneOf("w?: int", "w: *1 | int", "w!: _", "y: _", "x?: string")
		}
		decls = append(decls, "if "+guard+" {"+body+"}")
		samples[name] = t.sample
		if g.Chance(30) {
			base := g.scalar()
			decls = append(decls, name+g.OneOf("?", "?", "", "!")+": "+g.OneOf(base.text, t.text, "_"))
		}
	}
	if g.Chance(10) {
		decls = append(decls, "...")
	}
	if g.idioms && g.Chance(60) {
		for range 1 + g.IntN(2) {
			g.taken(&decls, samples)
		}
	}
	if g.Chance(15) {
		decls = append(decls, g.OneOf("tags: [...string]\n_tags: {for t in tags {(t): true}}", "sum: n + 1", "q: *(n * 2) | int", `label: "\(k)-x"`, "let K = k\nkk?: K"))
	}
	text := "{" + strings.Join(decls, "\n") + "}"
	if g.Chance(30) {
		name := g.fresh("#R")
		g.decls = append(g.decls, name+": "+text)
		if text = name; g.Chance(30) {
			text = "{" + name + ", extra?: int}"
		}
	}
	return term{text, func() any {
		m := map[string]any{}
		names := []string{"k", "n", "on", "m", "x", "y", "z", "m2"}
		for _, name := range slices.Sorted(maps.Keys(samples)) {
			if g.idioms && strings.HasPrefix(name, "t") && g.Chance(50) {
				names = append(names, name)
			}
		}
		for _, name := range names {
			if sample := samples[name]; sample != nil && g.Chance(65) {
				m[name] = sample()
			}
		}
		if g.Chance(15) {
			m["w"] = int64(1)
		}
		return m
	}, "struct"}
}

// taken writes a field that gets its value from other fields, in supported and unsupported ways.
func (g *grammar) taken(decls *[]string, samples map[string]func() any) {
	name, from := g.fresh("t"), g.OneOf("k", "n", "on")
	*decls = append(*decls, strings.NewReplacer("NAME", name, "FROM", from, "HIDDEN", g.fresh("_from"), "LET", g.fresh("From"), "KEY", g.fresh("Key")).Replace(g.OneOf(
		"NAME: FROM", "NAME?: FROM", "NAME!: FROM", "NAME: *FROM | string", "NAME: *FROM | int | string | bool", "NAME: *FROM | number",
		`NAME: "\(FROM)-x"`, `NAME: *"a/\(FROM)" | string`, "NAME: FROM & string", "NAME: FROM & (*1 | int)", "NAME: FROM | *1",
		"HIDDEN: FROM\nNAME: HIDDEN", "let LET = FROM\nNAME: *LET | string", "NAME: {a: FROM, b: *FROM | string}", "NAME?: {a!: FROM}",
		"NAME: [...{a: FROM, c: *a | string}]", "NAME: [KEY=string]: {a: KEY, b: *KEY | string, c: FROM}", "NAME: [KEY=string]: {a?: *KEY | string, d: *\"\\(KEY)/\\(FROM)\" | string}",
		"NAME: null | FROM", "NAME: {FROM, x?: int}", "NAME: *FROM | >5", "NAME: [FROM, ...string]", "NAME: {a: *{b: FROM}.b | string}",
	)))
	scalar := func() any { return []any{"a", "b", "a-x", "a/b", int64(1), int64(2), true}[g.IntN(7)] }
	object := func() any {
		m := map[string]any{}
		for _, field := range []string{"a", "b", "c", "d"} {
			if g.Chance(35) {
				m[field] = scalar()
			}
		}
		return m
	}
	samples[name] = g.either(scalar, scalar, object, func() any { return map[string]any{"a": object(), "k": object()} }, func() any { return []any{object()} })
}

// matched returns a call of matchN, in most cases with types that exclude each other.
func (g *grammar) matched() term {
	text := "matchN(" + g.OneOf("1", ">=1", ">0", "1", "<=1") + ", [" + g.OneOf(`int, string`, `string, [...string]`, `string, number, bool`, `int & >=0 & <=5, "a"`,
		`int, number`, `"a" | "b", [...(int | bool)], null`, `string, {a?: int}`, `{a!: int}, [...{a!: int}]`) + "])" + g.OneOf("", "", " & (int | string)", " & !=\"b\"")
	return term{text, func() any {
		return []any{"a", "b", "", int64(1), int64(7), 1.5, true, nil, []any{}, []any{"a"}, []any{int64(1), true}, map[string]any{"a": int64(1)}}[g.IntN(12)]
	}, "union"}
}

// odd returns a term that only CUE can check.
func (g *grammar) odd() term {
	list := func() any {
		items := []any{}
		for range g.IntN(3) {
			items = append(items, []any{int64(1), "a", "b", true, map[string]any{"a": int64(1)}}[g.IntN(5)])
		}
		return items
	}
	object := func() any {
		m := map[string]any{}
		for _, k := range []string{"a", "b"} {
			if g.Chance(50) {
				m[k] = []any{int64(1), int64(2), "x"}[g.IntN(3)]
			}
		}
		return m
	}
	if g.idioms && g.Chance(50) {
		return g.matched()
	}
	if g.Chance(50) {
		return term{g.OneOf("[string, int]", "[string, ...int]", "[...int] | [...string]", "[]", "[...{a: int}] & list.UniqueItems()", "[...] & list.Contains(1)", "[_, ...]"), list, "list"}
	}
	return term{g.OneOf("matchN(1, [{a: int, ...}, {b: int, ...}])", "matchN(>=1, [{a!: int, ...}, {b!: string, ...}])", "{a: int} | [...int]", "{a: int, b?: a}",
		"close({a: int, ...})", "!=null", `>"a"`, "{[=~\"^a\"]: {x?: int}\n[=~\"a$\"]: {y?: int}}"), object, "struct"}
}
