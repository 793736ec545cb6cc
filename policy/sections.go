package policy

import (
	"cmp"
	"fmt"
	"slices"

	"cuelang.org/go/cue"
	"stele.dev/stele/schemas"
)

// Flow is how requests share the server: a bundle's own levels and schemas, beside
// those that always exist.
type Flow struct {
	PriorityLevels []PriorityLevel `json:"priorityLevels,omitempty"` // by name
	FlowSchemas    []FlowSchema    `json:"flowSchemas,omitempty"`    // the first that matches decides
}

// PriorityLevel is a share of the server, as in flowcontrol.apiserver.k8s.io.
type PriorityLevel struct {
	ID                       string `json:"id"` // flow/priorityLevels/name
	Name                     string `json:"name"`
	NominalConcurrencyShares int    `json:"nominalConcurrencyShares"`
	LendablePercent          int    `json:"lendablePercent"`
	BorrowingLimitPercent    *int   `json:"borrowingLimitPercent,omitempty"` // none: no limit
	// Queuing of what is over the level's limit; none: it is rejected.
	Queuing *Queuing         `json:"queuing,omitempty"`
	Source  schemas.Position `json:"source,omitzero"`
}

// Queuing is how the requests of a level wait.
type Queuing struct {
	Queues           int `json:"queues"`
	HandSize         int `json:"handSize"`
	QueueLengthLimit int `json:"queueLengthLimit"`
}

// FlowSchema puts the requests that its rules name, of its subjects, into a level.
type FlowSchema struct {
	ID                 string           `json:"id"` // flow/flowSchemas/name
	Name               string           `json:"name"`
	MatchingPrecedence int              `json:"matchingPrecedence"`
	PriorityLevel      string           `json:"priorityLevel"`
	Distinguisher      string           `json:"distinguisher,omitempty"` // ByUser or ByNamespace
	Subjects           []Subject        `json:"subjects"`
	Rules              []Rule           `json:"rules"`
	Source             schemas.Position `json:"source,omitzero"`
}

// Audit is what the audit log says of requests.
type Audit struct {
	Rules []AuditRule `json:"rules,omitempty"` // the first that matches decides
}

// AuditRule says how much is logged of the requests that it matches: all that it does
// not exclude. The levels and stages are those of audit.k8s.io.
type AuditRule struct {
	ID         string           `json:"id"` // audit/rules/name
	Level      string           `json:"level"`
	Subjects   []Subject        `json:"subjects,omitempty"`
	Verbs      []string         `json:"verbs,omitempty"`
	APIGroups  []string         `json:"apiGroups,omitempty"`
	Resources  []string         `json:"resources,omitempty"`
	Namespaces []string         `json:"namespaces,omitempty"`
	OmitStages []string         `json:"omitStages,omitempty"`
	Source     schemas.Position `json:"source,omitzero"`
}

// carried warns of a section that is in the form and that nothing enforces.
func (c *compiler) carried(v cue.Value) {
	c.warnings = append(c.warnings, schemas.Diagnostic{Pos: position(v), Path: v.Path().String(),
		Message: "carried in the policy, but not enforced yet by this version of stele"})
}

func (c *compiler) flow(v cue.Value) (f Flow) {
	levels := c.words("#BuiltinLevels")
	for name, x := range c.fields(v, "priorityLevels") {
		level := PriorityLevel{ID: "flow/priorityLevels/" + name, Name: name, Source: position(x)}
		c.decodeField(x, "nominalConcurrencyShares", &level.NominalConcurrencyShares)
		c.decodeField(x, "lendablePercent", &level.LendablePercent)
		c.decodeField(x, "borrowingLimitPercent", &level.BorrowingLimitPercent)
		c.decodeField(x, "queuing", &level.Queuing)
		f.PriorityLevels = append(f.PriorityLevels, level)
		levels = append(levels, name)
	}
	for name, x := range c.fields(v, "flowSchemas") {
		s := FlowSchema{ID: "flow/flowSchemas/" + name, Name: name, Source: position(x)}
		c.decodeField(x, "matchingPrecedence", &s.MatchingPrecedence)
		c.decodeField(x, "priorityLevel", &s.PriorityLevel)
		c.reference(x.LookupPath(cue.ParsePath("priorityLevel")), levels)
		c.decodeField(x, "distinguisher", &s.Distinguisher)
		s.Subjects = c.subjects(x)
		s.Rules = c.rules(x, s.ID)
		f.FlowSchemas = append(f.FlowSchemas, s)
	}
	// Of schemas of one precedence upstream takes that with the lesser name.
	slices.SortStableFunc(f.FlowSchemas, func(a, b FlowSchema) int { return cmp.Compare(a.MatchingPrecedence, b.MatchingPrecedence) })
	if len(f.PriorityLevels)+len(f.FlowSchemas) > 0 {
		c.carried(v)
	}
	return f
}

func (c *compiler) audit(v cue.Value) (a Audit) {
	type ordered struct {
		order int
		rule  AuditRule
		at    cue.Value
	}
	var rules []ordered
	for name, x := range c.fields(v, "rules") {
		r := ordered{at: x, rule: AuditRule{ID: "audit/rules/" + name, Source: position(x)}}
		c.decodeField(x, "level", &r.rule.Level)
		r.rule.Subjects = c.subjects(x)
		c.decodeField(x, "verbs", &r.rule.Verbs)
		c.decodeField(x, "apiGroups", &r.rule.APIGroups)
		c.decodeField(x, "resources", &r.rule.Resources)
		c.decodeField(x, "namespaces", &r.rule.Namespaces)
		c.decodeField(x, "omitStages", &r.rule.OmitStages)
		c.globs(x)
		n := naming{groups: r.rule.APIGroups, resources: r.rule.Resources, at: x}
		if n.groups == nil {
			n.groups = []string{"*"}
		}
		c.namings = append(c.namings, n)
		if order := x.LookupPath(cue.ParsePath("order")); c.sound(order) {
			c.decode(order, &r.order)
			rules = append(rules, r)
		}
	}
	slices.SortStableFunc(rules, func(a, b ordered) int { return cmp.Compare(a.order, b.order) })
	for i, r := range rules {
		if i > 0 && rules[i-1].order == r.order {
			before := rules[i-1].rule
			c.add(position(r.at.LookupPath(cue.ParsePath("order"))), r.at.Path().String()+".order",
				fmt.Sprintf("%s and %s have the same order, %d", before.ID, r.rule.ID, r.order), "one has to come first; the other one is at "+before.Source.String())
		}
		a.Rules = append(a.Rules, r.rule)
	}
	if len(rules) > 0 {
		c.carried(v)
	}
	return a
}
