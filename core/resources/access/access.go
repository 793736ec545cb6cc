// Package access defines the questions that users ask about the policy. A ResourceAccessReview asks who can do
// something, and since when. An AccessDifference asks who gained or lost access between two policies. Both are of
// policy.stele.dev/v1; clients create them to get an answer, and they are never stored. Package policy computes the
// answers.
package access

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/catalog/discovery"
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
