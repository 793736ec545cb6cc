// Package webhooks asks the admission webhooks of a policy about writes, by AdmissionReview v1 over TLS. The policy says
// which webhooks there are, what they are asked, and what their certificates must be signed by. The operator of each
// replica says where the services are that it names, and keeps the credentials that it names.
//
// # Limits
//
// A webhook answers 100 questions at a time; more wait for their turn, users in turns, until the webhook's timeout. A
// webhook that is silent is not asked for a while, see [breaker.Circuit]: what waits for it then fails at once. An answer
// has at most as many bytes as the body of a request, and redirects are not followed.
package webhooks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/limits/breaker"
	"stele.dev/stele/limits/fair"
	"stele.dev/stele/limits/reload"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

const (
	// inFlight is how many questions a webhook answers at a time.
	inFlight = 100
	// waitingPerUser is how many questions of one user wait for a webhook.
	waitingPerUser = 100
)

// Options are what the operator configures.
type Options struct {
	// ServicesFile is the table of services; "" for none.
	ServicesFile string
	// SecretsDir is the folder with client certificates and tokens, a file each; "" for none.
	SecretsDir string
	Logger     *slog.Logger // may be nil
	// ReloadEvery is how often the files are checked for changes; 0 means every second.
	ReloadEvery time.Duration
}

// Law returns the policy in force: a [commit.Committer].
type Law interface {
	Tip() *commit.Tip
	PolicyChanged() <-chan struct{}
}

// Webhooks are the webhooks of this replica's policies. They are safe for concurrent use, and collect metrics.
type Webhooks struct {
	options  Options
	logger   *slog.Logger
	services atomic.Pointer[services]
	table    *reload.File // nil without a table
	files    *reload.Metrics
	metrics  *metrics

	mu    sync.Mutex
	hooks map[string]*hook           // by key
	of    map[*policy.Reviewer]*hook // of the loaded policies that were asked
}

// New reads the operator's files.
func New(o Options) (*Webhooks, error) {
	w := &Webhooks{options: o, logger: o.Logger, files: reload.NewMetrics("webhooks"), hooks: map[string]*hook{}, of: map[*policy.Reviewer]*hook{}}
	w.logger = cmp.Or(w.logger, slog.New(slog.DiscardHandler))
	w.metrics = newMetrics(w)
	w.services.Store(&services{})
	if o.ServicesFile == "" {
		return w, nil
	}
	content, err := reload.Read(o.ServicesFile)
	if err == nil {
		err = w.loadServices(content)
	}
	if err != nil {
		return nil, fmt.Errorf("webhook services: %w", err)
	}
	w.table = &reload.File{
		Path: o.ServicesFile, Content: content, Load: func(_ context.Context, content []byte) error { return w.loadServices(content) },
		Outcome: w.files.Outcome(w.logger, "webhook-services", o.ServicesFile),
	}
	return w, nil
}

// Find returns the webhook of a reviewer; nil if the reviewer is none. It implements [review.Find].
func (w *Webhooks) Find(_ *policy.Policy, r *policy.Reviewer) review.Reviewer {
	if r.Webhook == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.of[r]; h != nil {
		return h
	}
	k := key(r)
	h := w.hooks[k]
	if h == nil {
		h = w.newHook(r)
		w.hooks[k] = h
	}
	w.of[r] = h
	return h
}

// key is what webhooks have in common that share a connection and a circuit: all that says what is asked where.
func key(r *policy.Reviewer) string {
	text, err := json.Marshal(r.Webhook)
	if err != nil {
		panic(err) // plain data always encodes
	}
	return fmt.Sprintf("%s %x", r.ID, sha256.Sum256(text))
}

func (w *Webhooks) newHook(r *policy.Reviewer) *hook {
	h := &hook{of: w, name: r.Name(), id: r.ID, mutating: r.Mutating, config: *r.Webhook, places: fair.New[string](inFlight, waitingPerUser)}
	h.circuit = breaker.NewCircuit(func(s breaker.State) {
		w.logger.Warn("the circuit of an admission webhook has changed", "webhook", r.ID, "open", s == breaker.Open)
	})
	return h
}

// forget drops the webhooks that the policy in force does not have.
func (w *Webhooks) forget(p *policy.Policy) {
	if p == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	used := map[*hook]bool{}
	of := map[*policy.Reviewer]*hook{}
	form := p.Form()
	for i := range form.Reviewers {
		if h := w.of[&form.Reviewers[i]]; h != nil {
			used[h], of[&form.Reviewers[i]] = true, h
		} else if h := w.hooks[keyOfWebhook(&form.Reviewers[i])]; h != nil {
			used[h], of[&form.Reviewers[i]] = true, h
		}
	}
	for k, h := range w.hooks {
		if !used[h] {
			delete(w.hooks, k)
			w.metrics.forget(h.name)
		}
	}
	w.of = of
}

func keyOfWebhook(r *policy.Reviewer) string {
	if r.Webhook == nil {
		return ""
	}
	return key(r)
}

// Check returns why this replica cannot ask the webhooks of a policy, each with its place in the bundle.
func (w *Webhooks) Check(_ context.Context, compiled *compile.Result) (list schemas.Diagnostics) {
	for i := range compiled.Form.Reviewers {
		r := &compiled.Form.Reviewers[i]
		if r.Webhook == nil {
			continue
		}
		if _, err := w.newHook(r).connect(); err != nil {
			list = append(list, schemas.Diagnostic{Pos: r.Source, Path: r.ID, Message: "this replica cannot ask the webhook: " + err.Error()})
		}
	}
	return list
}

// Health returns why this replica cannot ask the webhooks of a policy. Until that is repaired, their failure policies
// apply.
func (w *Webhooks) Health(p *policy.Policy) error {
	if p == nil {
		return nil
	}
	var errs []error
	for i := range p.Form().Reviewers {
		r := &p.Form().Reviewers[i]
		if r.Webhook == nil {
			continue
		}
		if _, err := w.Find(p, r).(*hook).current(); err != nil {
			errs = append(errs, fmt.Errorf("the webhook %s cannot be asked: %w", r.ID, err))
		}
	}
	return errors.Join(errs...)
}

// Run follows the operator's files and the policy in force until the context ends.
func (w *Webhooks) Run(ctx context.Context, law Law) error {
	every := cmp.Or(w.options.ReloadEvery, time.Second)
	g, ctx := errgroup.WithContext(ctx)
	if w.table != nil {
		g.Go(func() error { return w.table.Run(ctx, every) })
	}
	g.Go(func() error { return w.followSecrets(ctx, every) })
	g.Go(func() error {
		for {
			changed := law.PolicyChanged()
			w.forget(law.Tip().Policy)
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return g.Wait()
}

// followSecrets makes new connections where a secret has changed.
func (w *Webhooks) followSecrets(ctx context.Context, every time.Duration) error {
	for range steady.Every(ctx, every) {
		w.mu.Lock()
		var with []*hook
		for _, h := range w.hooks {
			if h.config.ClientCertificate != "" || h.config.BearerToken != "" {
				with = append(with, h)
			}
		}
		w.mu.Unlock()
		for _, h := range with {
			h.refresh()
		}
	}
	return ctx.Err()
}

// Describe implements prometheus.Collector.
func (w *Webhooks) Describe(to chan<- *prometheus.Desc) { w.files.Describe(to); w.metrics.describe(to) }

// Collect implements prometheus.Collector.
func (w *Webhooks) Collect(to chan<- prometheus.Metric) { w.files.Collect(to); w.metrics.collect(to) }
