package authz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/tracing"
	"stele.dev/stele/limits/reload"
	"stele.dev/stele/policy"
)

// Webhook configures one webhook without a configuration file, by kube-apiserver's flags of the same names.
type Webhook struct {
	// KubeconfigFile is a kubeconfig with the server to ask; "" for none.
	KubeconfigFile                 string
	Version                        string // of the SubjectAccessReviews
	AuthorizedTTL, UnauthorizedTTL time.Duration
}

// legacyWebhook is kube-apiserver's name of the webhook that flags configure.
const legacyWebhook = "default"

// webhooks are the configured webhooks. They are immutable.
type webhooks struct {
	endpoints map[string]*endpoint
	// content is all that they were made of, text is the configuration file; "" if there is none.
	content, text []byte
	// ignored are the types of entries that are not webhooks.
	ignored []string
}

type endpoint struct {
	name   string
	config apiserver.WebhookConfiguration
	client *rest.Config
}

// compiler compiles matchConditions.
var compiler = sync.OnceValue(cel.NewDefaultCompiler)

// modes are the authorizer types that an AuthorizationConfiguration may have.
var modes = sets.New("Webhook", "RBAC", "ABAC", "Node", "AlwaysAllow", "AlwaysDeny")

// webhookContent returns the content of the configuration and of the kubeconfigs that it names. In place of a file
// that cannot be read it has the error.
func (a *Authorizers) webhookContent() ([]byte, error) {
	files := []string{a.options.Webhook.KubeconfigFile}
	var content []byte
	if file := a.options.ConfigFile; file != "" {
		var err error
		if content, err = reload.Read(file); err != nil {
			return nil, err
		}
		c, err := load.LoadFromData(content)
		if err != nil {
			return content, nil // loading it reports the error
		}
		files = nil
		for _, entry := range c.Authorizers {
			if entry.Webhook != nil && entry.Webhook.ConnectionInfo.KubeConfigFile != nil {
				files = append(files, *entry.Webhook.ConnectionInfo.KubeConfigFile)
			}
		}
	}
	for _, file := range files {
		_, part, err := reload.Kubeconfig(file)
		content = fmt.Appendf(content, "\n%d:%s%v", len(part), part, err)
	}
	return content, nil
}

// loadWebhooks replaces the webhooks.
func (a *Authorizers) loadWebhooks(content []byte) error {
	if bytes.Equal(a.webhooks.Load().content, content) {
		return nil // keep the caches
	}
	w, err := readWebhooks(a.options.ConfigFile, a.options.Webhook)
	if err == nil {
		err = reload.Unchanged("", a.webhookContent, content)
	}
	if err != nil {
		return fmt.Errorf("authorization webhooks: %w", err)
	}
	if len(w.ignored) > 0 {
		a.logger.Info("the order of authorizers is the bundle's: entries of the authorization configuration that are no webhooks are ignored", "types", w.ignored)
	}
	w.content = content
	a.webhooks.Store(w)
	a.record(w)
	return nil
}

// readWebhooks reads an AuthorizationConfiguration, or the webhook of the flags.
func readWebhooks(file string, flags Webhook) (*webhooks, error) {
	if file == "" {
		return webhookOfFlags(flags)
	}
	text, err := reload.Read(file)
	if err != nil {
		return nil, err
	}
	c, err := load.LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if errs := validation.ValidateAuthorizationConfiguration(compiler(), nil, c, modes, sets.New("Webhook")); len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", file, errs.ToAggregate())
	}
	w := &webhooks{endpoints: map[string]*endpoint{}, text: text}
	for i := range c.Authorizers {
		a := &c.Authorizers[i]
		if a.Type != apiserver.TypeWebhook {
			w.ignored = append(w.ignored, string(a.Type))
			continue
		}
		if a.Webhook.ConnectionInfo.Type != apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile {
			return nil, fmt.Errorf("%s: authorizers[%d].connectionInfo.type: a webhook is reached by a KubeConfigFile here", file, i)
		}
		if err := w.add(a.Name, *a.Webhook); err != nil {
			return nil, fmt.Errorf("%s: authorizers[%d]: %w", file, i, err)
		}
	}
	return w, nil
}

func webhookOfFlags(flags Webhook) (*webhooks, error) {
	w := &webhooks{endpoints: map[string]*endpoint{}}
	return w, w.add(legacyWebhook, apiserver.WebhookConfiguration{
		AuthorizedTTL: duration(flags.AuthorizedTTL), UnauthorizedTTL: duration(flags.UnauthorizedTTL),
		CacheAuthorizedRequests: flags.AuthorizedTTL > 0, CacheUnauthorizedRequests: flags.UnauthorizedTTL > 0,
		Timeout: duration(30 * time.Second), FailurePolicy: apiserver.FailurePolicyNoOpinion, // as kube-apiserver's
		SubjectAccessReviewVersion: flags.Version,
		ConnectionInfo:             apiserver.WebhookConnectionInfo{Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &flags.KubeconfigFile},
	})
}

// add adds a webhook. It reads its kubeconfig, and checks that a client can be made.
func (w *webhooks) add(name string, c apiserver.WebhookConfiguration) error {
	file := *c.ConnectionInfo.KubeConfigFile
	client, _, err := reload.Kubeconfig(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	client.Timeout = c.Timeout.Duration
	e := &endpoint{name, c, client}
	if _, err := e.authorizer(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	w.endpoints[name] = e
	return nil
}

// authorizer returns a new client with an empty cache.
func (e *endpoint) authorizer() (*webhook.WebhookAuthorizer, error) {
	c := &e.config
	onError := authorizer.DecisionDeny
	if c.FailurePolicy == apiserver.FailurePolicyNoOpinion {
		onError = authorizer.DecisionNoOpinion
	}
	ttl := func(d time.Duration, cached bool) time.Duration {
		if !cached {
			return 0
		}
		return d
	}
	client := rest.CopyConfig(e.client)
	client.Wrap(tracing.Propagate)
	return webhook.New(client, c.SubjectAccessReviewVersion,
		ttl(c.AuthorizedTTL.Duration, c.CacheAuthorizedRequests), ttl(c.UnauthorizedTTL.Duration, c.CacheUnauthorizedRequests),
		*webhook.DefaultRetryBackoff(), onError, c.MatchConditions, e.name, measured(), compiler())
}

// measured returns metrics of webhooks, registered as kube-apiserver's.
var measured = sync.OnceValue(func() metrics.AuthorizerMetrics {
	return struct {
		metrics.NoopRequestMetrics // which only delegated authorization has
		metrics.WebhookMetrics
		matcherMetrics
	}{metrics.NoopRequestMetrics{}, metrics.NewWebhookMetrics(), matcherMetrics{cel.NewMatcherMetrics()}}
})

type excludedKey struct{}

// matcherMetrics also records in the context that the matchConditions did not match. The library reports that to
// metrics only.
type matcherMetrics struct{ cel.MatcherMetrics }

func (m matcherMetrics) RecordAuthorizationMatchConditionExclusion(ctx context.Context, authorizerType, authorizerName string) {
	if excluded, is := ctx.Value(excludedKey{}).(*bool); is {
		*excluded = true
	}
	m.MatcherMetrics.RecordAuthorizationMatchConditionExclusion(ctx, authorizerType, authorizerName)
}

// find returns the webhook that an authorizer of the chain names: "webhook:NAME", or "webhook" for the only one.
func (w *webhooks) find(named string) (*endpoint, error) {
	_, name, explicit := strings.Cut(named, ":")
	if !explicit && len(w.endpoints) == 1 {
		for _, e := range w.endpoints {
			return e, nil
		}
	}
	if e := w.endpoints[name]; e != nil && explicit {
		return e, nil
	}
	var names []string
	for n := range w.endpoints {
		names = append(names, n)
	}
	slices.Sort(names)
	switch {
	case len(names) == 0:
		return nil, errors.New("this replica has no webhook: --authorization-config or --authorization-webhook-config-file names it")
	case !explicit:
		return nil, fmt.Errorf("this replica has several webhooks (%s): name one as webhook:NAME", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("this replica's --authorization-config has no webhook %s, only %s", name, strings.Join(names, ", "))
}

// hook is a webhook of one loaded policy. Answers under another policy or another configuration are not cached here.
type hook struct {
	of     *Authorizers
	name   string // in the chain
	span   string // the name of the span of a question
	client atomic.Pointer[hookClient]
	failed atomic.Int64 // time of the last warning, in Unix nanoseconds
}

type hookClient struct {
	of      *webhooks
	timeout time.Duration
	get     func() (*webhook.WebhookAuthorizer, error)
}

// current returns the client for the current configuration.
func (h *hook) current() (*hookClient, error) {
	for {
		now, is := h.of.webhooks.Load(), h.client.Load()
		if is != nil && is.of == now {
			return is, nil
		}
		e, err := now.find(h.name)
		if err != nil {
			return nil, err
		}
		h.client.CompareAndSwap(is, &hookClient{now, e.config.Timeout.Duration, sync.OnceValues(e.authorizer)})
	}
}

// Authorize implements policy.Authorizer. All attempts together take at most the configured timeout.
func (h *hook) Authorize(ctx context.Context, r *policy.Request) policy.Opinion {
	c, err := h.current()
	if err != nil {
		return cannot(h.name, err.Error())
	}
	client, err := c.get()
	if err != nil {
		return cannot(h.name, err.Error())
	}
	ctx, span := tracing.Start(ctx, h.span)
	defer span.End()
	excluded := false
	bounded, cancel := context.WithTimeout(context.WithValue(ctx, excludedKey{}, &excluded), c.timeout)
	defer cancel()
	decision, reason, err := client.Authorize(bounded, attributes(r))
	if err != nil && ctx.Err() != nil {
		decision = authorizer.DecisionDeny // a client that disconnects must not get past a webhook
	}
	o := policy.Opinion{Reason: status.Brief(reason), Failed: err != nil}
	if excluded {
		o.Detail = "it is not asked: its matchConditions are not met"
	}
	switch decision {
	case authorizer.DecisionAllow:
		o.Verdict = policy.Allows
	case authorizer.DecisionNoOpinion:
	default:
		o.Verdict = policy.Denies
	}
	if err != nil {
		h.complain(err)
		if o.Detail = status.Brief(err.Error()); o.Verdict == policy.Denies && reason == "" {
			o.Reason = cannot(h.name, "").Reason
		}
	}
	return o
}

// complainEvery is how often a failing webhook is logged.
const complainEvery = 10 * time.Second

func (h *hook) complain(err error) {
	now, last := time.Now().UnixNano(), h.failed.Load()
	if now-last >= int64(complainEvery) && h.failed.CompareAndSwap(last, now) {
		h.of.logger.Warn("an authorization webhook failed: its failure policy applies", "authorizer", h.name, "error", err)
	}
}

// ByName implements policy.Authorizer: a webhook may look at any name.
func (*hook) ByName(*policy.Request) bool { return true }
