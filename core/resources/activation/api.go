package activation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/contents"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// Group, Version, Plural and Kind name the API of policies. Creating a policy puts it in force. Every policy that was
// ever in force can be read by its digest. A list has all policies without their files; the one in force is first.
const (
	Group   = "policy.stele.dev"
	Version = "v1"
	Plural  = "policies"
	Kind    = "Policy"
	// Parts is the path segment below policies where parts of large policies are uploaded.
	Parts      = "parts"
	UploadKind = "PolicyParts"
)

// ContentsOf compares the contents of a form with those of the previous form, which may be nil.
func ContentsOf(form, before *policy.Form) []Content {
	var list []Content
	for _, c := range contents.Of(form, before) {
		list = append(list, Content(c))
	}
	return list
}

// Resource returns the discovery entry of policies.
func Resource() discovery.Resource {
	return discovery.NewResource(Group, Version, Kind, Plural, "create", "get", "list")
}

// Columns returns the columns that kubectl prints of policies.
func Columns() []schemas.Column {
	return []schemas.Column{
		{Name: "In Force", Type: "boolean", JSONPath: ".status.inForce"},
		{Name: "Since", Type: "integer", JSONPath: ".status.revision", Description: "Revision from which on it is, or was last, in force."},
		{Name: "Actor", Type: "string", JSONPath: ".status.actor"},
		{Name: "Commit", Type: "string", JSONPath: ".spec.commit"},
	}
}

// Source returns the source for the compiler.
func (s *Spec) Source() *bundles.Source {
	source := &bundles.Source{Package: s.Package}
	for _, f := range s.Files {
		source.Files = append(source.Files, bundles.File{Path: f.Path, Data: []byte(f.Data)})
	}
	return source
}

// InParts returns a spec of the source that refers to parts, and the parts to upload.
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

// SpecOf returns a spec that contains the files of the source.
func SpecOf(source *bundles.Source) Spec {
	s := Spec{Package: source.Package}
	for _, f := range source.Files {
		s.Files = append(s.Files, File{Path: f.Path, Data: string(f.Data)})
	}
	return s
}

// List returns all policies that were in force up to the tip, each once and without its files. The newest activation
// is first.
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
		for _, k := range tip.Policy.Base().Kinds() {
			if !k.Builtin {
				list[0].Status.Kinds++
			}
		}
	}
	return list
}

// Get returns a policy of List with its files, or nil if there is none. The policy in force is in memory; others are
// read from the log.
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
	var form struct {
		Cluster string
		Teams   []policy.Team
	}
	if err := json.Unmarshal(proposal.Form.Bytes(), &form); err != nil {
		return nil, fmt.Errorf("policy %s: form: %w", name, err)
	}
	p.Status.Cluster, p.Status.Teams = form.Cluster, form.Teams
	p.Spec.Package, p.Spec.Commit = proposal.Package, proposal.Commit
	for _, f := range proposal.Sources {
		p.Spec.Files = append(p.Spec.Files, File{Path: f.Path, Data: string(f.Data.Bytes())})
	}
	return p, nil
}

// InForce returns the policy in force at a tip. The tip must have one.
func InForce(tip *commit.Tip) *Policy {
	p, err := Get(context.Background(), nil, tip, tip.Policies.Active.Digest.String())
	if err != nil || p == nil {
		panic("activation: the policy in force is not in the history") // the history ends with the policy in force
	}
	return p
}
