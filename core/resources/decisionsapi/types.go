package decisionsapi

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/resources/changes"
)

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// Decision is a request and how it was decided: a write of the log of record, or a record of the decision log of the
// replica that answers. A list starts with the newest; without a field selector it has the last 1000. A field selector
// can name the fields of a decision, since=REVISION|TIME and until=REVISION|TIME (both inclusive). Decisions of other
// replicas are not shown; warnings name these replicas, and what is not kept any more.
type Decision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Time is when the request was decided, with nanoseconds.
	Time string `json:"time"`
	// Type is Write, Decision, Counted (many decisions that are alike) or Lost (decisions that were not recorded).
	Type string `json:"type"`
	// Outcome is Written, Read, Refused, Unauthenticated, Conflict, Unchanged, DryRun, Failed or Done. Done is another
	// write that stores nothing.
	Outcome string `json:"outcome,omitempty"`
	// Actor is the user who sent the request.
	Actor *changes.Actor `json:"actor,omitempty"`
	// Request is the request.
	Request *Request `json:"request,omitempty"`
	// Object is what the request was about.
	Object *changes.Object `json:"object,omitempty"`
	// Stage is the stage that decided.
	Stage string `json:"stage,omitempty"`
	// Code is the HTTP status of the answer.
	Code int `json:"code,omitempty"`
	// Reason is the reason of a failure, as in a Status.
	Reason string `json:"reason,omitempty"`
	// Message is the message of a failure. If a stage that reads the object made it, it is shown only to users who may
	// get the object, as are the messages of findings, the paths of mutations, and annotations.
	Message string `json:"message,omitempty"`
	// Rule is the ID of the rule that decided.
	Rule string `json:"rule,omitempty"`
	// Source is the file and line of the rule.
	Source string `json:"source,omitempty"`
	// Decided is what allowed the request, as far as it was allowed.
	Decided *changes.Decision `json:"decided,omitempty"`
	// FlowSchema is the flow schema of the request.
	FlowSchema string `json:"flowSchema,omitempty"`
	// PriorityLevel is the priority level of the request.
	PriorityLevel string `json:"priorityLevel,omitempty"`
	// Policy is the digest of the policy in force.
	Policy string `json:"policy,omitempty"`
	// Revision is the revision of the state on which the request was decided.
	Revision uint64 `json:"revision,omitempty"`
	// Written is the revision of the write.
	Written uint64 `json:"written,omitempty"`
	// Record is the position in the decision log of the replica.
	Record uint64 `json:"record,omitempty"`
	// Audit is what the audit rules say about the request.
	Audit *Audit `json:"audit,omitempty"`
	// Count is the number of decisions that are counted or lost; 0 if it is not known.
	Count uint64 `json:"count,omitempty"`
	// From is the time of the first of them.
	From string `json:"from,omitempty"`
	// To is the time of the last of them.
	To string `json:"to,omitempty"`
	// Why is the reason why decisions were lost.
	Why string `json:"why,omitempty"`
	// RequestBody is the body of the request, as far as it was kept: JSON, or a string if it is something else. A list has
	// bodies with the query parameter bodies=true. Only users who may read the object get them.
	RequestBody json.RawMessage `json:"requestBody,omitempty"`
	// ResponseBody is the body of the answer, as far as it was kept.
	ResponseBody json.RawMessage `json:"responseBody,omitempty"`
	// BodyCut is true if the body of the request was larger than what is kept of it.
	BodyCut bool `json:"bodyCut,omitempty"`
}

// Request is a request.
type Request struct {
	// Verb is the verb of the request.
	Verb string `json:"verb,omitempty"`
	// URI is the path and the query of the request.
	URI string `json:"uri,omitempty"`
	// Subresource is the subresource, if any.
	Subresource string `json:"subresource,omitempty"`
	// AuditID is the ID of the request in the audit log. Clients can choose it.
	AuditID string `json:"auditID,omitempty"`
	// UserAgent is the user agent of the client.
	UserAgent string `json:"userAgent,omitempty"`
	// SourceIPs are the addresses that the request came from.
	SourceIPs []string `json:"sourceIPs,omitempty"`
	// FieldManager is the field manager that the request named.
	FieldManager string `json:"fieldManager,omitempty"`
	// Received is when the request arrived.
	Received string `json:"received,omitempty"`
	// MediaType is the media type of the body.
	MediaType string `json:"mediaType,omitempty"`
}

// Audit is what the audit rules say about a request.
type Audit struct {
	// Level is None, Metadata, Request or RequestResponse.
	Level string `json:"level"`
	// Rule is the ID of the audit rule.
	Rule string `json:"rule,omitempty"`
	// Source is the file and line of the audit rule.
	Source string `json:"source,omitempty"`
	// Stage is the stage of audit.k8s.io at which a record of the decision log was made.
	Stage string `json:"stage,omitempty"`
	// Annotations are the annotations that rules gave.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Timings are the times of the stages in microseconds.
	Timings string `json:"timings,omitempty"`
}
