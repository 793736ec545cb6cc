package past

import (
	"context"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/projections/policies"
)

// rightsKept is the number of cached Rights, which are small.
const rightsKept = 16

// Rights are the access rules of a policy, and what its rules can name.
type Rights struct {
	*rights.Rights
	Served policy.Resources
	// Limits are the limits of the teams; nil if the policy does not say them.
	Limits *rights.Limits
}

// Rights returns the rights of an activation that the tip knows, with those that came through the API. It compiles the policy only if there are some.
func (p *Past) Rights(ctx context.Context, tip *commit.Tip, r policies.Record) (*Rights, error) {
	if kept, found := p.rights.Get(r.Form()); found {
		return kept, nil
	}
	form, err := p.form(ctx, tip, r)
	if err != nil {
		return nil, err
	}
	made, err := rights.New(form.Access())
	if err != nil {
		return nil, err
	}
	all := &Rights{made, form.Served(), rights.LimitsOf(form)}
	p.rights.Add(r.Form(), all, 1)
	return all, nil
}

func (p *Past) form(ctx context.Context, tip *commit.Tip, r policies.Record) (*policy.Form, error) {
	if max(r.Layer, r.Rules) > 0 {
		l, err := p.loadPolicy(ctx, tip, r)
		if err != nil {
			return nil, err
		}
		return l.policy.Form(), nil
	}
	if in := tip.Policies.Active; in != nil && in.Digest == r.Digest {
		return tip.Policy.Base().Form(), nil
	}
	if l, found := p.loaded.Get(policies.Form{Digest: r.Digest}); found {
		return l.policy.Form(), nil
	}
	proposal, err := tip.Policies.Recall(ctx, p.log, r)
	if err != nil {
		return nil, err
	}
	return policy.DecodeForm(proposal.Form.Bytes())
}
