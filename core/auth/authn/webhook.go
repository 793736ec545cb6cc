package authn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"stele.dev/stele/limits/connections"
	"stele.dev/stele/limits/fair"
	"stele.dev/stele/limits/reload"
)

// WebhookOptions are the options of [NewWebhook].
type WebhookOptions struct {
	// File is a kubeconfig with the server to ask.
	File string
	// Version is the version of TokenReview: v1 or v1beta1; "" means v1.
	Version string
	// CacheTTL is how long a positive answer is cached; 0 means not at all.
	CacheTTL time.Duration
	// Questions is how many tokens that were not valid within the last hour may be asked about at a time; 0 means 64. Others
	// wait, and sources take turns.
	Questions int
	// Audiences are the audiences of this API, used if the server does not support audiences.
	Audiences authenticator.Audiences
}

// longestRefusal limits how long a negative answer is cached. That cache is limited by time only, and a client can
// fill it with invented tokens.
const longestRefusal = 10 * time.Second

const (
	// defaultQuestions is the default of WebhookOptions.Questions.
	defaultQuestions = 64
	// waitingQuestions is how many tokens of one source wait. More are refused.
	waitingQuestions = 256
)

// Webhook authenticates tokens by asking a remote server with a TokenReview, as kube-apiserver does. Concurrent
// requests with the same token share one question, and each waits for at most its own timeout. If the server cannot be
// reached, AuthenticateToken returns an error. The [Authenticator] reloads the file and its certificates when they
// change. Webhook implements authenticator.Token and prometheus.Collector, and is safe for concurrent use.
type Webhook struct {
	options  WebhookOptions
	content  []byte // the content at the start
	client   atomic.Pointer[authenticator.Token]
	turns    *fair.Semaphore[netip.Prefix]
	seed     maphash.Seed
	valid    RecentHashes
	requests *prometheus.CounterVec
	refused  prometheus.Counter
	duration *prometheus.HistogramVec
}

// NewWebhook reads the file, and the certificates that it names. Its error tells what is wrong with them.
func NewWebhook(o WebhookOptions) (*Webhook, error) {
	o.Version = cmp.Or(o.Version, "v1")
	o.Questions = cmp.Or(o.Questions, defaultQuestions)
	w := &Webhook{
		options: o,
		turns:   fair.New[netip.Prefix](o.Questions, waitingQuestions),
		seed:    maphash.MakeSeed(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stele_authentication_webhook_requests_total", Help: "Questions to the token webhook, by what came of them: valid, invalid or error.",
		}, []string{"result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stele_authentication_webhook_duration_seconds", Help: "Duration of questions to the token webhook, with what was tried again.",
			Buckets: prometheus.ExponentialBuckets(.001, 2, 15),
		}, []string{"result"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stele_authentication_webhook_refused_total", Help: "Tokens that were refused because too many of their source waited for the token webhook.",
		}),
	}
	var err error
	if w.content, err = w.read(); err == nil {
		err = w.load(context.Background(), w.content)
	}
	if err != nil {
		return nil, fmt.Errorf("token webhook %s: %w", o.File, err)
	}
	return w, nil
}

// follow implements followed. A new configuration starts with an empty cache.
func (w *Webhook) follow(f *files) {
	f.follow("authentication-token-webhook-config-file", w.options.File, w.content, w.load, nil).Read = w.read
}

// AuthenticateToken implements authenticator.Token. A token that was valid within the last hour is mostly in the cache, and
// does not wait for a turn. Neither does that of an open stream.
func (w *Webhook) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	hash, now := maphash.String(w.seed, token), time.Now()
	if !w.valid.Has(hash, now) && !ofStream(ctx) {
		source := connections.SourceOf(ctx)
		switch err := w.turns.Acquire(ctx, source); {
		case errors.Is(err, fair.ErrFull):
			w.refused.Inc()
			return nil, false, &ThrottledError{Source: source, After: time.Second, Why: "too many tokens to ask the token webhook about"}
		case err != nil:
			return nil, false, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		defer w.turns.Release()
	}
	response, ok, err := (*w.client.Load()).AuthenticateToken(ctx, token)
	if ok && err == nil {
		w.valid.Add(hash, now)
	} else if err == nil {
		w.valid.Remove(hash)
	}
	return response, ok, err
}

var waitingDesc = prometheus.NewDesc("stele_authentication_webhook_waiting", "Tokens that wait until the token webhook is asked about them.", nil, nil)

// Describe implements prometheus.Collector.
func (w *Webhook) Describe(c chan<- *prometheus.Desc) {
	w.requests.Describe(c)
	w.duration.Describe(c)
	w.refused.Describe(c)
	c <- waitingDesc
}

// Collect implements prometheus.Collector.
func (w *Webhook) Collect(c chan<- prometheus.Metric) {
	w.requests.Collect(c)
	w.duration.Collect(c)
	w.refused.Collect(c)
	_, waiting := w.turns.State()
	c <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(waiting))
}

// read returns the content of all files of the client.
func (w *Webhook) read() ([]byte, error) {
	_, content, err := reload.Kubeconfig(w.options.File)
	return content, err
}

// load replaces the client by a new one with an empty cache.
func (w *Webhook) load(_ context.Context, content []byte) error {
	config, _, err := reload.Kubeconfig(w.options.File) // it reads the file again
	if err == nil {
		err = reload.Unchanged(w.options.File, w.read, content)
	}
	if err != nil {
		return err
	}
	asked, err := webhook.New(config, w.options.Version, w.options.Audiences, *webhook.DefaultRetryBackoff())
	if err != nil {
		return err
	}
	client := cache.New(&question{asked, w}, false, w.options.CacheTTL, min(w.options.CacheTTL, longestRefusal))
	w.client.Store(&client)
	return nil
}

// unanswered reports whether the server did not answer, or did not answer with a review. An error in the review's
// status is an answer: the token is invalid.
func unanswered(err error) bool {
	var transport *url.Error
	var status apierrors.APIStatus
	return errors.As(err, &transport) || errors.As(err, &status) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// question counts and times the questions to the server.
type question struct {
	asked authenticator.Token
	*Webhook
}

// ErrUnavailable reports that a credential could not be checked, because the server that knows it did not answer.
var ErrUnavailable = errors.New("authn: who knows of the credential does not answer")

func (q *question) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	start := time.Now()
	response, ok, err := q.asked.AuthenticateToken(ctx, token)
	result := "invalid"
	switch {
	case unanswered(err):
		result = "error"
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	case ok:
		result = "valid"
	}
	q.requests.WithLabelValues(result).Inc()
	q.duration.WithLabelValues(result).Observe(time.Since(start).Seconds())
	return response, ok, err
}
