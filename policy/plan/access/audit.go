package access

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
)

const (
	// maxAuditSamples limits the requests by which a changed audit rule is compared.
	maxAuditSamples = 5000
	// maxRecorded limits the requests that a finding names.
	maxRecorded = 8
)

// audit compares the audit rules: which requests are recorded less, and which more.
func (c *comparison) audit() {
	from, to := &c.from.Audit, &c.to.Audit
	a := auditComparison{from: audits.ForPolicy(c.from.Form), to: audits.ForPolicy(c.to.Form)}
	id := func(r *policy.AuditRule) string { return r.ID }
	was, is := policy.IndexBy(from.Rules, id), policy.IndexBy(to.Rules, id)
	for i := range to.Rules {
		now := &to.Rules[i]
		if old := was[now.ID]; old == nil || text(old) != text(now) {
			c.auditRule(&a, old, now)
		}
	}
	for i := range from.Rules {
		if old := &from.Rules[i]; is[old.ID] == nil {
			c.auditRule(&a, old, nil)
		}
	}
	if (len(from.Rules) == 0) != (len(to.Rules) == 0) {
		for _, old := range a.from.Implied() {
			c.auditRule(&a, &old, nil)
		}
		for _, now := range a.to.Implied() {
			c.auditRule(&a, nil, &now)
		}
	}
	if before, after := kept(from, is), kept(to, was); !slices.Equal(before, after) {
		f := plan.Finding{Path: "order of audit rules", Before: strings.Join(before, ", "), After: strings.Join(after, ", ")}
		c.recorded(&a, f, "The audit rules are tried in another order.", from.Rules, to.Rules)
	}
	if before, after := wide(from), wide(to); before != after {
		f := plan.Finding{Path: "audit", Before: before, After: after, Source: to.Source, Was: from.Source}
		c.recorded(&a, f, "What holds for all audit rules differs.", from.Rules, to.Rules)
	}
}

// kept returns the ids of the rules that the other side has, too, in their order.
func kept(a *policy.Audit, other map[string]*policy.AuditRule) (ids []string) {
	for i := range a.Rules {
		if id := a.Rules[i].ID; other[id] != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// wide returns what holds for all rules.
func wide(a *policy.Audit) string {
	return fmt.Sprintf("omitStages: %s, omitManagedFields: %v", strings.Join(audits.StagesOf(a.OmitStages).Names(), ", "), a.OmitManagedFields)
}

// auditRule reports a rule that is not the same on both sides; one of them may be nil.
func (c *comparison) auditRule(a *auditComparison, was, is *policy.AuditRule) {
	f, message := plan.Finding{}, "The audit rule differs."
	var rules []policy.AuditRule
	if was != nil {
		f.Path, f.Before, f.Was, message = was.ID, text(was), was.Source, "The audit rule is gone."
		rules = append(rules, *was)
	}
	if is != nil {
		f.Path, f.After, f.Source = is.ID, text(is), is.Source
		rules = append(rules, *is)
		if message = "The audit rule differs."; was == nil {
			message = "The audit rule is new."
		}
	}
	if f.Source.IsZero() && f.Was.IsZero() { // the rule of a policy without audit rules has no line: those of the other side have
		if is == nil {
			f.Source = c.to.Audit.Rules[0].Source
		} else {
			f.Was = c.from.Audit.Rules[0].Source
		}
	}
	c.recorded(a, f, message, rules)
}

// recorded adds a finding with the requests of some rules that are recorded otherwise.
func (c *comparison) recorded(a *auditComparison, f plan.Finding, message string, rules ...[]policy.AuditRule) {
	f.Rule = "AUDIT_CHANGED"
	lesser, greater, cut := a.compare(slices.Concat(rules...))
	less, more := shared(lesser), shared(greater)
	switch {
	case len(less) > 0 && len(more) > 0:
		message += " Some requests are recorded less, and some more."
	case len(less) > 0:
		message += " Less is recorded."
	case len(more) > 0:
		message += " More is recorded."
	default:
		f.Details = []string{"The same is recorded of every request."}
	}
	if f.Message = message; len(less) > 0 {
		f.Class = plan.Widens
		f.Fix = []string{"Check that the audit log has to say nothing more about these requests."}
	}
	f.Details = append(f.Details, list("Less", less)...)
	f.Details = append(f.Details, list("More", more)...)
	if cut {
		f.Details = append(f.Details, "The rules have too many combinations to compare all of them.")
	}
	c.add(f)
}

// A recording is requests of which something else is recorded: who asks, by which verb and for what, and what is recorded.
type recording struct{ user, verb, what, difference string }

// shared describes requests. Those that differ only in their verbs share a line.
func shared(all []recording) (lines []string) {
	of := map[recording][]string{}
	for _, r := range all {
		key := r
		key.verb = ""
		of[key] = append(of[key], r.verb)
	}
	for _, r := range all {
		key := r
		key.verb = ""
		if verbs := of[key]; verbs != nil {
			lines = append(lines, fmt.Sprintf("%s, %s, %s: %s", r.user, conjoined(verbs), r.what, r.difference))
			delete(of, key)
		}
	}
	return lines
}

func list(what string, requests []string) []string {
	left := len(requests) - maxRecorded
	if left > 0 {
		requests = requests[:maxRecorded:maxRecorded]
	}
	out := make([]string, len(requests))
	for i, r := range requests {
		out[i] = what + ": " + r
	}
	if left > 0 {
		out = append(out, fmt.Sprintf("%s: %d other sets of requests.", what, left))
	}
	return out
}

// auditComparison compares what two policies record.
type auditComparison struct{ from, to *audits.Table }

// compare returns the requests of some rules of which less is recorded now, and those of which more is.
func (a *auditComparison) compare(rules []policy.AuditRule) (less, more []recording, cut bool) {
	seen := map[recording]bool{}
	n := 0
	for i := range rules {
		for q := range audits.Samples(&rules[i]) {
			if n++; n > maxAuditSamples {
				return less, more, true
			}
			was, is := a.from.Classify(q), a.to.Classify(q)
			before, after := recordOf(was, q), recordOf(is, q)
			if before.equals(after) {
				continue
			}
			r := describe(q)
			r.difference = fmt.Sprintf("%s%s instead of %s%s.", after, ruleName(is), before, ruleName(was))
			if seen[r] {
				continue
			}
			if seen[r] = true; after.lessThan(before) {
				less = append(less, r)
			} else {
				more = append(more, r)
			}
		}
	}
	return less, more, false
}

// ruleName names the rule that decides about a request.
func ruleName(r *audits.Rule) string {
	if r.ID == "" {
		return ""
	}
	at := ""
	if r.Source != (schemas.Position{}) {
		at = ", " + r.Source.String()
	}
	return " (" + strings.TrimPrefix(r.ID, "audit/rules/") + at + ")"
}

// record is what is recorded of a request.
type record struct {
	level       audits.Level
	stages      audits.Stages
	omitManaged bool
	sync        bool
}

func recordOf(r *audits.Rule, q *policy.Request) record {
	if !r.Recorded() || r.ID == "" && slices.Contains([]string{"get", "list", "watch", "head", "options"}, q.Verb) {
		return record{level: audits.None}
	}
	return record{r.Level, r.Stages, r.OmitManagedFields && r.RecordsBodies(), r.Sync}
}

func (r record) equals(other record) bool { return r == other }

// lessThan reports whether a record has less than another one in some respect.
func (r record) lessThan(other record) bool {
	return r.level < other.level || other.stages&^r.stages != 0 || r.level == other.level && (r.omitManaged && !other.omitManaged || other.sync && !r.sync)
}

func (r record) String() string {
	text := audits.LevelName(r.level)
	if r.level == audits.None {
		return text
	}
	if r.stages != audits.All {
		text += " in " + strings.Join(r.stages.Names(), ", ")
	}
	if r.omitManaged {
		text += " without managedFields"
	}
	if r.sync {
		text += ", on disk before the answer"
	}
	return text
}

// describe names the requests for which a sample stands: * is everything that no rule names.
func describe(q *policy.Request) recording {
	star := func(s string) string { return strings.ReplaceAll(s, audits.Other, "*") }
	who := "everybody"
	switch {
	case q.User != audits.Other:
		who = "user " + q.User
	case len(q.Groups) > 0:
		who = "group " + q.Groups[0]
	}
	verb := star(q.Verb)
	if verb == "*" {
		verb = "all verbs"
	}
	if !q.IsResource {
		return recording{user: who, verb: verb, what: star(q.Path)}
	}
	what := star(q.Resource)
	if q.Group != "" && q.Group != audits.Other {
		what += "." + q.Group
	}
	if q.Subresource != "" {
		what += "/" + star(q.Subresource)
	}
	if q.Name != "" && q.Name != audits.Other {
		what += " " + q.Name
	}
	switch q.Namespace {
	case audits.Other:
	case "":
		what += " outside of namespaces"
	default:
		what += " in namespace " + q.Namespace
	}
	return recording{user: who, verb: verb, what: what}
}
