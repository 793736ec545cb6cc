// Package plugins has the plugins that policies name, as authorizers and for admission. It starts those of the policy in
// force, checks whether a policy's plugins can be used, and asks them to review writes. The bundle decides which programs
// may run, and what they are asked. The operator of each replica has the programs and their secrets.
package plugins

import (
	"context"
	"errors"
	"slices"
	"sync"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// Options are what the operator configures.
type Options struct {
	// Host runs the programs; nil if this replica runs none.
	Host *host.Host
	// CheckConfigs validates the configurations of a bundle's plugins against the CUE schemas that the programs
	// return, by plugin name: it is [pluginconfig.Check] in a safe process. If it is nil, only the programs
	// check their configuration.
	CheckConfigs func(context.Context, *bundles.Source, map[string]string) (schemas.Diagnostics, error)
}

// Law returns the policy in force: a [commit.Committer].
type Law interface {
	Tip() *commit.Tip
	PolicyChanged() <-chan struct{}
}

// Plugins are the plugins of a replica's policies. They are safe for concurrent use.
type Plugins struct {
	options Options

	law   Law        // set by Follow
	mu    sync.Mutex // guards bound; not held while a plugin is asked
	bound []*Set     // those that may have processes
}

// New returns the plugins of a replica.
func New(o Options) *Plugins { return &Plugins{options: o} }

// Set is the plugins of one loaded policy. Many loaded policies are never asked: past ones, and at the start every policy
// that was ever in force. So plugins are only started when they are asked, or when their policy comes in force.
type Set struct {
	of    *Plugins
	specs []host.Spec

	binding *host.Binding // guarded by of.mu, as is over
	over    bool          // the binding is released, or will be soon
}

type setKey struct{ of *Plugins }

// Of returns the plugins of a loaded policy, or nil if this replica runs none.
func (p *Plugins) Of(x *policy.Policy) *Set {
	if p == nil || p.options.Host == nil {
		return nil
	}
	return x.Keep(setKey{p}, func() any {
		return &Set{of: p, specs: Specs(x.Form())}
	}).(*Set)
}

// Specs returns the plugins that a policy uses, in the order of their names.
func Specs(f *policy.Form) (specs []host.Spec) {
	for _, u := range uses(f) {
		specs = append(specs, u.spec())
	}
	return specs
}

// use is a plugin, and the services for which a policy uses it.
type use struct {
	*policy.Plugin
	host.Services
}

// uses returns the plugins that a policy uses, in the order of their names.
func uses(f *policy.Form) (list []use) {
	for i := range f.Plugins {
		u := use{Plugin: &f.Plugins[i]}
		if u.Authorizer, u.Admission = f.Uses(u.Name); u.Authorizer || u.Admission {
			list = append(list, u)
		}
	}
	return list
}

func (u *use) spec() host.Spec {
	return host.Spec{
		Name: u.Name, SHA256: u.SHA256, Config: u.Config, Secrets: u.Secrets,
		Timeout: u.Timeout, CacheTTL: u.CacheTTL, FailurePolicy: u.FailurePolicy, Shadow: u.Shadow, Uses: u.Services,
	}
}

// Bind returns the binding to ask, or nil if it was released. Requests that began under a replaced policy may still get a
// released binding. With nil they are refused, and then decided again under the new policy.
func (s *Set) Bind() *host.Binding {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if (s.binding == nil || s.over) && s.of.law != nil && s.of.current() == s {
		s.binding, s.over = s.of.options.Host.Bind(s.specs), false
		s.of.bound = append(s.of.bound, s)
	}
	return s.binding
}

// current returns the plugins of the policy in force; nil without one.
func (p *Plugins) current() *Set {
	if x := p.law.Tip().Policy; x != nil {
		return p.Of(x)
	}
	return nil
}

// Follow sets the source of the policy in force. It must be called once, before a plugin is asked. It starts the plugins
// of the policy at the tip.
func (p *Plugins) Follow(law Law) {
	p.law = law
	p.enforce()
}

// enforce starts the plugins of the policy in force, and stops those that only older policies need.
func (p *Plugins) enforce() {
	if p.options.Host == nil || p.law.Tip().Policy == nil {
		return
	}
	next := p.current()
	if len(next.specs) > 0 {
		if b := next.Bind(); b != nil {
			b.Use() // before others are released, so that shared plugins stay
		}
	}
	var old []*host.Binding
	p.mu.Lock()
	if p.current() == next { // otherwise a newer policy is bound soon, and calls enforce
		p.bound = slices.DeleteFunc(p.bound, func(x *Set) bool {
			if x == next {
				return false
			}
			x.over = true
			old = append(old, x.binding)
			return true
		})
	}
	p.mu.Unlock()
	for _, b := range old {
		b.Release()
	}
}

// Check returns the reasons why this replica cannot use the plugins of a policy, each with its place in the bundle. It
// starts the plugins, passes them their configuration, and checks it against their schemas.
func (p *Plugins) Check(ctx context.Context, compiled *compile.Result) (list schemas.Diagnostics) {
	configs := map[string]string{}
	for _, u := range uses(compiled.Form) {
		d := schemas.Diagnostic{Pos: u.Source, Path: "bundle.plugins." + u.Name, Message: "this replica runs no plugins"}
		if p.options.Host != nil {
			says, err := p.options.Host.Check(ctx, u.spec())
			if says != nil {
				configs[u.Name] = says.GetConfigSchema()
			}
			if err == nil {
				continue
			}
			d.Message = "this replica cannot use " + err.Error()
		}
		list = append(list, d)
	}
	if len(configs) == 0 || p.options.CheckConfigs == nil {
		return list
	}
	wrong, err := p.options.CheckConfigs(ctx, compiled.Source, configs)
	if err != nil {
		wrong = schemas.Diagnostics{{Path: "bundle.plugins", Message: "the configurations cannot be checked here: " + err.Error()}}
	}
	return append(wrong, list...) // schema errors first: they have the line of the field
}

// Health returns why this replica cannot use all plugins of the policy in force. Until that is repaired, the failure
// policies apply.
func (p *Plugins) Health() error {
	x := p.law.Tip().Policy
	switch {
	case x == nil || len(uses(x.Form())) == 0:
		return nil
	case p.options.Host == nil:
		return errors.New("the policy in force has plugins, and this replica runs none")
	}
	return p.options.Host.Health()
}

// Run follows the policy in force until the context ends.
func (p *Plugins) Run(ctx context.Context) error {
	for {
		changed := p.law.PolicyChanged()
		p.enforce()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
