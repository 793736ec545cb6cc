package policy

import (
	"context"
	"slices"
	"strings"
)

// Considered is a rule or authorizer, and its verdict on a request.
type Considered struct {
	Rule    string // or the authorizer's name
	Source  string
	Verdict string
	// Reason and Detail come from an authorizer or a reviewer outside of the policy. For a quota, Reason is what the write adds.
	Reason, Detail string
	// Read is what an admission rule read of stored objects, in words.
	Read []string
}

// Verdicts on the rules of admission and of kinds.
const (
	VerdictHolds = "holds"
	VerdictFails = "does not hold"
	// VerdictNoParams is that of a rule whose parameterNotFoundAction is Allow.
	VerdictNoParams = "has no params, and is skipped"
)

// Verdicts on what changes objects.
const (
	VerdictUnselected = "does not select it" // the rule is about other writes
	VerdictChanges    = "changes "           // followed by the fields
	VerdictUnchanged  = "changes nothing"
)

// Changes reports whether a verdict says that the object was changed.
func Changes(verdict string) bool {
	return strings.HasPrefix(verdict, VerdictChanges) && verdict != VerdictUnchanged
}

// Verdicts on grants with conditions.
const (
	VerdictDepends = "depends on the object"
	VerdictUnmet   = "its condition does not hold"
)

type consideringKey struct{}

// Considering returns a context with which [Version.ValidateRules] calls consider with each rule that it evaluates.
func Considering(ctx context.Context, consider func(Considered)) context.Context {
	return context.WithValue(ctx, consideringKey{}, consider)
}

// Consider explains a decision of [Policy.Authorize]. It lists, in the order of the chain, the
// denies and grants that name the user, verb and resource, each with its verdict, and the answers of
// the outside authorizers, or why they were not asked. It takes time in proportion to the policy.
func (p *Policy) Consider(r *Request, d *Decision) (list []Considered) {
	for i := range p.chain {
		l := &p.chain[i]
		switch {
		case l.asked != nil:
			list = append(list, l.consideredBy(r, d))
		case l.name == DenyAuthorizer:
			list = p.considerDenies(r, list)
		case l.name == RBACAuthorizer:
			before := len(list)
			if list = p.considerBindings(r, list); len(list) == before && len(p.Outside()) > 0 {
				list = append(list, p.unnamed(i, d))
			}
		case slices.Contains(r.Groups, MastersGroup):
			list = append(list, Considered{Rule: MastersGroup, Verdict: verdictGrants})
		}
	}
	return list
}

// consideredBy returns the part that an outside authorizer had in a decision.
func (l *link) consideredBy(r *Request, d *Decision) Considered {
	if !l.concerns(r) {
		return Considered{Rule: l.name, Source: l.plugin.Source.String(), Verdict: "is not about this: its match names other requests"}
	}
	i := slices.IndexFunc(d.Said, func(s Said) bool { return s.Authorizer == l.name })
	if i < 0 {
		return Considered{Rule: l.name, Source: l.source(&Opinion{}), Verdict: verdictUnasked}
	}
	o := &d.Said[i].Opinion
	verdict := map[Verdict]string{SaysNothing: verdictNothing, Allows: verdictGrants, Denies: verdictDenies}[o.Verdict]
	return Considered{Rule: l.name, Source: l.source(o), Verdict: verdict, Reason: o.Reason, Detail: o.Detail}
}

// unnamed returns the part that a built-in authorizer of the chain had in a decision if none of its
// rules names the request.
func (p *Policy) unnamed(place int, d *Decision) Considered {
	c := Considered{Rule: p.chain[place].name, Verdict: verdictNothing}
	before := func(l link) bool { return l.name == d.Authorizer }
	if (d.Allowed || d.Denied) && slices.ContainsFunc(p.chain[:place], before) {
		c.Verdict = verdictUnasked
	}
	return c
}

func (p *Policy) considerDenies(r *Request, list []Considered) []Considered {
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
				list = append(list, Considered{Rule: d.ID, Source: d.Source.String(), Verdict: verdict})
				break
			}
		}
	}
	return list
}

func (p *Policy) considerBindings(r *Request, list []Considered) []Considered {
	for i := range p.form.Bindings {
		b := &p.form.Bindings[i]
		if !named(b.Subjects, r.User, r.Groups) {
			continue
		}
		for j := range p.form.Roles {
			if p.form.Roles[j].Name == b.Role {
				if verdict := b.verdict(&p.form.Roles[j], r); verdict != "" {
					list = append(list, Considered{Rule: b.ID, Source: b.Source.String(), Verdict: verdict})
				}
			}
		}
	}
	return list
}

// Verdicts on rules.
const (
	applies         = "applies"
	verdictDenies   = "denies"
	verdictGrants   = "allows"
	verdictExcepted = "exempt"
	verdictNothing  = "no opinion"
	verdictUnasked  = "is not asked: the chain ended before it"
)

// consider reports whether a rule names a request. If only the name or the namespace does not match,
// it says so; otherwise it returns "".
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
		return VerdictDepends
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

// verdict returns the verdict of the role's first rule that grants the request, or else of the last
// rule that almost does.
func (b *Binding) verdict(role *Role, r *Request) (verdict string) {
	for i := range role.Rules {
		v := consider(&role.Rules[i], b.Namespaces, r)
		if v == applies {
			switch {
			case b.When == nil:
				return verdictGrants
			case b.When.Object:
				return VerdictDepends
			}
			holds, err := b.When.holds(r)
			switch {
			case err != nil:
				return unmet("", err)
			case holds:
				return verdictGrants
			}
			return VerdictUnmet
		}
		if v != "" {
			verdict = v
		}
	}
	return verdict
}
