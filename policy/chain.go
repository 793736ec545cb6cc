package policy

import (
	"context"
	"slices"
	"strings"
)

// Authorizer decides requests by what is not in the policy: a file of the operator's, a
// webhook, a plugin. The policy names it, and each replica brings its own. It is safe for
// concurrent use.
type Authorizer interface {
	// Authorize decides a request. It bounds the time that it takes by itself, and has an
	// opinion also when it failed: the one that its failure policy says. The request MUST
	// NOT be changed, or kept.
	Authorize(ctx context.Context, r *Request) Opinion
	// ByName tells whether what it decides may depend on the name of the object.
	ByName(r *Request) bool
}

// Opinion is what an [Authorizer] makes of a request.
type Opinion struct {
	Verdict Verdict
	// Reason is for the caller.
	Reason string
	// Detail is for who may ask for explanations: what failed, what was not asked.
	Detail string
}

// Verdict is what an opinion comes to. The zero value is none.
type Verdict uint8

// The verdicts. One that depends on conditions (KEP-5681) would be another one, with the
// conditions in the [Opinion]: [Pending] is how the chain goes on after it.
const (
	SaysNothing Verdict = iota
	Allows
	Denies
)

// The authorizers that a policy is by itself.
const (
	denyAuthorizer    = "deny"
	mastersAuthorizer = mastersGroup
	rbacAuthorizer    = "rbac"
)

// defaultChain is that of policies that name none.
var defaultChain = []string{denyAuthorizer, mastersAuthorizer, rbacAuthorizer}

// chainOf is the order in which authorizers are asked. Who may do everything is known before
// anything but denies is asked, unless the policy says when: a plugin that fails must not
// keep out who mends it.
func chainOf(names []string) []string {
	if len(names) == 0 {
		return defaultChain
	}
	if slices.Contains(names, mastersAuthorizer) {
		return names
	}
	at := 0
	if names[0] == denyAuthorizer {
		at = 1
	}
	return slices.Insert(slices.Clone(names), at, mastersAuthorizer)
}

// link is one authorizer of the chain.
type link struct {
	name   string
	inside func(p *Policy, r *Request, pending *[]*grant) *Decision
	asked  Authorizer // where inside is nil
}

var insideAuthorizers = map[string]func(*Policy, *Request, *[]*grant) *Decision{
	denyAuthorizer: func(p *Policy, r *Request, pending *[]*grant) *Decision { return p.access.denies.decide(r, pending) },
	mastersAuthorizer: func(_ *Policy, r *Request, _ *[]*grant) *Decision {
		if slices.Contains(r.Groups, mastersGroup) {
			return masters
		}
		return nil
	},
	rbacAuthorizer: func(p *Policy, r *Request, pending *[]*grant) *Decision { return p.access.decide(r, pending) },
}

// WithAuthorizers returns the policy with those authorizers that it names and is not by
// itself, as find has them. One that is not found refuses what it is asked: a policy that
// cannot be enforced opens nothing.
func (p *Policy) WithAuthorizers(find func(name string) Authorizer) *Policy {
	bound := *p
	bound.chain = newChain(p.form.Authorizers, find)
	return &bound
}

func newChain(names []string, find func(name string) Authorizer) []link {
	var chain []link
	for _, name := range chainOf(names) {
		l := link{name: name, inside: insideAuthorizers[name]}
		if l.inside == nil {
			if l.asked = find(name); l.asked == nil {
				l.asked = missing(name)
			}
		}
		chain = append(chain, l)
	}
	return chain
}

// missing is an authorizer that this replica does not have.
type missing string

func (m missing) Authorize(context.Context, *Request) Opinion {
	return Opinion{Verdict: Denies, Reason: "the authorizer " + string(m) + " cannot be asked", Detail: "this replica has no such authorizer"}
}

func (missing) ByName(*Request) bool { return false }

// Authorize decides a request: the first authorizer of the chain that allows or denies it does.
// Where one depends on the object that is written, those behind it are asked as well. The
// decision is shared: it MUST NOT be changed.
func (p *Policy) Authorize(ctx context.Context, r *Request) *Decision {
	var left *Pending
	var reasons []string
	for i := range p.chain {
		var pending []*grant
		d := p.chain[i].decide(ctx, p, r, &pending)
		switch {
		case d == nil:
		case !d.Allowed && !d.Denied:
			reasons = append(reasons, d.Reason)
			d = nil
		case left == nil:
			return d
		default:
			left.end = d
			return left.decision()
		}
		if len(pending) > 0 {
			if left == nil {
				asked := *r
				left = &Pending{request: &asked}
			}
			left.steps = append(left.steps, pending...)
		}
	}
	switch {
	case left != nil:
		return left.decision()
	case len(reasons) > 0:
		return &Decision{Reason: strings.Join(reasons, ", ")}
	}
	return noOpinion
}

func (l *link) decide(ctx context.Context, p *Policy, r *Request, pending *[]*grant) *Decision {
	if l.inside != nil {
		return l.inside(p, r, pending)
	}
	o := l.asked.Authorize(ctx, r)
	if o.Verdict == SaysNothing && o.Reason == "" {
		return nil
	}
	return &Decision{Allowed: o.Verdict == Allows, Denied: o.Verdict == Denies, Authorizer: l.name, Rule: l.name, Reason: o.Reason}
}

// authorizeInside decides a request by what is in the policy alone.
func (p *Policy) authorizeInside(r *Request) *Decision {
	inside := *p
	inside.chain = slices.DeleteFunc(slices.Clone(p.chain), func(l link) bool { return l.inside == nil })
	return inside.Authorize(context.Background(), r)
}
