package show

import (
	"cmp"
	"fmt"
	"strings"

	"stele.dev/stele/policy/rights"

	"stele.dev/stele/core/resources/access"
)

// changeMarks are the marks and styles of types of changes.
var changeMarks = map[string]struct {
	mark  string
	style Style
}{
	rights.Gained: {"+", Added}, rights.Lost: {"-", Removed}, rights.Changed: {"~", Altered}, rights.Denied: {"!", Removed}, rights.NotDenied: {".", Added},
}

// AccessDifference prints who gained or lost permissions. fromText and toText are the two sides as the
// user wrote them.
func AccessDifference(out *Output, answer *access.Difference, fromText, toText string) error {
	st := &answer.Status
	name := func(s *access.State, text string) string {
		if s.Policy == "" {
			return text
		}
		return fmt.Sprintf("policy %.12s of revision %d", s.Policy, s.PolicyRevision)
	}
	from, to := name(&st.From, fromText), name(&st.To, toText)
	if len(st.Changes)+len(st.Chain) == 0 {
		_, err := fmt.Fprintf(out, "Nobody gains or loses anything from %s to %s.\n", from, to)
		return err
	}
	if _, err := fmt.Fprintf(out, "From %s to %s:\n\n", from, to); err != nil {
		return err
	}
	for _, c := range st.Chain {
		text := fmt.Sprintf("authorizer %s %s: %s", c.Authorizer, strings.ToLower(c.Type), c.Message)
		how := Altered
		if c.Weaker {
			text, how = text+" (weaker)", Removed
		}
		if _, err := fmt.Fprintln(out, out.Paint(how, text)); err != nil {
			return err
		}
	}
	if len(st.Chain) > 0 && len(st.Changes) > 0 {
		fmt.Fprintln(out)
	}
	rows := &Columns{Out: out}
	if len(st.Changes) > 0 {
		rows.Header(" ", "SUBJECT", "VERBS", "ON", "NAMES", "NAMESPACES", "BY")
	}
	for i := range st.Changes {
		c := &st.Changes[i]
		m := changeMarks[c.Type]
		below := ""
		switch {
		case c.Type == rights.Changed:
			below = "   " + out.Paint(m.style, "before: "+cmp.Or(c.Before, "always")) + "\n   " + out.Paint(m.style, "now:    "+cmp.Or(c.After, "always")) + "\n"
		case c.Before+c.After != "":
			below = "   " + out.Paint(m.style, cmp.Or(c.After, c.Before)) + "\n"
		}
		var by []string
		for _, g := range c.By {
			by = append(by, groundText(g))
		}
		names := ""
		if len(c.Names) > 0 {
			names = butText(c.Names, c.ExceptNames)
		}
		rows.Add(below, Cell{Text: m.mark, Style: m.style}, Cell{Text: subjectText(c.Subject), Style: m.style}, Cell{Text: butText(c.Verbs, c.ExceptVerbs)},
			Cell{Text: scopeText(&c.Scope)}, Cell{Text: names}, Cell{Text: butText(c.Namespaces, c.ExceptNamespaces)}, Cell{Text: strings.Join(by, ", "), Style: subtle})
	}
	return rows.Flush()
}

// butText joins words, followed by the exceptions.
func butText(words, except []string) string {
	shown := make([]string, len(words))
	for i, w := range words {
		if shown[i] = w; w == "" {
			shown[i] = `""`
		}
	}
	text := strings.Join(shown, ", ")
	if len(except) > 0 {
		text += " but " + butText(except, nil)
	}
	return text
}

// scopeText returns the resources or paths of a scope.
func scopeText(s *rights.Scope) string {
	if len(s.Paths) > 0 {
		return butText(s.Paths, s.ExceptPaths)
	}
	group := ""
	switch {
	case len(s.APIGroups) == 1 && len(s.ExceptAPIGroups) == 0 && s.APIGroups[0] != "":
		group = "." + s.APIGroups[0]
	case len(s.APIGroups) > 1 || len(s.ExceptAPIGroups) > 0:
		group = ".{" + butText(s.APIGroups, s.ExceptAPIGroups) + "}"
	}
	subs := s.Subresources
	if len(subs) == 0 {
		subs = []string{""}
	}
	var words []string
	for _, r := range s.Resources {
		for _, sub := range subs {
			switch {
			case sub == "*" && r == "*" && len(s.ExceptSubresources) == 0:
				words = append(words, "*"+group) // rules have no other form
			case sub == "*":
				words = append(words, r+"[/"+butText([]string{"*"}, s.ExceptSubresources)+"]"+group)
			case sub == "" && r == "*":
				words = append(words, "*"+group+" without subresources")
			case sub == "":
				words = append(words, r+group)
			default:
				words = append(words, r+"/"+sub+group)
			}
		}
	}
	return butText(words, s.ExceptResources)
}
