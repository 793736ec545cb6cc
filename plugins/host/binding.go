package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/limits/breaker"
)

// textBytes is the maximum length of a text that users read; longer ones are cut.
const textBytes = 1 << 10

// Binding is the set of plugins of one policy. The cache of answers belongs to the binding, and so ends with the policy. It
// is safe for concurrent use.
type Binding struct {
	host    *Host
	plugins map[string]*bound

	// Guarded by the host's lock.
	inUse    bool
	released bool
}

// Use records that the policy is in force: [Host.Health] then includes its plugins.
func (b *Binding) Use() {
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	b.inUse = !b.released
}

// Release records that the policy is no longer in force. Plugins that no other binding needs linger, answer the
// questions in flight, and are killed.
func (b *Binding) Release() {
	h := b.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.released {
		return
	}
	b.released, b.inUse = true, false
	delete(h.bindings, b)
	for name, d := range b.plugins {
		h.release(d.plugin)
		h.forget(name)
	}
}

// bound is a plugin with the settings of one policy. It has what all services of a plugin share.
type bound struct {
	spec       Spec
	plugin     *plugin
	metrics    boundMetrics
	authorizer *authorizer
	reviewer   *reviewer
}

type boundMetrics struct {
	failures *prometheus.CounterVec
	hits     prometheus.Counter
	inFlight prometheus.Gauge
	duration prometheus.Observer
}

func newBound(spec Spec, p *plugin) *bound {
	spec.Timeout = cmp.Or(max(spec.Timeout, 0), time.Second)
	d := &bound{spec: spec, plugin: p}
	m := p.host.metrics
	d.metrics = boundMetrics{
		failures: m.failures.MustCurryWith(prometheus.Labels{"plugin": spec.Name}),
		hits:     m.hits.WithLabelValues(spec.Name),
		inFlight: m.inFlight.WithLabelValues(spec.Name), duration: m.duration.WithLabelValues(spec.Name),
	}
	m.up.WithLabelValues(spec.Name) // so that a plugin that never starts has the series
	d.authorizer, d.reviewer = newAuthorizer(d), newReviewer(d)
	return d
}

// failure says why a plugin has not answered a question. It is nil if it has.
type failure struct {
	why    string // one of the constants, for metrics
	detail string // for operators
	// caller is set if the cause is the caller, and not the plugin. The failure policy does not apply then: a user must
	// not bypass a plugin by not waiting for it, by a question that cannot be sent, or by keeping the plugin busy.
	caller bool
}

// question is what a plugin is asked, whatever the service.
type question struct {
	user    string        // who asks, for the user's share of the plugin
	message proto.Message // as it is sent
	timeout time.Duration
	// ask calls the service.
	ask func(context.Context, *instance) error
}

// ask asks the plugin. The context has the question's timeout.
func (d *bound) ask(ctx context.Context, q *question) *failure {
	p := d.plugin
	i, err := p.ready(ctx)
	if err != nil {
		return &failure{why: failedDown, detail: err.Error()}
	}
	trial, ok := p.circuit.Allow()
	if !ok {
		return &failure{why: failedCircuit, detail: "it does not answer in time; the circuit breaker is open"}
	}
	result := breaker.Unknown
	defer func() {
		if result == breaker.Succeeded && !i.answered.Load() {
			i.answered.Store(true)
		}
		p.circuit.Done(trial, result)
	}()
	place, err := p.room.enter(ctx, q.user)
	switch {
	case errors.Is(err, errShare):
		return &failure{why: failedBusy, detail: err.Error(), caller: true}
	case err != nil:
		return &failure{why: failedBusy, detail: "it is answering as many questions as it may"}
	}
	defer p.room.leave(place)
	d.metrics.inFlight.Inc()
	defer d.metrics.inFlight.Dec()
	start := time.Now()
	err = q.ask(ctx, i)
	d.metrics.duration.Observe(time.Since(start).Seconds())
	f, result := q.outcome(ctx, err)
	return f
}

// outcome returns what an error of a call means, for the caller and for the circuit breaker.
func (q *question) outcome(ctx context.Context, err error) (*failure, breaker.Outcome) {
	switch code := status.Code(err); {
	case err == nil:
		return nil, breaker.Succeeded
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || code == codes.DeadlineExceeded: // the plugin's clock may be first
		return &failure{why: failedTimeout, detail: fmt.Sprintf("no answer within %s", q.timeout)}, breaker.Failed
	case ctx.Err() != nil:
		return &failure{why: failedCanceled, detail: "the question was given up", caller: true}, breaker.Unknown
	case code == codes.Unavailable:
		return &failure{why: failedLost, detail: message(err)}, breaker.Failed
	case code == codes.Internal && !encodes(q.message):
		return &failure{why: failedError, detail: "the question cannot be sent: some text in it is not UTF-8", caller: true}, breaker.Unknown
	default:
		return &failure{why: failedError, detail: fmt.Sprintf("%s: %s", code, message(err))}, breaker.Succeeded
	}
}

// encodes reports whether a question can be sent. Kubernetes allows any bytes in paths and in the values of field
// selectors, but protobuf requires UTF-8.
func encodes(m proto.Message) bool {
	_, err := proto.Marshal(m)
	return err == nil
}

// count counts and logs a failure.
func (d *bound) count(f *failure) {
	d.metrics.failures.WithLabelValues(f.why).Inc()
	if f.why == failedCanceled {
		return
	}
	if dropped, ok := d.plugin.failures.take(); ok {
		d.plugin.log.Warn("a plugin has not decided", withDropped(dropped, "reason", f.why, "error", f.detail)...)
	}
}

// panicked logs a panic of the host, and returns the failure that it is for the caller.
func (d *bound) panicked(r any) *failure {
	d.plugin.log.Error("asking a plugin panicked", "panic", r, "stack", string(debug.Stack()))
	return &failure{why: failedPanic, detail: fmt.Sprintf("asking it panicked: %v", r)}
}

// cut cuts a text that users read.
func cut(text string) string {
	if len(text) <= textBytes {
		return text
	}
	end := textBytes - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]) + "…"
}

// withDropped adds to the attributes of a log record how many records were dropped before it.
func withDropped(dropped int, attrs ...any) []any {
	if dropped > 0 {
		attrs = append(attrs, "dropped", dropped)
	}
	return attrs
}

// short cuts a text for the log: names in a request can have any length.
func short(text string) string { return fmt.Sprintf("%.256s", text) }
