package blame

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// Blame asks who set each field of an object, and when. It is answered when it is created, and not stored. The user
// must be allowed to get the object.
type Blame struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec names the object, and the moment at which to look at it.
	Spec Spec `json:"spec"`
	// Status is the answer.
	Status Status `json:"status,omitzero"`
}

// Spec names an object, and the moment at which to look at it. The default is now.
type Spec struct {
	// Group is the API group of the object; empty for the core group.
	Group string `json:"group,omitempty"`
	// Version is the version of the group; empty means any.
	Version string `json:"version,omitempty"`
	// Resource is the plural name of the resource.
	Resource string `json:"resource"`
	// Namespace is the namespace of the object, if it is in one.
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the object.
	Name string `json:"name"`
	// Revision is the revision at which to look at the object.
	Revision uint64 `json:"revision,omitempty"`
	// Time is the time, in RFC 3339, at which to look at the object.
	Time string `json:"time,omitempty"`
}

// Status is the answer: who set each field.
type Status struct {
	// UID is the UID of the object.
	UID string `json:"uid,omitempty"`
	// Revision is the revision at which the object was looked at.
	Revision uint64 `json:"revision,omitempty"`
	// ObjectRevision is the revision of the object's last change up to Revision.
	ObjectRevision uint64 `json:"objectRevision,omitempty"`
	// Fields are all fields with a value of their own, except apiVersion, kind, metadata.resourceVersion and
	// metadata.managedFields.
	Fields []Field `json:"fields"`
}

// Field is one field, and the change that gave it its value.
type Field struct {
	// Path is the path of the field, such as spec.containers[0].image. Items of lists of type map are named by their
	// keys, such as spec.ports[name=http].port.
	Path string `json:"path"`
	// Value is the value of the field.
	Value any `json:"value"`
	// Type says what gave the field its value: Created or Updated (a request), Mutated (mutating admission
	// changed what a request asked for), Defaulted (the schema's default; the
	// request did not set the field), Rendered (a default that a new policy added to a stored object), Server (the
	// server), or Earlier (the value is older than the kept history of the kind).
	Type string `json:"type"`
	// Note explains the type to people, if the value is not from a request.
	Note string `json:"note,omitempty"`
	// Revision is the revision since which the field has the value; empty if that is before the kept history.
	Revision uint64 `json:"revision,omitempty"`
	// Time is the time of that revision.
	Time string `json:"time,omitempty"`
	// Actor is the user who made the change, or activated the policy.
	Actor string `json:"actor,omitempty"`
	// Impersonator is the user who sent the request, if it was impersonated.
	Impersonator string `json:"impersonator,omitempty"`
	// FieldManager is the field manager that the request named, or that the server made from its user agent.
	FieldManager string `json:"fieldManager,omitempty"`
	// Verb is the verb of the request.
	Verb string `json:"verb,omitempty"`
	// Subresource is the subresource that was written, if any.
	Subresource string `json:"subresource,omitempty"`
	// Policy is the digest of the policy in force.
	Policy string `json:"policy,omitempty"`
	// Rule is the kind whose schema has the default, or the rule of mutating admission, by its ID in the bundle.
	Rule string `json:"rule,omitempty"`
	// Source is the file and line of the default or the rule.
	Source string `json:"source,omitempty"`
}
