package policy

import (
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/schemas"
)

// own are the resources beside kinds that rules can name, by API group: those that the
// server serves by itself, and those that exist in rules only. What core serves has to
// be here; a test in core holds it to that.
var own = map[string][]string{
	"":                          {"groups", "users", "namespaces/finalize", "serviceaccounts/token"}, // the first to be impersonated, as are serviceaccounts, uids and userextras
	"apiextensions.k8s.io":      {"customresourcedefinitions"},
	"authentication.k8s.io":     {"selfsubjectreviews", "tokenreviews", "uids", "userextras"},
	"authorization.k8s.io":      {"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
	"log.stele.dev":             {"blames", "changes"},
	"policy.stele.dev":          {"accessdifferences", "explanations", "policies", "resourceaccessreviews"},
	"rbac.authorization.k8s.io": {"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
}

// served is what rules can name: resources, and subresources as "widgets/status", by
// API group.
type served map[string]map[string]bool

func newServed(kinds []schemas.Kind) served {
	s := served{}
	for group, resources := range own {
		for _, r := range resources {
			s.add(group, r)
		}
	}
	for _, k := range kinds {
		for _, v := range k.Versions {
			if !v.Served {
				continue
			}
			s.add(k.Group, k.Plural)
			if v.Status {
				s.add(k.Group, k.Plural+"/status")
			}
			if v.Scale != nil {
				s.add(k.Group, k.Plural+"/scale")
			}
		}
	}
	return s
}

func (s served) add(group, resource string) {
	if s[group] == nil {
		s[group] = map[string]bool{}
	}
	s[group][resource] = true
}

// has tells whether a resource, as a rule names it, is there in a group.
func (s served) has(group, resource string) bool {
	switch {
	case resource == "*", strings.HasPrefix(resource, "*/"):
		return true // of whatever there is
	case strings.HasPrefix(resource, "userextras/"): // with any key
		resource = "userextras"
	}
	if group != "*" {
		return s[group][resource]
	}
	for _, resources := range s {
		if resources[resource] {
			return true
		}
	}
	return false
}

func (s served) hasAny(groups []string, resource string) bool {
	return slices.ContainsFunc(groups, func(g string) bool { return s.has(g, resource) })
}

func (s served) groups() []string { return slices.Sorted(maps.Keys(s)) }

// resources of some groups, sorted.
func (s served) resources(groups []string) []string {
	all := map[string]bool{}
	for group, resources := range s {
		if slices.Contains(groups, group) || slices.Contains(groups, "*") {
			maps.Copy(all, resources)
		}
	}
	return slices.Sorted(maps.Keys(all))
}
