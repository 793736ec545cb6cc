// Package authz has the external authorizers that a policy names: the policy file of kube-apiserver's ABAC mode,
// webhooks, and plugins. The bundle decides which authorizers are asked, about what, and in which order. The operator
// of each replica decides what is behind a name: files, endpoints, credentials, programs. Cached answers belong to one
// loaded policy and one version of the operator's files, so an activation or a reload starts with an empty cache.
package authz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/reload"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// Options are what the operator configures.
type Options struct {
	// PolicyFile is the ABAC policy file; "" for none.
	PolicyFile string
	// ConfigFile is an AuthorizationConfiguration, of which only the webhooks are used. Without it, Webhook may
	// configure one.
	ConfigFile string
	Webhook    Webhook
	// Plugins runs the plugins of the policy in force; nil if this replica runs none.
	Plugins *host.Host
	// CheckConfigs validates the configurations of a bundle's plugins against the CUE schemas that the programs
	// return, by plugin name: it is [pluginconfig.Check] in a safe process. If it is nil, only the programs
	// check their configuration.
	CheckConfigs func(context.Context, *bundles.Source, map[string]string) (schemas.Diagnostics, error)
	Logger       *slog.Logger // may be nil
	// ReloadEvery is how often files are checked for changes; 0 means every second.
	ReloadEvery time.Duration
}

// Authorizers are the external authorizers of a replica. They are safe for concurrent use, and collect metrics about
// the operator's files.
type Authorizers struct {
	options  Options
	logger   *slog.Logger
	abac     atomic.Pointer[abacPolicy] // nil without a file
	webhooks atomic.Pointer[webhooks]
	files    []*reload.File
	metrics  *reload.Metrics

	law   Law         // set by Follow
	mu    sync.Mutex  // guards bound; not held while an authorizer is asked
	bound []*programs // those that may have processes
}

// Law returns the policy in force: a [commit.Committer].
type Law interface {
	Tip() *commit.Tip
	PolicyChanged() <-chan struct{}
}

// New reads the operator's files. An invalid line or field is an error that names its place.
func New(o Options) (*Authorizers, error) {
	a := &Authorizers{options: o, logger: o.Logger, metrics: reload.NewMetrics("authorization")}
	if a.logger == nil {
		a.logger = slog.New(slog.DiscardHandler)
	}
	if o.ConfigFile != "" && o.Webhook.KubeconfigFile != "" {
		return nil, errors.New("the webhook is in the authorization configuration, or in a file of its own, not both")
	}
	a.webhooks.Store(&webhooks{})
	a.follow("authorization-policy-file", o.PolicyFile, func() ([]byte, error) { return reload.Read(o.PolicyFile) }, a.loadABAC)
	a.follow("authorization-config", o.ConfigFile, a.webhookContent, a.loadWebhooks)
	a.follow("authorization-webhook-config-file", o.Webhook.KubeconfigFile, a.webhookContent, a.loadWebhooks)
	return a, a.Reload()
}

// Bind returns a newly loaded policy, with its authorizers.
func (a *Authorizers) Bind(p *policy.Policy) *policy.Policy {
	programs := &programs{of: a}
	for _, plugin := range p.Form().Asked() {
		programs.specs = append(programs.specs, specOf(plugin))
	}
	programs.policy = p.WithAuthorizers(func(name string) policy.Authorizer {
		switch found := p.Form().Plugin(name); {
		case name == "abac":
			return abac{a}
		case name == "webhook" || strings.HasPrefix(name, "webhook:"):
			return &hook{of: a, name: name}
		case found != nil && a.options.Plugins != nil:
			return &plugin{programs, found}
		}
		return nil
	})
	return programs.policy
}

// Follow sets the source of the policy in force. It must be called once, before a plugin is asked. It starts the
// plugins of the policy at the tip.
func (a *Authorizers) Follow(law Law) {
	a.law = law
	a.enforce()
}

// enforce starts the plugins of the policy in force, and stops those that only older policies need.
func (a *Authorizers) enforce() {
	p := a.law.Tip().Policy
	if p == nil {
		return
	}
	var next *programs
	for _, x := range p.Outside() {
		if plugin, is := x.(*plugin); is {
			next = plugin.programs
		}
	}
	if next != nil {
		if b := next.bind(); b != nil {
			b.Use() // before others are released, so that shared plugins stay
		}
	}
	var old []*host.Binding
	a.mu.Lock()
	if a.law.Tip().Policy == p { // otherwise a newer policy is bound soon, and calls enforce
		a.bound = slices.DeleteFunc(a.bound, func(x *programs) bool {
			if x == next {
				return false
			}
			x.over = true
			old = append(old, x.binding)
			return true
		})
	}
	a.mu.Unlock()
	for _, b := range old {
		b.Release()
	}
}

// Check returns the reasons why this replica cannot enforce a policy, each with its place in the bundle. It starts the
// plugins, passes them their configuration, and checks it against their schemas.
func (a *Authorizers) Check(ctx context.Context, compiled *compile.Result) (list schemas.Diagnostics) {
	f, configs := compiled.Form, map[string]string{}
	for _, name := range f.Outside() {
		d := schemas.Diagnostic{Pos: f.ChainSource, Path: "bundle.authorizers"}
		switch found := f.Plugin(name); {
		case found != nil && a.options.Plugins == nil:
			d.Pos, d.Path, d.Message = found.Source, "bundle.plugins."+found.Name, "this replica runs no plugins"
		case found != nil:
			says, err := a.options.Plugins.Check(ctx, specOf(found))
			if says != nil {
				configs[found.Name] = says.GetConfigSchema()
			}
			if err == nil {
				continue
			}
			d.Pos, d.Path, d.Message = found.Source, "bundle.plugins."+found.Name, "this replica cannot use "+err.Error()
		case name == "abac":
			if a.abac.Load() != nil {
				continue
			}
			d.Message, d.Hint = "abac is in the chain, and this replica has no policy file", "start it with --authorization-policy-file, or leave abac out"
		default:
			_, err := a.webhooks.Load().find(name)
			if err == nil {
				continue
			}
			d.Message = name + " is in the chain, and " + err.Error()
		}
		list = append(list, d)
	}
	if len(configs) == 0 || a.options.CheckConfigs == nil {
		return list
	}
	wrong, err := a.options.CheckConfigs(ctx, compiled.Source, configs)
	if err != nil {
		wrong = schemas.Diagnostics{{Path: "bundle.plugins", Message: "the configurations cannot be checked here: " + err.Error()}}
	}
	return append(wrong, list...) // schema errors first: they have the line of the field
}

// Health returns why this replica cannot fully enforce the policy in force. Until that is repaired, the failure
// policies apply, and a missing authorizer denies every request.
func (a *Authorizers) Health() error {
	p := a.law.Tip().Policy
	if p == nil {
		return nil
	}
	var errs []error
	plugins := false
	for _, name := range p.Form().Outside() {
		switch {
		case p.Form().Plugin(name) != nil:
			plugins = true
		case name == "abac":
			if a.abac.Load() == nil {
				errs = append(errs, errors.New("the policy in force has abac in its chain, and there is no --authorization-policy-file"))
			}
		default:
			if _, err := a.webhooks.Load().find(name); err != nil {
				errs = append(errs, fmt.Errorf("the policy in force has %s in its chain: %w", name, err))
			}
		}
	}
	switch {
	case plugins && a.options.Plugins == nil:
		errs = append(errs, errors.New("the policy in force has plugins in its chain, and this replica runs none"))
	case plugins:
		errs = append(errs, a.options.Plugins.Health())
	}
	return errors.Join(errs...)
}

// Run follows the policy in force and the operator's files until the context ends.
func (a *Authorizers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range a.files {
		g.Go(func() error { return f.Run(ctx, cmp.Or(a.options.ReloadEvery, time.Second)) })
	}
	g.Go(func() error {
		for {
			changed := a.law.PolicyChanged()
			a.enforce()
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return g.Wait()
}
