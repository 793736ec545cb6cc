package rights

import (
	"strings"

	"stele.dev/stele/policy"
)

// String describes the requests: "get, list widgets.example.com in namespaces dev-*".
func (s *Scope) String() string {
	text := verbWords(s.Verbs, s.ExceptVerbs)
	if len(s.Paths) > 0 {
		return text + " " + listed(s.Paths, s.ExceptPaths)
	}
	text += " " + s.Resource()
	if len(s.Names) > 0 {
		text += " named " + listed(s.Names, s.ExceptNames)
	}
	return text + s.describeNamespaces()
}

func verbWords(verbs, except []string) string {
	if len(verbs) == 1 && verbs[0] == "*" {
		if len(except) == 0 {
			return "do anything with"
		}
		return "do anything but " + strings.Join(except, ", ") + " with"
	}
	return listed(verbs, except)
}

// Resource describes the resources as rules name them: "widgets.example.com, widgets/status.example.com".
func (s *Scope) Resource() string {
	if everything := len(s.Resources) == 1 && s.Resources[0] == "*" && len(s.ExceptResources) == 0 &&
		len(s.Subresources) == 1 && s.Subresources[0] == "*" && len(s.ExceptSubresources) == 0; everything {
		if len(s.APIGroups) == 1 && s.APIGroups[0] == "*" && len(s.ExceptAPIGroups) == 0 {
			return "all resources"
		}
		return "all resources of " + groupWords(s.APIGroups, s.ExceptAPIGroups)
	}
	group := ""
	plain := len(s.APIGroups) == 1 && s.APIGroups[0] != "*"
	if plain && s.APIGroups[0] != "" {
		group = "." + s.APIGroups[0]
	}
	subs := s.Subresources
	if len(subs) == 0 {
		subs = []string{""}
	}
	var words []string
	for _, r := range s.Resources {
		for _, sub := range subs {
			if sub != "" {
				sub = "/" + sub
			}
			words = append(words, r+sub+group)
		}
	}
	text := listed(words, s.ExceptResources)
	if len(s.ExceptSubresources) > 0 {
		text += " (but not " + listed(s.ExceptSubresources, nil) + ")"
	}
	if !plain {
		text += " of " + groupWords(s.APIGroups, s.ExceptAPIGroups)
	}
	return text
}

func groupWords(groups, except []string) string {
	if len(groups) == 1 && groups[0] == "*" && len(except) == 0 {
		return "any API group"
	}
	word := "the API groups "
	if len(groups) == 1 && len(except) == 0 {
		word = "the API group "
	}
	return word + listed(groups, except)
}

// describeNamespaces describes the namespaces.
func (s *Scope) describeNamespaces() string {
	if len(s.Namespaces) == 0 {
		return ""
	}
	var named []string
	cluster := false
	for _, n := range s.Namespaces {
		switch n {
		case "*":
			if len(s.ExceptNamespaces) == 0 {
				return " in any namespace"
			}
			named = append(named, n)
		case "":
			cluster = true
		case "**":
			named = append(named, "*")
		default:
			named = append(named, n)
		}
	}
	text := ""
	if len(named) > 0 {
		text = " in namespace"
		if len(named) > 1 || strings.Contains(named[0], "*") || len(s.ExceptNamespaces) > 0 {
			text += "s"
		}
		text += " " + listed(named, s.ExceptNamespaces)
	}
	if cluster {
		if text != "" {
			text += " and"
		}
		text += " at cluster scope"
	}
	return text
}

// listed joins words, followed by the exceptions.
func listed(words, except []string) string {
	shown := make([]string, len(words))
	for i, w := range words {
		if shown[i] = w; w == "" {
			shown[i] = `""`
		}
	}
	text := strings.Join(shown, ", ")
	if len(except) > 0 {
		text += " but " + listed(except, nil)
	}
	return text
}

// SubjectWords describes a subject: "Group developers", "User dana", "ServiceAccount data/operator".
func SubjectWords(s policy.Subject) string {
	switch kind, name, _ := strings.Cut(SubjectName(s), ":"); kind {
	case "group":
		return "Group " + name
	case "serviceaccount":
		return "ServiceAccount " + name
	default:
		return "User " + name
	}
}

// SubjectName is a subject as findings write it: group:developers, user:dana,
// serviceaccount:data/operator.
func SubjectName(s policy.Subject) string {
	if s.Group != "" {
		return "group:" + s.Group
	}
	if account, is := strings.CutPrefix(s.User, "system:serviceaccount:"); is {
		if namespace, name, ok := strings.Cut(account, ":"); ok && name != "" {
			return "serviceaccount:" + namespace + "/" + name
		}
	}
	return "user:" + s.User
}
