package policy

import (
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
