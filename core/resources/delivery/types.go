package delivery

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// PolicySource is the source from which a server takes its policy, such as a git repository. It is what the
// server that answers knows of it, and is not stored.
type PolicySource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Status is what is known of the source, and of the policy in force.
	Status PolicySourceStatus `json:"status"`
}

// PolicySourceStatus is the state of a source.
type PolicySourceStatus struct {
	// Source is the URL of the source, with what is read there.
	Source string `json:"source"`
	// Version is the newest version that was seen: a commit.
	Version string `json:"version,omitempty"`
	// Signer is who signed it. It is empty if the signature is not accepted, or not verified.
	Signer string `json:"signer,omitempty"`
	// Digest is the digest of its policy. It is empty if the version is refused, or has errors.
	Digest string `json:"digest,omitempty"`
	// InForce is the digest of the policy in force.
	InForce string `json:"inForce,omitempty"`
	// InSync is true if the policy in force is that of the newest version.
	InSync bool `json:"inSync"`
	// Pulled is when the source was last read with success.
	Pulled string `json:"pulled,omitempty"`
	// Message says why the policy in force is another one, or why that is not known.
	Message string `json:"message,omitempty"`
}
