package planning

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
)

// A change is the findings that have one cause: a line of the summary.
type change struct {
	// findings are never empty. The most dangerous comes first.
	findings []*plan.Finding
	// refused and allowed are the numbers of recorded requests that are decided otherwise because of it.
	refused, allowed int
	short            shortNames // of the plan
}

// class is the class of the most dangerous finding.
func (c *change) class() plan.Class { return c.findings[0].Class }

// accepted reports whether somebody accepted all findings.
func (c *change) accepted() bool {
	return !slices.ContainsFunc(c.findings, func(f *plan.Finding) bool { return f.Accepted == nil })
}

// met is a number of stored objects, and what a change means for them.
type met struct {
	n    int
	what string
}

// objects returns the largest number of stored objects that a change concerns, the number of all of them, and what it means for how many,
// the worst first.
func (c *change) objects() (most, of int, all []met) {
	counts := [4]int{}
	for _, f := range c.findings {
		if o := f.Objects; o != nil {
			for i, n := range [4]int{o.Stuck, o.Violating, o.StatusStuck, o.Differ} {
				counts[i] = max(counts[i], n)
				if n > most {
					most, of = n, o.Of
				}
			}
		}
	}
	for i, what := range [4]string{"cannot be updated", "would be refused if created today", "cannot have their status written", "are shown otherwise"} {
		if counts[i] > 0 {
			all = append(all, met{counts[i], what})
		}
	}
	return most, of, all
}

// changes groups the findings of a plan by their causes. Each finding is in one change. The most dangerous changes come first, see [change.order];
// of one class, those that meet the most stored objects and recorded requests, and then those of access.
func (p *Part) changes() []*change {
	groups := causes(p.Findings)
	all := make([]*change, 0, len(groups))
	of, short := map[string]*change{}, shortNamesOf(p.Findings)
	for _, group := range groups {
		c := &change{findings: group, short: short}
		slices.SortStableFunc(c.findings, func(a, b *plan.Finding) int { return rank(a.Class) - rank(b.Class) })
		for _, f := range group {
			of[f.ID] = c
		}
		all = append(all, c)
	}
	if p.Replay != nil {
		for i := range p.Replay.Flips {
			f := &p.Replay.Flips[i]
			if c := of[f.Finding]; c != nil && f.Refused {
				c.refused += f.Count
			} else if c != nil {
				c.allowed += f.Count
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *change) int {
		n, _, _ := a.objects()
		m, _, _ := b.objects()
		return cmp.Or(a.order()-b.order(), cmp.Compare(m+b.refused, n+a.refused), a.place()-b.place())
	})
	return all
}

// order orders changes by their danger: those that stop the server's controllers or give rights that lead to all others come before all
// other ones, and then each class before the next.
func (c *change) order() int {
	for _, f := range c.findings {
		if f.Rule == "DENY_MEETS_CONTROLLERS" || f.Rule == "ESCALATION" {
			return -1
		}
	}
	return rank(c.class())
}

// place orders changes of one class that meet equally much: rights that lead to other rights, access, rules, the rest.
func (c *change) place() int {
	switch section := plan.SectionOf(c.findings[0].Rule); {
	case c.of("ESCALATION") != nil:
		return 0
	case section == plan.Access:
		return 1
	case section == plan.Policy, section == plan.Traffic:
		return 2
	}
	return 3
}

// Refused returns the number of changes of a plan that have a finding of some classes which nobody has accepted.
func Refused(p *plan.Plan, classes []plan.Class) (n int) {
	for _, group := range causes(p.Findings) {
		if slices.ContainsFunc(group, func(f *plan.Finding) bool { return f.Accepted == nil && f.Among(classes) }) {
			n++
		}
	}
	return n
}

// count counts changes by class.
func count(changes []*change) *plan.Summary {
	s := &plan.Summary{}
	for _, c := range changes {
		s.Add(c.class())
	}
	return s
}

func rank(c plan.Class) int { return slices.Index(plan.Classes, c) }

// causes groups findings that have one of their keys in common.
func causes(findings []plan.Finding) (groups [][]*plan.Finding) {
	at := map[string]int{} // the group of a key
	for i := range findings {
		f := &findings[i]
		into := -1
		for _, key := range causeKeys(f) {
			j, found := at[key]
			switch {
			case !found || j == into:
			case into < 0:
				into = j
			default: // the finding unites two groups
				groups[min(into, j)] = append(groups[min(into, j)], groups[max(into, j)]...)
				groups[max(into, j)] = nil
				for k, v := range at {
					if v == max(into, j) {
						at[k] = min(into, j)
					}
				}
				into = min(into, j)
			}
		}
		if into < 0 {
			into, groups = len(groups), append(groups, nil)
		}
		groups[into] = append(groups[into], f)
		for _, key := range causeKeys(f) {
			at[key] = into
		}
	}
	return slices.DeleteFunc(groups, func(g []*plan.Finding) bool { return len(g) == 0 })
}

// causeKeys returns what a finding has in common with others of one cause. A field is one cause, with the field that it is renamed
// to and those of its removed alternatives, and so is a line that several fields or kinds share. Of access, a binding or a deny is one,
// and so are the same requests that a line gives or takes: a rule of a role that several bindings have.
// The limits of a team are one, and so is a rule of admission.
func causeKeys(f *plan.Finding) []string {
	key := func(parts ...string) string { return fmt.Sprintf("%q", parts) }
	line := lineOf(f)
	switch {
	case strings.HasPrefix(f.Rule, "TEAM_"):
		team, _, _ := strings.Cut(f.Path, "/")
		return []string{key("team", team)}
	case strings.HasPrefix(f.Rule, "CONDITION_MEETS"), strings.HasPrefix(f.Rule, "CONDITION_NEVER"):
		return []string{key(f.Rule, f.Path)}
	}
	switch plan.SectionOf(f.Rule) {
	case plan.Kinds:
		keys := []string{key("field", f.Kind, f.Path)}
		if f.Path == "" || strings.HasPrefix(f.Rule, "OBJECTS_") {
			keys[0] = key(f.Rule, f.Kind, f.Path)
		}
		if f.With != "" {
			keys = append(keys, key("field", f.Kind, f.With))
		}
		if line != "" {
			keys = append(keys, key(f.Rule, line, f.Before, f.After))
		}
		return keys
	case plan.Access:
		keys := []string{key("access", f.Path)}
		if line != "" && f.Scope != nil {
			keys = append(keys, key(f.Rule, line, f.Before, f.After, string(f.Scope)))
		}
		return keys
	case plan.Policy:
		if strings.Contains(f.Path, "/denies/") { // another reason
			return []string{key("access", f.Path)}
		}
		return []string{key("rule", rulePath(f.Path))}
	}
	return []string{key(f.Rule, f.Kind, f.Path)}
}

// lineOf returns the line of a finding, or the one in the older policy.
func lineOf(f *plan.Finding) string {
	for _, at := range []schemas.Position{f.Source, f.Was} {
		if at.File != "" {
			return fmt.Sprintf("%s:%d", at.File, at.Line)
		}
	}
	return ""
}

// rulePath returns the ID of the rule of admission that a path is in: "team/validate/name" of "team/validate/name/params.max".
func rulePath(path string) string {
	parts := strings.SplitN(path, "/", 4)
	return strings.Join(parts[:min(3, len(parts))], "/")
}
