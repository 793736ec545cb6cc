package policy

import (
	"stele.dev/stele/schemas"
)

// Flow holds the priority levels and flow schemas of a bundle. Built-in ones are added to them.
type Flow struct {
	PriorityLevels []PriorityLevel `json:"priorityLevels,omitempty"` // by name
	FlowSchemas    []FlowSchema    `json:"flowSchemas,omitempty"`    // the first match decides
}

// PriorityLevel is a share of the server's capacity, as in flowcontrol.apiserver.k8s.io.
type PriorityLevel struct {
	ID                       string `json:"id"` // flow/priorityLevels/name
	Name                     string `json:"name"`
	NominalConcurrencyShares int    `json:"nominalConcurrencyShares"`
	LendablePercent          int    `json:"lendablePercent"`
	BorrowingLimitPercent    *int   `json:"borrowingLimitPercent,omitempty"` // nil: no limit
	// Queuing configures the queues for requests over the limit; nil: these requests are rejected.
	Queuing *Queuing         `json:"queuing,omitempty"`
	Source  schemas.Position `json:"source,omitzero"`
}

// Queuing configures the queues of a priority level.
type Queuing struct {
	Queues           int `json:"queues"`
	HandSize         int `json:"handSize"`
	QueueLengthLimit int `json:"queueLengthLimit"`
}

// FlowSchema assigns the matching requests of its subjects to a priority level.
type FlowSchema struct {
	ID                 string `json:"id"` // flow/flowSchemas/name
	Name               string `json:"name"`
	MatchingPrecedence int    `json:"matchingPrecedence"`
	PriorityLevel      string `json:"priorityLevel"`
	Distinguisher      string `json:"distinguisher,omitempty"` // ByUser or ByNamespace
	// Watches is how many watches one flow may have open on a server; 0 means any number.
	Watches int `json:"watches,omitempty"`
	// Subjects are whose requests match. The user or group "*" is everybody, and the name "*" of a service account is all
	// service accounts of its namespace.
	Subjects []Subject        `json:"subjects"`
	Rules    []FlowRule       `json:"rules"`
	Source   schemas.Position `json:"source,omitzero"`
}

// FlowRule says which requests of its subjects a flow schema matches: some for resources, or some for paths.
type FlowRule struct {
	ID              string   `json:"id"` // ID of the flow schema, /name
	Verbs           []string `json:"verbs"`
	APIGroups       []string `json:"apiGroups,omitempty"`
	Resources       []string `json:"resources,omitempty"`
	NonResourceURLs []string `json:"nonResourceURLs,omitempty"`
	// Namespaces are the namespaces of the requests: "*" is every namespace, and "" are requests outside of namespaces. If it
	// is nil, the rule matches in all namespaces and outside of them. Requests for paths ignore it.
	Namespaces []string         `json:"namespaces,omitempty"`
	Source     schemas.Position `json:"source,omitzero"`
}

// Audit holds the audit rules. Levels and stages are those of audit.k8s.io.
type Audit struct {
	Rules []AuditRule `json:"rules,omitempty"` // the first match decides
	// OmitStages are the stages that no rule records.
	OmitStages []string `json:"omitStages,omitempty"`
	// OmitManagedFields leaves managedFields out of recorded objects, unless a rule says otherwise.
	OmitManagedFields bool `json:"omitManagedFields,omitempty"`
	// Source is the position of these two; zero without them.
	Source schemas.Position `json:"source,omitzero"`
}

// AuditRule says what is recorded of matching requests. A list that is nil matches everything.
type AuditRule struct {
	ID       string    `json:"id"` // audit/rules/name
	Level    string    `json:"level"`
	Subjects []Subject `json:"subjects,omitempty"`
	// MemberOf are groups of which the user must be in one, in addition to Subjects.
	MemberOf   []string `json:"memberOf,omitempty"`
	Verbs      []string `json:"verbs,omitempty"`
	APIGroups  []string `json:"apiGroups,omitempty"`
	Resources  []string `json:"resources,omitempty"` // with subresources: "pods/log", "pods/*", "*/scale"
	Names      []string `json:"names,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"` // "" are requests outside of namespaces
	// NonResourceURLs are paths; * at the end matches any rest. A rule has these or the lists for resources.
	NonResourceURLs []string `json:"nonResourceURLs,omitempty"`
	OmitStages      []string `json:"omitStages,omitempty"`
	// OmitManagedFields is nil if the rule says nothing about it.
	OmitManagedFields *bool `json:"omitManagedFields,omitempty"`
	// Sync makes the answer of a request wait until its record is on disk.
	Sync   bool             `json:"sync,omitempty"`
	Source schemas.Position `json:"source,omitzero"`
}
