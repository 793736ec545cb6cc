package compile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/util/shufflesharding"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/flows"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// flow compiles the priority levels and the flow schemas.
func (c *compiler) flow(v cue.Value) (f policy.Flow) {
	levels := c.Words("#BuiltinLevels")
	for name, x := range c.Fields(v, "priorityLevels") {
		level := policy.PriorityLevel{ID: "flow/priorityLevels/" + name, Name: name, Source: evaluation.Position(x)}
		c.notMandatory(x, "priority level", name)
		c.DecodeField(x, "nominalConcurrencyShares", &level.NominalConcurrencyShares)
		c.DecodeField(x, "lendablePercent", &level.LendablePercent)
		c.DecodeField(x, "borrowingLimitPercent", &level.BorrowingLimitPercent)
		c.DecodeField(x, "queuing", &level.Queuing)
		if level.Queuing != nil {
			c.queuing(x.LookupPath(cue.ParsePath("queuing")), level.Queuing)
		}
		f.PriorityLevels = append(f.PriorityLevels, level)
		levels = append(levels, name)
	}
	for name, x := range c.Fields(v, "flowSchemas") {
		s := policy.FlowSchema{ID: "flow/flowSchemas/" + name, Name: name, Source: evaluation.Position(x)}
		c.notMandatory(x, "flow schema", name)
		c.DecodeField(x, "matchingPrecedence", &s.MatchingPrecedence)
		c.DecodeField(x, "priorityLevel", &s.PriorityLevel)
		c.reference(x.LookupPath(cue.ParsePath("priorityLevel")), levels)
		c.DecodeField(x, "distinguisher", &s.Distinguisher)
		c.DecodeField(x, "watches", &s.Watches)
		s.Subjects = c.flowSubjects(x)
		s.Rules = c.flowRules(x, s.ID)
		f.FlowSchemas = append(f.FlowSchemas, s)
	}
	// As in Kubernetes, the lesser name comes first among flow schemas of one precedence.
	slices.SortStableFunc(f.FlowSchemas, func(a, b policy.FlowSchema) int { return cmp.Compare(a.MatchingPrecedence, b.MatchingPrecedence) })
	if c.Sound(v) {
		c.seats(v, &f)
	}
	return f
}

// notMandatory rejects a part with the name of one that every policy must have unchanged.
func (c *compiler) notMandatory(v cue.Value, what, name string) {
	if flows.Mandatory(name) {
		c.Add(evaluation.Position(v), v.Path().String(), fmt.Sprintf("the built-in %s %s cannot be replaced", what, name), "choose another name: "+name+" is for "+mandatoryFor[name])
	}
}

// mandatoryFor says what the priority levels and flow schemas are for that cannot be replaced.
var mandatoryFor = map[string]string{"exempt": "administrators, who must always get through", "catch-all": "requests that no other flow schema matches"}

// queuing checks that a hand of queues can be dealt to each flow.
func (c *compiler) queuing(v cue.Value, q *policy.Queuing) {
	if q.Queues <= 0 || q.HandSize <= 0 {
		return // reported, or not known
	}
	x := v.LookupPath(cue.ParsePath("handSize"))
	pos := evaluation.Position(x)
	if pos.IsZero() { // it is the default
		pos = evaluation.Position(v.LookupPath(cue.ParsePath("queues")))
	}
	bits := shufflesharding.RequiredEntropyBits(q.Queues, q.HandSize)
	switch at := x.Path().String(); {
	case q.HandSize > q.Queues:
		c.Add(pos, at, fmt.Sprintf("a flow cannot have a hand of %d queues if there are %d", q.HandSize, q.Queues), "lower handSize, or raise queues")
	case bits > shufflesharding.MaxHashBits:
		c.Add(pos, at, fmt.Sprintf("the hash of a flow has %d bits, and choosing %d of %d queues takes %d", shufflesharding.MaxHashBits, q.HandSize, q.Queues, bits), "lower handSize or queues")
	}
}

// seats rejects priority levels that never have a seat, so that all requests of their flow schemas are rejected for ever.
func (c *compiler) seats(v cue.Value, f *policy.Flow) {
	table := flows.New(f)
	schemas := map[string][]string{}
	for _, s := range table.Schemas() {
		schemas[s.PriorityLevel] = append(schemas[s.PriorityLevel], s.Name)
	}
	for i := range f.PriorityLevels {
		l := &f.PriorityLevels[i]
		if l.NominalConcurrencyShares > 0 || len(schemas[l.Name]) == 0 || flows.Mandatory(l.Name) {
			continue
		}
		why, hint := "its limit of borrowing is a percentage of nothing", "give it nominalConcurrencyShares, or leave out borrowingLimitPercent"
		if l.BorrowingLimitPercent == nil {
			if slices.ContainsFunc(table.Levels(), func(o *flows.Level) bool { return !o.Exempt && o.NominalConcurrencyShares > 0 && o.LendablePercent > 0 }) {
				continue
			}
			why, hint = "no level lends it any", "give it nominalConcurrencyShares, or give another level a lendablePercent"
		}
		c.Add(l.Source, v.Path().String()+".priorityLevels."+l.Name, fmt.Sprintf("the level never has a seat, so that requests of %s are always rejected: it has no share, and %s",
			wording.Enumerate(schemas[l.Name]), why), hint)
	}
}

// flowSubjects compiles the subjects of a flow schema, which may be all service accounts of a namespace.
func (c *compiler) flowSubjects(v cue.Value) (list []policy.Subject) {
	var subjects []struct{ User, Group, ServiceAccount string }
	c.DecodeField(v, "subjects", &subjects)
	for i, s := range subjects {
		if namespace, all := strings.CutSuffix(s.ServiceAccount, "/*"); all && len(validation.IsDNS1123Label(namespace)) == 0 {
			list = append(list, policy.Subject{User: serviceaccount.ServiceAccountUsernamePrefix + namespace + ":*"})
			continue
		}
		list = append(list, c.subject(v, i, s.User, s.Group, s.ServiceAccount))
	}
	return list
}

// flowRules compiles the rules of a flow schema.
func (c *compiler) flowRules(v cue.Value, of string) (rules []policy.FlowRule) {
	for id, x := range c.Fields(v, "rules") {
		if !c.Sound(x) {
			continue
		}
		var rule policy.FlowRule
		c.Decode(x, &rule)
		rule.ID, rule.Source = of+"/"+id, evaluation.Position(x)
		if c.checkRule(x, rule.Verbs, rule.APIGroups, rule.Resources, rule.NonResourceURLs) {
			c.flowVerbs(x, &rule)
			c.flowPaths(x, &rule)
			c.flowNamespaces(x, &rule)
		}
		rules = append(rules, rule)
	}
	return rules
}

// The verbs of requests for resources only, and of requests for paths only. Requests for paths have the method as their
// verb.
var (
	resourceVerbs = map[string]string{"list": "get", "watch": "get", "create": "post", "update": "put", "deletecollection": "delete"}
	pathVerbs     = map[string]string{"post": "create", "put": "update", "head": "get", "options": ""}
)

// flowVerbs rejects verbs that the requests of a rule do not have.
func (c *compiler) flowVerbs(v cue.Value, rule *policy.FlowRule) {
	wrong, what := pathVerbs, "a resource"
	if len(rule.NonResourceURLs) > 0 {
		wrong, what = resourceVerbs, "a path"
	}
	for i, verb := range rule.Verbs {
		instead, found := wrong[verb]
		if !found {
			continue
		}
		hint := "leave it out"
		if instead != "" {
			hint = fmt.Sprintf("the verb is %q", instead)
		}
		c.Add(element(v, "verbs", i), fmt.Sprintf("%s.verbs.%d", v.Path(), i), fmt.Sprintf("no request for %s has the verb %q", what, verb), hint)
	}
}

// flowPaths rejects patterns of paths and of resources that flow schemas do not have. A path includes those below it.
func (c *compiler) flowPaths(v cue.Value, rule *policy.FlowRule) {
	for i, path := range rule.NonResourceURLs {
		head, below := strings.CutSuffix(path, "/*")
		hint := ""
		switch {
		case !strings.Contains(head, "*") && !strings.Contains(head, "//") && !strings.ContainsAny(head, " \t\r\n"):
		case strings.HasSuffix(path, "*") && !below:
			hint = fmt.Sprintf("write %q, which includes all paths below it, or %q for those alone", strings.TrimRight(path, "*"), strings.TrimRight(path, "*")+"/*")
			fallthrough
		default:
			c.Add(element(v, "nonResourceURLs", i), fmt.Sprintf("%s.nonResourceURLs.%d", v.Path(), i), fmt.Sprintf("no request is for a path %q", path), cmp.Or(hint, "a * stands only at the end, after a /"))
		}
	}
	for i, resource := range rule.Resources {
		if strings.HasPrefix(resource, "*/") {
			c.Add(element(v, "resources", i), fmt.Sprintf("%s.resources.%d", v.Path(), i), fmt.Sprintf("%q is no resource: flow schemas have no patterns of resources", resource),
				`name each of them, such as "widgets`+resource[1:]+`"`)
		}
	}
}

// flowNamespaces checks the namespaces of a rule.
func (c *compiler) flowNamespaces(v cue.Value, rule *policy.FlowRule) {
	x := v.LookupPath(cue.ParsePath("namespaces"))
	if !x.Exists() {
		return
	}
	at := x.Path().String()
	switch all := slices.Index(rule.Namespaces, "*"); {
	case len(rule.NonResourceURLs) > 0:
		c.Add(evaluation.Position(x), at, "requests for paths have no namespace", "leave it out")
		return
	case len(rule.Namespaces) == 0:
		c.Add(evaluation.Position(x), at, "a rule for no namespaces matches no request", "name some, or leave it out: then all requests are meant")
		return
	case all >= 0 && slices.Contains(rule.Namespaces, ""):
		c.Add(element(v, "namespaces", all), fmt.Sprintf("%s.%d", at, all), `"*" and "" together are all requests`, "leave out namespaces")
	case all >= 0 && len(rule.Namespaces) > 1:
		c.Add(element(v, "namespaces", all), fmt.Sprintf("%s.%d", at, all), `"*" is every namespace`, "leave out the others")
	}
	for i, n := range rule.Namespaces {
		if n != "" && n != "*" && len(validation.IsDNS1123Label(n)) > 0 {
			hint := "names are of lower-case letters, digits and -"
			if strings.Contains(n, "*") {
				hint = `flow schemas have no patterns of namespaces: "*" alone is every namespace`
			}
			c.Add(element(v, "namespaces", i), fmt.Sprintf("%s.%d", at, i), fmt.Sprintf("no namespace can have a name like %q", n), hint)
		}
	}
	if !slices.Contains(rule.Namespaces, "") {
		c.inNamespaces = append(c.inNamespaces, naming{rule.APIGroups, rule.Resources, v})
	}
}

// onlyInNamespaces rejects resources that are not in namespaces, in rules that match requests in namespaces only. Requests for
// one namespace count as requests in it.
func (c *compiler) onlyInNamespaces(kinds []schemas.Kind) {
	for _, n := range c.inNamespaces {
		for i, resource := range n.resources {
			plural, _, _ := strings.Cut(resource, "/")
			if policy.OnlyOutsideNamespaces(kinds, n.groups, plural) && !c.otherThanKinds(n.groups, plural) {
				c.Add(element(n.at, "resources", i), fmt.Sprintf("%s.resources.%d", n.at.Path(), i), fmt.Sprintf("%q is not in namespaces, so that no request for it matches", resource),
					`make it a rule without namespaces, or add "" to them`)
			}
		}
	}
}

// otherThanKinds reports whether a resource may be one without a kind, or of a kind that has mistakes.
func (c *compiler) otherThanKinds(groups []string, plural string) bool {
	for _, group := range slices.Sorted(maps.Keys(policy.Own)) {
		if (slices.Contains(groups, "*") || slices.Contains(groups, group)) && slices.Contains(policy.Own[group], plural) {
			return true
		}
	}
	for id, broken := range c.brokenKinds {
		if name, _, _ := strings.Cut(id, "."); broken && name == plural {
			return true
		}
	}
	return false
}
