package access

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/policy/servercontrollers"
)

// power is a set of requests that give their user the rights of others.
type power struct {
	words     string
	verbs     []string
	groups    []string // "*": any
	resources []string // "*": any, with subresources
	nameless  bool     // its requests have no name: a right for some names does not have it
}

// powers are what a right can be made of other rights by.
var powers = []power{
	{"replace the whole policy", []string{"create"}, []string{"policy.stele.dev"}, []string{"policies"}, true},
	{"act as other users (impersonate)", []string{"impersonate"}, []string{"", "authentication.k8s.io"}, []string{"users", "groups", "serviceaccounts", "uids", "userextras"}, false},
	{"give away rights that they do not have (bind, escalate)", []string{"bind", "escalate"}, []string{"rbac.authorization.k8s.io"}, []string{"roles", "clusterroles"}, false},
	{"read secrets", []string{"get", "list", "watch"}, []string{""}, []string{"secrets"}, false},
	{"make tokens of service accounts", []string{"create"}, []string{""}, []string{"serviceaccounts/token"}, false},
}

// isIn reports whether a scope has a request of the power.
func (p *power) isIn(s *rights.Scope) bool {
	has := func(words, except []string, of []string) bool {
		return slices.ContainsFunc(of, func(w string) bool {
			return (slices.Contains(words, w) || slices.Contains(words, "*")) && !slices.Contains(except, w)
		})
	}
	if len(s.Paths) > 0 || p.nameless && len(s.Names) > 0 || !has(s.Verbs, s.ExceptVerbs, p.verbs) || !has(s.APIGroups, s.ExceptAPIGroups, p.groups) {
		return false
	}
	subs := s.Subresources
	if len(subs) == 0 {
		subs = []string{""}
	}
	return slices.ContainsFunc(p.resources, func(named string) bool {
		resource, sub, _ := strings.Cut(named, "/")
		return has(s.Resources, s.ExceptResources, []string{resource}) && has(subs, s.ExceptSubresources, []string{sub})
	})
}

// escalation adds a finding if a change gives a power.
func (c *comparison) escalation(g *group) {
	if g.Type != rights.Gained && (g.Type != rights.Changed || g.Narrower) {
		return
	}
	if slices.ContainsFunc(g.By, func(by rights.Ground) bool { return policy.OwningTeam(by.ID) == policy.BuiltinTeam }) {
		return // the built-in roles and bindings are those of the server
	}
	var words []string
	for i := range powers {
		if slices.ContainsFunc(g.scopes, func(s rights.Scope) bool { return powers[i].isIn(&s) }) {
			words = append(words, powers[i].words)
		}
	}
	if len(words) == 0 {
		return
	}
	f := plan.Finding{Rule: "ESCALATION", Path: paths(g.By), Subject: subjectNames(g.subjects), Kind: kindOf(g.scopes), After: strings.Join(words, "; "), Scope: scopes(g.scopes),
		Message: subjectWords(g.subjects) + " may now get rights that no binding gives them."}
	f.Source, f.Was = c.lines(g)
	f.Details = c.details(g)
	if g.After != "" {
		f.Details = append(f.Details, "It is allowed "+g.After+".")
	}
	c.add(f)
}

// viewer matches the names of roles that say that their holders only read.
var viewer = regexp.MustCompile(`(?i)(^|[^a-z])(view|viewer|viewers|reader|readers|read-?only)([^a-z]|$)`)

const aggregatedToView = "rbac.authorization.k8s.io/aggregate-to-view"

// answered are the API groups of requests that are answered and change nothing, although their verb is create.
var answered = []string{"authorization.k8s.io", "authentication.k8s.io", "policy.stele.dev"}

// writing returns the first rule of a role's own that can write; nil if there is none.
func writing(r *policy.Role) *policy.Rule {
	if r == nil {
		return nil
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		if !strings.HasPrefix(rule.ID, r.ID+"/") || len(rule.APIGroups) == 0 || !slices.ContainsFunc(rule.APIGroups, func(g string) bool { return !slices.Contains(answered, g) }) {
			continue
		}
		if slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch", policy.HistoryVerb}, v) }) {
			return rule
		}
	}
	return nil
}

// viewers finds roles that are called viewers, or are aggregated into the role view, and can write now. That is a mistake
// of the kind that nobody sees, so its class is breaks.
func (c *comparison) viewers() {
	for i := range c.to.Roles {
		r := &c.to.Roles[i]
		rule := writing(r)
		if rule == nil || policy.OwningTeam(r.ID) == policy.BuiltinTeam {
			continue
		}
		var why []string
		if viewer.MatchString(r.Name) {
			why = append(why, "is called a viewer")
		}
		if r.Labels[aggregatedToView] == "true" {
			why = append(why, "is aggregated into the built-in role view")
		}
		was := c.from.roleIDs[r.ID]
		if len(why) == 0 || was != nil && writing(was) != nil {
			continue
		}
		f := plan.Finding{Rule: "ESCALATION", Class: plan.Breaks, Path: r.ID, After: "verbs " + quoted(rule.Verbs), Source: rule.Source,
			Message: fmt.Sprintf("The role %s %s, and can write.", r.Name, strings.Join(why, " and ")),
			Fix:     []string{"Give the verbs to another role, or give this role another name and no label " + aggregatedToView + "."}}
		if was != nil {
			f.Was = was.Source
			f.Before = "it could only read"
		}
		c.add(f)
	}
}

// controllers finds new or changed denies that stop the server's own controllers.
func (c *comparison) controllers() {
	for i := range c.to.Denies {
		d := &c.to.Denies[i]
		was := c.from.denies[d.ID]
		if was != nil && sameText(*was, *d) && len(c.from.Kinds) == len(c.to.Kinds) {
			continue
		}
		met, err := servercontrollers.DeniedBy(c.to.Form, d)
		if err != nil || len(met) == 0 {
			continue
		}
		if was != nil {
			before, err := servercontrollers.DeniedBy(c.from.Form, was)
			if err == nil && slices.EqualFunc(met, before, func(a, b servercontrollers.Denied) bool {
				return a.User == b.User && a.Some == b.Some && slices.Equal(a.Verbs, b.Verbs) && slices.Equal(a.Resources, b.Resources)
			}) {
				continue
			}
		}
		f := plan.Finding{Rule: "DENY_MEETS_CONTROLLERS", Path: d.ID, Source: d.Source, Message: "The deny stops controllers of the server, which delete and create for others.",
			Fix: []string{fmt.Sprintf("Write in the deny: unless: %q", servercontrollers.ExceptionFor(d, met))}}
		if was != nil {
			f.Was = was.Source
		}
		var names []string
		for _, m := range met {
			s := policy.Subject{User: m.User}
			names = append(names, rights.SubjectName(s))
			f.Details = append(f.Details, fmt.Sprintf("%s cannot %s %s%s: %s.", m.User, strings.Join(m.Verbs, ", "), firstWords(m.Resources), m.Which(), m.Otherwise))
		}
		f.Subject = strings.Join(names, ", ")
		if resources := met[0].Resources; len(resources) == 1 {
			f.Kind = resources[0]
		}
		c.add(f)
	}
}

// firstWords names the first of many words.
func firstWords(words []string) string {
	if len(words) > maxNamed {
		return fmt.Sprintf("%s and %d other kinds", strings.Join(words[:maxNamed], ", "), len(words)-maxNamed)
	}
	return strings.Join(words, ", ")
}

// isNewDenial reports whether denies cause a group of changes, and refuse more.
func (c *comparison) isNewDenial(g *group) bool { return c.ruleOf(g) == "DENY_ADDED" }

// administrators adds a finding for a deny that stops administrators.
func (c *comparison) administrators(g *group) {
	f := plan.Finding{Rule: "DENY_MEETS_ADMINISTRATORS", Path: paths(g.By), Subject: rights.SubjectName(policy.Subject{Group: policy.MastersGroup}), Kind: kindOf(g.scopes), Scope: scopes(g.scopes),
		After: g.After, Message: "Members of " + policy.MastersGroup + " are refused, too: denies come before all grants.",
		Fix: []string{fmt.Sprintf("To except them, write in the deny: unless: %q", "'"+policy.MastersGroup+"' in request.userInfo.groups")}}
	f.Source, f.Was = c.lines(g)
	for i := range g.scopes {
		f.Details = append(f.Details, g.scopes[i].String())
	}
	c.add(f)
}

// chain compares the chains of authorizers.
func (c *comparison) chain(changes []rights.ChainChange) {
	for _, x := range changes {
		f := plan.Finding{Path: x.Authorizer, Source: c.to.ChainSource, Was: c.from.ChainSource, Message: upperFirst(x.Message) + "."}
		switch x.Type {
		case "Added":
			f.Rule, f.After = "AUTHORIZER_ADDED", "in the chain"
			f.Details = append(f.Details, "What it decides is not in any bundle, so this plan cannot say what changes.")
		case "Removed":
			f.Rule, f.Before = "AUTHORIZER_REMOVED", "in the chain"
		case "Moved":
			f.Rule = "AUTHORIZER_MOVED"
		default:
			f.Rule = "PLUGIN_CHANGED"
			if p := c.to.Plugin(x.Authorizer); p != nil {
				f.Source = p.Source
			}
			if p := c.from.Plugin(x.Authorizer); p != nil {
				f.Was = p.Source
			}
			// One plugin may have several changes.
			f.After = x.Message
		}
		if x.Weaker {
			if f.Class = plan.Widens; f.Rule == "PLUGIN_CHANGED" {
				f.Rule = "AUTHORIZER_WEAKENED"
			}
			f.Details = append(f.Details, "It refuses less, or another authorizer may allow a request before it is asked.")
		}
		c.add(f)
	}
}

// plugins finds plugins that are declared and not in the chain of both sides: they decide nothing, but their program may
// be started.
func (c *comparison) plugins() {
	for i := range c.to.Plugins {
		p := &c.to.Plugins[i]
		j := slices.IndexFunc(c.from.Plugins, func(x policy.Plugin) bool { return x.Name == p.Name })
		if j < 0 {
			c.add(plan.Finding{Rule: "PLUGIN_CHANGED", Path: policy.PluginPrefix + p.Name, After: "declared", Source: p.Source, Message: "The plugin is new."})
		}
	}
	for i := range c.from.Plugins {
		p := &c.from.Plugins[i]
		if !slices.ContainsFunc(c.to.Plugins, func(x policy.Plugin) bool { return x.Name == p.Name }) {
			c.add(plan.Finding{Rule: "PLUGIN_CHANGED", Path: policy.PluginPrefix + p.Name, Before: "declared", Was: p.Source, Message: "The plugin is gone."})
		}
	}
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
