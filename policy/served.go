package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// Own lists the resources without kinds that rules can name, by API group: those that the server
// itself serves, and those that exist in rules only. It must contain all that package core serves; a
// test in core checks this.
var Own = map[string][]string{
	"": {"groups", "users", "namespaces/finalize", "serviceaccounts/token"}, // groups and users, serviceaccounts, uids and userextras are for impersonation
	"admissionregistration.k8s.io": {
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"validatingwebhookconfigurations",
	},
	"apiextensions.k8s.io":         {"customresourcedefinitions", "customresourcedefinitions/status"},
	"authentication.k8s.io":        {"selfsubjectreviews", "tokenreviews", "uids", "userextras"},
	"authorization.k8s.io":         {"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
	"flow.stele.dev":               {"flows", "prioritylevels"},
	"flowcontrol.apiserver.k8s.io": {"flowschemas", "prioritylevelconfigurations"},
	"log.stele.dev":                {"blames", "changes", "decisions", "replicas"},
	"policy.stele.dev":             {"accessdifferences", "explanations", "plans", "policies", "resourceaccessreviews", "shadows"},
	"rbac.authorization.k8s.io":    {"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
}

// Resources are the resources that rules can name, by API group. Subresources are written
// "widgets/status".
type Resources map[string]map[string]bool

// ResourcesOf returns the resources of kinds and views, and those of every policy.
func ResourcesOf(kinds []schemas.Kind, views []View) Resources {
	s := Resources{}
	for group, resources := range Own {
		for _, r := range resources {
			s.Add(group, r)
		}
	}
	for i := range views {
		s.Add(ViewsGroup, views[i].Name)
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

// Has reports whether a group has a resource, as rules name it.
func (s Resources) Has(group, resource string) bool {
	switch {
	case resource == "*", strings.HasPrefix(resource, "*/"):
		return true // any resource
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

// HasAny reports whether one of the groups has a resource.
func (s Resources) HasAny(groups []string, resource string) bool {
	return slices.ContainsFunc(groups, func(g string) bool { return s.Has(g, resource) })
}

// Groups returns the API groups, sorted.
func (s Resources) Groups() []string { return slices.Sorted(maps.Keys(s)) }

// In returns the resources of the groups, sorted.
func (s Resources) In(groups []string) []string {
	all := map[string]bool{}
	for group, resources := range s {
		if slices.Contains(groups, group) || slices.Contains(groups, "*") {
			maps.Copy(all, resources)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Served returns the resources that rules of the form can name.
func (f *Form) Served() Resources { return ResourcesOf(f.Kinds, f.Views) }

// Find reports whether a group has a resource, or a subresource such as "widgets/status". If not,
// hint suggests the most likely name.
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

// groupOf returns the first group, by name, that has a resource.
func (r Resources) groupOf(resource string) string {
	for _, g := range r.Groups() {
		if r[g][resource] {
			return g
		}
	}
	return ""
}

// OnlyOutsideNamespaces reports whether a resource is served in some of the groups, and in none of them in namespaces.
func OnlyOutsideNamespaces(kinds []schemas.Kind, groups []string, plural string) (found bool) {
	for i := range kinds {
		k := &kinds[i]
		if k.Plural != plural || !slices.Contains(groups, "*") && !slices.Contains(groups, k.Group) {
			continue
		}
		if k.Namespaced || k.Group == "" && k.Plural == "namespaces" {
			return false
		}
		found = true
	}
	return found
}
