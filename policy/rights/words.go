package rights

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"stele.dev/stele/policy"
)

// String describes the requests: "get, list widgets.example.com in namespaces dev-*".
func (s *Scope) String() string {
	if len(s.Paths) > 0 {
		return verbWords(s.Verbs, s.ExceptVerbs) + " " + listed(s.Paths, s.ExceptPaths)
	}
	text := resourceVerbs(s.Verbs, s.ExceptVerbs)
	text += " " + s.Resource()
	if len(s.Names) > 0 {
		text += " named " + listed(s.Names, s.ExceptNames)
	}
	return text + s.describeNamespaces()
}

// Has reports whether requests of a verb for a resource, or for a subresource of it, are in the scope in some namespace or by some name.
func (s *Scope) Has(verb, group, resource, subresource string) bool {
	among := func(word string, words, except []string) bool {
		return (slices.Contains(words, word) || slices.Contains(words, "*")) && !slices.Contains(except, word)
	}
	subs := s.Subresources
	if len(subs) == 0 {
		subs = []string{""}
	}
	return len(s.Paths) == 0 && among(verb, s.Verbs, s.ExceptVerbs) && among(group, s.APIGroups, s.ExceptAPIGroups) &&
		among(resource, s.Resources, s.ExceptResources) && among(subresource, subs, s.ExceptSubresources)
}

// Meets reports whether requests for an object in a namespace are in the scope, if their verb and resource are. The namespace "" is that
// of requests for cluster-scoped objects and for all namespaces.
func (s *Scope) Meets(namespace, name string) bool {
	in := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			return p == "*" || (p == "") == (namespace == "") && policy.GlobMatches(p, namespace)
		})
	}
	named := len(s.Names) == 0 || (slices.Contains(s.Names, name) || slices.Contains(s.Names, "*")) && !slices.Contains(s.ExceptNames, name)
	return named && in(s.Namespaces) && !in(s.ExceptNamespaces)
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

// UsualVerbs are the verbs of requests about objects. Others are asked about by those who look at rights, such as impersonate.
var UsualVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// resourceVerbs describes verbs of requests about objects. Of all verbs but some it names the usual ones that are left.
func resourceVerbs(verbs, except []string) string {
	if len(verbs) != 1 || verbs[0] != "*" || len(except) == 0 {
		return verbWords(verbs, except)
	}
	usual := func(v string) bool { return slices.Contains(UsualVerbs, v) }
	left := slices.DeleteFunc(slices.Clone(UsualVerbs), func(v string) bool { return slices.Contains(except, v) })
	others := "use further verbs"
	if rest := slices.DeleteFunc(slices.Clone(except), usual); len(rest) > 0 {
		others += " but " + strings.Join(rest, ", ")
	}
	if len(left) == 0 {
		return others + " with"
	}
	return strings.Join(left, ", ") + " and " + others + " with"
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

// SubjectWords is a subject in a sentence: Group developers, User dana, ServiceAccount data/operator. A name that could be taken for other
// words of the sentence is quoted, and a long one is shortened in its middle.
func SubjectWords(s policy.Subject) string {
	kind, name, _ := strings.Cut(SubjectName(s), ":")
	if r := []rune(name); len(r) > maxName {
		name = string(r[:maxName*2/3]) + "…" + string(r[len(r)-maxName/3:])
	}
	if !plainName.MatchString(name) {
		name = strconv.Quote(name)
	}
	switch kind {
	case "group":
		return "Group " + name
	case "serviceaccount":
		return "ServiceAccount " + name
	default:
		return "User " + name
	}
}

// maxName limits the characters of a name in a sentence.
const maxName = 60

// plainName matches names that can be told from the words around them.
var plainName = regexp.MustCompile(`^[\p{L}\p{N}._:@/+=*#~…-]+$`)

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
