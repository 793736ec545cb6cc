// Package plans computes what a change of policy means: it compares both policies, tries stored objects under the new
// one, and decides recorded writes again. It answers plans of policy.stele.dev/v1, which clients create to get an
// answer and which are never stored. It also makes plans for commands that have no server.
package plans

import (
	"context"
	"encoding/hex"

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
}

// Make compares two policies, and returns what the change means. The error is the context's.
func Make(ctx context.Context, s plan.Sides, o Options) (*plan.Plan, error) {
	p := &plan.Plan{Cluster: s.To.Form().Cluster, From: side(s.From, o.From), To: side(s.To, o.To)}
	for _, compare := range []func(context.Context, plan.Sides) ([]plan.Finding, error){kinds.Compare, access.Compare, rules.Compare} {
		found, err := compare(ctx, s)
		if err != nil {
			return nil, err
		}
		p.Findings = append(p.Findings, found...)
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
