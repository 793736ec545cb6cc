// Package activation puts policies in force. What is proposed and what is activated are
// events; a policy is activated only in place of the one that it was meant to replace.
package activation

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// ErrInForce reports that the policy is in force already: there is nothing to write.
var ErrInForce = errors.New("activation: the policy is in force already")

// KindInUse reports that a policy lacks a kind of which there are objects, or has it in
// another scope, under another name or in another version: they could not be read, or not
// written, any more.
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

// Renamed reports that a policy is of another control plane than the one in force: it is
// most likely pushed to the wrong one.
type Renamed struct{ From, To string }

func (e *Renamed) Error() string {
	return fmt.Sprintf("the policy in force is of the control plane %q, this one is of %q", e.From, e.To)
}

// Proposal makes of a compiled bundle what the log holds. commit names the commit of the
// repository that it comes from, "" if that is not known.
func Proposal(compiled *compile.Result, commit string) *policies.Proposal {
	form, digest := compiled.Form.Encode()
	p := &policies.Proposal{
		Digest: digest, SourceDigest: compiled.Source.Digest(), Package: compiled.Source.Package, Commit: commit,
		Compiler: fmt.Sprint(policy.FormVersion), Language: compiled.Form.Language, Form: form,
	}
	for _, f := range compiled.Source.Files {
		p.Sources = append(p.Sources, policies.File{Path: f.Path, Data: f.Data})
	}
	return p
}

// Check tells what speaks against a policy in a state: [ErrInForce], a [*Renamed] unless
// it is meant to rename the control plane, or a [*KindInUse].
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
	return nil
}

// withdrawn lists the kinds of the policy in force that a form does not serve as they
// are stored.
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
		if next == nil || next.Namespaced != k.Namespaced || next.Kind != k.Kind.Kind || !k.StoredAs(next) {
			gone = append(gone, k.GroupResource())
		}
	}
	return gone
}

// Activate writes the events that put a policy in force in place of the one at the tip,
// and returns the tip with it. sign completes the metadata of each event: in whose name,
// and why. If another policy is activated meanwhile, that one stays and the error is a
// [*commit.Stale]; further errors are those of [Check].
func Activate(ctx context.Context, c *commit.Committer, tip *commit.Tip, p *policies.Proposal, form *policy.Form, rename bool, sign func(*logpb.Metadata)) (*commit.Tip, error) {
	if err := Check(tip, p, form, rename); err != nil {
		return nil, err
	}
	activated := &logpb.PolicyActivated{Digest: p.Digest[:]}
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
		entry, err := eventlog.Encode(e)
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
