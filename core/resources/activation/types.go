package activation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy"
)

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// Policy is what a control plane enforces. Creating one puts it in force.
type Policy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the source of a bundle.
	Spec Spec `json:"spec"`
	// Status is the state of the policy.
	Status Status `json:"status,omitzero"`
}

// Spec is the source of a bundle.
type Spec struct {
	// Package is the folder of the bundle's package in the module, "." for its root.
	Package string `json:"package"`
	// Files are the files of the CUE module.
	Files []File `json:"files"`
	// Replaces is the digest of the policy to replace. If another policy is in force, the request is a conflict. Empty
	// means no check.
	Replaces string `json:"replaces,omitempty"`
	// Rename allows the bundle to have another cluster name than the policy in force. Without it, that is a conflict.
	Rename bool `json:"rename,omitempty"`
	// DropFields allows the policy to lack fields that stored objects have. Without it, that is a conflict.
	DropFields bool `json:"dropFields,omitempty"`
	// Commit is the commit of the bundle's repository, if known.
	Commit string `json:"commit,omitempty"`
}

// File is a source file. Its content is in Data or in Parts.
type File struct {
	// Path is the path of the file, relative to the root of the module.
	Path string `json:"path"`
	// Data is the content of the file.
	Data string `json:"data,omitempty"`
	// Parts are the SHA-256 digests, in hexadecimal, of the parts of a file that is not in the request. The server has
	// the parts that were uploaded, and those of policies that were in force.
	Parts []string `json:"parts,omitempty"`
}

// Upload is the body that uploads parts of a large policy.
type Upload struct {
	metav1.TypeMeta `json:",inline"`

	// Parts are the parts, in Base64.
	Parts [][]byte `json:"parts"`
}

// Status is the state of a policy.
type Status struct {
	// Digest is the digest of the policy, which is also its name.
	Digest string `json:"digest"`
	// Revision is the revision of its last activation.
	Revision uint64 `json:"revision"`
	// Revisions are the revisions of all its activations, newest first.
	Revisions []uint64 `json:"revisions,omitempty"`
	// Actor is the user who activated it.
	Actor string `json:"actor,omitempty"`
	// InForce is true if it is in force.
	InForce bool `json:"inForce"`
	// Cluster is the name of the control plane that the bundle is for. In a list, only the policy in force has it.
	Cluster string `json:"cluster,omitempty"`
	// Kinds is the number of kinds. In a list, only the policy in force has it.
	Kinds int `json:"kinds,omitempty"`
	// Teams are the teams of the bundle, with their limits. Only the answer to a get has them. A policy that an earlier version of the
	// program compiled has none.
	Teams []policy.Team `json:"teams,omitempty"`
	// Contents are the contents of the bundle by part, compared with the policy that it replaces. Only the answer to a
	// create has them.
	Contents []Content `json:"contents,omitempty"`
}

// Content is one part of a bundle, without built-in rules, compared with the policy that it replaces.
type Content struct {
	// Part is one of kinds, roles, bindings, denies, rules, validations, priority levels, flow schemas, webhooks, mutations, admission
	// plugins, quota rules and views. Those from priority levels on are only there if one of the policies has them.
	Part string `json:"part"`
	// Count is the number of entries.
	Count int `json:"count"`
	// Added are the IDs that the replaced policy did not have.
	Added []string `json:"added,omitempty"`
	// Removed are the IDs that only the replaced policy had.
	Removed []string `json:"removed,omitempty"`
	// Changed are the IDs of entries that differ.
	Changed []string `json:"changed,omitempty"`
}
