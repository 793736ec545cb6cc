package lint

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/schemas/wording"
)

// flows finds flow schemas that no request reaches or whose order is left to their names, and priority levels that nothing
// names.
func (c *checking) flows() {
	schemas := flows.New(&c.Form.Flow).Schemas()
	used := map[string]bool{}
	list := make([]*policy.FlowSchema, len(schemas))
	for i, s := range schemas {
		used[s.PriorityLevel] = true
		list[i] = &s.FlowSchema
	}
	f := rights.NewFlows(c.ctx, list)
	intricate := false
	for i, s := range schemas {
		if s.Builtin {
			continue
		}
		switch {
		case len(s.Subjects) == 0:
			c.add("FLOW_UNREACHED", s.Source, s.ID, "it names no subjects, so that it matches no request", "name users, groups or service accounts in subjects, or leave the flow schema out")
		case len(s.Rules) == 0:
			c.add("FLOW_UNREACHED", s.Source, s.ID, "it has no rules, so that it matches no request", "write rules, or leave the flow schema out")
		case !intricate:
			intricate = c.unreached(f, schemas, i)
		}
		c.oneFlow(s)
	}
	c.tied(f, schemas)
	for i := range c.Form.Flow.PriorityLevels {
		if l := &c.Form.Flow.PriorityLevels[i]; !used[l.Name] {
			c.add("PRIORITY_LEVEL_UNUSED", l.Source, l.ID, "no flow schema names the priority level", "")
		}
	}
}

// unreached reports a flow schema if earlier ones take all requests of its subjects. It returns true if it was given up.
func (c *checking) unreached(f *rights.Flows, schemas []*flows.Schema, i int) (gaveUp bool) {
	s := schemas[i]
	by, err := f.Before(i)
	if err != nil {
		c.notChecked(err, s.Source, s.ID, "the flow schema and later ones were not compared with those before them")
		return true
	}
	if by == nil {
		return false
	}
	earlier := make([]rights.Ground, len(by))
	least := s.MatchingPrecedence
	for j, k := range by {
		earlier[j] = rights.Ground{ID: schemaName(schemas[k]), Source: schemas[k].Source.String()}
		least = min(least, schemas[k].MatchingPrecedence)
	}
	hint := "leave it out: members of " + policy.MastersGroup + " are exempt"
	if least > 2 {
		hint = fmt.Sprintf("give it a matchingPrecedence below %d, or leave it out", least)
	}
	c.add("FLOW_UNREACHED", s.Source, s.ID, "before it, "+named(earlier, "takes", "take")+" all of its requests", hint)
	return false
}

// schemaName returns the id of a flow schema, and whether it is built in.
func schemaName(s *flows.Schema) string {
	if s.Builtin {
		return "the built-in flow schema " + s.Name
	}
	return s.ID
}

// maxTies limits the pairs of flow schemas that are compared.
const maxTies = 20_000

// tied reports flow schemas of one precedence that match the same requests.
func (c *checking) tied(f *rights.Flows, schemas []*flows.Schema) {
	compared := 0
	for i, s := range schemas {
		for j := i - 1; j >= 0 && schemas[j].MatchingPrecedence == s.MatchingPrecedence; j-- {
			first := schemas[j]
			at := s
			if s.Builtin {
				at = first
			}
			if at.Builtin {
				continue
			}
			if compared++; compared > maxTies {
				c.add("NOT_CHECKED", at.Source, at.ID, "the flow schema was not compared with all others of its precedence: there are too many", "")
				return
			}
			scope, subject, err := f.Meet(j, i)
			switch {
			case err != nil:
				c.notChecked(err, at.Source, at.ID, "the flow schema was not compared with the others of its precedence")
				return
			case scope != nil:
				c.add("FLOW_TIED", at.Source, at.ID, fmt.Sprintf("%s%s and %s have the same matchingPrecedence, %d, and both match requests of %s to %s; %s is tried first, because of its name",
					schemaName(first), wording.At(first.Source.String()), schemaName(s), s.MatchingPrecedence, rights.SubjectWords(subject), scope, first.Name),
					"give one of them another matchingPrecedence")
			}
		}
	}
}

// oneFlow reports a flow schema that tells flows apart by namespaces, and matches no requests in namespaces.
func (c *checking) oneFlow(s *flows.Schema) {
	if s.Distinguisher != "ByNamespace" || len(s.Rules) == 0 {
		return
	}
	for i := range s.Rules {
		if c.inNamespaces(&s.Rules[i]) {
			return
		}
	}
	c.add("FLOW_UNDIVIDED", s.Source, s.ID, "its rules match no requests in namespaces, so that distinguisher: ByNamespace makes all of them one flow", `write distinguisher: "ByUser", or leave it out`)
}

// inNamespaces reports whether a rule of a flow schema may match requests in namespaces. Requests for one namespace are in it.
func (c *checking) inNamespaces(r *policy.FlowRule) bool {
	if len(r.NonResourceURLs) > 0 || len(r.Namespaces) == 1 && r.Namespaces[0] == "" {
		return false
	}
	for _, resource := range r.Resources {
		plural, _, _ := strings.Cut(resource, "/")
		known := false // as a kind without namespaces
		for i := range c.Form.Kinds {
			k := &c.Form.Kinds[i]
			if k.Plural != plural || !slices.Contains(r.APIGroups, "*") && !slices.Contains(r.APIGroups, k.Group) {
				continue
			}
			if known = true; k.Namespaced || k.Group == "" && plural == "namespaces" {
				return true
			}
		}
		if !known {
			return true
		}
	}
	return false
}
