// Package authz has the authorizers that a policy names and is not by itself: the policy file of
// kube-apiserver's ABAC mode, its webhooks, and plugins. The bundle says which of them are asked, about what, and
// in which order; what is behind a name (files, endpoints, credentials, programs) is each replica's operator's to
// say. What is remembered of answers belongs to one loaded policy, and to one reading of the
// operator's files: an activation and a reload begin anew.
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

// Options are what the operator says.
type Options struct {
	// PolicyFile is that of ABAC; empty if there is none.
	PolicyFile string
	// ConfigFile is an AuthorizationConfiguration, of which the webhooks count. Without it there is the
	// one of Webhook, or none.
	ConfigFile string
	Webhook    Webhook
	// Plugins runs those of the policy in force; nil if this replica runs none.
	Plugins *host.Host
	// CheckConfigs holds the configurations of a bundle's plugins against the schemas that their programs say,
	// which are CUE, by the plugins' names: [policy.CheckPluginConfigs], where that can do no harm. Without it only the
	// programs themselves are asked.
	CheckConfigs func(context.Context, *bundles.Source, map[string]string) (schemas.Diagnostics, error)
	Logger       *slog.Logger // may be nil
	// ReloadEvery is how often files are looked at; 0: each second.
	ReloadEvery time.Duration
}

// Authorizers are those of a replica. They are safe for concurrent use, and a collector of metrics about the operator's files.
type Authorizers struct {
	options  Options
	logger   *slog.Logger
	abac     atomic.Pointer[abacPolicy] // nil without a file
	webhooks atomic.Pointer[webhooks]
	files    []*reload.File
	metrics  *reload.Metrics

	law   Law         // set by Follow
	mu    sync.Mutex  // guards bound; never held while an authorizer is asked
	bound []*programs // that may have processes
}

// Law says which policy is in force: a [commit.Committer].
type Law interface {
	Tip() *commit.Tip
	PolicyChanged() <-chan struct{}
}

// New reads the operator's files. A line or a field that is wrong is the error, with its place.
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

// Bind returns a policy that has just been loaded, with its authorizers.
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

// Follow says which policy is in force from now on. It is called once, before a plugin can be asked, and starts
// those of the policy at the tip.
func (a *Authorizers) Follow(law Law) {
	a.law = law
	a.enforce()
}

// enforce runs the plugins of the policy in force, and ends those that only older ones need.
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
			b.Use() // before others are released: what both need goes on
		}
	}
	var old []*host.Binding
	a.mu.Lock()
	if a.law.Tip().Policy == p { // else a newer one may be among the bound, and it is its turn next
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

// Check tells why a policy cannot be enforced here, each reason with its place in the bundle. Plugins are
// started for it, and given their configuration, which is also held against their schemas.
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
	return append(wrong, list...) // what a schema says has the line of the field, and so is read first
}

// Health tells why the policy in force cannot be enforced here as it is meant. Until that is
// mended its failure policies apply, and what is missing refuses all that it is asked.
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
