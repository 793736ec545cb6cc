package access

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/schemas/wording"
)

// maxNamed limits how many bindings, subjects or fields a finding names.
const maxNamed = 5

func quoted(words []string) string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = fmt.Sprintf("%q", w)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// counted returns the words for a number.
func counted(n int, none, one, many string) string {
	switch n {
	case 0:
		return none
	case 1:
		return one
	}
	return fmt.Sprintf(many, n)
}

// kindsOf describes the kinds of a rule.
func kindsOf(r *policy.Rule) string {
	every := slices.Contains(r.Resources, "*") && !slices.Contains(r.APIGroups, "") // which has no name
	switch {
	case slices.Contains(r.Resources, "*") && slices.Contains(r.APIGroups, "*"):
		return "every kind"
	case every:
		return "every kind of " + wording.Enumerate(r.APIGroups) + ", also future ones,"
	}
	s := rights.Scope{APIGroups: r.APIGroups, Resources: r.Resources}
	return s.Resource()
}

// namespacesOf describes the namespaces of a binding.
func namespacesOf(names []string) string {
	switch {
	case slices.Contains(names, "*"):
		return " in any namespace"
	case len(names) == 1 && !strings.Contains(names[0], "*"):
		return " in namespace " + names[0]
	case len(names) > 0:
		return " in namespaces " + strings.Join(names, ", ")
	}
	return ""
}

// newVerbs names the usual verbs for objects that sets of requests have, if they do not have all of them, and their subresources.
func newVerbs(scopes []rights.Scope) string {
	verbs, subresources := map[string]bool{}, map[string]bool{}
	further, others := false, false
	for i := range scopes {
		s := &scopes[i]
		if len(s.Paths) > 0 {
			continue
		}
		if len(s.ExceptResources) > 0 && len(s.ExceptSubresources) == 0 { // kinds of which nothing was allowed
			others = true
			continue
		}
		subs := s.Subresources
		if len(subs) == 0 {
			subs = []string{""}
		}
		for _, sub := range subs {
			if sub != "" {
				subresources[sub] = true
			}
		}
		if slices.Contains(s.ExceptSubresources, "") || !slices.Contains(subs, "") && !slices.Contains(subs, "*") {
			continue
		}
		further = further || slices.Contains(s.Verbs, "*")
		for _, v := range rights.UsualVerbs {
			if slices.Contains(s.Verbs, v) || slices.Contains(s.Verbs, "*") && !slices.Contains(s.ExceptVerbs, v) {
				verbs[v] = true
			}
		}
	}
	if len(verbs) == len(rights.UsualVerbs) {
		return ""
	}
	found := slices.DeleteFunc(slices.Clone(rights.UsualVerbs), func(v string) bool { return !verbs[v] })
	if further {
		found = append(found, policy.HistoryVerb+" and further verbs")
	}
	if subresources["*"] {
		found = append(found, "all subresources")
	} else {
		found = append(found, slices.Sorted(maps.Keys(subresources))...)
	}
	if others {
		found = append(found, "other kinds")
	}
	return " (new: " + strings.Join(found, ", ") + ")"
}

// paths names bindings and denies, each once.
func paths(by []rights.Ground) string {
	var ids []string
	for i := range by {
		if !slices.Contains(ids, by[i].ID) {
			ids = append(ids, by[i].ID)
		}
	}
	if more := len(ids) - maxNamed; more > 0 {
		ids = append(ids[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(ids, ", ")
}

func subjectNames(subjects []policy.Subject) string {
	names := make([]string, len(subjects))
	for i, s := range subjects {
		names[i] = rights.SubjectName(s)
	}
	return strings.Join(names, ", ")
}

func subjectWords(subjects []policy.Subject) string {
	var words []string
	for i, s := range subjects {
		if i == maxNamed {
			words = append(words, fmt.Sprintf("%d others", len(subjects)-i))
			break
		}
		words = append(words, rights.SubjectWords(s))
	}
	return conjoined(words)
}

// conjoined joins words, of which there is at least one: "a, b and c".
func conjoined(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return words[0]
}

// kindOf returns the resource that all scopes are about; "" if there are several.
func kindOf(scopes []rights.Scope) (kind string) {
	for i := range scopes {
		s := &scopes[i]
		if len(s.Resources) != 1 || len(s.APIGroups) != 1 || s.Resources[0] == "*" || s.APIGroups[0] == "*" {
			return ""
		}
		one := s.Resources[0]
		if s.APIGroups[0] != "" {
			one += "." + s.APIGroups[0]
		}
		if kind != "" && kind != one {
			return ""
		}
		kind = one
	}
	return kind
}

// scopes returns the sets of requests as JSON.
func scopes(list []rights.Scope) json.RawMessage {
	data, err := json.Marshal(list)
	if err != nil {
		return nil
	}
	return data
}
