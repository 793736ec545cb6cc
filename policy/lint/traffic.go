package lint

import (
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
)

// flows finds flow schemas that no request reaches, and priority levels that nothing names.
func (c *checking) flows() {
	used := map[string]bool{}
	for i := range c.Form.Flow.FlowSchemas {
		s := &c.Form.Flow.FlowSchemas[i]
		used[s.PriorityLevel] = true
		if len(s.Subjects) == 0 || len(s.Rules) == 0 {
			c.add("FLOW_UNREACHED", s.Source, s.ID, "it names no subjects or no rules, so that it matches no request", "")
			continue
		}
		unreached, err := c.shadowed(s, c.Form.Flow.FlowSchemas[:i])
		switch {
		case err != nil:
			c.notChecked(err, s.Source, s.ID, "the flow schema was not compared with the earlier ones")
		case unreached:
			c.add("FLOW_UNREACHED", s.Source, s.ID, "earlier flow schemas match all of its requests", "")
		}
	}
	for i := range c.Form.Flow.PriorityLevels {
		if l := &c.Form.Flow.PriorityLevels[i]; !used[l.Name] {
			c.add("PRIORITY_LEVEL_UNUSED", l.Source, l.ID, "no flow schema names the priority level", "")
		}
	}
}

// shadowed reports whether earlier flow schemas match all requests of each subject of a flow schema.
func (c *checking) shadowed(s *policy.FlowSchema, earlier []policy.FlowSchema) (bool, error) {
	for _, subject := range s.Subjects {
		var before []policy.FlowRule
		for i := range earlier {
			if slices.ContainsFunc(earlier[i].Subjects, func(e policy.Subject) bool { return includes(e, subject) }) {
				before = append(before, earlier[i].Rules...)
			}
		}
		for i := range s.Rules {
			var rules []policy.Rule
			for j := range before {
				if inAll(before[j].Namespaces, s.Rules[i].Namespaces) {
					rules = append(rules, requests(&before[j]))
				}
			}
			rule := requests(&s.Rules[i])
			if covered, err := rights.Covered(c.ctx, &rule, rules); err != nil || !covered {
				return false, err
			}
		}
	}
	return true, nil
}

// requests returns a rule of a flow schema without its namespaces.
func requests(r *policy.FlowRule) policy.Rule {
	return policy.Rule{ID: r.ID, Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, NonResourceURLs: r.NonResourceURLs, Source: r.Source}
}

// inAll reports whether the namespaces of a rule include those of another.
func inAll(wide, narrow []string) bool {
	if wide == nil || narrow == nil {
		return wide == nil
	}
	return !slices.ContainsFunc(narrow, func(n string) bool {
		return !slices.Contains(wide, n) && (n == "" || !slices.Contains(wide, "*"))
	})
}

// includes reports whether all users of one subject are certainly users of another.
func includes(wide, narrow policy.Subject) bool {
	return wide == narrow || wide.User == "*" || wide.Group == "*" || slices.Contains(rights.Implied(narrow), wide)
}

// auditRules finds audit rules that no request reaches.
func (c *checking) auditRules() {
	rules := c.Form.Audit.Rules
	for i := range rules {
		r := &rules[i]
		if j := slices.IndexFunc(rules[:i], func(e policy.AuditRule) bool { return matchesAll(&e, r) }); j >= 0 {
			c.add("AUDIT_UNREACHED", r.Source, r.ID, rules[j].ID+" comes before it, and matches all of its requests", "")
		}
	}
}

// matchesAll reports whether an audit rule matches all requests that another one matches.
func matchesAll(wide, narrow *policy.AuditRule) bool {
	if len(wide.Subjects) > 0 {
		if len(narrow.Subjects) == 0 {
			return false
		}
		for _, s := range narrow.Subjects {
			if !slices.ContainsFunc(wide.Subjects, func(w policy.Subject) bool { return includes(w, s) }) {
				return false
			}
		}
	}
	return listed(wide.Verbs, narrow.Verbs) && listed(wide.APIGroups, narrow.APIGroups) &&
		listed(wide.Resources, narrow.Resources) && listed(wide.Namespaces, narrow.Namespaces)
}

// listed reports whether a list of an audit rule admits all that another one admits. An empty list admits everything.
func listed(wide, narrow []string) bool {
	if len(wide) == 0 || slices.Contains(wide, "*") {
		return true
	}
	return len(narrow) > 0 && !slices.ContainsFunc(narrow, func(x string) bool {
		return !slices.ContainsFunc(wide, func(w string) bool { return w == x || policy.GlobMatches(w, strings.ReplaceAll(x, "*", "\x00")) })
	})
}
