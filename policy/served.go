package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy/wording"
	"stele.dev/stele/schemas"
)

// own are the resources beside kinds that rules can name, by API group: those that the
// server serves by itself, and those that exist in rules only. What core serves has to
// be here; a test in core holds it to that.
var Own = map[string][]string{
	"":                          {"groups", "users", "namespaces/finalize", "serviceaccounts/token"}, // the first to be impersonated, as are serviceaccounts, uids and userextras
	"apiextensions.k8s.io":      {"customresourcedefinitions"},
	"authentication.k8s.io":     {"selfsubjectreviews", "tokenreviews", "uids", "userextras"},
	"authorization.k8s.io":      {"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
	"log.stele.dev":             {"blames", "changes"},
	"policy.stele.dev":          {"accessdifferences", "explanations", "policies", "resourceaccessreviews"},
	"rbac.authorization.k8s.io": {"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
}

// Resources are what rules can name: resources, and subresources as "widgets/status", by
// API group.
type Resources map[string]map[string]bool

// ResourcesOf are those of kinds, and those that every policy has.
func ResourcesOf(kinds []schemas.Kind) Resources {
	s := Resources{}
	for group, resources := range Own {
		for _, r := range resources {
			s.Add(group, r)
		}
	}
	for _, k := range kinds {
		for _, v := range k.Versions {
			if !v.Served {
				continue
			}
			s.Add(k.Group, k.Plural)
			if v.Status {
				s.Add(k.Group, k.Plural+"/status")
			}
			if v.Scale != nil {
				s.Add(k.Group, k.Plural+"/scale")
			}
		}
	}
	return s
}

// Add adds a resource of a group.
func (s Resources) Add(group, resource string) {
	if s[group] == nil {
		s[group] = map[string]bool{}
	}
	s[group][resource] = true
}

// Has tells whether a resource, as a rule names it, is there in a group.
func (s Resources) Has(group, resource string) bool {
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

// HasAny tells whether a resource is there in one of some groups.
func (s Resources) HasAny(groups []string, resource string) bool {
	return slices.ContainsFunc(groups, func(g string) bool { return s.Has(g, resource) })
}

// Groups are the API groups, sorted.
func (s Resources) Groups() []string { return slices.Sorted(maps.Keys(s)) }

// In returns the resources of some groups, sorted.
func (s Resources) In(groups []string) []string {
	all := map[string]bool{}
	for group, resources := range s {
		if slices.Contains(groups, group) || slices.Contains(groups, "*") {
			maps.Copy(all, resources)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Served are the resources that rules of the form can name.
func (f *Form) Served() Resources { return ResourcesOf(f.Kinds) }

// Find tells whether there is a resource, or a subresource as "widgets/status". Where there is
// none it says what is most likely meant.
func (r Resources) Find(group, resource string) (has bool, hint string) {
	base, sub, _ := strings.Cut(resource, "/")
	if resource == "*" || group == "*" || r.Has(group, resource) || base == "*" && sub != "" {
		return true, ""
	}
	groups := []string{group}
	if len(r[group]) == 0 {
		groups = []string{"*"}
	}
	if near := wording.Nearest(resource, r.In(groups)); near != "" {
		return false, fmt.Sprintf("did you mean %q?", near)
	}
	for other, resources := range r {
		if other != group && resources[resource] {
			return false, fmt.Sprintf("did you mean that of the group %q?", r.groupOf(resource))
		}
	}
	return false, ""
}

// groupOf is the first group, by name, that has a resource.
func (r Resources) groupOf(resource string) string {
	for _, g := range r.Groups() {
		if r[g][resource] {
			return g
		}
	}
	return ""
}
