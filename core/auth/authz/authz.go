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
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"stele.dev/stele/core/reviewers/plugins"
	"stele.dev/stele/limits/reload"
	"stele.dev/stele/policy"
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
	// Plugins are the plugins of this replica's policies; nil if it runs none.
	Plugins *plugins.Plugins
	Logger  *slog.Logger // may be nil
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

	law Law // set by Follow
}

// Law returns the policy in force: a [commit.Committer].
type Law = plugins.Law

// New reads the operator's files. An invalid line or field is an error that names its place.
func New(o Options) (*Authorizers, error) {
	a := &Authorizers{options: o, logger: o.Logger, metrics: reload.NewMetrics("authorization")}
	a.logger = cmp.Or(a.logger, slog.New(slog.DiscardHandler))
	if o.ConfigFile != "" && o.Webhook.KubeconfigFile != "" {
		return nil, errors.New("the webhook is in the authorization configuration, or in a file of its own, not both")
	}
	if a.options.Plugins == nil {
		a.options.Plugins = plugins.New(plugins.Options{})
	}
	a.webhooks.Store(&webhooks{})
	a.follow("authorization-policy-file", o.PolicyFile, func() ([]byte, error) { return reload.Read(o.PolicyFile) }, a.loadABAC)
	a.follow("authorization-config", o.ConfigFile, a.webhookContent, a.loadWebhooks)
	a.follow("authorization-webhook-config-file", o.Webhook.KubeconfigFile, a.webhookContent, a.loadWebhooks)
	return a, a.Reload()
}

// Bind returns a newly loaded policy, with its authorizers.
func (a *Authorizers) Bind(p *policy.Policy) *policy.Policy {
	set := a.options.Plugins.Of(p)
	return p.WithAuthorizers(func(name string) policy.Authorizer {
		switch found := p.Form().Plugin(name); {
		case name == "abac":
			return abac{a}
		case name == "webhook" || strings.HasPrefix(name, "webhook:"):
			return &hook{of: a, name: name, span: "authorizer " + name}
		case found != nil && set != nil:
			return &plugin{set, found}
		}
		return nil
	})
}

// Follow sets the source of the policy in force. It must be called once, before an authorizer is asked. It starts the
// plugins of the policy at the tip.
func (a *Authorizers) Follow(law Law) {
	a.law = law
	a.options.Plugins.Follow(law)
}

// Check returns the reasons why this replica cannot enforce a policy, each with its place in the bundle: also those of its
// plugins, for authorization and for admission.
func (a *Authorizers) Check(ctx context.Context, compiled *compile.Result) (list schemas.Diagnostics) {
	f := compiled.Form
	for _, name := range f.Outside() {
		d := schemas.Diagnostic{Pos: f.ChainSource, Path: "bundle.authorizers"}
		switch {
		case f.Plugin(name) != nil:
			continue // checked below
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
	return append(a.options.Plugins.Check(ctx, compiled), list...)
}

// Health returns why this replica cannot fully enforce the policy in force. Until that is repaired, the failure
// policies apply, and a missing authorizer denies every request.
func (a *Authorizers) Health() error {
	p := a.law.Tip().Policy
	if p == nil {
		return nil
	}
	var errs []error
	for _, name := range p.Form().Outside() {
		switch {
		case p.Form().Plugin(name) != nil:
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
	return errors.Join(append(errs, a.options.Plugins.Health())...)
}

// Run follows the policy in force and the operator's files until the context ends.
func (a *Authorizers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range a.files {
		g.Go(func() error { return f.Run(ctx, cmp.Or(a.options.ReloadEvery, time.Second)) })
	}
	g.Go(func() error { return a.options.Plugins.Run(ctx) })
	return g.Wait()
}
