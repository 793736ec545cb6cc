// Package access defines the questions that users ask about the policy. A ResourceAccessReview asks who can do
// something, and since when. An AccessDifference asks who gained or lost access between two policies. Both are of
// policy.stele.dev/v1; clients create them to get an answer, and they are never stored. Package policy computes the
// answers.
package access

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/discovery"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
)

// Group and Version name the API of both kinds.
const (
	Group   = "policy.stele.dev"
	Version = "v1"

	ReviewPlural     = "resourceaccessreviews"
	ReviewKind       = "ResourceAccessReview"
	DifferencePlural = "accessdifferences"
	DifferenceKind   = "AccessDifference"
)

// ReviewResource returns the discovery entry of access reviews.
func ReviewResource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: ReviewPlural, SingularName: "resourceaccessreview", Kind: ReviewKind, Verbs: metav1.Verbs{"create"},
	}}
}

// DifferenceResource returns the discovery entry of access differences.
func DifferenceResource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: DifferencePlural, SingularName: "accessdifference", Kind: DifferenceKind, Verbs: metav1.Verbs{"create"},
	}}
}

// Review asks who can do something.
type Review struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ReviewSpec   `json:"spec"`
	Status ReviewStatus `json:"status,omitzero"`
}

// ReviewSpec is an action, and the moment it is asked about. The default is now.
type ReviewSpec struct {
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	// Name is the name of the object; empty means any.
	Name string `json:"name,omitempty"`
	// Namespace is empty for resources without a namespace, and for requests to all namespaces.
	Namespace string `json:"namespace,omitempty"`
	// AnyNamespace asks who may do it in some namespace, or outside of namespaces.
	AnyNamespace bool `json:"anyNamespace,omitempty"`
	// Path is the path of a request for no resource.
	Path string `json:"path,omitempty"`

	Revision uint64 `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
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
	// Outsiders are the external authorizers, which may allow or deny more.
	Outsiders []rights.Outsider `json:"outsiders,omitempty"`
}

// Holder is a subject that one rule grants the action.
type Holder struct {
	rights.Holder `json:",inline"`
	// Since tells since when the subject has had the access without interruption, by any rule.
	Since *Since `json:"since,omitempty"`
}

// Since is the activation of a policy.
type Since struct {
	Revision uint64 `json:"revision"`
	Time     string `json:"time,omitempty"`
	// Policy is the digest of the policy. Actor is the user who activated it.
	Policy string `json:"policy"`
	Actor  string `json:"actor,omitempty"`
	// AtLeast is true if the access may be older, because the search stopped there.
	AtLeast bool `json:"atLeast,omitempty"`
}

// State is the policy in force at a revision.
type State struct {
	// Revision is 0 if the request contained the access rules.
	Revision uint64 `json:"revision,omitempty"`
	// Policy is the digest of the policy. PolicyRevision is the revision of its activation.
	Policy         string `json:"policy,omitempty"`
	PolicyRevision uint64 `json:"policyRevision,omitempty"`
}

// Difference asks who gained or lost access between two policies.
type Difference struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DifferenceSpec   `json:"spec"`
	Status DifferenceStatus `json:"status,omitzero"`
}

// DifferenceSpec names the two policies, and filters the answer.
type DifferenceSpec struct {
	From Side `json:"from,omitzero"`
	To   Side `json:"to,omitzero"`
	// Subjects filters by subject; empty means all. Then access that members of groups such as system:authenticated
	// gain or lose is listed for the group only.
	Subjects []policy.Subject `json:"subjects,omitempty"`
	// Namespace filters by namespace; nil means all.
	Namespace *string `json:"namespace,omitempty"`
}

// Side is one of the two policies: the one in force at a revision or a time (the default is now), or access rules that
// the request contains.
type Side struct {
	Revision uint64         `json:"revision,omitempty"`
	Time     string         `json:"time,omitempty"`
	Access   *policy.Access `json:"access,omitempty"`
}

// DifferenceStatus is the answer.
type DifferenceStatus struct {
	From State `json:"from"`
	To   State `json:"to"`
	// Chain lists the differences between the authorizers.
	Chain   []rights.ChainChange  `json:"chain,omitempty"`
	Changes []rights.AccessChange `json:"changes"`
}
