package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/validation"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas/wording"
)

// audit compiles the audit rules, in their order.
func (c *compiler) audit(v cue.Value) (a policy.Audit) {
	type ordered struct {
		order int
		rule  policy.AuditRule
		at    cue.Value
	}
	c.DecodeField(v, "omitStages", &a.OmitStages)
	c.DecodeField(v, "omitManagedFields", &a.OmitManagedFields)
	for _, field := range []string{"omitManagedFields", "omitStages"} {
		if x := v.LookupPath(cue.ParsePath(field)); x.Exists() {
			a.Source = evaluation.Position(x)
		}
	}
	var rules []ordered
	for name, x := range c.Fields(v, "rules") {
		r := ordered{at: x, rule: c.auditRule(name, x)}
		c.auditStages(x, &r.rule, a.OmitStages)
		if order := x.LookupPath(cue.ParsePath("order")); c.Sound(order) {
			c.Decode(order, &r.order)
			rules = append(rules, r)
		}
	}
	slices.SortStableFunc(rules, func(a, b ordered) int { return cmp.Compare(a.order, b.order) })
	for i, r := range rules {
		if i > 0 && rules[i-1].order == r.order {
			before := rules[i-1].rule
			c.Add(evaluation.Position(r.at.LookupPath(cue.ParsePath("order"))), r.at.Path().String()+".order",
				fmt.Sprintf("%s and %s have the same order, %d", before.ID, r.rule.ID, r.order), "one has to come first; the other one is at "+before.Source.String())
		}
		a.Rules = append(a.Rules, r.rule)
	}
	return a
}

func (c *compiler) auditRule(name string, x cue.Value) policy.AuditRule {
	r := policy.AuditRule{ID: "audit/rules/" + name, Source: evaluation.Position(x)}
	c.DecodeField(x, "level", &r.Level)
	r.Subjects = c.subjects(x)
	for field, list := range map[string]*[]string{"memberOf": &r.MemberOf, "verbs": &r.Verbs, "apiGroups": &r.APIGroups, "resources": &r.Resources,
		"names": &r.Names, "namespaces": &r.Namespaces, "nonResourceURLs": &r.NonResourceURLs, "omitStages": &r.OmitStages} {
		c.DecodeField(x, field, list)
	}
	if omit := x.LookupPath(cue.ParsePath("omitManagedFields")); omit.Exists() && c.Sound(omit) {
		r.OmitManagedFields = new(bool)
		c.Decode(omit, r.OmitManagedFields)
	}
	c.DecodeField(x, "sync", &r.Sync)
	if !c.Sound(x) {
		return r
	}
	c.auditLists(x)
	c.auditSubjects(x, &r)
	switch {
	case len(r.NonResourceURLs) > 0 && (audits.ForResources(&r) || len(r.Names) > 0):
		c.Add(r.Source, x.Path().String(), "a rule is about resources or about nonResourceURLs, not both", "make it two rules")
	case len(r.NonResourceURLs) > 0:
		c.flowVerbs(x, &policy.FlowRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		c.auditPaths(x, &r)
	case audits.ForResources(&r), len(r.Names) > 0:
		c.flowVerbs(x, &policy.FlowRule{Verbs: r.Verbs})
		c.auditResources(x, &r)
	}
	return r
}

// auditLists rejects empty lists. In Kubernetes they match everything, which nobody expects.
func (c *compiler) auditLists(x cue.Value) {
	for _, field := range []string{"subjects", "memberOf", "verbs", "apiGroups", "resources", "names", "namespaces", "nonResourceURLs"} {
		list := x.LookupPath(cue.ParsePath(field))
		if n, err := list.Len().Int64(); list.Exists() && err == nil && n == 0 {
			c.Add(evaluation.Position(list), list.Path().String(), "the list is empty", "name something, or leave it out: then all requests match")
		}
	}
}

// auditSubjects rejects subjects that mean something else in other rules.
func (c *compiler) auditSubjects(x cue.Value, r *policy.AuditRule) {
	for i, s := range r.Subjects {
		at := fmt.Sprintf("%s.subjects.%d", x.Path(), i)
		switch {
		case s.User == "*" || s.Group == "*":
			c.Add(element(x, "subjects", i), at, `no user or group has the name "*"`, "leave out subjects: then the requests of all users match")
		case s.Group != "" && len(r.MemberOf) > 0:
			c.Add(element(x, "subjects", i), at, "memberOf is for users, and this is a group", "make it two rules, or leave out memberOf")
		}
	}
}

// auditStages rejects rules that record nothing although they have a level.
func (c *compiler) auditStages(x cue.Value, r *policy.AuditRule, omitted []string) {
	if !c.Sound(x) {
		return
	}
	all := audits.StagesOf(r.OmitStages) | audits.StagesOf(omitted)
	switch {
	case r.Level != "None" && all == audits.All:
		hint := ""
		if len(omitted) > 0 {
			hint = "; " + wording.Enumerate(omitted) + " are omitted for all rules"
		}
		c.Add(cmp.Or(evaluation.Position(x.LookupPath(cue.ParsePath("omitStages"))), r.Source), x.Path().String(),
			"the rule omits all stages, so that nothing is recorded", `leave one of them, or write level: "None"`+hint)
	case r.Level == "None" && r.Sync:
		c.Add(evaluation.Position(x.LookupPath(cue.ParsePath("sync"))), x.Path().String()+".sync", "the answer cannot wait for a record: at the level None there is none", "leave out sync, or raise the level")
	}
}

// auditPaths rejects paths that no request has.
func (c *compiler) auditPaths(x cue.Value, r *policy.AuditRule) {
	for i, path := range r.NonResourceURLs {
		if path != "*" && (strings.Contains(strings.TrimSuffix(path, "*"), "*") || strings.ContainsAny(path, " \t\r\n?")) {
			c.Add(element(x, "nonResourceURLs", i), fmt.Sprintf("%s.nonResourceURLs.%d", x.Path(), i), fmt.Sprintf("no request is for a path %q", path), "a * stands only at the end")
		}
	}
}

// auditResources checks what a rule for resources names.
func (c *compiler) auditResources(x cue.Value, r *policy.AuditRule) {
	if len(r.Names) > 0 && len(r.Resources) == 0 {
		c.Add(evaluation.Position(x.LookupPath(cue.ParsePath("names"))), x.Path().String()+".names", "names of objects without resources match nothing", "add the resources of the objects")
		return
	}
	if creates := slices.Equal(slices.Compact(slices.Clone(r.Verbs)), []string{"create"}); len(r.Names) > 0 && creates && !slices.ContainsFunc(r.Resources, func(s string) bool { return s == "*" || strings.Contains(s, "/") }) {
		c.Add(evaluation.Position(x.LookupPath(cue.ParsePath("names"))), x.Path().String()+".names", "a request that creates an object does not name it in its path, so that none matches", "leave out names, or add other verbs")
	}
	for i, n := range r.Namespaces {
		if n != "" && len(validation.IsDNS1123Label(n)) > 0 {
			hint := "names are of lower-case letters, digits and -"
			if strings.Contains(n, "*") {
				hint = "audit rules have no patterns of namespaces: name each of them, or leave namespaces out for all"
			}
			c.Add(element(x, "namespaces", i), fmt.Sprintf("%s.namespaces.%d", x.Path(), i), fmt.Sprintf("no namespace can have a name like %q", n), hint)
		}
	}
	groups := r.APIGroups
	if len(groups) == 0 {
		groups = []string{"*"}
	}
	c.audited = append(c.audited, naming{groups, r.Resources, x})
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, "") {
		c.inNamespaces = append(c.inNamespaces, naming{groups, r.Resources, x})
	}
}

// auditedResources checks that audit rules name API groups, resources and subresources that are served.
func (c *compiler) auditedResources(s policy.Resources) {
	for _, n := range c.audited {
		plain := naming{groups: n.groups, at: n.at}
		for i, r := range n.resources {
			resource, sub, isSub := strings.Cut(r, "/")
			switch {
			case !isSub:
				plain.resources = append(plain.resources, r)
			case resource == "*" && !hasSubresource(s, n.groups, sub):
				c.Add(element(n.at, "resources", i), fmt.Sprintf("%s.resources.%d", n.at.Path(), i), fmt.Sprintf("no resource has a subresource %q", sub),
					cmp.Or(map[string]string{"*": `"*" alone is all resources with their subresources`}[sub], wording.DidYouMean(r, subresources(s, n.groups), "there are")))
			case sub == "*" && resource != "*":
				plain.resources = append(plain.resources, resource)
			case s.HasAny(n.groups, resource) && !s.HasAny(n.groups, r):
				c.Add(element(n.at, "resources", i), fmt.Sprintf("%s.resources.%d", n.at.Path(), i), fmt.Sprintf("%q has no subresource %q", resource, sub),
					wording.DidYouMean(r, subresourcesOf(s.In(n.groups), resource), "there are"))
			default:
				plain.resources = append(plain.resources, r)
			}
		}
		if c.groups(s, plain) {
			c.auditedIn(s, n, plain.resources)
		}
	}
}

// auditedIn checks that some resources of a rule are served.
func (c *compiler) auditedIn(s policy.Resources, n naming, plain []string) {
	for _, r := range plain {
		if s.HasAny(n.groups, r) {
			continue
		}
		i := slices.IndexFunc(n.resources, func(x string) bool { return x == r || x == r+"/*" })
		c.unserved(s, n, i, r)
	}
}

// subresourcesOf returns the subresources among some resources that a resource has.
func subresourcesOf(resources []string, resource string) []string {
	return slices.DeleteFunc(slices.Clone(resources), func(r string) bool { return !strings.HasPrefix(r, resource+"/") })
}

// subresources returns the subresources in some groups, each as "*/NAME".
func subresources(s policy.Resources, groups []string) (list []string) {
	for _, r := range s.In(groups) {
		if _, sub, ok := strings.Cut(r, "/"); ok {
			list = append(list, "*/"+sub)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func hasSubresource(s policy.Resources, groups []string, sub string) bool {
	return slices.Contains(subresources(s, groups), "*/"+sub)
}
