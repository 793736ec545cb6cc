package planning

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/rights"
)

// ofTraffic says what happens to a flow schema, a priority level or an audit rule.
func ofTraffic(f *plan.Finding) string {
	effect := f.Message
	if f.Rule == "AUDIT_CHANGED" {
		_, effect, _ = strings.Cut(strings.TrimSuffix(f.Message, "."), ". ")
		effect = cmp.Or(effect, f.Message)
	} else if len(f.Details) > 0 {
		effect = f.Details[0]
	}
	return strings.TrimPrefix(shortSides(f)+"; "+lowerFirst(strings.TrimSuffix(effect, ".")), "; ")
}

// ofAccess says who gains or loses what: each finding of a change that says something new, in the order of [spoken]. Subjects with equal
// requests are named together. Verbs, resources and conditions are never cut.
func (c *change) ofAccess() string {
	findings := slices.DeleteFunc(slices.Clone(c.findings), c.repeats)
	slices.SortStableFunc(findings, func(a, b *plan.Finding) int { return spoken(a) - spoken(b) })
	var parts []string
	also, at := map[int][]string{}, map[string]int{}
	for _, f := range findings {
		key := fmt.Sprintf("%q", []string{f.Rule, f.Before, f.After, string(f.Scope)})
		if i, said := at[key]; said && f.Scope != nil {
			if name := subjectOf(f); !strings.HasPrefix(parts[i], name+" ") && !slices.Contains(also[i], name) {
				also[i] = append(also[i], name)
			}
			continue
		}
		at[key] = len(parts)
		parts = append(parts, c.accessPart(f))
	}
	for i, names := range also {
		slices.SortStableFunc(names, func(a, b string) int { return place(a) - place(b) })
		parts[i] += "; also " + listed(names, maxNames)
	}
	if more := len(parts) - maxParts; more > 1 {
		parts = append(parts[:maxParts], fmt.Sprintf("and %d more, see the details", more))
	}
	return strings.Join(parts, "; ")
}

const (
	// maxNames limits the further subjects with equal requests that a sentence names, and maxParts the parts of a sentence.
	maxNames, maxParts = 8, 12
)

// place orders names of subjects: those of the server, such as all users, come first.
func place(name string) int {
	if strings.Contains(name, " system:") {
		return 0
	}
	return 1
}

// spoken orders what a sentence says: removed and wider conditions, new rights, lost rights, other conditions, denials of requests that
// nothing allowed, and what these mean.
func spoken(f *plan.Finding) int {
	orders := map[string]int{"GRANT_ADDED": 1, "GRANT_REMOVED": 2, "CONDITION_CHANGED": 3, "DENY_ADDED": 4, "DENY_REMOVED": 4, "ESCALATION": 5, "DENY_MEETS_CONTROLLERS": 6, "DENY_MEETS_ADMINISTRATORS": 7}
	switch order, known := orders[f.Rule]; {
	case !known:
		return 8
	case f.Rule == "CONDITION_CHANGED" && f.Class == plan.Widens:
		return 0
	case f.Rule == "DENY_REMOVED" && f.After != "":
		return 1
	case f.Rule == "DENY_ADDED" && f.Before != "":
		return 2
	default:
		return order
	}
}

// repeats reports whether the sentence of a change says all that a finding says, too.
func (c *change) repeats(f *plan.Finding) bool {
	has := func(rule string, other bool) bool {
		return slices.ContainsFunc(c.findings, func(x *plan.Finding) bool {
			return x.Rule == rule && string(x.Scope) == string(f.Scope) && (x.Subject != f.Subject) == other
		})
	}
	switch {
	case f.Rule == "MESSAGE_CHANGED":
		return len(c.findings) > 1
	case f.Rule == "DENY_ADDED": // system:masters, whom the deny stops, too
		return has("DENY_MEETS_ADMINISTRATORS", false) && has("DENY_ADDED", true)
	case f.Rule == "DENY_MEETS_ADMINISTRATORS":
		return has("DENY_ADDED", false) && !has("DENY_ADDED", true)
	}
	return false
}

// accessPart says what one finding means.
func (c *change) accessPart(f *plan.Finding) string {
	text := strings.TrimSuffix(allRequests(f), ".")
	switch {
	case f.Rule == "DENY_MEETS_CONTROLLERS":
		return "stops " + strings.ReplaceAll(f.Subject, "serviceaccount:kube-system/", "")
	case f.Rule == "DENY_MEETS_ADMINISTRATORS":
		return "stops system:masters, too"
	case f.Rule == "ESCALATION" && f.Subject != "":
		return subjectOf(f) + " may " + strings.ReplaceAll(f.After, "; ", ", ")
	case f.Rule == "DENY_ADDED":
		text = strings.TrimSuffix(text, ", whatever allows it")
		for _, line := range f.Details {
			if exception, is := strings.CutPrefix(line, "Its exception: "); is {
				text = strings.Replace(text, ", whatever allows it", "", 1)
				text = strings.Replace(text, "unless the exception of the deny holds", "unless "+oneLine(exception), 1)
			}
		}
	case f.Rule == "CONDITION_CHANGED":
		before, after := oneLine(strings.TrimPrefix(f.Before, "denied: ")), oneLine(strings.TrimPrefix(f.After, "denied: "))
		text = strings.TrimSuffix(strings.TrimSuffix(text, " under another condition"), ",") + ": " + before + " → " + after
	case strings.HasPrefix(f.Rule, "GRANT_"):
		if condition := oneLine(cmp.Or(f.After, f.Before)); condition != "" && condition != always {
			text += ", " + condition
		}
	}
	return text
}

// allRequests returns the message of a finding. Where it counts sorts of requests, they are named.
func allRequests(f *plan.Finding) string {
	var scopes []rights.Scope
	if json.Unmarshal(f.Scope, &scopes) != nil || len(scopes) < 2 {
		return cmp.Or(f.Message, plan.RuleNamed(f.Rule).Short)
	}
	first, rest := scopes[0].String(), len(scopes)-1
	counted := fmt.Sprintf("%s, and make %d other sorts of requests", first, rest)
	if rest == 1 {
		counted = first + ", and make another sort of requests"
	}
	var all []string
	for i := range scopes {
		all = append(all, scopes[i].String())
	}
	if more := len(all) - maxParts; more > 1 {
		all = append(all[:maxParts], fmt.Sprintf("make %d other sorts of requests", more))
	}
	return strings.Replace(f.Message, counted, strings.Join(all, ", and "), 1)
}

// words matches the words of a sentence; a quoted text is one.
var words = regexp.MustCompile(`"(?:[^"\\]|\\.)*"\S*|\S+`)

// subjectOf returns the subjects of a finding as its message names them: what stands before "may".
func subjectOf(f *plan.Finding) string {
	var names []string
	for _, word := range words.FindAllString(f.Message, -1) {
		if word == "may" {
			return strings.Join(names, " ")
		}
		names = append(names, word)
	}
	return f.Subject
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
