// Package activation puts policies in force. A proposal and an activation are events of the log. An activation names
// the policy that it replaces, and fails if another one is in force.
package activation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/resources/rendered"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// ErrInForce reports that the policy is already in force, so there is nothing to write.
var ErrInForce = errors.New("activation: the policy is in force already")

// KindInUse reports that the new policy lacks a kind of which objects exist, or has the kind with another scope, name
// or version. These objects could no longer be read or written.
type KindInUse struct {
	Resource schema.GroupResource
	Objects  int
}

func (e *KindInUse) Error() string {
	exist := fmt.Sprintf("%d objects of %s exist", e.Objects, e.Resource)
	if e.Objects == 1 {
		exist = fmt.Sprintf("1 object of %s exists", e.Resource)
	}
	return exist + ", and the new policy has no such kind in the same scope, name and version. Delete what exists, or keep the kind."
}

// Renamed reports that the policy is for another control plane than the one in force. It was probably pushed to the
// wrong server.
type Renamed struct{ From, To string }

func (e *Renamed) Error() string {
	return fmt.Sprintf("the policy in force is of the control plane %q, this one is of %q", e.From, e.To)
}

// Proposal converts a compiled bundle to the form that the log stores. commit is the commit of the bundle's
// repository, "" if unknown.
func Proposal(compiled *compile.Result, commit string) *policies.Proposal {
	form, digest := compiled.Form.Encode()
	p := &policies.Proposal{
		Digest: digest, SourceDigest: compiled.Source.Digest(), Package: compiled.Source.Package, Commit: commit,
		Compiler: fmt.Sprint(policy.FormVersion), Language: compiled.Form.Language, Form: policies.Pack(form),
	}
	for _, f := range compiled.Source.Files {
		p.Sources = append(p.Sources, policies.File{Path: f.Path, Data: policies.Pack(f.Data)})
	}
	return p
}

// Conflicts reports that the new policy has a name that a definition of the API has.
type Conflicts struct {
	// Name is the name, such as a short name, of the definition of the API. Kind is the bundle's.
	Name, Definition string
	Kind             *schemas.Kind
}

func (e *Conflicts) Error() string {
	return fmt.Sprintf("%s at %s has the name %q, which the definition %s of the API has. Delete that definition, or use another name.", e.Kind.Resource(), e.Kind.Source, e.Name, e.Definition)
}

// Check reports why a policy cannot be activated at the tip: [ErrInForce], a [*Renamed] unless rename is set, a
// [*KindInUse], a [*VersionInUse], or [*Conflicts].
func Check(tip *commit.Tip, p *policies.Proposal, form *policy.Form, rename bool) error {
	if in := tip.Policies.Active; in != nil && in.Digest == p.Digest {
		return ErrInForce
	}
	if tip.Policy != nil && tip.Policy.Form().Cluster != form.Cluster && !rename {
		return &Renamed{tip.Policy.Form().Cluster, form.Cluster}
	}
	for _, r := range withdrawn(tip, form) {
		if n := tip.Objects.Len(r); n > 0 {
			return &KindInUse{r, n}
		}
	}
	if err := writtenInRemoved(tip, form); err != nil {
		return err
	}
	return conflicts(tip, form)
}

// conflicts returns the first conflict of the names of a form with those of definitions of the API. A definition that the form has as well is
// adopted, and conflicts with nothing.
func conflicts(tip *commit.Tip, form *policy.Form) error {
	if tip.Policy == nil {
		return nil
	}
	for _, k := range tip.Policy.Layer() {
		if slices.ContainsFunc(form.Kinds, func(of schemas.Kind) bool { return of.Group == k.Group && of.Plural == k.Plural }) {
			continue
		}
		resources, kinds := append([]string{k.Plural, k.Singular}, k.ShortNames...), []string{k.Kind.Kind, k.ListKind}
		for i := range form.Kinds {
			of := &form.Kinds[i]
			if of.Group != k.Group {
				continue
			}
			for _, name := range append([]string{of.Plural, of.Singular}, of.ShortNames...) {
				if slices.Contains(resources, name) {
					return &Conflicts{name, k.Resource(), of}
				}
			}
			for _, name := range []string{of.Kind, of.ListKind} {
				if slices.Contains(kinds, name) {
					return &Conflicts{name, k.Resource(), of}
				}
			}
		}
	}
	return nil
}

// withdrawn returns the kinds of the policy in force that the form does not serve as they are stored.
func withdrawn(tip *commit.Tip, form *policy.Form) (gone []schema.GroupResource) {
	if tip.Policy == nil {
		return nil
	}
	stays := map[schema.GroupResource]*schemas.Kind{}
	for i := range form.Kinds {
		k := &form.Kinds[i]
		stays[schema.GroupResource{Group: k.Group, Resource: k.Plural}] = k
	}
	for _, k := range tip.Policy.Kinds() {
		next := stays[k.GroupResource()]
		if next == nil && k.Object != 0 {
			continue // a definition of the API stays
		}
		if next == nil || next.Namespaced != k.Namespaced || next.Kind != k.Kind.Kind || !k.StoredAs(next) {
			gone = append(gone, k.GroupResource())
		}
	}
	return gone
}

// maxRendered limits what an activation says of how long rendered objects have been as they are, so that its event fits into a request to
// etcd also if it cannot be compressed. An activation with more, which takes thousands of objects, does not say it, so that all of them are
// as old as the activation.
const maxRendered = 512 << 10

// Activate writes the events that replace the policy at the tip, and returns the new tip. sign completes the metadata
// of each event, such as its actor. If another policy was activated in the meantime, that one stays, and the error is
// a [*commit.Stale]. Activate also returns the errors of [Check].
func Activate(ctx context.Context, c *commit.Committer, tip *commit.Tip, p *policies.Proposal, form *policy.Form, rename bool, sign func(*logpb.Metadata)) (*commit.Tip, error) {
	if err := Check(tip, p, form, rename); err != nil {
		return nil, err
	}
	activated := &logpb.PolicyActivated{Digest: p.Digest[:]}
	if text := rendered.Next(tip, form).Encode(); len(text) <= maxRendered {
		activated.Rendered = text
	}
	if in := tip.Policies.Active; in != nil {
		activated.ExpectedPrevious = in.Digest[:]
	}
	events := append(p.Events(tip.Policies), &eventlog.Event{Meta: &logpb.Metadata{
		Type:   logpb.Type_TYPE_POLICY_ACTIVATED,
		Detail: &logpb.Metadata_PolicyActivated{PolicyActivated: activated},
	}})
	checks := commit.Checks{PolicyRevision: tip.PolicyRevision()}
	after := tip
	for _, e := range events {
		sign(e.Meta)
		entry, err := c.Encode(ctx, e)
		if err != nil {
			return nil, err
		}
		if e.Meta.GetType() == logpb.Type_TYPE_POLICY_ACTIVATED {
			checks.EmptyResources = withdrawn(tip, form)
			release, err := c.Prepare(ctx, p)
			if err != nil {
				return nil, fmt.Errorf("activation: the policy cannot be loaded: %w", err)
			}
			defer release()
		}
		if after, _, err = c.Commit(ctx, &commit.Proposal{Entry: entry, Checks: checks}); err != nil {
			return nil, err
		}
	}
	return after, nil
}
