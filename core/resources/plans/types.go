package plans

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/policy/plan"
)

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// Request asks what a policy would change. It is answered when it is created, and not stored.
type Request struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the proposed policy, and what it is compared with.
	Spec Spec `json:"spec"`
	// Status is the answer.
	Status Status `json:"status,omitzero"`
}

// Spec is a proposed policy, and what it is compared with.
type Spec struct {
	// Package is the folder of the bundle's package in the module, "." for its root.
	Package string `json:"package"`
	// Files are the files of the CUE module, as those of a pushed policy.
	Files []activation.File `json:"files"`
	// Commit is the commit of the bundle's repository, if known.
	Commit string `json:"commit,omitempty"`
	// Changed are the files of the module that differ from the commit.
	Changed []string `json:"changed,omitempty"`
	// From is the policy to compare with; by default, the one in force.
	From *From `json:"from,omitempty"`
	// Objects says whether stored objects are tried under the proposed policy. The default is true. Those of kinds that the
	// caller may not list in all namespaces are not tried, whatever the two policies say.
	Objects *bool `json:"objects,omitempty"`
	// Replay is the span of recorded requests that are decided again, such as 7d, 12h or 0: writes, and of this server
	// refusals and reads. The default is 0: none. Those about kinds that the caller may not list in all namespaces, or not
	// that far back, stay undecided.
	Replay string `json:"replay,omitempty"`
	// Samples is the number of objects that each finding names. The default is 3.
	Samples *int `json:"samples,omitempty"`
	// Accept names findings that the caller accepts: by ID, or by rule.
	Accept []string `json:"accept,omitempty"`
}

// From is one of: a revision at which a policy was in force, the digest of a policy that was ever in force, or a bundle.
type From struct {
	// Revision is a revision at which the policy was in force.
	Revision uint64 `json:"revision,omitempty"`
	// Digest is the digest of a policy that is or was in force.
	Digest string `json:"digest,omitempty"`
	// Package is the folder of the bundle's package in the module.
	Package string `json:"package,omitempty"`
	// Files are the files of the CUE module.
	Files []activation.File `json:"files,omitempty"`
	// Commit is the commit of the bundle's repository, if known.
	Commit string `json:"commit,omitempty"`
}

// Status is the answer.
type Status struct {
	// Plan is what the policy would change.
	Plan *plan.Plan `json:"plan,omitempty"`
}
