package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// grants finds wildcards and escalations in the rules of roles that somebody has. It reports the rules of the bundle,
// and bindings of roles that are not in it.
func (c *checking) grants() {
	roles := policy.IndexBy(c.Form.Roles, func(r *policy.Role) string { return r.Name })
	seen := map[string]bool{}
	for i := range c.Form.Bindings {
		b := &c.Form.Bindings[i]
		role := roles[b.Role]
		if role == nil || policy.OwningTeam(b.ID) == policy.BuiltinTeam {
			continue
		}
		var wild, escalating []string // of rules without a line
		for j := range role.Rules {
			rule := &role.Rules[j]
			w, e := wildcards(rule), escalations(rule)
			if rule.Source.IsZero() {
				if b.Source.IsZero() {
					continue // of a package of the program, which the author of the bundle cannot change
				}
				wild, escalating = append(wild, w...), append(escalating, e...)
				continue
			}
			if !seen[rule.ID] {
				seen[rule.ID] = true
				c.grant(rule.Source, rule.ID, "", w, e)
			}
		}
		c.grant(b.Source, b.ID, fmt.Sprintf("the role %q ", b.Role), wild, escalating)
	}
}

func (c *checking) grant(pos schemas.Position, id, of string, wild, escalating []string) {
	of = cmp.Or(of, "it ")
	if len(wild) > 0 {
		c.add("GRANT_WILDCARD", pos, id, of+"grants "+list(wild), "")
	}
	if len(escalating) > 0 {
		c.add("GRANT_ESCALATES", pos, id, "with "+strings.TrimSpace(of)+" users may "+list(escalating), "")
	}
}

// list joins phrases, each once.
func list(phrases []string) string {
	var once []string
	for _, p := range phrases {
		if !slices.Contains(once, p) {
			once = append(once, p)
		}
	}
	if n := len(once); n > 1 {
		return strings.Join(once[:n-1], ", ") + " and " + once[n-1]
	}
	return once[0]
}

// wildcards names the lists of a rule that have a "*".
func wildcards(r *policy.Rule) (found []string) {
	has := func(list []string) bool { return slices.Contains(list, "*") }
	if has(r.Verbs) {
		found = append(found, "all verbs")
	}
	if has(r.APIGroups) {
		found = append(found, "all API groups")
	}
	if slices.ContainsFunc(r.Resources, func(x string) bool { return strings.HasPrefix(x, "*") }) {
		found = append(found, "all resources")
	}
	if slices.ContainsFunc(r.NonResourceURLs, func(x string) bool { return strings.TrimRight(x, "*") == "/" && x != "/" || x == "*" }) {
		found = append(found, "all paths")
	}
	return found
}

// powers are the requests that give more rights than the policy says by name.
var powers = []struct {
	verb, group string
	resources   []string
	what        string
	named       string // what it is of a rule with resourceNames; "" if its requests have no name
}{
	{"create", "policy.stele.dev", []string{"policies"}, "replace the policy", ""},
	{"escalate", "rbac.authorization.k8s.io", []string{"roles", "clusterroles"}, "give roles more rights than their own", "give these roles more rights than their own"},
	{"bind", "rbac.authorization.k8s.io", []string{"roles", "clusterroles"}, "bind any role", "bind these roles"},
	{"impersonate", "", []string{"users", "groups", "serviceaccounts"}, "act as others", "act as these"},
	{"impersonate", "authentication.k8s.io", []string{"uids", "userextras"}, "act as others", "act as these"},
	{"create", "", []string{"serviceaccounts/token"}, "get tokens of service accounts", "get tokens of these service accounts"},
}

// escalations names what a rule lets its users do to get more rights.
func escalations(r *policy.Rule) (found []string) {
	names := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Contains(list, "*")
	}
	for _, p := range powers {
		if names(r.Verbs, p.verb) && names(r.APIGroups, p.group) && slices.ContainsFunc(p.resources, func(x string) bool {
			_, sub, _ := strings.Cut(x, "/")
			return names(r.Resources, x) || sub != "" && slices.Contains(r.Resources, "*/"+sub)
		}) {
			switch {
			case len(r.ResourceNames) == 0:
				found = append(found, p.what)
			case p.named != "":
				found = append(found, p.named+" ("+strings.Join(r.ResourceNames, ", ")+")")
			}
		}
	}
	return found
}
