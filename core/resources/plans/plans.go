// Package plans computes what a change of policy means: it compares both policies, tries stored objects under the new
// one, and decides recorded requests again. It answers plans of policy.stele.dev/v1, which clients create to get an
// answer and which are never stored. It also makes plans for commands that have no server.
package plans

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/access"
	"stele.dev/stele/policy/plan/kinds"
	"stele.dev/stele/policy/plan/rules"
)

// Options say what a plan looks at, besides the two policies.
type Options struct {
	// From and To describe the two policies, if more is known of them than their digests.
	From, To plan.Side
	// Accept names findings that are accepted: by ID, or by rule.
	Accept []string
	// Objects are the stored objects that are tried; nil for none.
	Objects Source
	// Samples is the number of objects that a finding names at most.
	Samples int
	// Records are the recorded writes that are decided again; nil for none.
	Records Records
	// Engine decides the recorded requests. It is needed if there are Records.
	Engine decide.Engine
	// Decided are the recorded refusals and reads that are decided again, too; nil for none. They need Records.
	Decided Decided
	// MayRead reports whether the caller may read all objects of a resource, in all namespaces, as they have been since a revision; nil if
	// the caller may read all. Numbers of objects tell what is in them, so what the caller may not read is left out.
	MayRead func(ctx context.Context, r schema.GroupResource, since uint64) (bool, error)
	// InForce is the policy in force, under which the caller reads; nil if From is. What it says is secret is shown by no plan.
	InForce *policy.Policy
	// LastWrite returns the last write of a resource; nil if it is not known.
	LastWrite func(context.Context, schema.GroupResource) (*LastWrite, error)
	// Progress, if not nil, is told how many objects or writes are done, of how many; of is 0 if that is not known. It may be called by several
	// goroutines at a time.
	Progress func(done, of int)

	secrets map[schema.GroupResource]bool
}

// today is a revision that is not older than the newest one.
const today = math.MaxUint64

// mayRead reports whether the caller may read all objects of a resource since a revision.
func (o *Options) mayRead(ctx context.Context, r schema.GroupResource, since uint64) (bool, error) {
	if o.MayRead == nil {
		return true, nil
	}
	return o.MayRead(ctx, r, since)
}

// secret reports whether objects of a resource have secret fields under one of the policies.
func (o *Options) secret(r schema.GroupResource) bool { return o.secrets[r] }

// SecretsOf returns the resources with secret fields under any of the policies.
func SecretsOf(policies ...*policy.Policy) map[schema.GroupResource]bool {
	secret := map[schema.GroupResource]bool{}
	for _, p := range policies {
		if p == nil {
			continue
		}
		for _, k := range p.Kinds() {
			for _, v := range k.Versions {
				if v.Program.Sensitive() {
					secret[k.GroupResource()] = true
				}
			}
		}
	}
	return secret
}

// Make compares two policies, and returns what the change means. An error means that it cannot be told.
func Make(ctx context.Context, s plan.Sides, o Options) (*plan.Plan, error) {
	o.secrets = SecretsOf(o.InForce, s.From, s.To)
	p := &plan.Plan{Cluster: s.To.Form().Cluster, From: side(s.From, o.From), To: side(s.To, o.To)}
	for _, compare := range []func(context.Context, plan.Sides) ([]plan.Finding, error){kinds.Compare, access.Compare, rules.Compare} {
		found, err := compare(ctx, s)
		if err != nil {
			return nil, err
		}
		p.Findings = append(p.Findings, found...)
	}
	if o.Objects != nil {
		if file, is := o.Objects.(*exported); is && s.From != nil {
			notes, err := file.fits(s.From)
			if err != nil {
				return nil, fmt.Errorf("the file of objects: %w", err)
			}
			p.Notes = append(p.Notes, notes...)
		}
		if err := tryObjects(ctx, s, &o, p); err != nil {
			return nil, err
		}
	} else {
		p.Notes = append(p.Notes, "No stored objects were tried.")
	}
	var again *flips
	if o.Records != nil && s.From != nil {
		if o.Engine == nil {
			return nil, errNoEngine
		}
		var err error
		if again, err = replay(ctx, s, &o, p); err != nil {
			return nil, err
		}
		if o.Decided == nil {
			p.Notes = append(p.Notes, "Refused requests were not decided again: what the new policy would allow of them is not known.")
		}
	}
	p.Finish()
	if again != nil {
		again.link(s, p)
	}
	accept(p, o.Accept)
	return p, nil
}

// side completes the description of a policy.
func side(p *policy.Policy, as plan.Side) plan.Side {
	if p != nil {
		digest := p.Digest()
		as.Digest = hex.EncodeToString(digest[:])
	}
	return as
}

// accept marks the findings that are accepted by ID or by rule, and counts them again.
func accept(p *plan.Plan, names []string) {
	if len(names) == 0 {
		return
	}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Accepted == nil && (wanted[f.ID] || wanted[f.Rule]) {
			f.Accepted = &plan.Acceptance{}
		}
	}
	p.Finish()
}
