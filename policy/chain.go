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
	// Source is the place of what decided, file:line, if it has one.
	Source string
	// Program is the checksum of the program that decided, if there is one.
	Program string
	// Failed opinions are what the failure policy says: the authorizer has none.
	Failed bool
}

// Verdict is what an opinion comes to. The zero value is none.
type Verdict uint8

// The verdicts.
//
// A decision on conditions (KEP-5681; authorizer.ConditionsAwareDecision of k8s.io/apiserver)
// fits here as one more: the opinion would bring the conditions, each of which allows or denies if
// it holds for the object. In the chain they are steps of [Pending] like those of rules with a
// `when` or an `unless`: what comes behind them is asked as well, a read that meets one is refused,
// and a write is decided in the stage conditions, in the order of the chain. What is missing for it is
// only whom to ask whether one holds: a step has a program of CEL, and would have to be able to ask its
// authorizer.
const (
	SaysNothing Verdict = iota
	Allows
	Denies
)

// Said is what an authorizer outside of the policy said about a request.
type Said struct {
	Authorizer string
	Opinion
}

// The authorizers that a policy is by itself.
const (
	DenyAuthorizer    = "deny"
	MastersAuthorizer = MastersGroup
	RBACAuthorizer    = "rbac"
)

// defaultChain is that of policies that name none.
var defaultChain = []string{DenyAuthorizer, MastersAuthorizer, RBACAuthorizer}

// chainOf is the order in which authorizers are asked. Who may do everything is known before
// anything but denies is asked, unless the policy says when: a plugin that fails must not
// keep out who mends it.
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

// link is one authorizer of the chain: one that the policy is by itself, by its name, or one that
// is asked.
type link struct {
	name   string
	asked  Authorizer // nil if the policy is it
	plugin *Plugin    // nil if it is none
}

// WithAuthorizers returns the policy with those authorizers that it names and is not by
// itself, as find has them. One that is not found refuses what it is asked: a policy that
// cannot be enforced opens nothing.
func (p *Policy) WithAuthorizers(find func(name string) Authorizer) *Policy {
	bound := *p
	bound.chain = newChain(p.form, find)
	return &bound
}

// Outside are the authorizers that the policy names and is not by itself, in their order.
func (f *Form) Outside() (names []string) {
	for _, name := range f.Authorizers {
		if !BuiltinAuthorizer(name) {
			names = append(names, name)
		}
	}
	return names
}

// Outside are the bound authorizers of the chain that the policy is not by itself, in their order.
func (p *Policy) Outside() (list []Authorizer) {
	for i := range p.chain {
		if x := p.chain[i].asked; x != nil {
			list = append(list, x)
		}
	}
	return list
}

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

// missing is an authorizer that this replica does not have.
type missing string

func (m missing) Authorize(context.Context, *Request) Opinion {
	return Opinion{Verdict: Denies, Reason: "the authorizer " + string(m) + " cannot be asked", Detail: "this replica has no such authorizer", Failed: true}
}

func (missing) ByName(*Request) bool { return false }

// Authorize decides a request: the first authorizer of the chain that allows or denies it does.
// Where one depends on the object that is written, those behind it are asked as well. The
// decision is shared: it MUST NOT be changed.
func (p *Policy) Authorize(ctx context.Context, r *Request) *Decision {
	var d *Decision
	var pending []*grant // of which only the object can tell whether they hold, in the order of the chain
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
			d = p.access.decide(r, &pending)
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

// conclude is the decision of a chain that did not end in what the policy has at hand.
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

// Turn is waited for before an authorizer outside of a policy is asked, and lasts until done is called.
type Turn func(context.Context) (done func(), err error)

type turnKey struct{}

// InTurn returns a context in which authorizers outside of a policy are asked in turns, for decisions that can wait
// where many come at once: who has no turn refuses.
func InTurn(ctx context.Context, t Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

type explainKey struct{}

// Explain returns a context for decisions that are made to be explained: nobody waits for what they allow, and so authorizers
// outside of a policy that have no say are waited for, too.
func Explain(ctx context.Context) context.Context { return context.WithValue(ctx, explainKey{}, true) }

// Explains tells whether a decision is made to be explained.
func Explains(ctx context.Context) bool { return ctx.Value(explainKey{}) != nil }

// ask hands a copy over, so that requests of policies that ask nobody need not be on the heap.
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

// decision is nil if the opinion is none.
func (l *link) decision(o *Opinion) *Decision {
	if o.Verdict == SaysNothing {
		return nil
	}
	return &Decision{Allowed: o.Verdict == Allows, Denied: o.Verdict == Denies, Authorizer: l.name, Rule: l.name, Source: l.source(o), Reason: o.Reason}
}

// source is where what decided stands: what the authorizer says, or where the bundle has the plugin.
func (l *link) source(o *Opinion) string {
	if o.Source == "" && l.plugin != nil {
		return l.plugin.Source.String()
	}
	return o.Source
}

// concerns tells whether an authorizer is asked about a request.
func (l *link) concerns(r *Request) bool { return l.plugin == nil || l.plugin.Match.Matches(r) }

// AsksOutside tells whether authorizers outside of the policy may be asked about a request, which takes the time that
// they take.
func (p *Policy) AsksOutside(r *Request) bool {
	return slices.ContainsFunc(p.chain, func(l link) bool { return l.asked != nil && l.concerns(r) })
}

// Undecided tells whether a decision of this policy refuses what it allows by itself, and an authorizer outside of it
// could not be asked: that is no answer to what somebody may see.
func (p *Policy) Undecided(r *Request, d *Decision) bool {
	return !d.Allowed && slices.ContainsFunc(d.Said, func(s Said) bool { return s.Failed }) && p.authorizeInside(r).Allowed
}

// authorizeInside decides a request by what is in the policy alone.
func (p *Policy) authorizeInside(r *Request) *Decision {
	inside := *p
	inside.chain = slices.DeleteFunc(slices.Clone(p.chain), func(l link) bool { return l.asked != nil })
	return inside.Authorize(context.Background(), r)
}
