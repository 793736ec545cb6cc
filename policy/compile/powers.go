package compile

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"stele.dev/stele/policy"

	"stele.dev/stele/schemas/wording"
)

// A team's rules reach beyond its own part of the bundle in two cases: rules that join roles of
// others, and denies. These checks limit them to what the team owns.

// joining rejects rules that add other API groups than the team's, and views that are not the team's, to a role of somebody
// else. The team does not decide who has that role.
func (c *compiler) joining(v cue.Value, roles []policy.Role) {
	groups, views := map[string][]string{}, map[string]map[string]bool{}
	for team, t := range c.Fields(v, "teams") {
		groups[team], views[team] = c.team(team).Groups.Values, map[string]bool{}
		for name := range c.Fields(t, "views") {
			views[team][name] = true
		}
	}
	labels := map[string]map[string]string{} // of roles, by id
	for i := range roles {
		labels[roles[i].ID] = roles[i].Labels
	}
	type joined struct {
		rule   *policy.Rule
		role   string
		direct bool // not through another aggregated role
	}
	found := map[string]joined{}
	for i := range roles {
		if len(roles[i].Aggregate) == 0 {
			continue
		}
		for j := range roles[i].Rules {
			rule := &roles[i].Rules[j]
			team, own := policy.OwningTeam(rule.ID), policy.OwningTeam(roles[i].ID)
			if team == own || team == policy.BuiltinTeam || slices.Contains(groups[team], "*") || onlyForGroups(rule, groups[team]) || ofViews(rule, views[team]) {
				continue
			}
			written := rule.ID[:strings.LastIndexByte(rule.ID, '/')]
			direct := HasLabels(labels[written], roles[i].Aggregate)
			if first, ok := found[rule.ID]; !ok || direct && !first.direct {
				found[rule.ID] = joined{rule, roles[i].Name, direct}
			}
		}
	}
	for id, f := range found {
		must := "its apiGroups must be among " + wording.Enumerate(groups[policy.OwningTeam(id)])
		switch {
		case len(f.rule.NonResourceURLs) > 0:
			must = "it must not name nonResourceURLs"
		case len(groups[policy.OwningTeam(id)]) == 0:
			must = "its team has no groups, and cannot add to it"
		}
		c.Add(f.rule.Source, id, fmt.Sprintf("the rule joins the role %q, which others bind: %s", f.role, must),
			"take the label off the role, or have the platform add the rule")
	}
}

// apartRoles rejects roles of a namespace with labels by which another role would include them. It grants in other namespaces, too.
func (c *compiler) apartRoles(roles []policy.Role) {
	for i := range roles {
		r := &roles[i]
		if r.Namespace == "" {
			continue
		}
		for j := range roles {
			if by := &roles[j]; len(by.Aggregate) > 0 && HasLabels(r.Labels, by.Aggregate) {
				c.Add(r.Source, r.ID, fmt.Sprintf("the role %q does not include a role of the namespace %s, which has its labels", by.Name, r.Namespace), "take the labels off, or leave out namespace")
				break
			}
		}
	}
}

// onlyForGroups reports whether a rule is only for resources in the API groups.
func onlyForGroups(rule *policy.Rule, groups []string) bool {
	return len(rule.NonResourceURLs) == 0 && !slices.ContainsFunc(rule.APIGroups, func(g string) bool { return !slices.Contains(groups, g) })
}

// ofViews reports whether a rule is only for some views.
func ofViews(rule *policy.Rule, views map[string]bool) bool {
	return slices.Equal(rule.APIGroups, []string{policy.ViewsGroup}) && !slices.ContainsFunc(rule.Resources, func(r string) bool { return !views[r] })
}

// denyPaths rejects denies of paths, which all clients need.
func (c *compiler) denyPaths(team string, d *policy.Deny) {
	if slices.Contains(c.team(team).Groups.Values, "*") {
		return
	}
	for i := range d.Rules {
		if r := &d.Rules[i]; len(r.NonResourceURLs) > 0 {
			c.Add(r.Source, r.ID, "nonResourceURLs are everybody's: only a team whose groups have \"*\" may deny them", "leave the rule out, or have the platform deny it")
		}
	}
}

// needed are the requests that administrators must be able to make to replace a policy, by verb: for
// policies, and for what clients request first.
var needed = []struct {
	verb, resource string
	paths          []string
}{
	{verb: "create", resource: "policies"},
	{verb: "list", resource: "policies"},
	{verb: "get", paths: []string{"/api", "/apis", "/openapi/v3", "/version", "/healthz", "/readyz"}},
}

// replaceable rejects a policy that nobody could replace.
func (c *compiler) replaceable(f *policy.Form) {
	for i := range f.Denies {
		denies, err := policy.IndexDenies(f.Denies[i : i+1])
		if err != nil {
			continue // its exception has an error that is already reported
		}
		if what := lostTo(denies, policy.Request{User: "admin", Groups: []string{policy.MastersGroup, "system:authenticated"}}); what != "" {
			d := &f.Denies[i]
			c.Add(d.Source, d.ID, fmt.Sprintf("it also meets the administrators (%s), so nobody could %s any more", policy.MastersGroup, what),
				fmt.Sprintf(`narrow subjects, or add unless: "'%s' in request.userInfo.groups"`, policy.MastersGroup))
		}
	}
}

// lostTo returns the first needed request that is denied, or that is denied depending on the object;
// "" if there is none.
func lostTo(denies *policy.DenyIndex, r policy.Request) string {
	denied := func() bool {
		denied, depends := denies.Decide(&r)
		return denied || depends
	}
	for _, n := range needed {
		r.Verb, r.IsResource, r.Group, r.Resource = n.verb, n.resource != "", "policy.stele.dev", n.resource
		if r.IsResource && denied() {
			return n.verb + " " + n.resource
		}
		for _, r.Path = range n.paths {
			if denied() {
				return n.verb + " " + r.Path
			}
		}
	}
	return ""
}
