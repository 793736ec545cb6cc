package activation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/discovery"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// The API: to create a policy is to put it in force. Every policy that ever was can be
// read by its digest; a list has them without their files, that in force first.
const (
	Group   = "policy.stele.dev"
	Version = "v1"
	Plural  = "policies"
	Kind    = "Policy"
	// Parts is the name below the policies that parts of large ones are uploaded to.
	Parts      = "parts"
	UploadKind = "PolicyParts"
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
	// Rename allows the policy to be of another control plane, by its bundle's cluster,
	// than the one in force; without it that is a conflict.
	Rename bool `json:"rename,omitempty"`
	// DropFields allows the policy to lack fields that stored objects have; without it that is a
	// conflict.
	DropFields bool `json:"dropFields,omitempty"`
	// Commit of the repository that the files come from, where that is known.
	Commit string `json:"commit,omitempty"`
}

// File is a source file; its path is relative to the module's root. What is in it follows as
// data, or as parts.
type File struct {
	Path string `json:"path"`
	Data string `json:"data,omitempty"`
	// Parts are the SHA-256 digests, in hexadecimal, of the parts of a file that is not sent
	// with the policy. The server has those of policies that were in force, and those that
	// were uploaded.
	Parts []string `json:"parts,omitempty"`
}

// Upload has parts of policies that are too large for one request, in Base64.
type Upload struct {
	metav1.TypeMeta `json:",inline"`

	Parts [][]byte `json:"parts"`
}

// Status tells what became of it.
type Status struct {
	// Digest of the policy, its name.
	Digest string `json:"digest"`
	// Revision from which on it is, or was last, in force.
	Revision uint64 `json:"revision"`
	// Revisions from which on it was in force, the newest first.
	Revisions []uint64 `json:"revisions,omitempty"`
	// Actor who activated it.
	Actor   string `json:"actor,omitempty"`
	InForce bool   `json:"inForce"`
	// Cluster is the control plane that the bundle is of. Lists have it of the one in force.
	Cluster string `json:"cluster,omitempty"`
	Kinds   int    `json:"kinds,omitempty"` // of the one in force
	// Contents are what the bundle has of each part, and how that differs from the policy that it replaces. The answer to
	// a create has them.
	Contents []Content `json:"contents,omitempty"`
}

// Content is one part of a bundle, without what is built in, compared with the policy that it replaces.
type Content struct {
	// Part is kinds, roles, bindings, denies, rules or validations.
	Part  string `json:"part"`
	Count int    `json:"count"`
	// Added, Removed and Changed are the ids of what differs.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
}

// ContentsOf compares the contents of a form with those of the one before, which may be nil.
func ContentsOf(form, before *policy.Form) []Content {
	var contents []Content
	for _, c := range form.Contents(before) {
		contents = append(contents, Content(c))
	}
	return contents
}

// Resource is for discovery.
func Resource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: Plural, SingularName: "policy", Kind: Kind, Verbs: metav1.Verbs{"create", "get", "list"},
	}}
}

// Columns are what kubectl prints of policies.
func Columns() []schemas.Column {
	return []schemas.Column{
		{Name: "In Force", Type: "boolean", JSONPath: ".status.inForce"},
		{Name: "Since", Type: "integer", JSONPath: ".status.revision", Description: "Revision from which on it is, or was last, in force."},
		{Name: "Actor", Type: "string", JSONPath: ".status.actor"},
		{Name: "Commit", Type: "string", JSONPath: ".spec.commit"},
	}
}

// Source is the policy as the compiler takes it.
func (s *Spec) Source() *bundles.Source {
	source := &bundles.Source{Package: s.Package}
	for _, f := range s.Files {
		source.Files = append(source.Files, bundles.File{Path: f.Path, Data: []byte(f.Data)})
	}
	return source
}

// InParts returns the specification of a source whose files are to be uploaded, and the parts that
// they consist of.
func InParts(source *bundles.Source) (Spec, map[policies.Digest][]byte) {
	s, parts := Spec{Package: source.Package}, map[policies.Digest][]byte{}
	for _, f := range source.Files {
		file := File{Path: f.Path}
		for _, c := range policies.Chunks(f.Data) {
			d := policies.DigestOf(c)
			parts[d] = c
			file.Parts = append(file.Parts, d.String())
		}
		s.Files = append(s.Files, file)
	}
	return s, parts
}

// SpecOf is the other way round.
func SpecOf(source *bundles.Source) Spec {
	s := Spec{Package: source.Package}
	for _, f := range source.Files {
		s.Files = append(s.Files, File{Path: f.Path, Data: string(f.Data)})
	}
	return s
}

// List has all policies that were in force up to a tip, the newest activation first, once
// each and without their files.
func List(tip *commit.Tip) []*Policy {
	var list []*Policy
	known := map[policies.Digest]*Policy{}
	for _, r := range slices.Backward(tip.Policies.History) {
		p := known[r.Digest]
		if p == nil {
			p = &Policy{TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: Kind}}
			p.Name = r.Digest.String()
			p.Spec.Commit = r.Commit
			p.Status = Status{Digest: p.Name, Revision: r.Revision, Actor: r.Actor, InForce: len(list) == 0}
			known[r.Digest] = p
			list = append(list, p)
		}
		p.Status.Revisions = append(p.Status.Revisions, r.Revision)
	}
	if len(list) > 0 && tip.Policy != nil {
		list[0].Status.Cluster = tip.Policy.Form().Cluster
		for _, k := range tip.Policy.Kinds() {
			if !k.Builtin {
				list[0].Status.Kinds++
			}
		}
	}
	return list
}

// Get is one of List, with its files: from memory if it is in force, else from the log.
// nil if there is none.
func Get(ctx context.Context, log eventlog.Reader, tip *commit.Tip, name string) (*Policy, error) {
	list := List(tip)
	i := slices.IndexFunc(list, func(p *Policy) bool { return p.Name == name })
	if i < 0 {
		return nil, nil
	}
	p, proposal := list[i], tip.Policies.Active.Proposal
	if i > 0 {
		at := slices.IndexFunc(tip.Policies.History, func(r policies.Record) bool { return r.Revision == p.Status.Revision })
		var err error
		if proposal, err = tip.Policies.Recall(ctx, log, tip.Policies.History[at]); err != nil {
			return nil, err
		}
	}
	var form struct{ Cluster string }
	if err := json.Unmarshal(proposal.Form, &form); err != nil {
		return nil, fmt.Errorf("policy %s: form: %w", name, err)
	}
	p.Status.Cluster = form.Cluster
	p.Spec.Package, p.Spec.Commit = proposal.Package, proposal.Commit
	for _, f := range proposal.Sources {
		p.Spec.Files = append(p.Spec.Files, File{Path: f.Path, Data: string(f.Data)})
	}
	return p, nil
}

// InForce is the policy in force at a tip, which has one.
func InForce(tip *commit.Tip) *Policy {
	p, err := Get(context.Background(), nil, tip, tip.Policies.Active.Digest.String())
	if err != nil || p == nil {
		panic("activation: the policy in force is not in the history") // which it ends
	}
	return p
}
