package authn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"stele.dev/stele/core/reload"
)

// WebhookOptions for [NewWebhook].
type WebhookOptions struct {
	// File has the server to ask, as a kubeconfig.
	File string
	// Version of TokenReview that it is asked by: v1 or v1beta1; "" for v1.
	Version string
	// CacheTTL is how long an answer that a token is valid may be used again; 0 for never.
	CacheTTL time.Duration
	// Audiences are this API's, for a server that says nothing of audiences.
	Audiences authenticator.Audiences
}

// longestRefusal bounds how long a token that the server does not know is taken to be unknown. Answers of
// that kind are bounded by time and not by number, and whoever makes up tokens gets many of them.
const longestRefusal = 10 * time.Second

// Webhook asks a server outside whose a token is, by TokenReview as kube-apiserver does. Identical tokens
// that come while one of them is asked about wait for that answer, each as long as its own request may
// take; nothing is locked meanwhile. A server that cannot be asked makes its tokens invalid: that is an
// error of AuthenticateToken. The [Authenticator] that it is part of reads its file and certificates anew when they change. It
// implements authenticator.Token and prometheus.Collector, and is safe for concurrent use.
type Webhook struct {
	options  WebhookOptions
	content  []byte // what it was made of at the beginning
	client   atomic.Pointer[authenticator.Token]
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewWebhook reads the file, and the certificates that it names. The error says what is wrong with them.
func NewWebhook(o WebhookOptions) (*Webhook, error) {
	if o.Version == "" {
		o.Version = "v1"
	}
	w := &Webhook{
		options: o,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stele_authentication_webhook_requests_total", Help: "Questions to the token webhook, by what came of them: valid, invalid or error.",
		}, []string{"result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stele_authentication_webhook_duration_seconds", Help: "Duration of questions to the token webhook, with what was tried again.",
			Buckets: prometheus.ExponentialBuckets(.001, 2, 15),
		}, []string{"result"}),
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

// follow implements followed. With another configuration nothing of what was answered before is remembered.
func (w *Webhook) follow(f *files) {
	f.follow("authentication-token-webhook-config-file", w.options.File, w.content, w.load, nil).Read = w.read
}

// AuthenticateToken implements authenticator.Token.
func (w *Webhook) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return (*w.client.Load()).AuthenticateToken(ctx, token)
}

// Describe implements prometheus.Collector.
func (w *Webhook) Describe(c chan<- *prometheus.Desc) { w.requests.Describe(c); w.duration.Describe(c) }

// Collect implements prometheus.Collector.
func (w *Webhook) Collect(c chan<- prometheus.Metric) { w.requests.Collect(c); w.duration.Collect(c) }

// read returns all that the client is made of.
func (w *Webhook) read() ([]byte, error) {
	_, content, err := reload.Kubeconfig(w.options.File)
	return content, err
}

// load makes another client, which remembers nothing.
func (w *Webhook) load(_ context.Context, content []byte) error {
	config, _, err := reload.Kubeconfig(w.options.File) // which reads it once more
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

// unanswered tells whether the server could not be asked, or gave another answer than a review. What a review says
// in its field error is an answer: the token is invalid.
func unanswered(err error) bool {
	var transport *url.Error
	var status apierrors.APIStatus
	return errors.As(err, &transport) || errors.As(err, &status) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// question measures what the server is asked.
type question struct {
	asked authenticator.Token
	*Webhook
}

// ErrUnavailable reports that a credential could not be looked at, because who knows about it did not
// answer.
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
