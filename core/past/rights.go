package past

import (
	"context"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/policies"
)

// rightsKept is how many policies are cached as rights, which are small.
const rightsKept = 16

// Rights are the access rules of a policy, and what its rules can name.
type Rights struct {
	*policy.Rights
	Served *policy.Resources
}

// Rights returns the rights of an activation that the tip knows. It does not compile the policy.
func (p *Past) Rights(ctx context.Context, tip *commit.Tip, r policies.Record) (*Rights, error) {
	if rights, found := p.rights.Get(r.Digest); found {
		return rights, nil
	}
	form, err := p.form(ctx, tip, r)
	if err != nil {
		return nil, err
	}
	rights := &Rights{Served: form.Served()}
	if rights.Rights, err = policy.NewRights(form.Access()); err != nil {
		return nil, err
	}
	p.rights.Add(r.Digest, rights, 1)
	return rights, nil
}

func (p *Past) form(ctx context.Context, tip *commit.Tip, r policies.Record) (*policy.Form, error) {
	if in := tip.Policies.Active; in != nil && in.Digest == r.Digest {
		return tip.Policy.Form(), nil
	}
	if l, found := p.laws.Get(r.Digest); found {
		return l.policy.Form(), nil
	}
	proposal, err := tip.Policies.Recall(ctx, p.log, r)
	if err != nil {
		return nil, err
	}
	return policy.DecodeForm(proposal.Form)
}
