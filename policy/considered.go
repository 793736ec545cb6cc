package policy

import "context"

// Considered is a rule that names a request, and what it makes of it.
type Considered struct {
	Rule    string
	Source  string
	Verdict string
}

// Consider lists the denies and grants that name the user, the verb and the resource of a
// request, in the order of the policy, and what each makes of it. It is what people read
// to understand a decision of [Policy.Authorize], and takes time in proportion to the
// policy.
func (p *Policy) Consider(r *Request) (list []Considered) {
	for i := range p.form.Denies {
		d := &p.form.Denies[i]
		if !named(d.Subjects, r.User, r.Groups) {
			continue
		}
		for j := range d.Rules {
			if verdict := consider(&d.Rules[j], []string{"*"}, r); verdict != "" {
				if verdict == applies {
					verdict = d.verdict(r)
				}
				list = append(list, Considered{d.ID, d.Source.String(), verdict})
				break
			}
		}
	}
	for i := range p.form.Bindings {
		b := &p.form.Bindings[i]
		if !named(b.Subjects, r.User, r.Groups) {
			continue
		}
		for j := range p.form.Roles {
			if p.form.Roles[j].Name == b.Role {
				if verdict := b.verdict(&p.form.Roles[j], r); verdict != "" {
					list = append(list, Considered{b.ID, b.Source.String(), verdict})
				}
			}
		}
	}
	return list
}

// The verdicts on rules.
const (
	applies         = "applies"
	verdictDenies   = "denies it"
	verdictGrants   = "grants it"
	verdictDepends  = "depends on the object"
	verdictExcepted = "excepts it"
	verdictUnmet    = "its condition does not hold"
)

// consider tells whether a rule names a request, and if it names all but the name or the
// namespace, that.
func consider(rule *Rule, namespaces []string, r *Request) string {
	decision := &Decision{}
	matches := func(names, namespaces []string) bool {
		one, g := *rule, &grants{byResource: map[resourceKey]*placed{}}
		one.ResourceNames = names
		g.add(&one, namespaces, decision, nil)
		return g.decide(r, nil) != nil
	}
	everywhere := []string{"*"}
	switch {
	case !matches(nil, everywhere):
		return ""
	case !matches(nil, namespaces):
		return "is not for this namespace"
	case !matches(rule.ResourceNames, everywhere):
		return "is not for this name"
	}
	return applies
}

func (d *Deny) verdict(r *Request) string {
	switch {
	case d.Unless == nil:
		return verdictDenies
	case d.Unless.Object:
		return verdictDepends
	}
	holds, err := d.Unless.holds(r)
	switch {
	case err != nil:
		return verdictDenies + ", its exception cannot be evaluated: " + err.Error()
	case holds:
		return verdictExcepted
	}
	return verdictDenies
}

// holds decides a condition that does not depend on the object.
func (c *Condition) holds(r *Request) (bool, error) {
	ready, err := newCondition(c)
	if err != nil {
		return false, err
	}
	return ready.decide(context.Background(), &accessVars{request: r})
}

// verdict is that of the first rule of the role that grants it, or else the last that
// nearly does.
func (b *Binding) verdict(role *Role, r *Request) (verdict string) {
	for i := range role.Rules {
		v := consider(&role.Rules[i], b.Namespaces, r)
		if v == applies {
			switch {
			case b.When == nil:
				return verdictGrants
			case b.When.Object:
				return verdictDepends
			}
			holds, err := b.When.holds(r)
			switch {
			case err != nil:
				return unmet("", err)
			case holds:
				return verdictGrants
			}
			return verdictUnmet
		}
		if v != "" {
			verdict = v
		}
	}
	return verdict
}
