package access

import (
	"encoding/json"
	"fmt"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
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

func verbsText(s *rights.Scope) string {
	if len(s.Verbs) == 1 && s.Verbs[0] == "*" {
		if len(s.ExceptVerbs) > 0 {
			return "all but " + strings.Join(s.ExceptVerbs, ", ")
		}
		return "all, delete and deletecollection included"
	}
	return strings.Join(s.Verbs, ", ")
}

func paths(by []rights.Ground) string {
	ids := make([]string, len(by))
	for i := range by {
		ids[i] = by[i].ID
	}
	if len(ids) > maxNamed {
		ids = append(ids[:maxNamed], fmt.Sprintf("%d more", len(by)-maxNamed))
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
