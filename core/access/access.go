// Package access is what people ask about the policy: who can do something, and since when
// (kind ResourceAccessReview), and who gained or lost what between two policies (kind
// AccessDifference). Both are of policy.stele.dev/v1, created to be answered and never stored.
// What they are answered with is package policy's.
package access

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/discovery"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
)

// The API.
const (
	Group   = "policy.stele.dev"
	Version = "v1"

	ReviewPlural     = "resourceaccessreviews"
	ReviewKind       = "ResourceAccessReview"
	DifferencePlural = "accessdifferences"
	DifferenceKind   = "AccessDifference"
)

// ReviewResource is for discovery.
func ReviewResource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: ReviewPlural, SingularName: "resourceaccessreview", Kind: ReviewKind, Verbs: metav1.Verbs{"create"},
	}}
}

// DifferenceResource is for discovery.
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

// ReviewSpec is what somebody may do, and when: now, if neither a revision nor a time is given.
type ReviewSpec struct {
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	// Name of the object; any if empty.
	Name string `json:"name,omitempty"`
	// Namespace is empty for what is in none, and for requests for all.
	Namespace string `json:"namespace,omitempty"`
	// AnyNamespace asks who may do it in one namespace or another, or outside of them.
	AnyNamespace bool `json:"anyNamespace,omitempty"`
	// Path of requests for no resource.
	Path string `json:"path,omitempty"`

	Revision uint64 `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
}

// ReviewStatus is the answer.
type ReviewStatus struct {
	State `json:",inline"`
	// Authorizers are the chain, in its order.
	Authorizers []string `json:"authorizers"`
	// Holders are whom the policy lets do it, also those to whom a deny takes it.
	Holders []Holder `json:"holders"`
	// Denies that are about it, whomever they meet.
	Denies []rights.Objection `json:"denies,omitempty"`
	// Outsiders are those of the chain who may add to the list, or take from it.
	Outsiders []rights.Outsider `json:"outsiders,omitempty"`
}

// Holder is a subject that may do it, by one rule.
type Holder struct {
	rights.Holder `json:",inline"`
	// Since when they have had it without interruption, by whatever rule.
	Since *Since `json:"since,omitempty"`
}

// Since is an activation.
type Since struct {
	Revision uint64 `json:"revision"`
	Time     string `json:"time,omitempty"`
	// Policy is its digest, and Actor who put it in force.
	Policy string `json:"policy"`
	Actor  string `json:"actor,omitempty"`
	// AtLeast: they may have had it before, where nobody looked.
	AtLeast bool `json:"atLeast,omitempty"`
}

// State is a policy in force at a revision.
type State struct {
	// Revision is 0 of an access that was sent.
	Revision uint64 `json:"revision,omitempty"`
	// Policy is its digest, and PolicyRevision that at which it came in force.
	Policy         string `json:"policy,omitempty"`
	PolicyRevision uint64 `json:"policyRevision,omitempty"`
}

// Difference asks who gained or lost what from one policy to another one.
type Difference struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DifferenceSpec   `json:"spec"`
	Status DifferenceStatus `json:"status,omitzero"`
}

// DifferenceSpec is what is compared, and what of it is wanted.
type DifferenceSpec struct {
	From Side `json:"from,omitzero"`
	To   Side `json:"to,omitzero"`
	// Subjects of whom all is wanted; everybody if empty, and then what members of system:authenticated and
	// the like gain or lose is said of these groups alone.
	Subjects []policy.Subject `json:"subjects,omitempty"`
	// Namespace to which it must matter; any if absent.
	Namespace *string `json:"namespace,omitempty"`
}

// Side is the policy in force at a revision or a time, now if neither is given, or one that is
// in force nowhere.
type Side struct {
	Revision uint64         `json:"revision,omitempty"`
	Time     string         `json:"time,omitempty"`
	Access   *policy.Access `json:"access,omitempty"`
}

// DifferenceStatus is the answer.
type DifferenceStatus struct {
	From State `json:"from"`
	To   State `json:"to"`
	// Chain is how the authorizers differ.
	Chain   []rights.ChainChange  `json:"chain,omitempty"`
	Changes []rights.AccessChange `json:"changes"`
}
