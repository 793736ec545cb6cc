// Package tracing traces requests: it starts their spans of OpenTelemetry, and sends those to a collector by OTLP (KEP-647).
//
// Which requests are traced is decided before anything is made for one: a request that is not traced costs a random number. Spans
// wait in a queue of bounded size. Those that find it full are dropped, so a collector that hangs never delays a request.
package tracing

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"
)

const (
	scope = "stele.dev/stele"
	// million is the rate at which every request is traced.
	million = 1_000_000
	// flushTimeout is how long a stop waits for the collector to take the last spans.
	flushTimeout = time.Second
)

// Tracer starts the spans of requests. It is safe for concurrent use. A nil Tracer traces nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	queue    *queue
	tracer   trace.Tracer
	rate     int32
}

// New returns a tracer, whose spans name the instance. It connects in the background. The caller must shut it down.
func New(ctx context.Context, c *Config, instance string, logger *slog.Logger) (*Tracer, error) {
	otel.SetErrorHandler(&warner{logger: logger})
	options := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()} // as in kube-apiserver
	if c.Endpoint != nil {
		options = append(options, otlptracegrpc.WithEndpoint(*c.Endpoint))
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, err
	}
	of, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "stele"), attribute.String("service.instance.id", instance)))
	if err != nil {
		return nil, errors.Join(err, exporter.Shutdown(ctx))
	}
	q := newQueue(exporter)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithSpanProcessor(q), sdktrace.WithResource(of)) // the tracer itself samples, which is cheaper
	return &Tracer{provider: provider, queue: q, tracer: provider.Tracer(scope), rate: ptr.Deref(c.SamplingRatePerMillion, 0)}, nil
}

// Metrics returns collectors; none for a nil Tracer.
func (t *Tracer) Metrics() []prometheus.Collector {
	if t == nil {
		return nil
	}
	return t.queue.metrics()
}

// warner logs why spans could not be sent, once a minute at most. It is safe for concurrent use.
type warner struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   time.Time
}

// Handle implements [otel.ErrorHandler].
func (w *warner) Handle(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last.IsZero() || time.Since(w.last) >= time.Minute {
		w.last = time.Now()
		w.logger.Warn("spans could not be sent", "error", err)
	}
}

// Shutdown sends the spans that wait: until the deadline of the context, or for a second if it has none.
func (t *Tracer) Shutdown(ctx context.Context) {
	if t == nil {
		return
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, flushTimeout)
		defer cancel()
	}
	_ = t.provider.Shutdown(ctx) // what the collector has not taken is lost
}

// Named is a request that knows the name of its span. It is asked only if it is traced.
type Named interface{ SpanName() string }

// Begin starts the span of a request that was received at a time, if it is traced: if the caller, whom the server trusts, traces it,
// or else by chance. traced is false if it is not; the context is then nil, unless it has the span of the caller for others whom the
// server asks.
func (t *Tracer) Begin(r *http.Request, by user.Info, received time.Time, named Named) (ctx context.Context, span trace.Span, traced bool) {
	if t == nil {
		return nil, nil, false
	}
	ctx = r.Context()
	options := []trace.SpanStartOption(nil)
	if r.Header.Get("Traceparent") != "" {
		theirs := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(r.Header)))
		switch {
		case !theirs.IsValid():
		case !trusts(by):
			options = append(options, trace.WithLinks(trace.Link{SpanContext: theirs}))
		case !theirs.IsSampled():
			return trace.ContextWithRemoteSpanContext(ctx, theirs), nil, false
		default:
			ctx = trace.ContextWithRemoteSpanContext(ctx, theirs)
			traced = true
		}
	}
	if !traced && rand.Int32N(million) >= t.rate {
		return nil, nil, false
	}
	options = append(options, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(received))
	ctx, span = t.tracer.Start(ctx, named.SpanName(), options...)
	return ctx, span, true
}

// trusts reports whether the trace of a caller is continued, as in kube-apiserver: others could make the server trace all of their
// requests. Their span is a link of the request's own.
func trusts(by user.Info) bool {
	return by != nil && slices.ContainsFunc(by.GetGroups(), func(group string) bool {
		return group == user.SystemPrivilegedGroup || group == user.MonitoringGroup
	})
}

// none is the span of what is not traced.
var none = trace.SpanFromContext(context.Background())

// Start starts a span below that of the context. If that has none, it makes nothing. The caller must end the span.
func Start(ctx context.Context, name string) (context.Context, trace.Span) {
	within := trace.SpanFromContext(ctx)
	if !within.IsRecording() {
		return ctx, none
	}
	return within.TracerProvider().Tracer(scope).Start(ctx, name)
}

// StartAt is Start for what began at a time.
func StartAt(ctx context.Context, name string, began time.Time) (context.Context, trace.Span) {
	return trace.SpanFromContext(ctx).TracerProvider().Tracer(scope).Start(ctx, name, trace.WithTimestamp(began))
}

// Propagate wraps the transport of a client: each request has the headers of [Inject].
func Propagate(next http.RoundTripper) http.RoundTripper { return &propagating{next} }

type propagating struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (p *propagating) RoundTrip(r *http.Request) (*http.Response, error) {
	return p.next.RoundTrip(Inject(r))
}

// WrappedRoundTripper lets connections be closed.
func (p *propagating) WrappedRoundTripper() http.RoundTripper { return p.next }

// Inject returns a request to another server with the headers that name the span of its context (W3C Trace Context); the same
// request if there is none.
func Inject(r *http.Request) *http.Request {
	if !trace.SpanContextFromContext(r.Context()).IsValid() {
		return r
	}
	r = r.Clone(r.Context())
	propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	return r
}
