package importing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/wording"
)

// served is what the control plane serves for which the input is imported: what every one serves, the kinds of the input, and those
// of the bundle that it becomes part of.
type served struct {
	resources policy.Resources
	kinds     []schemas.Kind
	// open says that the bundle may have other kinds: neither it nor a definition is given.
	open bool
	// assumed are the resources that the bundle must have, by their groups, with the versions that rules name.
	assumed map[string]map[string][]string
}

// kubernetesGroups are the API groups of Kubernetes that have a dot. No bundle has kinds in them.
var kubernetesGroups = []string{
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "certificates.k8s.io",
	"coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "metrics.k8s.io", "custom.metrics.k8s.io",
	"external.metrics.k8s.io", "networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io",
	"storagemigration.k8s.io",
}

// servedHere collects what is served.
func (m *importer) servedHere() error {
	kinds, err := builtin.Kinds()
	if err != nil {
		return err
	}
	s := &served{kinds: kinds, open: true, assumed: map[string]map[string][]string{}}
	var views []policy.View
	if m.Into != nil {
		s.open = false
		for i := range m.Into.Kinds {
			if !m.Into.Kinds[i].Builtin {
				s.kinds = append(s.kinds, m.Into.Kinds[i])
			}
		}
		views = m.Into.Views
	}
	for _, o := range m.objectsOf("CustomResourceDefinition") {
		kind, err := m.kindOf(o)
		if err != nil {
			return err
		}
		s.open = false
		s.kinds = append(s.kinds, *kind)
	}
	s.resources = policy.ResourcesOf(s.kinds, views)
	m.served = s
	return nil
}

// closed reports whether all resources of a group are known.
func (s *served) closed(group string) bool {
	return !s.open || group != "*" && (!strings.Contains(group, ".") || s.resources[group] != nil || slices.Contains(kubernetesGroups, group))
}

// has reports whether a rule that names a resource in a group may match something. Patterns of resources match what the group has.
func (s *served) has(group, resource string) bool {
	if group != "*" && s.resources[group] == nil && s.closed(group) {
		return false
	}
	if s.resources.Has(group, resource) {
		return true
	}
	_, sub, _ := strings.Cut(resource, "/")
	return !s.closed(group) && slices.Contains([]string{"", "status", "scale", "*"}, sub)
}

// assume notes the resource of a rule as one that the bundle must have, if it is not known. It returns whether it is new.
func (s *served) assume(group, resource string, versions []string) bool {
	plural, _, _ := strings.Cut(resource, "/")
	if s.closed(group) || group != "*" && s.resources[group] != nil && s.resources.Has(group, plural) {
		return false
	}
	if plural == "*" {
		plural = "anythings"
	}
	if group == "*" {
		group = "any.example"
	}
	if s.assumed[group] == nil {
		s.assumed[group] = map[string][]string{}
	}
	known := s.assumed[group][plural]
	for _, v := range versions {
		if !slices.Contains(known, v) && versionName.MatchString(v) {
			known = append(known, v)
		}
	}
	_, old := s.assumed[group][plural]
	s.assumed[group][plural] = known
	return !old
}

// names are the resources of a rule, by their groups.
type names struct{ groups, resources []string }

// namesServed returns those of the names of a rule that something serves, and notes the others. The result has no resources if there are
// none. what names the rule.
func (m *importer) namesServed(o *object, what string, n, plain names, versions []string, path ...string) names {
	s := m.served
	var kept names
	var lost []string
	for i, r := range plain.resources {
		if slices.ContainsFunc(n.groups, func(g string) bool { return s.has(g, r) }) {
			kept.resources = append(kept.resources, n.resources[i])
		} else {
			lost = append(lost, n.resources[i])
		}
	}
	for _, g := range n.groups {
		if g == "*" || slices.ContainsFunc(plain.resources, func(r string) bool { return s.has(g, r) }) {
			kept.groups = append(kept.groups, g)
		} else if len(lost) == 0 {
			m.note(o, path, "the API group %q of %s is left out: nothing serves any of these resources in it%s", g, what, m.perhaps(g))
		}
	}
	if len(lost) > 0 {
		part := fmt.Sprintf("%s of %s", wording.Enumerate(wording.Quoted(lost)), what)
		if len(kept.resources) == 0 {
			part = what
		}
		m.note(o, path, "%s %s left out: nothing serves %s in the API %s %s%s", part, isOrAre(map[bool]int{true: 1, false: len(lost)}[part == what]), wording.Enumerate(wording.Quoted(lost)),
			map[bool]string{true: "group", false: "groups"}[len(n.groups) == 1], wording.Enumerate(wording.Quoted(n.groups)), m.perhaps(n.groups...))
	}
	if len(kept.groups) == 0 || len(kept.resources) == 0 {
		return names{}
	}
	for i, r := range plain.resources {
		if !slices.Contains(kept.resources, n.resources[i]) || slices.ContainsFunc(kept.groups, func(g string) bool { return (g == "*" || s.resources[g] != nil) && s.resources.Has(g, r) }) {
			continue
		}
		for _, g := range kept.groups {
			if s.assume(g, r, versions) {
				m.note(o, path, "%q in the API group %q is of no definition in the input: the bundle must have it, or vet refuses %s", r, g, what)
			}
		}
	}
	return kept
}

// perhaps returns advice for groups of which the bundle may have kinds.
func (m *importer) perhaps(groups ...string) string {
	if m.Into == nil && slices.ContainsFunc(groups, func(g string) bool {
		return strings.Contains(g, ".") && !slices.Contains(kubernetesGroups, g) && m.served.resources[g] == nil
	}) {
		return "; if the bundle does, name it with --into"
	}
	return ""
}

// servedNames is [importer.namesServed] for rules of roles and flow schemas, which name subresources one by one.
func (m *importer) servedNames(o *object, what string, groups, resources []string, path ...string) names {
	n := names{groups, resources}
	return m.namesServed(o, what, n, n, nil, path...)
}

func isOrAre(n int) string { return map[bool]string{true: "is", false: "are"}[n == 1] }

// matched returns those of the names and versions of an admission rule that some kind has, and notes the others. Resources such as
// "widgets/*" include the subresources. The result has no resources if nothing is matched.
func (m *importer) matched(o *object, what string, n names, versions []string, path ...string) (names, []string) {
	plain := names{groups: n.groups}
	for _, r := range n.resources {
		plain.resources = append(plain.resources, strings.TrimSuffix(r, "/*"))
	}
	kept := m.namesServed(o, what, n, plain, versions, path...)
	if len(kept.resources) == 0 || slices.Contains(kept.groups, "*") || slices.ContainsFunc(kept.resources, func(r string) bool { return strings.HasPrefix(r, "*") }) {
		return kept, versions
	}
	open := slices.ContainsFunc(kept.groups, func(g string) bool { return !m.served.closed(g) })
	known := map[string]bool{}
	for i := range m.served.kinds {
		k := &m.served.kinds[i]
		if !slices.Contains(kept.groups, k.Group) || !slices.ContainsFunc(kept.resources, func(r string) bool { r, _, _ = strings.Cut(r, "/"); return r == k.Plural }) {
			continue
		}
		for j := range k.Versions {
			known[k.Versions[j].Name] = true
		}
	}
	switch {
	case open, len(known) > 0 && slices.Contains(versions, "*"):
		return kept, versions
	case len(known) == 0:
		m.note(o, path, "%s is left out: no rule of a bundle is about %s, which cannot be written through the API", what, wording.Enumerate(wording.Quoted(kept.resources)))
		return names{}, nil
	}
	left := slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return !known[v] })
	if len(left) == 0 {
		m.note(o, path, "%s is left out: it is about the versions %s, and %s served in %s", what, wording.Enumerate(versions), wording.Enumerate(kept.resources)+" "+isOrAre(len(kept.resources)),
			wording.Enumerate(slices.Sorted(maps.Keys(known))))
		return names{}, nil
	}
	return kept, left
}

// audited is [importer.namesServed] for audit rules. Resources such as "widgets/*" and "*/status" are patterns of subresources.
func (m *importer) audited(o *object, what string, n names, path ...string) names {
	plain := names{groups: n.groups}
	for _, r := range n.resources {
		resource, sub, _ := strings.Cut(r, "/")
		switch {
		case resource == "*" && sub != "" && !slices.ContainsFunc(m.served.resources.In(n.groups), func(x string) bool { return strings.HasSuffix(x, "/"+sub) }):
			r = "none/none"
		case sub == "*":
			r = resource
		}
		plain.resources = append(plain.resources, r)
	}
	return m.namesServed(o, what, n, plain, nil, path...)
}

// onlyOutside returns the resources of a rule for requests in namespaces without those that are not in namespaces, and notes these.
func (m *importer) onlyOutside(o *object, what string, n names, path ...string) (resources []string) {
	for _, r := range n.resources {
		plural, _, _ := strings.Cut(r, "/")
		if policy.OnlyOutsideNamespaces(m.served.kinds, n.groups, plural) && !slices.ContainsFunc(n.groups, func(g string) bool { return slices.Contains(policy.Own[g], plural) }) {
			m.note(o, path, "%q of %s is left out: it is not in namespaces, so that no request for it matches", r, what)
			continue
		}
		resources = append(resources, r)
	}
	return resources
}
