package explain

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// Explanation says why a request is, or was, answered as it is. Creating one asks what would happen to a request, and
// writes nothing. Getting one by an audit ID says what happened to that request.
type Explanation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the request.
	Spec Spec `json:"spec"`
	// Status is the result of the request.
	Status Status `json:"status,omitzero"`
}

// Spec is a request for a resource or a path.
type Spec struct {
	// Verb is the verb of the request. For a resource: get, list, watch, create, update, patch, delete or
	// deletecollection. For a path: get, head, post, put, patch or delete.
	Verb string `json:"verb"`
	// Group is the API group of the resource; empty for the core group.
	Group string `json:"group,omitempty"`
	// Version is the version of the group. Required for a resource.
	Version string `json:"version,omitempty"`
	// Resource is the plural name of the resource. Exactly one of resource and path must be specified.
	Resource string `json:"resource,omitempty"`
	// Subresource is the subresource, such as status or scale.
	Subresource string `json:"subresource,omitempty"`
	// Namespace is the namespace of the request. It is empty for resources without a namespace, and for requests to all
	// namespaces.
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the object. Required for get, update, patch and delete.
	Name string `json:"name,omitempty"`
	// Path is the path of a request that is not for a resource, such as /metrics.
	Path string `json:"path,omitempty"`

	// FieldSelector is the field selector of a list, watch or deletecollection.
	FieldSelector string `json:"fieldSelector,omitempty"`
	// LabelSelector is the label selector of a list, watch or deletecollection.
	LabelSelector string `json:"labelSelector,omitempty"`

	// User is the user to make the request as; the caller if empty. Other users require the permission to impersonate
	// them.
	User string `json:"user,omitempty"`
	// UID is the UID of the user.
	UID string `json:"uid,omitempty"`
	// Groups are the groups of the user.
	Groups []string `json:"groups,omitempty"`
	// Extra are further attributes of the user.
	Extra map[string][]string `json:"extra,omitempty"`

	// Object is the body of a write, as JSON. Without it, stages that need the body stay open.
	Object json.RawMessage `json:"object,omitempty"`
	// ContentType is the media type of the body. Patches are merge patches by default.
	ContentType string `json:"contentType,omitempty"`
	// FieldManager is the field manager of the write.
	FieldManager string `json:"fieldManager,omitempty"`
	// Force takes fields from other managers. Only for server-side apply.
	Force bool `json:"force,omitempty"`
}

// Status is the result of the request.
type Status struct {
	// Allowed is true if the request succeeds, as far as it was decided.
	Allowed bool `json:"allowed"`
	// Code is the HTTP status of the answer; 0 if not all of the request was decided.
	Code int `json:"code"`
	// Reason is the reason of a failure, as in a Status.
	Reason string `json:"reason,omitempty"`
	// Message is the message of a failure.
	Message string `json:"message,omitempty"`
	// Policy is the digest of the policy that decided.
	Policy string `json:"policy,omitempty"`
	// Revision is the revision of the state that the request was decided on.
	Revision uint64 `json:"revision,omitempty"`
	// Written is the revision of the write, if there was one.
	Written uint64 `json:"written,omitempty"`
	// Stages are the stages that the request went through, in their order.
	Stages []Stage `json:"stages"`
	// Audit is what the audit log records of the request. It is not known for requests that no valid credential came with.
	Audit *Audit `json:"audit,omitempty"`
}

// Audit is what the audit log records of a request.
type Audit struct {
	// Level is None, Metadata, Request or RequestResponse.
	Level string `json:"level"`
	// Rule is the ID of the audit rule that decides; empty if none matches, or if the policy has no audit rules.
	Rule string `json:"rule,omitempty"`
	// Source is the file and line of the rule.
	Source string `json:"source,omitempty"`
	// Unruled is true if the policy has no audit rules. Then writes and refusals are recorded, and reads of kinds with secrets.
	Unruled bool `json:"unruled,omitempty"`
	// Stages are the stages that are recorded.
	Stages []string `json:"stages,omitempty"`
	// OmitManagedFields is true if metadata.managedFields is left out of recorded objects.
	OmitManagedFields bool `json:"omitManagedFields,omitempty"`
}

// Stage is the verdict of one stage.
type Stage struct {
	// Name is the name of the stage.
	Name string `json:"name"`
	// Verdict is passed, refused or open. Open means that it depends on data that the request does not
	// contain.
	Verdict string `json:"verdict"`
	// Rule is the ID of the rule that decided.
	Rule string `json:"rule,omitempty"`
	// Source is the file and line of the rule.
	Source string `json:"source,omitempty"`
	// Message is the message of the stage.
	Message string `json:"message,omitempty"`
	// Considered are the rules that the stage evaluated, if the stage records them one by one.
	Considered []Considered `json:"considered,omitempty"`
	// Flow is the flow of the request, in the stage flow.
	Flow *Flow `json:"flow,omitempty"`
}

// Flow is a flow of requests that wait for each other, as in API priority and fairness.
type Flow struct {
	// Schema is the name of the flow schema.
	Schema string `json:"schema"`
	// PriorityLevel is the name of the priority level whose seats the request takes.
	PriorityLevel string `json:"priorityLevel"`
	// Distinguisher is ByUser or ByNamespace; empty if all requests of the flow schema are one flow.
	Distinguisher string `json:"distinguisher,omitempty"`
	// Of is the user or the namespace whose flow it is.
	Of string `json:"of,omitempty"`
	// Watches is how many watches the flow may have open on a server; 0 means any number.
	Watches int `json:"watches,omitempty"`
	// Seats is how many seats the request takes, as far as its priority level allows that for a request. It is set if the
	// request is authorized.
	Seats int `json:"seats,omitempty"`
	// Exempt is true if requests of the priority level never wait and are never rejected.
	Exempt bool `json:"exempt,omitempty"`
}

// Considered is a rule or an authorizer, and its verdict on the request.
type Considered struct {
	// Rule is the ID of the rule, or the name of the authorizer.
	Rule string `json:"rule"`
	// Source is the file and line of the rule.
	Source string `json:"source,omitempty"`
	// Verdict is what the rule or the authorizer decided.
	Verdict string `json:"verdict"`
	// Reason is the reason that an authorizer outside of the policy gave, or what a webhook or a plugin said; for a quota, what the
	// write adds and what is left.
	Reason string `json:"reason,omitempty"`
	// Detail is what an authorizer outside of the policy gave to operators only.
	Detail string `json:"detail,omitempty"`
	// Read is what an admission rule read of stored objects, and how many it found.
	Read []string `json:"read,omitempty"`
}
