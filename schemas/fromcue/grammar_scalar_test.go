package fromcue_test

import (
	"fmt"
	"strings"
	"time"

	"stele.dev/stele/schemas/textforms"
)

// regexp returns a regular expression and strings that match it.
func (g *grammar) regexp() term {
	switch g.IntN(4) {
	case 0:
		return term{"^[a-c]+$", func() any { return g.OneOf("a", "b", "cab") }, ""}
	case 1:
		return term{"^x", func() any { return g.OneOf("x", "x-y", "xx") }, ""}
	case 2:
		return term{"b$", func() any { return g.OneOf("b", "ab") }, ""}
	}
	return term{"[0-9]", func() any { return g.OneOf("0", "a1") }, ""}
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

func (g *grammar) scalar() term {
	str := func(options ...string) func() any { return func() any { return g.OneOf(options...) } }
	num := func(options ...int64) func() any { return func() any { return options[g.IntN(len(options))] } }
	words := str("", "a", "b", "ab", "abc", "cab", "blue", "é", "x-y")
	ints := num(0, 1, 2, 3, 5, 6, 10, 100, 1000, -1, 255, 256)
	numbers := func() any { return []any{int64(1), 1.5, -0.5, int64(6), 5.5, 0.1}[g.IntN(6)] }
	re := g.regexp()
	kinds := 31
	if g.idioms {
		kinds = 32
	}
	n := g.IntN(kinds)
	if g.idioms && (n == 23 || n == 26) { // CUE recurses without end on let with and
		n = 31
	}
	switch n {
	case 31:
		name := g.fresh(g.OneOf("#M", "_M", "M"))
		g.decls = append(g.decls, name+`: {a: "x-y", b: "b", c: "abc"}`)
		return term{strings.ReplaceAll(g.OneOf("or([for k, _ in M {k}])", "or([for _, v in M {v}])", "*M.a | M.b", "or([for k, _ in M {k}]) | *M.a",
			`or([for k, v in M if v != "b" {v}])`, "string & or([for k, _ in M {k}])"), "M", name), words, "scalar"}
	case 30:
		name := g.OneOf("time.Time", "time.Duration", "net.IP", "net.IPv4", "net.IPv6", "net.IPCIDR", "net.FQDN", "net.URL", "net.AbsURL",
			`time.Format("2006-01-02")`, "time.Format(time.RFC3339)")
		form, _ := textforms.Named(strings.Replace(name, "time.RFC3339", quote(time.RFC3339), 1))
		return term{g.OneOf("string & ", "string & ", "", "=~\"[0-9]\" & ", `*"" | `, "string & !=\"\" & ") + name, str(form.Samples...), "scalar"}
	case 0, 1:
		return term{"string", words, "scalar"}
	case 2:
		return term{"=~" + quote(re.text), re.sample, "scalar"}
	case 3:
		return term{"string & !~" + quote(re.text), words, "scalar"}
	case 4:
		return term{g.OneOf("strings.MinRunes(2)", "strings.MaxRunes(2)", "strings.MinRunes(1) & strings.MaxRunes(1)"), words, "scalar"}
	case 5:
		return term{`string & !=""`, words, "scalar"}
	case 6:
		return term{g.OneOf(`"a" | "b" | *"ab"`, `"a" | "b"`, `*"a" | "b" | "c"`, `or(["a", "b"])`), words, "scalar"}
	case 7:
		return term{g.OneOf(`*"a" | string`, `string | *""`, `*"blue" | =~"^b"`, `*"zz" | =~"^[a-c]+$"`), words, "scalar"}
	case 8, 9:
		return term{"int", ints, "scalar"}
	case 10, 11:
		return term{g.OneOf("int & >=0", "int & >0 & <=1000", ">=1 & <=5 & int", "int & <10 & >=-1", "int & >=0.5 & <5.5", "int & !=5"), ints, "scalar"}
	case 12:
		return term{g.OneOf("uint8", "int32", "uint", "uint8 & <100", "int64", "uint16 & !=1"), ints, "scalar"}
	case 13:
		return term{g.OneOf("*1 | int", "int | *5", "*1 | (int & >=0 & <=100)", "*10 | (>=0 & <=5 & int)", "int & (*1 | >5)"), ints, "scalar"}
	case 14:
		return term{g.OneOf("number", "number & >0", ">=0.1 & <=5.5", ">1", "number & !=1.5", "*1.5 | number", "float64"), numbers, "scalar"}
	case 15:
		return term{g.OneOf("1 | 2 | 5", "0 | >=10", "*1 | 2 | 3", "1.5 | 1", "int & >=0 | -1"), g.either(ints, numbers), "scalar"}
	case 16, 17:
		return term{g.OneOf("bool", "bool", "true", "*true | bool", "bool | *false", "true | false"), func() any { return g.Chance(50) }, "scalar"}
	case 18:
		return term{g.OneOf(`"const"`, "7", "null", `"\("a")b"`, "2 * 3", `"a" + "b"`), func() any { return []any{"const", int64(7), nil, "ab", int64(6)}[g.IntN(5)] }, "scalar"}
	case 19:
		return term{g.OneOf("int | string", "*1 | int | string", `"auto" | int & >5`, "bool | string", "int | number & <0", `=~"^a" | "x" | int`), g.either(words, ints, numbers), "scalar"}
	case 20:
		return term{g.OneOf("string | null", "*null | int", "null | bool"), g.either(words, ints, func() any { return nil }), "scalar"}
	case 21:
		name := g.fresh("_s")
		g.decls = append(g.decls, name+": int & <=10")
		return term{name + g.OneOf("", " & >1", " | *2"), ints, "scalar"}
	case 22:
		name := g.fresh("max")
		g.decls = append(g.decls, name+": "+g.OneOf("5", "10", "*5 | int"))
		return term{"int & <=" + name, ints, "scalar"}
	case 23:
		name := g.fresh("L")
		g.decls = append(g.decls, "let "+name+" = <=5")
		return term{"int & " + name, ints, "scalar"}
	case 24:
		return term{"(" + g.OneOf("1 | 2 | 3", "int", ">0") + ") & (" + g.OneOf("2 | 3 | 4", "<3", "*2 | int") + ")", ints, "scalar"}
	case 25:
		return term{"string & (=~" + quote(re.text) + ` | "" | strings.MinRunes(3))`, g.either(re.sample, words), "scalar"}
	case 26:
		return term{"and([" + g.OneOf("int, >0", "int", ">=0, <=5") + "])", ints, "scalar"}
	default:
		return term{g.OneOf("string", "int", "bool"), g.either(words, ints), "scalar"}
	}
}
