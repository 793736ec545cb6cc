package changes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/object/difference"
)

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// Change is one revision of the log. A list starts with the newest, and without a field selector it has the last 1000
// revisions; a watch can start at any revision. A field selector can name the fields of a change, since=REVISION|TIME
// and until=REVISION|TIME (both inclusive), and difference.path=FIELD. A label selector matches the labels of the
// object before or after the change. Users see changes only of objects that they may read, as the objects were at that
// revision.
type Change struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Revision is the revision of the change, which is also its name.
	Revision uint64 `json:"revision"`
	// Time is the time of the log, with nanoseconds.
	Time string `json:"time"`
	// Type is Created, Updated, Deleted, or one of the log's own: LogCreated, PolicyChunk, PolicyProposed,
	// PolicyActivated, EpochStarted, LevelRaised, ClockSet, DecisionsAnchored, TreeHeadTaken,
	// CheckpointRecorded, PastErased.
	Type string `json:"type"`
	// Object is the object that changed.
	Object *Object `json:"object,omitempty"`
	// PreviousRevision is the revision of the previous change of the object.
	PreviousRevision uint64 `json:"previousRevision,omitempty"`
	// Actor is the user who made the change.
	Actor *Actor `json:"actor,omitempty"`
	// Request is the request that made the change.
	Request *Request `json:"request,omitempty"`
	// Decision is what allowed the change.
	Decision *Decision `json:"decision,omitempty"`
	// Policy is the digest of the policy in force. For PolicyProposed and PolicyActivated, it is the digest of the
	// policy that was proposed or activated.
	Policy string `json:"policy,omitempty"`
	// Difference is the difference to the previous version. For a new object it has all fields that the request set;
	// for a deleted one, all fields it had. It is omitted with the query parameter difference=false, and if the
	// previous version is no longer kept.
	Difference []difference.Entry `json:"difference,omitempty"`
}

// Object is the object that a change is about.
type Object struct {
	// Group is the API group of the object; empty for the core group.
	Group string `json:"group,omitempty"`
	// Version is the version in which the object was written.
	Version string `json:"version,omitempty"`
	// Resource is the plural name of the resource.
	Resource string `json:"resource"`
	// Kind is the kind of the object.
	Kind string `json:"kind,omitempty"`
	// Namespace is the namespace of the object, if it is in one.
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the object.
	Name string `json:"name"`
	// UID is the UID of the object. It differs between objects that had the same name one after the other.
	UID string `json:"uid,omitempty"`
	// PreviousUID is set on a new object: the UID of the earlier object with the same name.
	PreviousUID string `json:"previousUID,omitempty"`
	// Sensitive is true if the object held secrets before or after the change.
	Sensitive bool `json:"sensitive,omitempty"`
}

// Actor is the user who made a change.
type Actor struct {
	// User is the name of the user.
	User string `json:"user"`
	// Groups are the groups of the user.
	Groups []string `json:"groups,omitempty"`
	// Impersonator is the user who sent the request, if it was impersonated.
	Impersonator string `json:"impersonator,omitempty"`
}

// Request is the request that made a change.
type Request struct {
	// Verb is the verb of the request: create, update, patch, delete or deletecollection.
	Verb string `json:"verb,omitempty"`
	// Subresource is the subresource that was written, if any.
	Subresource string `json:"subresource,omitempty"`
	// AuditID is the ID of the request in the audit log.
	AuditID string `json:"auditID,omitempty"`
	// UserAgent is the user agent of the client.
	UserAgent string `json:"userAgent,omitempty"`
	// SourceIPs are the addresses that the request came from.
	SourceIPs []string `json:"sourceIPs,omitempty"`
	// FieldManager is the field manager that the request named.
	FieldManager string `json:"fieldManager,omitempty"`
	// Status is the HTTP status of the answer.
	Status int `json:"status,omitempty"`
	// Version is the version of the object in the request.
	Version string `json:"version,omitempty"`
}

// Decision is what allowed a change.
type Decision struct {
	// Authorizer is the authorizer that decided.
	Authorizer string `json:"authorizer"`
	// Rule is the ID of the binding that granted the request.
	Rule string `json:"rule,omitempty"`
	// Source is the file and line of the binding.
	Source string `json:"source,omitempty"`
	// Reason is the reason that an authorizer outside of the policy gave.
	Reason string `json:"reason,omitempty"`
	// Program is the checksum of the plugin, if a plugin decided.
	Program string `json:"program,omitempty"`
	// CreateRule is the ID of the binding that allowed an update or a patch to create the object.
	CreateRule string `json:"createRule,omitempty"`
	// CreateSource is the file and line of that binding.
	CreateSource string `json:"createSource,omitempty"`
	// Findings are the findings of admission rules that did not reject the request.
	Findings []Finding `json:"findings,omitempty"`
	// Mutations are the changes that mutating admission made of what the client asked for, in their order.
	Mutations []Mutation `json:"mutations,omitempty"`
	// Reviews are the webhooks and plugins that reviewed the write.
	Reviews []Review `json:"reviews,omitempty"`
}

// Mutation is a change that mutating admission made of an object before it was stored.
type Mutation struct {
	// Rule is the ID of the change of a rule, or of the webhook or plugin.
	Rule string `json:"rule"`
	// Source is the file and line of the rule.
	Source string `json:"source,omitempty"`
	// By is Rule, Webhook or Plugin.
	By string `json:"by"`
	// Paths are the fields that changed, as JSON pointers into the object as it was then.
	Paths []string `json:"paths,omitempty"`
	// Reinvoked is true if the rule ran for the second time, because others had changed the object.
	Reinvoked bool `json:"reinvoked,omitempty"`
}

// Review is the answer of a webhook or a plugin that reviewed a write, and did not reject it.
type Review struct {
	// Rule is the ID of the webhook or the plugin in the policy.
	Rule string `json:"rule"`
	// Source is its file and line.
	Source string `json:"source,omitempty"`
	// Program is the checksum of the program of a plugin.
	Program string `json:"program,omitempty"`
	// Ignored is set if it could not be asked, and the write went on by its failure policy.
	Ignored bool `json:"ignored,omitempty"`
}

// Finding is what an admission rule found.
type Finding struct {
	// Rule is the ID of the rule.
	Rule string `json:"rule"`
	// Source is the file and line of the rule.
	Source string `json:"source,omitempty"`
	// Actions is the action that was taken: Warn or Audit.
	Actions string `json:"actions"`
	// Message is the message of the rule.
	Message string `json:"message"`
}
