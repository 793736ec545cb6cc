package fromcue_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/samples"
)

// A grammar generates random schemas in the supported constructs, and random objects that almost satisfy
// them. It does not use the compiler.
type grammar struct {
	samples.Maker
	defs  []term   // #D0, #D1, ...
	decls []string // declarations at the top of the file
	names int

	// idioms enables constructs that were added later, and disables those on which CUE recurses
	// without end together with them. Without idioms, a seed always generates the same schema.
	idioms bool
}

// A term is a piece of CUE with a function that generates data for it.
type term struct {
	text   string
	sample func() any // decoded JSON, fresh on each call
	kind   string     // scalar, struct, list or any
}

// A generated is a generated schema: the text of a file, the path of the schema in it, and a function
// that generates objects.
type generated struct {
	text   string
	path   string
	locate func(token.Pos) (schemas.Position, bool)
	sample func() any
}

// schema generates a schema, in a definition or at the place where a bundle has it.
func (g *grammar) schema() generated {
	for range g.IntN(4) {
		t := g.value(2)
		name := fmt.Sprintf("#D%d", len(g.defs))
		g.decls = append(g.decls, name+": "+t.text)
		g.defs = append(g.defs, term{text: name, sample: t.sample, kind: t.kind})
	}
	root := g.structure(3, "spec", "status", "extra")
	path := "#schema"
	if g.Chance(20) {
		path = "bundle.kinds.widgets.#schema"
		g.decls = append(g.decls,
			"#Widget: "+root.text,
			"bundle: kinds: widgets: #schema: #Widget",
			"bundle: kinds: [string]: #schema: {spec?: _, status?: _, ...}")
	} else {
		g.decls = append(g.decls, "#schema: "+root.text, "")
	}
	text := "import (\n\t\"strings\"\n\t\"list\"\n\t\"time\"\n\t\"net\"\n\t\"struct\"\n)\n_use: [strings.MinRunes(0), list.MinItems(0), time.Time, net.IP, struct.MinFields(0)]\n" + strings.Join(g.decls, "\n")
	last := 1 + strings.Count(text, "\n") // this line stands for the server's own definition
	return generated{
		text: text,
		path: path,
		locate: func(p token.Pos) (schemas.Position, bool) {
			pos, ok := locateIn("schema.cue")(p)
			return pos, ok && pos.Line != last
		},
		sample: root.sample,
	}
}

// value returns a term that is at most depth structs and lists deep.
func (g *grammar) value(depth int) term {
	if depth <= 0 {
		return g.scalar()
	}
	switch g.IntN(26) {
	case 20, 21:
		return g.union(depth)
	case 22, 23, 24:
		return g.related(depth)
	case 25:
		return g.odd()
	case 0, 1, 2, 3, 4, 5:
		return g.scalar()
	case 6, 7, 8, 9:
		t := g.structure(depth, "a", "b", "c", "d", "x-y")
		if g.idioms && g.Chance(8) {
			t.text = "close(" + t.text + ")"
		}
		return t
	case 10, 11, 12:
		if g.idioms && g.Chance(25) {
			return g.tuple(depth)
		}
		return g.list(depth)
	case 13:
		return g.nullable(g.value(depth - 1))
	case 14, 15:
		if len(g.defs) > 0 {
			return g.refined(g.defs[g.IntN(len(g.defs))], depth)
		}
		return g.scalar()
	case 16:
		return g.mapping(depth)
	case 17:
		if g.Chance(50) {
			return term{"{...}", func() any { return map[string]any{"q": g.Noise(1)} }, "struct"}
		}
		return term{"_", func() any { return g.Noise(2) }, "any"}
	case 18:
		if g.Chance(40) {
			return g.generic(depth)
		}
		return g.structWithDefault()
	default:
		return g.mixed(depth)
	}
}

// refined returns a reference, perhaps with further constraints.
func (g *grammar) refined(d term, depth int) term {
	switch {
	case d.kind == "struct" && g.Chance(40):
		more := g.structure(depth-1, "a", "b", "c", "d", "e")
		if g.Chance(50) {
			return term{"{" + d.text + ", " + strings.TrimPrefix(more.text, "{"), g.merge(d.sample, more.sample), "struct"}
		}
		return term{d.text + " & " + more.text, g.merge(d.sample, more.sample), "struct"}
	case d.kind == "struct" && g.Chance(20):
		return term{"{" + d.text + "}", d.sample, "struct"}
	case d.kind == "list" && g.Chance(40):
		return term{d.text + " & " + g.limit(), d.sample, "list"}
	case d.kind == "scalar" && g.Chance(30):
		s := g.scalar()
		return term{d.text + " & " + paren(s.text), g.either(d.sample, s.sample), "scalar"}
	case d.kind == "struct" && g.Chance(10):
		field := g.OneOf("a", "b", "c")
		pick := func() any {
			m, _ := d.sample().(map[string]any)
			return m[field]
		}
		return term{d.text + g.OneOf("."+field, `["`+field+`"]`), pick, "any"}
	case d.kind == "struct" && g.Chance(10):
		e := g.defs[g.IntN(len(g.defs))]
		return term{d.text + " & " + e.text, g.merge(d.sample, e.sample), "struct"}
	case g.Chance(10):
		name := g.fresh("_h")
		g.decls = append(g.decls, name+": "+d.text)
		return term{name, d.sample, d.kind}
	}
	return d
}

func paren(text string) string {
	if strings.ContainsAny(text, "|") {
		return "(" + text + ")"
	}
	return text
}

func (g *grammar) fresh(prefix string) string {
	g.names++
	return fmt.Sprintf("%s%d", prefix, g.names)
}

// merge returns a function that samples a and b and merges the samples if they are structs.
func (g *grammar) merge(a, b func() any) func() any {
	return func() any {
		x, ok1 := a().(map[string]any)
		y, ok2 := b().(map[string]any)
		if !ok1 || !ok2 {
			return a()
		}
		for k, v := range y {
			if _, ok := x[k]; !ok || g.Chance(50) {
				x[k] = v
			}
		}
		return x
	}
}

func (g *grammar) either(samples ...func() any) func() any {
	return func() any { return samples[g.IntN(len(samples))]() }
}

func (g *grammar) nullable(t term) term {
	null := func() any { return nil }
	mark := ""
	if g.Chance(20) {
		mark = "*"
	}
	text := mark + "null | " + paren(t.text)
	if g.Chance(30) {
		text = paren(t.text) + " | " + mark + "null"
	}
	return term{text, g.either(t.sample, t.sample, t.sample, null), "union"}
}

// mixed returns a union of values of different kinds.
func (g *grammar) mixed(depth int) term {
	a, b := g.scalar(), g.value(depth-1)
	if g.Chance(15) {
		a = g.list(depth - 1)
	}
	if g.Chance(10) {
		a = g.structure(depth-1, "a", "b")
	}
	if b.kind == "any" {
		b = g.scalar()
	}
	text := paren(a.text) + " | " + paren(b.text)
	if g.Chance(20) {
		text = "*" + g.constant(a) + " | " + text
	}
	return term{text, g.either(a.sample, b.sample), "union"}
}

// constant returns a sample of t as CUE.
func (g *grammar) constant(t term) string {
	text, err := json.Marshal(t.sample())
	if err != nil {
		panic(err)
	}
	return string(text)
}

// structure returns a struct whose fields have some of the names.
func (g *grammar) structure(depth int, names ...string) term {
	type entry struct {
		name     string
		optional bool
		sample   func() any
	}
	var decls []string
	var entries []entry
	g.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:g.IntN(len(names)+1)] {
		t := g.value(depth - 1)
		mark := g.OneOf("", "", "!", "?", "?")
		if g.Chance(10) {
			decls = append(decls, "// about "+name)
		}
		label := name
		if strings.Contains(name, "-") {
			label = `"` + name + `"`
		}
		decls = append(decls, label+mark+": "+t.text)
		if g.Chance(8) { // repeat the declaration in another form
			u := g.value(depth - 2)
			decls = append(decls, label+g.OneOf("", "?", "!")+": "+u.text)
			t.sample = g.either(t.sample, t.sample, u.sample)
		}
		entries = append(entries, entry{name, mark == "?", t.sample})
	}
	if g.Chance(6) && len(entries) > 1 {
		decls = append(decls, g.dependent(entries[0].name, entries[1].name))
	}
	if g.Chance(8) && len(entries) > 0 {
		re := g.regexp()
		s := g.value(depth - 1)
		decls = append(decls, "[=~"+quote(re.text)+"]: "+s.text)
		entries = append(entries, entry{fmt.Sprint(re.sample()), true, s.sample})
	}
	if g.Chance(8) {
		decls = append(decls, "...")
	}
	if g.Chance(5) {
		decls = append(decls, "#local: "+g.scalar().text)
	}
	limit := ""
	if g.Chance(6) {
		limit = fmt.Sprintf(g.OneOf("struct.MinFields(%d) & ", "struct.MaxFields(%d) & "), g.IntN(4))
	}
	return term{limit + "{" + strings.Join(withCommas(decls), "\n") + "}", func() any {
		m := make(map[string]any)
		for _, e := range entries {
			if e.optional && g.Chance(40) || g.Chance(5) {
				continue
			}
			m[e.name] = e.sample()
		}
		return m
	}, "struct"}
}

// dependent returns a declaration that makes one field depend on another, in one of several disguises.
func (g *grammar) dependent(on, field string) string {
	if strings.Contains(on+field, "-") {
		return "..."
	}
	local, alias := g.fresh("#local"), g.fresh("X")
	return strings.NewReplacer("ON", on, "FIELD", field, "LOCAL", local, "HIDDEN", g.fresh("_hidden"), "ALIAS", alias).Replace(g.OneOf(
		"FIELD: ON",
		"FIELD?: ON",
		"FIELD: >ON",
		"FIELD: *ON | _",
		"FIELD: ON | *1 | string",
		"FIELD: null | ON",
		"FIELD: [...ON]",
		"FIELD: {k?: ON}",
		`FIELD: "\(ON)"`,
		"FIELD: ON + 1",
		"FIELD: or([ON, 1])",
		"FIELD: and([ON, _])",
		"LOCAL: ON\nFIELD: LOCAL",
		"LOCAL: {k: ON}\nFIELD: LOCAL.k",
		"LOCAL: {k: ON}\nFIELD: LOCAL",
		"LOCAL: ON\nFIELD: LOCAL.a",
		"HIDDEN: ON\nFIELD?: {HIDDEN}",
		"HIDDEN: ON\nFIELD: *HIDDEN | int",
		"HIDDEN: ON & 5",
		"LOCAL: ON & string",
		"let ALIAS = ON\nFIELD: ALIAS",
		"if ON != _|_ {FIELD: 1}",
		"if ON > 1 {FIELD: 1}",
		"for k, v in ON {(k): v}",
		"[string]: ON",
		`[=~"\(ON)"]: int`,
		"FIELD: len(ON)",
		"FIELD: strings.MinRunes(ON)",
		"FIELD: [...] & list.MaxItems(ON)",
		"FIELD: ON & {a: 1}",
		"FIELD: {ON, z?: int}",
		"FIELD: ON.a",
		`FIELD: ON["a"]`,
		`(ON): int`,
		`"\(ON)": int`,
	))
}

// withCommas ends each declaration with a comma, and puts a comment on its own line.
func withCommas(decls []string) []string {
	return slices.Clone(decls)
}

// mapping returns a struct of patterns.
func (g *grammar) mapping(depth int) term {
	v := g.value(depth - 1)
	if g.Chance(60) {
		return term{"{[string]: " + v.text + "}", func() any {
			m := make(map[string]any)
			for range g.IntN(3) {
				m[g.OneOf("a", "b", "key", "x-y", "0")] = v.sample()
			}
			return m
		}, "struct"}
	}
	re := g.regexp()
	text := "{[=~" + quote(re.text) + "]: " + v.text
	if g.Chance(30) {
		s := g.scalar()
		text += "\n[!~" + quote(re.text) + "]: " + s.text
	}
	if g.Chance(20) {
		text += "\n..."
	}
	return term{text + "}", func() any {
		m := make(map[string]any)
		for range g.IntN(3) {
			m[fmt.Sprint(re.sample())] = v.sample()
		}
		return m
	}, "struct"}
}

func (g *grammar) structWithDefault() term {
	samples := func() any {
		m := map[string]any{"a": int64(g.IntN(3))}
		if g.Chance(50) {
			m["b"] = "x"
		}
		if g.Chance(20) {
			delete(m, "a")
		}
		return m
	}
	return term{g.OneOf(
		`*{a: 1, b: "x"} | {a: int, b?: string}`,
		`*{a: 1} | {a!: int, b: *"y" | string}`,
		`{a?: int, b?: string} | *{}`,
		`*null | {a: int, b?: string}`,
	), samples, "union"}
}

// generic declares a definition with a parameter and returns a use of it.
func (g *grammar) generic(depth int) term {
	arg := g.value(depth - 1)
	name, param := g.fresh("#G"), g.OneOf("_n", "#n")
	field := func() any { return map[string]any{"g": arg.sample()} }
	g.decls = append(g.decls, name+": {"+param+": _\n"+g.OneOf(
		"g: "+param, "g?: "+param, "g!: "+param+" & _", "g: null | "+param, "g?: {"+param+"}")+"}")
	return term{name + " & {" + param + ": " + arg.text + "}", field, "struct"}
}

func (g *grammar) limit() string {
	return g.OneOf("list.MinItems(1)", "list.MaxItems(2)", "list.MinItems(2)", "list.MaxItems(3)")
}

// tuple returns a list whose items differ by index.
func (g *grammar) tuple(depth int) term {
	var items []term
	for range 1 + g.IntN(3) {
		if len(items) > 0 && g.Chance(40) {
			items = append(items, items[0])
			continue
		}
		items = append(items, g.value(depth-1))
	}
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = item.text
	}
	rest := items[0]
	switch g.IntN(4) {
	case 0:
		texts = append(texts, "..."+rest.text)
	case 1:
		rest = g.value(depth - 1)
		texts = append(texts, "..."+rest.text)
	case 2:
		texts = append(texts, "...")
	}
	text := "[" + strings.Join(texts, ", ") + "]"
	if g.Chance(10) {
		text = "[_, ...] & [..." + rest.text + "]"
	}
	if g.Chance(10) {
		text += " & " + g.limit()
	}
	return term{text, func() any {
		list := []any{}
		for _, item := range items {
			list = append(list, item.sample())
		}
		for range g.IntN(3) {
			list = append(list, rest.sample())
		}
		if g.Chance(10) {
			list = list[1:]
		}
		return list
	}, "list"}
}

func (g *grammar) list(depth int) term {
	item := g.value(depth - 1)
	text := "[..." + item.text + "]"
	if g.Chance(35) {
		text += " & " + g.limit()
	}
	if item.kind == "scalar" && g.Chance(20) {
		text += " & " + g.OneOf("list.UniqueItems()", "list.UniqueItems")
	}
	if g.Chance(10) {
		text = "*[" + g.constant(item) + "] | " + paren(text)
	}
	return term{text, func() any {
		items := []any{}
		for range g.IntN(4) {
			items = append(items, item.sample())
		}
		return items
	}, "list"}
}
