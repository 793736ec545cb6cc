// Package access defines the questions that users ask about the policy. A ResourceAccessReview asks who can do
// something, and since when. An AccessDifference asks who gained or lost access between two policies. Both are of
// policy.stele.dev/v1; clients create them to get an answer, and they are never stored. Package policy computes the
// answers.
package access

import (
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
	return discovery.NewResource(Group, Version, ReviewKind, ReviewPlural, "create")
}

// DifferenceResource returns the discovery entry of access differences.
func DifferenceResource() discovery.Resource {
	return discovery.NewResource(Group, Version, DifferenceKind, DifferencePlural, "create")
}
