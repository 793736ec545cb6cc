// Package access compares what two policies allow: grants, denies, the chain of authorizers, and how far back the past
// can be read. Grants and denies are compared by the requests that they decide, not by their text.
package access

import (
	"context"
	"errors"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/counterexamples"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/schemas"
)

// Compare returns what differs between the access of two policies. If there is no policy in force, it returns only what
// matters in a first policy: rights that lead to other rights, and denies that stop the server's own controllers. The
// error is the context's.
func Compare(ctx context.Context, s plan.Sides) ([]plan.Finding, error) {
	first := s.From == nil
	from := &policy.Form{}
	if !first {
		from = s.From.Form()
	}
	c := &comparison{ctx: ctx, sides: s, search: counterexamples.New(s), from: newIndex(from), to: newIndex(s.To.Form()), first: first}
	if err := c.grants(); err != nil {
		return nil, err
	}
	c.controllers()
	c.viewers()
	if !first {
		c.reasons()
		c.plugins()
		c.history()
		if err := c.flows(); err != nil {
			return nil, err
		}
		c.audit()
		c.teams()
		c.limits()
	}
	return c.findings, ctx.Err()
}

// comparison collects the findings of two policies.
type comparison struct {
	ctx      context.Context
	sides    plan.Sides
	search   *counterexamples.Search
	from, to *index
	// first is set if there is no policy in force.
	first    bool
	findings []plan.Finding
}

func (c *comparison) add(f plan.Finding) {
	f.SetDefaults()
	c.findings = append(c.findings, f)
}

// index finds the parts of a form by their IDs.
type index struct {
	*policy.Form
	bindings map[string]*policy.Binding
	denies   map[string]*policy.Deny
	roles    map[string]*policy.Role // by name
	roleIDs  map[string]*policy.Role
}

func newIndex(f *policy.Form) *index {
	x := &index{Form: f, bindings: map[string]*policy.Binding{}, denies: map[string]*policy.Deny{}, roles: map[string]*policy.Role{}, roleIDs: map[string]*policy.Role{}}
	for i := range f.Bindings {
		x.bindings[f.Bindings[i].ID] = &f.Bindings[i]
	}
	for i := range f.Denies {
		x.denies[f.Denies[i].ID] = &f.Denies[i]
	}
	for i := range f.Roles {
		x.roles[f.Roles[i].Name], x.roleIDs[f.Roles[i].ID] = &f.Roles[i], &f.Roles[i]
	}
	return x
}

// source returns the position of a binding or a deny.
func (x *index) source(id string) schemas.Position {
	if b := x.bindings[id]; b != nil {
		return b.Source
	}
	if d := x.denies[id]; d != nil {
		return d.Source
	}
	return schemas.Position{}
}

// condition returns the condition of a binding, or the exception of a deny, or nil.
func (x *index) condition(id string) *policy.Condition {
	if b := x.bindings[id]; b != nil {
		return b.When
	}
	if d := x.denies[id]; d != nil {
		return d.Unless
	}
	return nil
}

// grants compares who may do what.
func (c *comparison) grants() error {
	before, after := c.from.Access(), c.to.Access()
	counterexamples.Align(c.from.Form, c.to.Form, before, after)
	from, err := rights.New(before)
	if err == nil {
		var to *rights.Rights
		if to, err = rights.New(after); err == nil {
			if !c.first {
				c.chain(rights.ChainDifference(from, to))
			}
			var changes []rights.AccessChange
			if changes, err = rights.Difference(c.ctx, from, to, rights.Selection{AnyNamespace: true}); err == nil {
				c.changes(changes)
				return nil
			}
		}
	}
	if !errors.Is(err, rights.ErrIntricate) {
		return err
	}
	c.byText()
	return nil
}
