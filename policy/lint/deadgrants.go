package lint

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/wording"
)

// deadGrants finds rules of roles that name only what is outside of namespaces, where all bindings of the role are for some
// namespaces.
func (c *checking) deadGrants() {
	bindings := map[string][]*policy.Binding{}
	for i := range c.Form.Bindings {
		b := &c.Form.Bindings[i]
		bindings[b.Role] = append(bindings[b.Role], b)
	}
	for i := range c.Form.Roles {
		role := &c.Form.Roles[i]
		bound := bindings[role.Name]
		if len(bound) == 0 || c.aggregated(role) || slices.ContainsFunc(bound, (*policy.Binding).Everywhere) {
			continue
		}
		for j := range role.Rules {
			if rule := &role.Rules[j]; !rule.Source.IsZero() {
				c.deadGrant(rule, bound[0])
			}
		}
	}
}

func (c *checking) deadGrant(rule *policy.Rule, b *policy.Binding) {
	what := rule.NonResourceURLs
	for _, resource := range rule.Resources {
		if !c.outsideNamespaces(rule.APIGroups, resource) {
			return
		}
		what = append(slices.Clip(what), resource)
	}
	if len(what) == 0 {
		return
	}
	are := "is"
	if len(what) > 1 {
		are = "are"
	}
	c.add("GRANT_NEVER_APPLIES", rule.Source, rule.ID, fmt.Sprintf("it never applies: %s %s outside of namespaces, and %s%s grants the role in %s alone",
		strings.Join(what, ", "), are, b.ID, wording.At(b.Source.String()), wording.Enumerate(b.Namespaces)), "write a role and a binding of their own, with namespaces: [\"*\"], in a team over all namespaces")
}

// outsideNamespaces reports whether a resource, or the one that it is a subresource of, is served in some of the groups, and in no
// namespace.
func (c *checking) outsideNamespaces(groups []string, resource string) bool {
	plural, _, _ := strings.Cut(resource, "/")
	if slices.Contains(groups, "*") || strings.HasPrefix(plural, "*") {
		return false
	}
	if policy.OnlyOutsideNamespaces(c.Form.Kinds, groups, plural) {
		return true
	}
	if !slices.Contains(groups, policy.ViewsGroup) || len(groups) > 1 {
		return false
	}
	i := slices.IndexFunc(c.Form.Views, func(v policy.View) bool { return v.Name == plural })
	if i < 0 {
		return false
	}
	group, of := "", c.Form.Views[i].Kind
	if name, g, found := strings.Cut(of, "."); found {
		of, group = name, g
	}
	return c.Form.Views[i].Grouped || policy.OnlyOutsideNamespaces(c.Form.Kinds, []string{group}, of)
}
