package shadow

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/policy/plan"
)

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// Shadow is a proposed policy that decides beside the one in force. Its decisions change nothing: they are compared, and
// the differences are counted. It is held by one server, until that server stops.
type Shadow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the proposed policy.
	Spec Spec `json:"spec"`
	// Status is what the comparison has found.
	Status Status `json:"status,omitzero"`
}

// Spec is a proposed policy.
type Spec struct {
	// Package is the folder of the bundle's package in the module, "." for its root.
	Package string `json:"package"`
	// Files are the files of the CUE module, as those of a pushed policy. Answers leave them out.
	Files []activation.File `json:"files"`
	// Commit is the commit of the bundle's repository, if known.
	Commit string `json:"commit,omitempty"`
}

// Status is what the comparison has found.
type Status struct {
	// Digest is the digest of the proposed policy.
	Digest string `json:"digest"`
	// User is who started the shadow.
	User string `json:"user"`
	// Revision is the revision of the log at which it was started.
	Revision uint64 `json:"revision"`
	// Requests counts the requests by outcome.
	Requests Requests `json:"requests"`
	// Undecided says why requests could not be decided, the most frequent reason first.
	Undecided []Reason `json:"undecided,omitempty"`
	// Differences are the requests that the policies decide differently, grouped, the largest group first.
	Differences []plan.Flip `json:"differences"`
	// Unlisted is the number of differing requests in groups that are not listed, because there are too many groups.
	Unlisted uint64 `json:"unlisted,omitempty"`
	// Waiting is the number of requests that are still to be decided.
	Waiting int `json:"waiting,omitempty"`
}

// Requests counts requests by outcome.
type Requests struct {
	// Same is the number of requests that both policies allow, or both refuse.
	Same uint64 `json:"same"`
	// Refused is the number of requests that the proposed policy would refuse.
	Refused uint64 `json:"refused"`
	// Allowed is the number of refused requests that the proposed policy would allow.
	Allowed uint64 `json:"allowed"`
	// Undecided is the number of requests that could not be decided again.
	Undecided uint64 `json:"undecided"`
	// Dropped is the number of requests that were not decided again, because too many were waiting.
	Dropped uint64 `json:"dropped"`
}

// Reason is a reason why requests could not be decided again.
type Reason struct {
	// Why is the reason.
	Why string `json:"why"`
	// Count is the number of requests.
	Count uint64 `json:"count"`
}
