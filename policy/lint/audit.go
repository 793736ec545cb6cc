package lint

import (
	"fmt"
	"slices"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// maxSamples limits the requests by which one audit rule is examined.
const maxSamples = 20000

// auditRules finds audit rules that no request reaches, those that record secrets, and reads of secrets that none records.
func (c *checking) auditRules() {
	a := &c.Form.Audit
	if len(a.Rules) == 0 {
		return
	}
	table := audits.New(a)
	for i := range a.Rules {
		r := &a.Rules[i]
		if before := c.decidedBefore(a.Rules[:i], r); len(before) > 0 {
			c.add("AUDIT_UNREACHED", r.Source, r.ID, fmt.Sprintf("%s before it match%s all of its requests", wording.Enumerate(before), map[bool]string{true: "es"}[len(before) == 1]), "")
			continue
		}
		if kinds := c.secretsRecorded(table, r); len(kinds) > 0 {
			c.add("AUDIT_SECRETS", r.Source, r.ID, fmt.Sprintf("it records the contents of %s, with hashes in place of the secrets", wording.Enumerate(kinds)), "")
		}
	}
	c.secretReads(table)
}

// secretReads finds reads of kinds with secrets that no rule records. Without rules they are recorded.
func (c *checking) secretReads(table *audits.Table) {
	type cause struct {
		at  schemas.Position
		why string
	}
	var causes []cause
	kinds := map[cause][]string{}
	for i := range c.Form.Kinds {
		k := &c.Form.Kinds[i]
		if !policy.HoldsSecrets(k) {
			continue
		}
		for _, verb := range []string{"get", "list", "watch"} {
			read := policy.Request{User: audits.Other, Groups: []string{"system:authenticated"}, Verb: verb, IsResource: true, Group: k.Group, Resource: k.Plural, Namespace: audits.Other, Name: audits.Other}
			r := table.Classify(&read)
			if r.Recorded() {
				continue
			}
			x := cause{c.Form.Audit.Rules[0].Source, "no audit rule matches them"}
			if r.ID != "" {
				x = cause{r.Source, r.ID + " has the level None"}
			}
			if kinds[x] == nil {
				causes = append(causes, x)
			}
			kinds[x] = append(kinds[x], k.Resource())
			break
		}
	}
	for _, x := range causes {
		c.add("AUDIT_SECRET_READS", x.at, "bundle.audit.rules", "reads of "+wording.Enumerate(kinds[x])+" are not recorded: "+x.why, "")
	}
}

// decidedBefore returns the earlier rules that match all requests of a rule between them; nil if some request reaches the rule.
func (c *checking) decidedBefore(earlier []policy.AuditRule, r *policy.AuditRule) (names []string) {
	if len(earlier) == 0 {
		return nil
	}
	table := audits.New(&policy.Audit{Rules: earlier})
	n := 0
	for q := range audits.Samples(r) {
		rule := table.Classify(q)
		if n++; rule.ID == "" || n > maxSamples || n%1000 == 0 && c.ctx.Err() != nil {
			return nil
		}
		if !slices.Contains(names, rule.ID) {
			names = append(names, rule.ID)
		}
	}
	return names
}

// secretsRecorded returns the resources that hold secrets, and whose bodies a rule records for some requests.
func (c *checking) secretsRecorded(table *audits.Table, r *policy.AuditRule) (kinds []string) {
	if audits.LevelOf(r.Level) < audits.LevelOf("Request") || len(r.NonResourceURLs) > 0 {
		return nil
	}
	for i := range c.Form.Kinds {
		k := &c.Form.Kinds[i]
		if !policy.HoldsSecrets(k) || slices.Contains(kinds, k.Resource()) {
			continue
		}
		one := *r
		one.APIGroups, one.Resources = []string{k.Group}, []string{k.Plural}
		if len(one.Verbs) == 0 {
			one.Verbs = []string{"create", "update", "patch"}
			if r.Level == "RequestResponse" {
				one.Verbs = append(one.Verbs, "get", "list", "watch")
			}
		}
		n := 0
		for q := range audits.Samples(&one) {
			if n++; n > maxSamples {
				break
			}
			if writesOrAnswers(q.Verb, r.Level) && table.Classify(q).ID == r.ID {
				kinds = append(kinds, k.Resource())
				break
			}
		}
	}
	return kinds
}

// writesOrAnswers reports whether a record of a level has the content of objects for a verb.
func writesOrAnswers(verb, level string) bool {
	return level == "RequestResponse" || slices.Contains([]string{"create", "update", "patch"}, verb)
}
