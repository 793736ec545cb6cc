package activation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/discovery"
	"stele.dev/stele/policy"
)

// The API: to create a policy is to put it in force. The one that is can be read, by
// its digest or in a list of one.
const (
	Group   = "policy.stele.dev"
	Version = "v1"
	Plural  = "policies"
	Kind    = "Policy"
)

// Policy is a policy as clients send and get it.
type Policy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitzero"`
}

// Spec is a bundle's source.
type Spec struct {
	// Package is the folder of the bundle's package in the module, "." for its root.
	Package string `json:"package"`
	// Files are those of the CUE module.
	Files []File `json:"files"`
	// Replaces is the digest of the policy that this one is meant to replace; another
	// one in force is a conflict. Not checked if empty.
	Replaces string `json:"replaces,omitempty"`
	// Commit of the repository that the files come from, where that is known.
	Commit string `json:"commit,omitempty"`
}

// File is a source file; its path is relative to the module's root.
type File struct {
	Path string `json:"path"`
	Data string `json:"data"`
}

// Status tells what became of it.
type Status struct {
	// Digest of the policy, its name.
	Digest string `json:"digest"`
	// Revision from which on it is in force.
	Revision uint64 `json:"revision"`
	// Actor who activated it.
	Actor string `json:"actor,omitempty"`
	Kinds int    `json:"kinds"`
}

// Resource is for discovery.
func Resource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: Plural, SingularName: "policy", Kind: Kind, Verbs: metav1.Verbs{"create", "get", "list"},
	}}
}

// Source is the policy as the compiler takes it.
func (s *Spec) Source() *policy.Source {
	source := &policy.Source{Package: s.Package}
	for _, f := range s.Files {
		source.Files = append(source.Files, policy.File{Path: f.Path, Data: []byte(f.Data)})
	}
	return source
}

// SpecOf is the other way round.
func SpecOf(source *policy.Source) Spec {
	s := Spec{Package: source.Package}
	for _, f := range source.Files {
		s.Files = append(s.Files, File{Path: f.Path, Data: string(f.Data)})
	}
	return s
}

// InForce is the policy in force at a tip, which has one.
func InForce(tip *commit.Tip) *Policy {
	in := tip.Policies.Active
	p := &Policy{TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: Kind}}
	p.Name = in.Digest.String()
	p.Spec.Package, p.Spec.Commit = in.Package, in.Commit
	for _, f := range in.Sources {
		p.Spec.Files = append(p.Spec.Files, File{Path: f.Path, Data: string(f.Data)})
	}
	p.Status = Status{Digest: in.Digest.String(), Revision: in.Revision, Actor: in.Actor}
	for _, k := range tip.Policy.Kinds() {
		if !k.Builtin {
			p.Status.Kinds++
		}
	}
	return p
}
