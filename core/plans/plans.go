// Package plans computes what a change of policy means: it compares both policies, tries stored objects under the new
// one, and decides recorded writes again. It answers plans of policy.stele.dev/v1, which clients create to get an
// answer and which are never stored. It also makes plans for commands that have no server.
package plans

import (
	"context"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// LastWrite returns the last write of a resource; nil if it is not known.
	LastWrite func(context.Context, schema.GroupResource) (*LastWrite, error)
	// Progress, if not nil, is told how many objects and writes are done, of how many. It may be called by several
	// goroutines at a time.
	Progress func(done, of int)
}

// Make compares two policies, and returns what the change means. An error means that it cannot be told.
func Make(ctx context.Context, s plan.Sides, o Options) (*plan.Plan, error) {
	p := &plan.Plan{Cluster: s.To.Form().Cluster, From: side(s.From, o.From), To: side(s.To, o.To)}
	for _, compare := range []func(context.Context, plan.Sides) ([]plan.Finding, error){kinds.Compare, access.Compare, rules.Compare} {
		found, err := compare(ctx, s)
		if err != nil {
			return nil, err
		}
		p.Findings = append(p.Findings, found...)
	}
	if o.Objects != nil {
		if err := tryObjects(ctx, s, &o, p); err != nil {
			return nil, err
		}
	} else {
		p.Notes = append(p.Notes, "No stored objects were tried.")
	}
	p.Finish()
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
