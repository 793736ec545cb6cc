package policy

import (
	"stele.dev/stele/policy/quotas"
	"stele.dev/stele/schemas/builtin"
)

// Quotas returns what resource quotas can limit; nil without a policy.
func (p *Policy) Quotas() *quotas.Rules {
	if p == nil {
		return nil
	}
	return p.quotas
}

// QuotaNames returns what objects of the kind may name as limits of a quota. It is for the kind of quotas.
func (k *Kind) QuotaNames() builtin.QuotaNames { return k.quotas }

// readQuotas loads the quota section. The kinds are known.
func (p *Policy) readQuotas() (err error) {
	if p.quotas, err = quotas.New(&p.form.Quota, p.form.Kinds); err == nil && p.byResource[quotas.Quotas] != nil {
		p.byResource[quotas.Quotas].quotas = p.quotas
	}
	return err
}
