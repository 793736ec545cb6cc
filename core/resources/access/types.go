package access

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
)

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// Review lists who can do something, by which rules, and since when. It is answered when it is created, and not stored.
type Review struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the question.
	Spec ReviewSpec `json:"spec"`
	// Status is the answer.
	Status ReviewStatus `json:"status,omitzero"`
}

// ReviewSpec is an action, and the moment it is asked about. The default is now.
type ReviewSpec struct {
	// Verb is the verb of the action, in lower case.
	Verb string `json:"verb"`
	// Group is the API group of the resource; empty for the core group.
	Group string `json:"group,omitempty"`
	// Resource is the plural name of the resource. Exactly one of resource and path must be specified.
	Resource string `json:"resource,omitempty"`
	// Subresource is the subresource, such as status.
	Subresource string `json:"subresource,omitempty"`
	// Name is the name of the object; empty means any.
	Name string `json:"name,omitempty"`
	// Namespace is the namespace of the action. It is empty for resources without a namespace, and for requests to all
	// namespaces.
	Namespace string `json:"namespace,omitempty"`
	// AnyNamespace asks who may do it in some namespace, or outside of namespaces. May not be given together with
	// namespace.
	AnyNamespace bool `json:"anyNamespace,omitempty"`
	// Path is the path of a request that is not for a resource.
	Path string `json:"path,omitempty"`

	// Revision is the revision to answer for. May not be given together with a time.
	Revision uint64 `json:"revision,omitempty"`
	// Time is the time to answer for, in RFC 3339.
	Time string `json:"time,omitempty"`
}

// ReviewStatus is the answer.
type ReviewStatus struct {
	State `json:",inline"`
	// Authorizers are the authorizers of the policy, in their order.
	Authorizers []string `json:"authorizers"`
	// Holders are the subjects that the policy grants the action, also those that a deny stops.
	Holders []Holder `json:"holders"`
	// Denies are all denies of the action, for any subject.
	Denies []rights.Objection `json:"denies,omitempty"`
	// Outsiders are the authorizers outside of the policy, which may allow or deny more.
	Outsiders []rights.Outsider `json:"outsiders,omitempty"`
	// Grantors are the teams that may grant the action, by a change of their part of the bundle.
	Grantors []rights.Grantor `json:"grantors,omitempty"`
	// GrantorsUnknown is true if the policy does not say the limits of its teams: an earlier version of the program compiled it.
	GrantorsUnknown bool `json:"grantorsUnknown,omitempty"`
}

// Holder is a subject that one rule grants the action.
type Holder struct {
	rights.Holder `json:",inline"`
	// Since says since when the subject has had the access without interruption, by any rule.
	Since *Since `json:"since,omitempty"`
}

// Since is the activation of a policy.
type Since struct {
	// Revision is the revision of the activation.
	Revision uint64 `json:"revision"`
	// Time is the time of the activation.
	Time string `json:"time,omitempty"`
	// Policy is the digest of the policy.
	Policy string `json:"policy"`
	// Actor is the user who activated it.
	Actor string `json:"actor,omitempty"`
	// AtLeast is true if the access may be older, because the search stopped there.
	AtLeast bool `json:"atLeast,omitempty"`
}

// State is the policy in force at a revision.
type State struct {
	// Revision is the revision of the answer; 0 if the request contained the access rules.
	Revision uint64 `json:"revision,omitempty"`
	// Policy is the digest of the policy that was in force.
	Policy string `json:"policy,omitempty"`
	// PolicyRevision is the revision of that policy's activation.
	PolicyRevision uint64 `json:"policyRevision,omitempty"`
}

// Difference lists who gained or lost access between two policies. It is answered when it is created, and not stored.
type Difference struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the question.
	Spec DifferenceSpec `json:"spec"`
	// Status is the answer.
	Status DifferenceStatus `json:"status,omitzero"`
}

// DifferenceSpec names the two policies, and filters the answer.
type DifferenceSpec struct {
	// From is the earlier side; the policy in force now if it is empty.
	From Side `json:"from,omitzero"`
	// To is the later side; the policy in force now if it is empty.
	To Side `json:"to,omitzero"`
	// Subjects filters by subject; empty means all. Then access that members of groups such as system:authenticated
	// gain or lose is listed for the group only.
	Subjects []policy.Subject `json:"subjects,omitempty"`
	// Namespace filters by namespace; absent means all.
	Namespace *string `json:"namespace,omitempty"`
}

// Side is one of the two policies: the one in force at a revision or a time (the default is now), or access rules that
// the request contains.
type Side struct {
	// Revision is a revision at which the policy was in force.
	Revision uint64 `json:"revision,omitempty"`
	// Time is a time, in RFC 3339, at which the policy was in force.
	Time string `json:"time,omitempty"`
	// Access is the access rules of a policy that is not in force, as the compiler writes them.
	Access *policy.Access `json:"access,omitempty"`
}

// DifferenceStatus is the answer.
type DifferenceStatus struct {
	// From is the state of the earlier side.
	From State `json:"from"`
	// To is the state of the later side.
	To State `json:"to"`
	// Chain lists the differences between the authorizers.
	Chain []rights.ChainChange `json:"chain,omitempty"`
	// Changes are the differences in what subjects may do.
	Changes []rights.AccessChange `json:"changes"`
}
