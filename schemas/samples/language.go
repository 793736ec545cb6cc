package samples

import (
	"regexp/syntax"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// maxLanguage is the maximum number of strings of a language that is enumerated.
const maxLanguage = 512

// AdmitsEveryKey reports whether each key is a field of s or matches one of its patterns, as far as that can be proved: a pattern
// admits every key, or every key but finitely many, which are fields.
func AdmitsEveryKey(s *schemas.Struct) bool {
	for _, p := range s.Patterns {
		if len(p.Key.Scalars) == 0 {
			return true
		}
		for i := range p.Key.Scalars {
			if excluded, ok := excludedBy(&p.Key.Scalars[i]); ok && allFields(s, excluded) {
				return true
			}
		}
	}
	return false
}

func allFields(s *schemas.Struct, names []string) bool {
	for _, name := range names {
		if _, ok := schemas.FieldNamed(s, name); !ok {
			return false
		}
	}
	return true
}

// excludedBy returns the strings that the rules do not admit. ok is false if there may be too many, or if the rules are of another kind.
func excludedBy(rules *schemas.Scalar) (all []string, ok bool) {
	if len(rules.Enum)+len(rules.Forms) > 0 || rules.MinRunes != nil || rules.MaxRunes != nil {
		return nil, false
	}
	for _, not := range rules.Not {
		if v, err := jsonvalue.Decode(not.Value); err == nil {
			if text, isText := v.(string); isText {
				all = append(all, text)
			}
		}
	}
	for _, p := range rules.Patterns {
		re, err := syntax.Parse(p.Regexp, syntax.Perl)
		if err != nil || !p.Negated {
			return nil, false
		}
		texts, ok := wholeTexts(re.Simplify())
		if !ok {
			return nil, false
		}
		all = append(all, texts...)
	}
	return all, true
}

// wholeTexts returns all strings that an expression anchored at both ends matches. ok is false if it is not so anchored, or
// matches too many.
func wholeTexts(re *syntax.Regexp) ([]string, bool) {
	if n := len(re.Sub); re.Op == syntax.OpConcat && n >= 2 && re.Sub[0].Op == syntax.OpBeginText && re.Sub[n-1].Op == syntax.OpEndText {
		return textsOfAll(re.Sub[1 : n-1])
	}
	return nil, false
}

// textsOfAll returns the strings that expressions match one after another.
func textsOfAll(parts []*syntax.Regexp) ([]string, bool) {
	all := []string{""}
	for _, part := range parts {
		texts, ok := textsOf(part)
		if !ok || len(texts)*len(all) > maxLanguage {
			return nil, false
		}
		var next []string
		for _, before := range all {
			for _, text := range texts {
				next = append(next, before+text)
			}
		}
		all = next
	}
	return all, true
}

// textsOf returns the strings that an expression matches from their start to their end.
func textsOf(re *syntax.Regexp) (all []string, ok bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}, true
	case syntax.OpLiteral:
		return []string{string(re.Rune)}, re.Flags&syntax.FoldCase == 0
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			if re.Rune[i+1]-re.Rune[i] >= maxLanguage {
				return nil, false
			}
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				all = append(all, string(r))
			}
		}
		return all, len(all) <= maxLanguage
	case syntax.OpCapture, syntax.OpConcat:
		return textsOfAll(re.Sub)
	case syntax.OpQuest:
		all, ok = textsOf(re.Sub[0])
		return append(all, ""), ok
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			texts, ok := textsOf(sub)
			if !ok {
				return nil, false
			}
			all = append(all, texts...)
		}
		return all, len(all) <= maxLanguage
	}
	return nil, false
}
