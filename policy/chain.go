package policy

import (
	"context"
	"slices"
	"strings"
)

// Authorizer decides requests outside of the policy: a policy file, a webhook or a plugin. The
// policy names it; each replica configures it. It is safe for concurrent use.
type Authorizer interface {
	// Authorize decides a request. It limits its own time. If it fails, it returns the opinion that
	// its failure policy demands. It must not change or keep the request.
	Authorize(ctx context.Context, r *Request) Opinion
	// ByName reports whether its decisions may depend on the object's name.
	ByName(r *Request) bool
}

// Opinion is the answer of an [Authorizer] to a request.
type Opinion struct {
	Verdict Verdict
	// Reason is shown to the caller.
	Reason string
	// Detail is shown to users who may read explanations: what failed, or what was not asked.
	Detail string
	// Source is the position (file:line) of the rule that decided, if there is one.
	Source string
	// Program is the checksum of the plugin program that decided, if there is one.
	Program string
	// Failed is set if the authorizer failed and the opinion is that of its failure policy.
	Failed bool
}

// Verdict is the result of an opinion. The zero value is "no opinion".
type Verdict uint8

// The verdicts.
const (
	SaysNothing Verdict = iota
	Allows
	Denies
)

// Said is the answer of an authorizer outside of the policy to a request.
type Said struct {
	Authorizer string
	Opinion
}

// Names of the authorizers that are part of every policy.
const (
	DenyAuthorizer    = "deny"
	MastersAuthorizer = MastersGroup
	RBACAuthorizer    = "rbac"
)

// defaultChain is the chain of a policy that names no authorizers.
var defaultChain = []string{DenyAuthorizer, MastersAuthorizer, RBACAuthorizer}

// Chain returns the order in which authorizers are asked. system:masters is checked right after
// denies unless the policy says otherwise, so that a failing plugin cannot lock out the
// administrators who fix it.
func Chain(names []string) []string {
	if len(names) == 0 {
		return defaultChain
	}
	if slices.Contains(names, MastersAuthorizer) {
		return names
	}
	at := 0
	if names[0] == DenyAuthorizer {
		at = 1
	}
	return slices.Insert(slices.Clone(names), at, MastersAuthorizer)
}

// link is one authorizer of the chain: a built-in one, or one outside of the policy.
type link struct {
	name   string
	asked  Authorizer // nil if built in
	plugin *Plugin    // nil if not a plugin
}

// WithAuthorizers returns a copy of the policy with its outside authorizers, as find returns them.
// An authorizer that find does not know refuses every request: a policy that cannot be enforced must
// not grant access.
func (p *Policy) WithAuthorizers(find func(name string) Authorizer) *Policy {
	bound := *p
	bound.chain = newChain(p.form, find)
	return &bound
}

// Outside returns the names of the chain's authorizers that are outside of the policy, in order.
func (f *Form) Outside() (names []string) {
	for _, name := range f.Authorizers {
		if !BuiltinAuthorizer(name) {
			names = append(names, name)
		}
	}
	return names
}

// Outside returns the chain's authorizers that are outside of the policy, in order.
func (p *Policy) Outside() (list []Authorizer) {
	for i := range p.chain {
		if x := p.chain[i].asked; x != nil {
			list = append(list, x)
		}
	}
	return list
}

// BuiltinAuthorizer reports whether the name is that of an authorizer of every policy.
func BuiltinAuthorizer(name string) bool {
	return name == DenyAuthorizer || name == MastersAuthorizer || name == RBACAuthorizer
}

func newChain(f *Form, find func(name string) Authorizer) []link {
	var chain []link
	for _, name := range Chain(f.Authorizers) {
		l := link{name: name}
		if !BuiltinAuthorizer(name) {
			if l.asked = find(name); l.asked == nil {
				l.asked = missing(name)
			}
			l.plugin = f.Plugin(name)
		}
		chain = append(chain, l)
	}
	return chain
}

// missing is an authorizer that this replica does not have. It fails every request.
type missing string

func (m missing) Authorize(context.Context, *Request) Opinion {
	return Opinion{Verdict: Denies, Reason: "the authorizer " + string(m) + " cannot be asked", Detail: "this replica has no such authorizer", Failed: true}
}

func (missing) ByName(*Request) bool { return false }

// Authorize decides a request by the first authorizer of the chain that allows or denies it. If an
// authorizer's answer depends on the written object, the later ones are asked as well. The decision
// is shared: the caller must not change it.
func (p *Policy) Authorize(ctx context.Context, r *Request) *Decision {
	var d *Decision
	var pending []*grant // grants whose conditions need the object, in the order of the chain
	var said []Said
	for i := range p.chain {
		l := &p.chain[i]
		switch {
		case l.asked != nil:
			if !l.concerns(r) {
				continue
			}
			o := l.ask(ctx, r)
			said = append(said, Said{l.name, o})
			d = l.decision(&o)
		case l.name == DenyAuthorizer:
			d = p.access.denies.decide(r, &pending)
		case l.name == RBACAuthorizer:
			if d = p.access.decide(r, &pending); d == nil && p.more != nil {
				d = p.more.decide(r, &pending)
			}
		case slices.Contains(r.Groups, MastersGroup):
			d = masters
		}
		if d != nil {
			break
		}
	}
	if len(pending) > 0 || len(said) > 0 {
		return conclude(r, d, pending, said)
	}
	if d == nil {
		return noOpinion
	}
	return d
}

// conclude returns the decision if no authorizer decided: pending ones, or nothing.
func conclude(r *Request, d *Decision, pending []*grant, said []Said) *Decision {
	var reasons []string
	for i := range said {
		if said[i].Verdict == SaysNothing && said[i].Reason != "" {
			reasons = append(reasons, said[i].Reason)
		}
	}
	c := Decision{Reason: strings.Join(reasons, ", ")}
	switch {
	case len(pending) > 0:
		asked := *r
		left := &Pending{request: &asked, steps: pending, end: d, reasons: reasons, said: said}
		c = Decision{Authorizer: pending[0].decision.Authorizer, Reason: left.Reason(), Pending: left}
	case d != nil:
		c = *d
	}
	c.Said = said
	return &c
}

// Turn waits until an authorizer outside of the policy may be asked. The turn ends when done is
// called.
type Turn func(context.Context) (done func(), err error)

type turnKey struct{}

// InTurn returns a context whose decisions wait for a turn before they ask an outside authorizer. It
// is for many decisions at once that can wait. A decision that gets no turn is a refusal.
func InTurn(ctx context.Context, t Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

type explainKey struct{}

// Explain returns a context for decisions that are only explained. They wait also for outside
// authorizers in shadow mode, whose opinions do not count.
func Explain(ctx context.Context) context.Context { return context.WithValue(ctx, explainKey{}, true) }

// Explains reports whether the context comes from [Explain].
func Explains(ctx context.Context) bool { return ctx.Value(explainKey{}) != nil }

// ask copies the request, so that requests of policies without outside authorizers stay off the
// heap.
func (l *link) ask(ctx context.Context, r *Request) Opinion {
	if take, is := ctx.Value(turnKey{}).(Turn); is {
		done, err := take(ctx)
		if err != nil {
			return Opinion{Verdict: Denies, Reason: "the authorizer " + l.name + " cannot be asked", Detail: err.Error(), Failed: true}
		}
		defer done()
	}
	asked := *r
	return l.asked.Authorize(ctx, &asked)
}

// decision returns nil if the authorizer has no opinion.
func (l *link) decision(o *Opinion) *Decision {
	if o.Verdict == SaysNothing {
		return nil
	}
	return &Decision{Allowed: o.Verdict == Allows, Denied: o.Verdict == Denies, Authorizer: l.name, Rule: l.name, Source: l.source(o), Reason: o.Reason}
}

// source returns the position of what decided: the authorizer's own, or that of the plugin in the
// bundle.
func (l *link) source(o *Opinion) string {
	if o.Source == "" && l.plugin != nil {
		return l.plugin.Source.String()
	}
	return o.Source
}

// concerns reports whether the authorizer is asked about a request.
func (l *link) concerns(r *Request) bool { return l.plugin == nil || l.plugin.Match.Matches(r) }

// AsksOutside reports whether outside authorizers may be asked about a request, which takes time.
func (p *Policy) AsksOutside(r *Request) bool {
	return slices.ContainsFunc(p.chain, func(l link) bool { return l.asked != nil && l.concerns(r) })
}

// Undecided reports whether a decision is a refusal only because an outside authorizer could not be
// asked, while the policy by itself allows the request. Such a decision does not say what the user
// may see.
func (p *Policy) Undecided(r *Request, d *Decision) bool {
	return !d.Allowed && slices.ContainsFunc(d.Said, func(s Said) bool { return s.Failed }) && p.AuthorizeInside(r).Allowed
}

// AuthorizeInside decides a request without outside authorizers.
func (p *Policy) AuthorizeInside(r *Request) *Decision {
	inside := *p
	inside.chain = slices.DeleteFunc(slices.Clone(p.chain), func(l link) bool { return l.asked != nil })
	return inside.Authorize(context.Background(), r)
}
