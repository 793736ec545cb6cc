package suiterun

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
	"stele.dev/stele/policy/suites"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// Check returns what is wrong with a suite under the policy: kinds and resources that the bundle does not have, rules that do
// not exist, tests that expect nothing. Such a suite cannot be run. If incomplete is set, tests may expect nothing.
func (r *Runner) Check(s *suites.Suite, incomplete bool) schemas.Diagnostics {
	c := &checker{Runner: r, rules: r.ruleIDs()}
	table := flows.New(&r.Form().Flow)
	for _, s := range table.Schemas() {
		c.schemas = append(c.schemas, s.Name)
	}
	for _, l := range table.Levels() {
		c.levels = append(c.levels, l.Name)
	}
	c.objects(s.Given)
	at := schemas.Position{File: s.Package}
	if len(s.Tests) > 0 {
		at = s.Tests[0].Source
	}
	c.authorizers(s.Authorizers, at)
	c.reviewers(s.Reviewers, at)
	for i := range s.Tests {
		t := &s.Tests[i]
		c.objects(t.Given)
		c.authorizers(t.Authorizers, t.Source)
		c.reviewers(t.Reviewers, t.Source)
		var w *wrong
		if _, err := r.target(&t.Request); errors.As(err, &w) {
			c.add(t.Position(w.field), t.Name+": "+w.message, w.hint)
		}
		if e := &t.Expect; e.Rule != nil && *e.Rule != "" && !c.rules[*e.Rule] {
			c.add(t.Position("expect.rule"), fmt.Sprintf("%s: the bundle has no rule %q", t.Name, *e.Rule), wording.DidYouMean(*e.Rule, slices.Sorted(maps.Keys(c.rules)), ""))
		}
		if t.Expect.Mutations != nil {
			c.mutations(t)
		}
		c.flow(t)
		if t.Skip == "" && t.Expect.Empty() && !incomplete {
			c.add(t.Source, t.Name+": the test expects nothing", "write expect: {code: …}, or run `stele policy test --update`")
		}
	}
	for i := range s.Invariants {
		c.invariant(&s.Invariants[i])
	}
	return c.found.Sorted()
}

type checker struct {
	*Runner
	rules map[string]bool
	// schemas and levels are the names of the flow schemas and priority levels in force.
	schemas, levels []string
	found           schemas.Diagnostics
}

func (c *checker) add(pos schemas.Position, message, hint string) {
	c.found = append(c.found, schemas.Diagnostic{Pos: pos, Message: message, Hint: hint})
}

// mutators returns the ids of what can change objects or fail to: rules and their changes, plugins and webhooks. The value says
// whether it changes objects by itself.
func mutators(f *policy.Form) map[string]bool {
	ids := map[string]bool{}
	for i := range f.Mutations {
		m := &f.Mutations[i]
		ids[m.ID] = false // its conditions and params
		for _, step := range m.Mutations {
			ids[step.ID] = true
		}
	}
	for i := range f.Reviewers {
		if f.Reviewers[i].Mutating {
			ids[f.Reviewers[i].ID] = true
		}
	}
	return ids
}

// mutations reports what cannot change an object.
func (c *checker) mutations(t *suites.Test) {
	known := mutators(c.Form())
	maps.DeleteFunc(known, func(_ string, changes bool) bool { return !changes })
	for _, id := range *t.Expect.Mutations {
		if !known[id] {
			c.add(t.Position("expect.mutations"), fmt.Sprintf("%s: nothing in the bundle that changes objects is called %q", t.Name, id), wording.DidYouMean(id, slices.Sorted(maps.Keys(known)), "there are"))
		}
	}
}

// flow reports names of flow schemas and priority levels that the policy does not have.
func (c *checker) flow(t *suites.Test) {
	for _, x := range []struct {
		field, what, name string
		known             []string
	}{{"flowSchema", "flow schema", t.Expect.FlowSchema, c.schemas}, {"priorityLevel", "priority level", t.Expect.PriorityLevel, c.levels}} {
		if x.name != "" && !slices.Contains(x.known, x.name) {
			c.add(t.Position("expect."+x.field), fmt.Sprintf("%s: the bundle has no %s %q", t.Name, x.what, x.name), wording.DidYouMean(x.name, x.known, "there are"))
		}
	}
}

func (c *checker) objects(given []suites.Object) {
	for i := range given {
		_, err := c.stored(given[i].JSON)
		var u *unknown
		switch {
		case errors.As(err, &u):
			c.add(given[i].Source, "a given object cannot exist: "+u.message, u.hint)
		case err != nil:
			c.add(given[i].Source, "a given object cannot exist: "+err.Error(), "")
		}
	}
}

func (c *checker) authorizers(opinions map[string]suites.Opinion, at schemas.Position) {
	outside := c.Form().Outside()
	for _, name := range slices.Sorted(maps.Keys(opinions)) {
		if !slices.Contains(outside, name) {
			c.add(at, fmt.Sprintf("the bundle's chain has no authorizer %q", name), wording.DidYouMean(name, outside, "those outside of the policy are"))
		}
	}
}

// reviewers reports answers of webhooks and plugins that the bundle does not have.
func (c *checker) reviewers(answers map[string]suites.Review, at schemas.Position) {
	var known []string
	mutating := map[string]bool{}
	for i := range c.Form().Reviewers {
		r := &c.Form().Reviewers[i]
		known = append(known, r.ID)
		mutating[r.ID] = r.Mutating
	}
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		switch {
		case !slices.Contains(known, id):
			c.add(at, fmt.Sprintf("the bundle asks no %q about writes", id), wording.DidYouMean(id, known, "it asks"))
		case answers[id].Patch != nil && !mutating[id]:
			c.add(at, fmt.Sprintf("%s cannot answer with a patch: it does not change objects", id), "let it answer Admit, Refuse or Unavailable")
		}
	}
}

// ruleIDs returns the ids of all rules that can decide a request.
func (r *Runner) ruleIDs() map[string]bool {
	f := r.Form()
	ids := map[string]bool{policy.MastersGroup: true}
	for i := range f.Bindings {
		ids[f.Bindings[i].ID] = true
	}
	for i := range f.Denies {
		ids[f.Denies[i].ID] = true
	}
	for i := range f.Validations {
		ids[f.Validations[i].ID] = true // one of its match conditions
		for _, check := range f.Validations[i].Validations {
			ids[check.ID] = true
		}
	}
	for id := range mutators(f) {
		ids[id] = true
	}
	for i := range f.Reviewers {
		ids[f.Reviewers[i].ID] = true
	}
	for i := range f.Kinds {
		k := &f.Kinds[i]
		for _, v := range k.Versions {
			for j := range v.Rules {
				ids[policy.RuleID(k, &v.Rules[j])] = true
			}
		}
	}
	for _, name := range f.Outside() {
		ids[name] = true
	}
	return ids
}

// invariant checks that the resources of an invariant are served. Rules may also name groups and resources of other servers. So
// resources of the core group, and groups, are mistakes only if they differ by one letter from those of a kind or a rule: an
// invariant about what nobody has holds always.
func (c *checker) invariant(i *suites.Invariant) {
	can := i.Never
	if i.Only != nil {
		can = &i.Only.May
	} else if i.Always != nil {
		can = &i.Always.May
	}
	if len(can.Verbs) == 0 || len(can.APIGroups) == 0 || len(can.Resources) == 0 {
		c.add(i.Source, fmt.Sprintf("invariant %q is about no request: verbs, apiGroups and resources have to name some", i.Name), "")
	}
	groups, resources := map[string]bool{}, map[string]bool{}
	for _, k := range c.policy.Kinds() {
		groups[k.Group] = true
		resources[k.Plural] = true
		for _, v := range k.Versions {
			for _, sub := range []string{"status", "scale"} {
				if v.Serves(sub) {
					resources[k.Plural+"/"+sub] = true
				}
			}
		}
	}
	named, all := c.named()
	others := false
	for _, group := range can.APIGroups {
		others = others || !groups[group] || group == ""
		c.misspelt(i, "group", group, slices.Concat(named, slices.Collect(maps.Keys(groups))))
	}
	if others {
		for _, resource := range can.Resources {
			c.misspelt(i, "resource", resource, slices.Concat(all, slices.Collect(maps.Keys(resources))))
		}
		return
	}
	for _, resource := range can.Resources {
		if resource != "*" && !resources[resource] {
			c.add(i.Source, fmt.Sprintf("invariant %q: the bundle serves no resource %q", i.Name, resource), wording.DidYouMean(resource, slices.Sorted(maps.Keys(resources)), ""))
		}
	}
}

// misspelt reports a name of an invariant that is nobody's, and differs by one letter from one of others.
func (c *checker) misspelt(i *suites.Invariant, what, name string, others []string) {
	if name == "*" || name == "" || slices.Contains(others, name) {
		return
	}
	slices.Sort(others)
	if at := slices.IndexFunc(others, func(other string) bool { return other != "*" && wording.Distance(name, other) == 1 }); at >= 0 {
		c.add(i.Source, fmt.Sprintf("invariant %q: no kind and no rule of the bundle has the %s %q", i.Name, what, name), fmt.Sprintf("did you mean %q?", others[at]))
	}
}

// named returns the groups and the resources that the rules of roles and denies name.
func (c *checker) named() (groups, resources []string) {
	f := c.Form()
	for i := range f.Roles {
		for _, r := range f.Roles[i].Rules {
			groups, resources = append(groups, r.APIGroups...), append(resources, r.Resources...)
		}
	}
	for i := range f.Denies {
		for _, r := range f.Denies[i].Rules {
			groups, resources = append(groups, r.APIGroups...), append(resources, r.Resources...)
		}
	}
	return groups, resources
}
