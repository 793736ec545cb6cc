package kinds

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"stele.dev/stele/schemas"
)

// maxText is the length of what a finding says of one side, in code points.
const maxText = 160

// short cuts a text that is too long for a line.
func short(text string) string {
	if utf8.RuneCountInString(text) <= maxText {
		return text
	}
	return string([]rune(text)[:maxText-1]) + "…"
}

// types returns the types that a node admits, in CUE's order: "string", "integer | string".
func types(n *schemas.Node) string {
	return strings.ReplaceAll(n.Kinds.String(), "|", " | ")
}

// describe returns what a node admits, in words near to CUE: string =~"^a$", "a" | "b", list of integer >=1.
func describe(n *schemas.Node) string { return short(inWords(n, 0)) }

func inWords(n *schemas.Node, depth int) string {
	if n == nil || n.Kinds == schemas.AnyKind && n.Scalars == nil && n.List == nil && n.Struct == nil {
		return "any value"
	}
	var all []string
	said := schemas.Kinds(0)
	for i := range n.Scalars {
		s := &n.Scalars[i]
		said |= s.Kinds
		all = append(all, scalarText(s))
	}
	for _, k := range n.Kinds.Split() {
		switch {
		case said.Has(k), k == schemas.IntegerKind && n.Kinds.Has(schemas.NumberKind):
		case k == schemas.ListKind && n.List != nil && depth < 3:
			all = append(all, "list of "+inWords(n.List.At(len(n.List.Prefix)), depth+1))
		case k == schemas.StructKind && n.Struct != nil && len(n.Struct.Fields) == 0 && len(n.Struct.Patterns) == 1 && depth < 3:
			all = append(all, "map of "+inWords(n.Struct.Patterns[0].Value, depth+1))
		case k == schemas.StructKind && n.Union != nil:
			all = append(all, fmt.Sprintf("one of %d structs", len(n.Union.Arms)))
		default:
			all = append(all, k.String())
		}
	}
	text := strings.Join(all, " | ")
	if n.Format != "" {
		text += " of format " + n.Format
	}
	return text
}

// scalarText returns what an alternative admits.
func scalarText(s *schemas.Scalar) string {
	if len(s.Enum) > 0 {
		return values(s.Enum)
	}
	rules := []string{s.Kinds.String()}
	for _, b := range []string{lower(s.Minimum), upper(s.Maximum)} {
		if b != "" {
			rules = append(rules, b)
		}
	}
	rules = append(rules, patternTexts(s.Patterns)...)
	if s.MinRunes != nil && s.MinRunes.Count > 0 {
		rules = append(rules, "of at least "+strconv.Itoa(s.MinRunes.Count)+" characters")
	}
	if s.MaxRunes != nil {
		rules = append(rules, "of at most "+strconv.Itoa(s.MaxRunes.Count)+" characters")
	}
	for _, f := range s.Forms {
		rules = append(rules, f.Name)
	}
	for _, not := range s.Not {
		rules = append(rules, "!="+string(not.Value))
	}
	if s.MultipleOf != nil {
		rules = append(rules, "multiple of "+s.MultipleOf.Value)
	}
	return strings.Join(rules, " ")
}

func patternTexts(patterns []schemas.Pattern) (all []string) {
	for _, p := range patterns {
		sign := "=~"
		if p.Negated {
			sign = "!~"
		}
		all = append(all, sign+quoted(p.Regexp))
	}
	return all
}

// quoted returns a regular expression as CUE writes it: raw if it has a backslash or a quote.
func quoted(text string) string {
	if strings.ContainsAny(text, `\"`) && !strings.Contains(text, `"#`) && !strings.Contains(text, "\n") && !strings.Contains(text, `\#`) {
		return `#"` + text + `"#`
	}
	return strconv.Quote(text)
}

func lower(b *schemas.Bound) string {
	switch {
	case b == nil:
		return ""
	case b.Exclusive:
		return ">" + b.Value
	}
	return ">=" + b.Value
}

func upper(b *schemas.Bound) string {
	switch {
	case b == nil:
		return ""
	case b.Exclusive:
		return "<" + b.Value
	}
	return "<=" + b.Value
}

// values returns the values of an enumeration.
func values(all []json.RawMessage) string {
	var texts []string
	for _, v := range all {
		texts = append(texts, canonical(v))
	}
	return strings.Join(texts, " | ")
}

// describeField returns what a field admits, and whether it must be set.
func describeField(f *schemas.Field) string {
	text := describe(f.Schema)
	switch m := missing(f); m {
	case "optional":
		return text
	case "required":
		return text + ", required"
	default:
		return text + ", default " + m
	}
}

// guardText returns a guard as CUE writes it. Guards that mean the same have the same text, as far as only the order
// of "and" and "or" differs.
func guardText(g *schemas.Guard) string {
	if g == nil {
		return "true"
	}
	var parts []string
	for _, of := range g.Of {
		text := guardText(of)
		if of.Op == "and" || of.Op == "or" || of.Op == "then" {
			text = "(" + text + ")"
		}
		parts = append(parts, text)
	}
	switch g.Op {
	case "and", "or":
		slices.Sort(parts)
		parts = slices.Compact(parts)
		return strings.Join(parts, map[string]string{"and": " && ", "or": " || "}[g.Op])
	case "then":
		return strings.Join(parts, " && ")
	case "not":
		return "!(" + strings.Join(parts, "") + ")"
	case "present":
		return g.Field + " != _|_"
	case "absent":
		return g.Field + " == _|_"
	}
	return g.Field + " " + g.Op + " " + canonical(g.Value)
}
