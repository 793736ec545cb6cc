// Package wording has words for messages: what schemas admit, the nearest name to a misspelled one, lists, places, and the
// beginnings of long texts.
package wording

import (
	"encoding/json"
	"fmt"
	"strings"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/textforms"
)

// MaxShownValues is the maximum number of enumeration values in a message.
const MaxShownValues = 20

// Kinds returns the names of the kinds: "a string or an integer".
func Kinds(k schemas.Kinds) string {
	if k == schemas.AnyKind {
		return "a value of any kind"
	}
	var nouns []string
	for _, n := range [...]struct {
		kind schemas.Kinds
		noun string
	}{
		{schemas.StringKind, "a string"},
		{schemas.IntegerKind, "an integer"},
		{schemas.NumberKind, "a number"},
		{schemas.BoolKind, "a boolean"},
		{schemas.ListKind, "a list"},
		{schemas.StructKind, "an object"},
		{schemas.NullKind, "null"},
	} {
		if k.Has(n.kind) && !(n.kind == schemas.IntegerKind && k.Has(schemas.NumberKind)) {
			nouns = append(nouns, n.noun)
		}
	}
	return Or(nouns)
}

// Node returns a description of the scalars that a node admits.
func Node(n *schemas.Node) string {
	said := make([]string, 0, len(n.Scalars))
	spoken := schemas.Kinds(0)
	for i := range n.Scalars {
		said = append(said, Scalar(&n.Scalars[i]))
		spoken |= n.Scalars[i].Kinds
	}
	if rest := n.Kinds &^ spoken; rest != 0 {
		said = append(said, Kinds(rest))
	}
	return Or(said)
}

// Scalar returns a description of what an alternative admits: "an integer that is at least 5".
func Scalar(s *schemas.Scalar) string {
	if len(s.Enum) == 1 {
		return string(s.Enum[0])
	}
	if len(s.Enum) > 1 {
		return "one of " + Values(s.Enum)
	}
	var rules []string
	if b := Bounds(s); b != "" {
		rules = append(rules, "is "+b)
	}
	if l := Length(s); l != "" {
		rules = append(rules, "has "+l)
	}
	for _, p := range s.Patterns {
		rules = append(rules, choose(p.Negated, "does not match ", "matches ")+p.Regexp)
	}
	for _, f := range s.Forms {
		form, _ := textforms.Named(f.Name)
		rules = append(rules, "is "+form.Phrase)
	}
	for _, not := range s.Not {
		rules = append(rules, "is not "+string(not.Value))
	}
	if s.MultipleOf != nil {
		rules = append(rules, "is a multiple of "+s.MultipleOf.Value)
	}
	if len(rules) == 0 {
		return Kinds(s.Kinds)
	}
	return Kinds(s.Kinds) + " that " + strings.Join(rules, " and ")
}

// Pattern returns a description of a pattern: "match ^a$" or "not match ^a$".
func Pattern(p *schemas.Pattern) string {
	if p.Negated {
		return "not match " + p.Regexp
	}
	return "match " + p.Regexp
}

// Bounds returns a description of the bounds of a number: "at least 1 and at most 1000".
func Bounds(s *schemas.Scalar) string {
	var said []string
	if b := s.Minimum; b != nil {
		said = append(said, choose(b.Exclusive, "greater than ", "at least ")+b.Value)
	}
	if b := s.Maximum; b != nil {
		said = append(said, choose(b.Exclusive, "less than ", "at most ")+b.Value)
	}
	return strings.Join(said, " and ")
}

// Length returns a description of the allowed length of a string: "at least 1 character".
func Length(s *schemas.Scalar) string {
	var said []string
	if s.MinRunes != nil {
		said = append(said, "at least "+Count(s.MinRunes.Count, "character"))
	}
	if s.MaxRunes != nil {
		said = append(said, "at most "+Count(s.MaxRunes.Count, "character"))
	}
	return strings.Join(said, " and ")
}

func choose[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// Count returns a number with a noun in singular or plural: "1 item", "2 items".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Values returns the first values of an enumeration as text.
func Values(values []json.RawMessage) string {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == MaxShownValues {
			b.WriteString("…")
			break
		}
		b.Write(v)
	}
	return b.String()
}

// Or returns the phrases joined by commas and "or": "a, b or c".
func Or(said []string) string {
	switch len(said) {
	case 0:
		return "nothing"
	case 1:
		return said[0]
	}
	return strings.Join(said[:len(said)-1], ", ") + " or " + said[len(said)-1]
}
