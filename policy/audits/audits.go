// Package audits finds the audit rule of a request: what the audit log records of it. The rules mean what those of a Policy of
// audit.k8s.io mean: the first rule that matches decides, and a request that no rule matches is not recorded.
package audits

import (
	"crypto/sha256"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
)

// Stages is a set of stages of audit.k8s.io.
type Stages uint32

// The stages of a request. [logpb.Audit] has the same numbers.
const (
	RequestReceived Stages = 1 << iota
	ResponseStarted
	ResponseComplete
	Panic
	All = RequestReceived | ResponseStarted | ResponseComplete | Panic
)

// StageNames are the names of the stages, in the order of their numbers.
var StageNames = []string{string(auditv1.StageRequestReceived), string(auditv1.StageResponseStarted), string(auditv1.StageResponseComplete), string(auditv1.StagePanic)}

// StagesOf returns the set of the stages with these names. It ignores other names.
func StagesOf(names []string) (s Stages) {
	for i, name := range StageNames {
		if slices.Contains(names, name) {
			s |= 1 << i
		}
	}
	return s
}

// Names returns the names of the stages of a set, in the order in which a request passes them.
func (s Stages) Names() (names []string) {
	for i, name := range StageNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Level is a level of audit.k8s.io.
type Level = logpb.AuditLevel

// The levels, the lowest first.
const (
	None            = logpb.AuditLevel_AUDIT_LEVEL_NONE
	Metadata        = logpb.AuditLevel_AUDIT_LEVEL_METADATA
	Request         = logpb.AuditLevel_AUDIT_LEVEL_REQUEST
	RequestResponse = logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE
)

// LevelOf returns the level with a name, or AUDIT_LEVEL_UNSPECIFIED.
func LevelOf(name string) logpb.AuditLevel {
	for level, l := range levelNames {
		if l == name {
			return level
		}
	}
	return logpb.AuditLevel_AUDIT_LEVEL_UNSPECIFIED
}

// LevelName returns the name of a level in audit.k8s.io. Events without a level are shown as Metadata.
func LevelName(l logpb.AuditLevel) string {
	if name, ok := levelNames[l]; ok {
		return name
	}
	return string(auditv1.LevelMetadata)
}

var levelNames = map[logpb.AuditLevel]string{
	logpb.AuditLevel_AUDIT_LEVEL_NONE:             string(auditv1.LevelNone),
	logpb.AuditLevel_AUDIT_LEVEL_METADATA:         string(auditv1.LevelMetadata),
	logpb.AuditLevel_AUDIT_LEVEL_REQUEST:          string(auditv1.LevelRequest),
	logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE: string(auditv1.LevelRequestResponse),
}

// Rule is a compiled audit rule. It is immutable.
type Rule struct {
	// AuditRule is the rule of the policy. Its ID is empty if no rule matches the request.
	policy.AuditRule
	Level  logpb.AuditLevel
	Stages Stages // that are recorded
	// OmitManagedFields leaves managedFields out of recorded objects.
	OmitManagedFields bool
	// Record is what events have of the rule. Callers must not change it.
	Record *logpb.Audit
}

// Recorded reports whether the rule records requests at all.
func (r *Rule) Recorded() bool {
	return r.Level >= logpb.AuditLevel_AUDIT_LEVEL_METADATA && r.Stages != 0
}

// RecordsReads reports whether the rule records reads that succeed. Of a policy without audit rules only [SecretReads] does.
func (r *Rule) RecordsReads() bool { return r.ID != "" && r.Recorded() }

// RecordsBodies reports whether the rule records the bodies of requests.
func (r *Rule) RecordsBodies() bool {
	return r.Level >= logpb.AuditLevel_AUDIT_LEVEL_REQUEST && r.Stages != 0
}

// SecretReads is the ID of the rule that a policy without audit rules has: reads of the kinds that hold secrets are recorded.
const SecretReads = "builtin/secret-reads"

var secretVerbs = []string{"get", "list", "watch"}

// Table finds the rule of a request. It is immutable and safe for concurrent use.
type Table struct {
	rules []Rule
	none  Rule // of requests that no rule matches
	index index

	secrets     []schema.GroupResource // whose reads are recorded without rules
	secretReads Rule
}

// ForPolicy returns the table of a policy: as New, but without audit rules reads of the kinds that hold secrets are recorded, too,
// by the rule SecretReads.
func ForPolicy(f *policy.Form) *Table {
	t := New(&f.Audit)
	if len(t.rules) > 0 {
		return t
	}
	for i := range f.Kinds {
		if k := &f.Kinds[i]; policy.HoldsSecrets(k) {
			t.secrets = append(t.secrets, schema.GroupResource{Group: k.Group, Resource: k.Plural})
		}
	}
	t.secretReads = t.none
	t.secretReads.ID, t.secretReads.Verbs = SecretReads, secretVerbs
	t.secretReads.Stages |= ResponseStarted &^ StagesOf(f.Audit.OmitStages)
	t.secretReads.record()
	return t
}

// Implied returns the rule SecretReads for each group of kinds; none if the policy has audit rules, or no such kinds.
func (t *Table) Implied() (rules []policy.AuditRule) {
	for _, resource := range t.secrets {
		rule := t.secretReads.AuditRule
		rule.Level, rule.APIGroups, rule.Resources = LevelName(t.secretReads.Level), []string{resource.Group}, []string{resource.Resource}
		rules = append(rules, rule)
	}
	return rules
}

// readsSecrets reports whether SecretReads matches a request. There are few kinds with secrets, so that a look at each takes less
// time than a lookup.
func (t *Table) readsSecrets(r *policy.Request) bool {
	if !r.IsResource || r.Subresource != "" {
		return false
	}
	for i := range t.secrets {
		if s := &t.secrets[i]; s.Resource == r.Resource && s.Group == r.Group {
			return slices.Contains(secretVerbs, r.Verb)
		}
	}
	return false
}

// New returns the table of audit rules. Without rules, writes and refusals are recorded at the level Metadata, in the stage
// ResponseComplete.
func New(a *policy.Audit) *Table {
	t := &Table{rules: make([]Rule, len(a.Rules))}
	omitted := StagesOf(a.OmitStages)
	for i := range a.Rules {
		r := &t.rules[i]
		r.AuditRule, r.Level = a.Rules[i], LevelOf(a.Rules[i].Level)
		r.Stages = All &^ omitted &^ StagesOf(r.OmitStages)
		r.OmitManagedFields = a.OmitManagedFields
		if own := r.AuditRule.OmitManagedFields; own != nil {
			r.OmitManagedFields = *own
		}
		r.record()
	}
	t.none = Rule{Level: logpb.AuditLevel_AUDIT_LEVEL_NONE, Stages: All &^ omitted, OmitManagedFields: a.OmitManagedFields}
	if len(a.Rules) == 0 {
		t.none = Rule{Level: logpb.AuditLevel_AUDIT_LEVEL_METADATA, Stages: ResponseComplete &^ omitted, OmitManagedFields: a.OmitManagedFields}
	}
	t.none.record()
	t.index = newIndex(a.Rules)
	return t
}

// record sets what events have of the rule.
func (r *Rule) record() {
	r.Record = &logpb.Audit{Level: r.Level, Stages: uint32(r.Stages), Rule: r.ID, OmitManagedFields: r.OmitManagedFields}
	if !r.Source.IsZero() {
		r.Record.Source = r.Source.String()
	}
}

// Classify returns the first rule that matches a request: its user is the one who sent it, also if that user impersonates
// another one. If no rule matches, it returns a rule without an ID. It never returns nil.
func (t *Table) Classify(r *policy.Request) *Rule {
	if i := t.index.firstRule(r); i < len(t.rules) {
		return &t.rules[i]
	}
	if len(t.secrets) > 0 && t.readsSecrets(r) {
		return &t.secretReads
	}
	return &t.none
}

// Unmatched returns the rule of requests that no rule matches.
func (t *Table) Unmatched() *Rule { return &t.none }

// Tables holds the tables of the policies that were used last. The zero value is ready for use. It is safe for concurrent use.
type Tables struct {
	recent atomic.Pointer[[]entry] // the newest first; read without mu
	mu     sync.Mutex              // guards changes of recent
}

type entry struct {
	policy [sha256.Size]byte // its digest
	table  *Table
}

// remembered is how many policies [Tables] remembers: that in force, and former ones, which some requests are still decided by.
const remembered = 4

// unruled is the table without a policy.
var unruled = New(&policy.Audit{})

// Of returns the table of a policy; nil is one without audit rules.
func (t *Tables) Of(p *policy.Policy) *Table {
	if p == nil {
		return unruled
	}
	digest := p.Digest()
	if table := t.find(&digest); table != nil {
		return table
	}
	table := ForPolicy(p.Form())
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.find(&digest); other != nil {
		return other
	}
	recent := []entry{{digest, table}}
	if old := t.recent.Load(); old != nil {
		recent = append(recent, (*old)[:min(len(*old), remembered-1)]...)
	}
	t.recent.Store(&recent)
	return table
}

func (t *Tables) find(digest *[sha256.Size]byte) *Table {
	if recent := t.recent.Load(); recent != nil {
		for i := range *recent {
			if e := &(*recent)[i]; e.policy == *digest {
				return e.table
			}
		}
	}
	return nil
}
