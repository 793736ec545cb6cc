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
	"stele.dev/stele/limits/flight"
	"stele.dev/stele/plugins/authorizerpb"
)

// reasonBytes is the maximum length of a reason; longer ones are cut.
const reasonBytes = 1 << 10

// Answer is the decision of a plugin or, if the plugin failed, of its failure policy. Shadow mode has been applied.
type Answer struct {
	Decision authorizerpb.Decision
	// Reason is for the user: the plugin's own, or that it is unavailable. Detail is for operators.
	Reason, Detail string
	// Failed is set if the plugin made no decision, Cached if the decision comes from the cache.
	Failed, Cached bool
}

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

// Authorize asks a plugin, and returns within its timeout. It denies when ctx is done. It does not ask a question again
// whose answer is cached or on its way. The question must not be changed, not even afterwards.
func (b *Binding) Authorize(ctx context.Context, name string, q *authorizerpb.AuthorizeRequest) Answer {
	return b.decide(ctx, name, q, false)
}

// Explain is like Authorize, but it also waits for plugins in shadow mode: Detail says what they would have decided.
func (b *Binding) Explain(ctx context.Context, name string, q *authorizerpb.AuthorizeRequest) Answer {
	return b.decide(ctx, name, q, true)
}

func (b *Binding) decide(ctx context.Context, name string, q *authorizerpb.AuthorizeRequest, shadows bool) (a Answer) {
	d := b.plugins[name]
	if d == nil {
		return Answer{
			Decision: authorizerpb.Decision_DECISION_DENY, Failed: true,
			Reason: unavailable(name), Detail: "the policy has no such plugin",
		}
	}
	defer func() {
		if r := recover(); r != nil {
			a = d.effect(d.panicked(r))
		}
	}()
	return d.authorize(ctx, q, shadows)
}

func unavailable(name string) string { return fmt.Sprintf("authorizer plugin %q is unavailable", name) }

// bound is a plugin with the settings of one policy.
type bound struct {
	spec    Spec
	plugin  *plugin
	fails   authorizerpb.Decision
	metrics boundMetrics

	cache   cache
	flights flight.Group[key, Answer]
}

type boundMetrics struct {
	decisions       [authorizerpb.Decision_DECISION_DENY + 1]prometheus.Counter
	failures        *prometheus.CounterVec
	hits, coalesced prometheus.Counter
	inFlight        prometheus.Gauge
	duration        prometheus.Observer
}

func newBound(spec Spec, p *plugin) *bound {
	spec.Timeout = cmp.Or(max(spec.Timeout, 0), time.Second)
	d := &bound{spec: spec, plugin: p, fails: authorizerpb.Decision_DECISION_DENY, cache: newCache()}
	if spec.FailurePolicy == "NoOpinion" {
		d.fails = authorizerpb.Decision_DECISION_NO_OPINION
	}
	m, mode := p.host.metrics, "enforced"
	if spec.Shadow {
		mode = "shadow"
		d.flights.Most = p.host.options.MaxInFlight // nobody waits for these, so nothing else limits them
	}
	d.metrics = boundMetrics{
		failures: m.failures.MustCurryWith(prometheus.Labels{"plugin": spec.Name}),
		hits:     m.hits.WithLabelValues(spec.Name), coalesced: m.coalesced.WithLabelValues(spec.Name),
		inFlight: m.inFlight.WithLabelValues(spec.Name), duration: m.duration.WithLabelValues(spec.Name),
	}
	m.up.WithLabelValues(spec.Name) // so that a plugin that never starts has the series
	for decision, label := range labels {
		d.metrics.decisions[decision] = m.decisions.WithLabelValues(spec.Name, label, mode)
	}
	return d
}

// labels are the metric labels of the valid decisions: every other number is a failure.
var labels = map[authorizerpb.Decision]string{
	authorizerpb.Decision_DECISION_ALLOW:      "allow",
	authorizerpb.Decision_DECISION_DENY:       "deny",
	authorizerpb.Decision_DECISION_NO_OPINION: "no-opinion",
}

func (d *bound) authorize(ctx context.Context, q *authorizerpb.AuthorizeRequest, shadows bool) Answer {
	k := keyOf(q)
	if known, hit := d.cached(k); hit {
		d.metrics.hits.Inc()
		return d.effect(known)
	}
	call, shared := d.flights.Join(d.plugin.host.ctx, k, func(ctx context.Context) (Answer, error) { return d.fly(ctx, k, q), nil })
	if shared {
		d.metrics.coalesced.Inc()
	}
	if d.spec.Shadow {
		return d.watch(ctx, call, shadows)
	}
	a, err := call.Wait(ctx)
	if err != nil {
		a = d.denied(failedCanceled, "the request was given up: "+err.Error())
	}
	return d.effect(a)
}

// watch returns what a plugin in shadow mode would decide, if that is wanted. The question goes on without its caller.
func (d *bound) watch(ctx context.Context, call *flight.Call[key, Answer], wanted bool) Answer {
	switch {
	case call == nil:
		return d.effect(d.failed(failedBusy, "too many questions are in flight"))
	case !wanted:
		return Answer{Decision: authorizerpb.Decision_DECISION_NO_OPINION, Detail: "shadow: the plugin is being asked, and has no say"}
	}
	select {
	case <-call.Done():
		a, _ := call.Wait(context.Background())
		return d.shadowed(a) // fly has counted it
	case <-ctx.Done():
		return Answer{Decision: authorizerpb.Decision_DECISION_NO_OPINION, Detail: "shadow: it has not answered yet"}
	}
}

// denied returns the answer to a question that failed because of the caller. It is always a denial: a user must not
// bypass a plugin by not waiting for it, by a question that cannot be sent, or by keeping the plugin busy.
func (d *bound) denied(why, detail string) Answer {
	a := d.failed(why, detail)
	a.Decision = authorizerpb.Decision_DECISION_DENY
	return a
}

// encodes reports whether a question can be sent. Kubernetes allows any bytes in paths and in the values of field
// selectors, but protobuf requires UTF-8.
func encodes(q *authorizerpb.AuthorizeRequest) bool {
	_, err := proto.Marshal(q)
	return err == nil
}

// cached returns the cached answer to a question.
func (d *bound) cached(k key) (Answer, bool) {
	if d.spec.CacheTTL <= 0 {
		return Answer{}, false
	}
	return d.cache.get(k, time.Now())
}

// fly asks a question for all callers that have it, and caches the answer.
func (d *bound) fly(ctx context.Context, k key, q *authorizerpb.AuthorizeRequest) (a Answer) {
	if known, hit := d.cached(k); hit {
		return known // an earlier question was answered just now
	}
	ctx, cancel := context.WithTimeout(ctx, d.spec.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			a = d.panicked(r)
		}
		if d.spec.Shadow {
			d.log(a, q)
			d.effect(a) // it counts, though nobody waits
		}
	}()
	a, keep := d.ask(ctx, q)
	if keep > 0 && !a.Failed {
		d.cache.put(k, a, time.Now().Add(keep))
	}
	return a
}

// ask asks the plugin, and returns for how long the answer may be cached.
func (d *bound) ask(ctx context.Context, q *authorizerpb.AuthorizeRequest) (a Answer, keep time.Duration) {
	p := d.plugin
	i, err := p.ready(ctx)
	if err != nil {
		return d.failed(failedDown, err.Error()), 0
	}
	trial, ok := p.circuit.allow()
	if !ok {
		return d.failed(failedCircuit, "it does not answer in time; the circuit breaker is open"), 0
	}
	result := breaker.Unknown
	defer func() {
		if result == breaker.Succeeded && !i.answered.Load() {
			i.answered.Store(true)
		}
		p.circuit.done(trial, result)
	}()
	place, err := p.room.enter(ctx, q.GetUser().GetName())
	switch {
	case errors.Is(err, errShare):
		return d.denied(failedBusy, err.Error()), 0
	case err != nil:
		return d.failed(failedBusy, "it is answering as many questions as it may"), 0
	}
	defer p.room.leave(place)
	d.metrics.inFlight.Inc()
	defer d.metrics.inFlight.Dec()
	start := time.Now()
	answer, err := i.client.Authorize(ctx, q)
	d.metrics.duration.Observe(time.Since(start).Seconds())
	switch code := status.Code(err); {
	case err == nil:
		result = breaker.Succeeded
		return d.read(answer)
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || code == codes.DeadlineExceeded: // the plugin's clock may be first
		result = breaker.Failed
		return d.failed(failedTimeout, fmt.Sprintf("no answer within %s", d.spec.Timeout)), 0
	case ctx.Err() != nil:
		return Answer{Decision: d.fails, Reason: unavailable(d.spec.Name), Detail: "the question was given up", Failed: true}, 0
	case code == codes.Unavailable:
		result = breaker.Failed
		return d.failed(failedLost, message(err)), 0
	case code == codes.Internal && !encodes(q):
		return d.denied(failedError, "the question cannot be sent: some text in it is not UTF-8"), 0
	default:
		result = breaker.Succeeded
		return d.failed(failedError, fmt.Sprintf("%s: %s", code, message(err))), 0
	}
}

// read validates the answer of a plugin, and returns for how long it may be cached.
func (d *bound) read(r *authorizerpb.AuthorizeResponse) (Answer, time.Duration) {
	if _, known := labels[r.GetDecision()]; !known {
		return d.failed(failedAnswer, fmt.Sprintf("the decision %s is unknown", r.GetDecision())), 0
	}
	keep := d.spec.CacheTTL
	if ttl := r.GetCacheTtl(); ttl != nil {
		if err := ttl.CheckValid(); err != nil || ttl.AsDuration() < 0 {
			return d.failed(failedAnswer, fmt.Sprintf("the cache_ttl %s is not a valid duration", ttl)), 0
		}
		keep = min(keep, ttl.AsDuration())
	}
	return Answer{Decision: r.GetDecision(), Reason: cut(r.GetReason())}, keep
}

func cut(reason string) string {
	if len(reason) <= reasonBytes {
		return reason
	}
	end := reasonBytes - len("…")
	for !utf8.RuneStart(reason[end]) {
		end--
	}
	return strings.Clone(reason[:end]) + "…"
}

// failed counts and logs a failure, and returns the answer of the failure policy, before shadow mode.
func (d *bound) failed(why, detail string) Answer {
	d.metrics.failures.WithLabelValues(why).Inc()
	if dropped, ok := d.plugin.failures.take(); ok && why != failedCanceled {
		d.plugin.log.Warn("a plugin has not decided", withDropped(dropped, "reason", why, "error", detail)...)
	}
	return Answer{Decision: d.fails, Reason: unavailable(d.spec.Name), Detail: detail, Failed: true}
}

func (d *bound) panicked(r any) Answer {
	d.plugin.log.Error("asking a plugin panicked", "panic", r, "stack", string(debug.Stack()))
	return d.failed(failedPanic, fmt.Sprintf("asking it panicked: %v", r))
}

// effect counts an answer, and returns the answer to the request: in shadow mode, it has no effect.
func (d *bound) effect(a Answer) Answer {
	d.metrics.decisions[a.Decision].Inc()
	if !d.spec.Shadow {
		return a
	}
	return d.shadowed(a)
}

// shadowed returns an answer without an opinion, whose detail is the decision of a plugin in shadow mode.
func (d *bound) shadowed(a Answer) Answer {
	a.Detail = strings.TrimSuffix(fmt.Sprintf("shadow: it would be %s: %s", labels[a.Decision], cmp.Or(a.Detail, a.Reason)), ": ")
	a.Decision, a.Reason = authorizerpb.Decision_DECISION_NO_OPINION, ""
	return a
}

// withDropped adds to the attributes of a log record how many records were dropped before it.
func withDropped(dropped int, attrs ...any) []any {
	if dropped > 0 {
		attrs = append(attrs, "dropped", dropped)
	}
	return attrs
}

// log logs what a plugin in shadow mode would have decided, and for whom.
func (d *bound) log(a Answer, q *authorizerpb.AuthorizeRequest) {
	if a.Failed || a.Decision == authorizerpb.Decision_DECISION_NO_OPINION {
		return
	}
	if dropped, ok := d.plugin.failures.take(); ok {
		d.plugin.log.Info("a plugin in shadow mode has decided", withDropped(dropped, "decision", labels[a.Decision], "reason", a.Reason,
			"user", short(q.GetUser().GetName()), "verb", short(q.GetVerb()), "target", short(target(q)))...)
	}
}

// target returns the target of a question as people write it: databases/status.example.com shop/orders.
func target(q *authorizerpb.AuthorizeRequest) string {
	r := q.GetResource()
	if r == nil {
		return q.GetPath()
	}
	named := func(sep, part string) string {
		if part == "" {
			return ""
		}
		return sep + part
	}
	on := r.GetResource() + named("/", r.GetSubresource()) + named(".", r.GetGroup())
	return on + named(" ", strings.TrimPrefix(r.GetNamespace()+named("/", r.GetName()), "/"))
}

// short cuts a text for the log: names in a request can have any length.
func short(text string) string { return fmt.Sprintf("%.256s", text) }
