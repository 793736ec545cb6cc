package access

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/reach"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// history compares how far back the past of each kind can be read, and how long it is kept.
func (c *comparison) history() {
	all := c.findings
	c.findings = nil
	defer func() { c.findings = append(all, mergeByLine(c.findings)...) }()
	for _, resource := range c.resources() {
		was, is := c.sides.From.Kind(resource), c.sides.To.Kind(resource)
		if was != nil && is != nil {
			c.window(resource.String(), was.Reach(), is.Reach())
		}
		c.retention(resource.String(), c.sides.From.Retention(resource), c.sides.To.Retention(resource), is == nil)
	}
}

// mergeByLine merges findings that one line of the bundle causes for several kinds.
func mergeByLine(findings []plan.Finding) (list []plan.Finding) {
	at := map[string]int{}
	kinds := map[int][]string{}
	for _, f := range findings {
		key := fmt.Sprintf("%q", []string{f.Rule, f.Path, f.Before, f.After})
		i, found := at[key]
		if !found {
			i, at[key] = len(list), len(list)
			list = append(list, f)
		}
		kinds[i] = append(kinds[i], f.Kind)
	}
	for i := range list {
		if names := kinds[i]; len(names) > 1 {
			list[i].Kind = ""
			list[i].Details = append(list[i].Details, fmt.Sprintf("It is about %d kinds: %s.", len(names), strings.Join(names, ", ")))
		}
	}
	return list
}

// resources returns the resources of both policies that store objects, sorted.
func (c *comparison) resources() []schema.GroupResource {
	all := map[string]schema.GroupResource{}
	for _, p := range []*policy.Policy{c.sides.From, c.sides.To} {
		for _, k := range p.Kinds() {
			if k.Of == nil {
				all[k.Resource()] = k.GroupResource()
			}
		}
	}
	list := make([]schema.GroupResource, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list
}

func (c *comparison) window(resource string, was, is *reach.Window) {
	if was.Reach == is.Reach || was.Bounded() == is.Bounded() && was.Duration() == is.Duration() {
		return
	}
	f := plan.Finding{Rule: "WINDOW_WIDENED", Kind: resource, Path: is.ID, Before: was.Reach, After: is.Reach, Source: is.Source, Was: was.Source,
		Message: "Users who may read the objects can read more of their past, without the verb history."}
	if !was.Bounded() || is.Bounded() && is.Duration() < was.Duration() {
		f.Rule, f.Message = "WINDOW_NARROWED", "Users without the verb history can read less of the past of the objects."
	}
	if k := c.sides.To.Kind(schema.ParseGroupResource(resource)); f.Rule == "WINDOW_WIDENED" && policy.HoldsSecrets(k.Kind) {
		f.Details = append(f.Details, "The kind has secret fields: values that were replaced can be read for longer.")
	}
	c.add(f)
}

// retention compares how long the past of a resource is kept.
func (c *comparison) retention(resource string, was, is reach.Kept, removed bool) {
	var longer, shorter []string
	var before, after []string
	compare := func(what string, a, b int64, text func(int64) string) {
		if a == b {
			return
		}
		before, after = append(before, what+" "+text(a)), append(after, what+" "+text(b))
		if a < b {
			longer = append(longer, what)
		} else {
			shorter = append(shorter, what)
		}
	}
	compare("history", int64(was.History), int64(is.History), span)
	compare("records", int64(was.Records), int64(is.Records), span)
	unlimited := func(n int64) int64 { return cmp.Or(n, 1<<62) }
	compare("bytes", unlimited(was.Bytes), unlimited(is.Bytes), func(n int64) string {
		if n == 1<<62 {
			return "without limit"
		}
		return fmt.Sprint(n)
	})
	if len(before) == 0 || removed {
		return
	}
	f := plan.Finding{Rule: "RETENTION_LENGTHENED", Kind: resource, Path: cmp.Or(is.ID, was.ID), Before: strings.Join(before, ", "), After: strings.Join(after, ", "), Source: is.Source, Was: was.Source,
		Message: "The past of the objects is kept longer: what was erased already does not come back."}
	if len(shorter) > 0 {
		f.Rule, f.Message = "RETENTION_SHORTENED", "The past of the objects is erased earlier ("+strings.Join(shorter, ", ")+"), for good: a rollback does not bring it back."
		f.Fix = []string{"Make a backup of the log before you push, if you need what is erased."}
		if len(longer) > 0 {
			f.Details = append(f.Details, "These are kept longer: "+strings.Join(longer, ", ")+".")
		}
	}
	c.add(f)
}

func span(n int64) string {
	switch {
	case n == int64(reach.Forever):
		return "all"
	case n == 0:
		return "none"
	case n%int64(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", n/int64(24*time.Hour))
	case n%int64(time.Hour) == 0:
		return fmt.Sprintf("%dh", n/int64(time.Hour))
	}
	return time.Duration(n).String()
}

// teams compares the names of control plane and teams, and the limits of teams. Forms of earlier versions do not list teams: there
// a team is one that has a role, a binding, a deny or an admission rule.
func (c *comparison) teams() {
	if c.from.Cluster != c.to.Cluster {
		c.add(plan.Finding{Rule: "CLUSTER_RENAMED", Path: "cluster", Before: c.from.Cluster, After: c.to.Cluster,
			Message: "The bundle says that it is for another control plane.", Fix: []string{"Check that you push to the right server."}})
	}
	was, is := parts(c.from.Form), parts(c.to.Form)
	if c.from.Teams != nil && c.to.Teams != nil {
		for i, f := range []*policy.Form{c.from.Form, c.to.Form} {
			for j := range f.Teams {
				if all := []map[string]*part{was, is}[i]; all[f.Teams[j].Name] == nil {
					all[f.Teams[j].Name] = &part{}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if was[name] == nil {
			c.add(plan.Finding{Rule: "TEAM_ADDED", Path: name, After: is[name].String(), Message: "The bundle has the team now."})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if is[name] == nil {
			c.add(plan.Finding{Rule: "TEAM_REMOVED", Path: name, Before: was[name].String(), Message: "Nothing of the team is in force any more.",
				Details: []string{"If that is not meant, see whether its files are of the package that the bundle imports."}})
		}
	}
}

// limits compares what the platform lets the teams rule over and read. Those of a team that is gone are no finding of their own.
func (c *comparison) limits() {
	switch {
	case c.from.Teams == nil && c.to.Teams == nil:
		return
	case c.from.Teams == nil || c.to.Teams == nil:
		known, side := c.to.Teams, "The policy that is replaced"
		if known == nil {
			known, side = c.from.Teams, "The new policy"
		}
		f := plan.Finding{Rule: "TEAM_LIMITS_UNKNOWN", Path: "teams", Message: side + " does not record the limits of its teams. Those of the other policy are:"}
		for i := range known {
			f.Details = append(f.Details, limitsText(&known[i]))
		}
		c.add(f)
		return
	}
	was := policy.IndexBy(c.from.Teams, func(t *policy.Team) string { return t.Name })
	for i := range c.to.Teams {
		t := &c.to.Teams[i]
		before := was[t.Name]
		if before == nil {
			before = &policy.Team{}
		}
		c.limit(t.Name+"/groups", before.Groups, t.Groups, nil, nil, "define, deny, check and read what is of the API groups %s")
		c.limit(t.Name+"/namespaces", before.Namespaces, t.Namespaces, nil, nil, "grant any right in the namespaces %s")
		c.limit(t.Name+"/reads", before.Reads, t.Reads, before, t, "read objects of %s in rules and views")
	}
}

// limit compares one limit of a team. before and after are the whole teams if the limit has kinds, which a team may also read because
// of its groups. may says what the limit lets whoever changes the part of the team do.
func (c *comparison) limit(path string, was, is policy.Limit, before, after *policy.Team, may string) {
	differ := func(rule, does string, values, other []string, team *policy.Team) {
		list := rights.Without(values, other, strings.HasSuffix(path, "/namespaces"))
		if team != nil {
			list = slices.DeleteFunc(list, func(v string) bool {
				r := schema.ParseGroupResource(v)
				return v != "*" && team.MayRead(&schemas.Kind{Group: r.Group, Plural: r.Resource})
			})
		}
		if len(list) > 0 {
			c.add(plan.Finding{Rule: rule, Path: path, Before: limitText(was), After: limitText(is), Source: is.Source, Was: was.Source,
				Message: "Whoever changes the team's part of the bundle may " + does + " " + fmt.Sprintf(may, wording.Enumerate(wording.Quoted(list))) + "."})
		}
	}
	differ("TEAM_LIMITS_WIDENED", "now", is.Values, was.Values, before)
	differ("TEAM_LIMITS_NARROWED", "no longer", was.Values, is.Values, after)
}

func limitText(l policy.Limit) string {
	if len(l.Values) == 0 {
		return ""
	}
	return quoted(l.Values)
}

// limitsText returns the limits of a team on one line.
func limitsText(t *policy.Team) string {
	text := fmt.Sprintf("%s: groups %s, namespaces %s", t.Name, quoted(t.Groups.Values), quoted(t.Namespaces.Values))
	if len(t.Reads.Values) > 0 {
		text += ", reads " + quoted(t.Reads.Values)
	}
	return text
}

// part is what a team has in a policy.
type part struct{ roles, bindings, denies, validations int }

func (p *part) String() string {
	var words []string
	for _, x := range []struct {
		n         int
		one, many string
	}{{p.roles, "1 role", "%d roles"}, {p.bindings, "1 binding", "%d bindings"}, {p.denies, "1 deny", "%d denies"}, {p.validations, "1 admission rule", "%d admission rules"}} {
		if x.n > 0 {
			words = append(words, counted(x.n, "", x.one, x.many))
		}
	}
	return strings.Join(words, ", ")
}

func parts(f *policy.Form) map[string]*part {
	all := map[string]*part{}
	of := func(id string) *part {
		team := policy.OwningTeam(id)
		if team == policy.BuiltinTeam {
			return &part{}
		}
		if all[team] == nil {
			all[team] = &part{}
		}
		return all[team]
	}
	for i := range f.Roles {
		of(f.Roles[i].ID).roles++
	}
	for i := range f.Bindings {
		of(f.Bindings[i].ID).bindings++
	}
	for i := range f.Denies {
		of(f.Denies[i].ID).denies++
	}
	for i := range f.Validations {
		of(f.Validations[i].ID).validations++
	}
	return all
}
