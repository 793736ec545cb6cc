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

// reasonBytes is how long a reason may be; what is longer is cut.
const reasonBytes = 1 << 10

// Answer is what a plugin said, or what it comes to that it didn't: the failure policy and shadow mode are
// applied.
type Answer struct {
	Decision authorizerpb.Decision
	// Reason is for the caller: the plugin's own, or that it cannot be asked. Detail is for operators.
	Reason, Detail string
	// Failed answers are not the plugin's, Cached ones were given before.
	Failed, Cached bool
}

// Binding is the plugins of one policy. What is kept of their answers is kept by binding, and so goes with the policy. It
// is safe for concurrent use.
type Binding struct {
	host     *Host
	plugins  map[string]*bound
	inUse    bool // guarded by the host, as the next
	released bool
}

// Use says that the policy is in force: Health tells of its plugins.
func (b *Binding) Use() {
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	b.inUse = !b.released
}

// Release says that the policy is not in force any more. What no other binding needs lingers, answers what is in
// flight, and is killed.
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

// Authorize asks a plugin, and returns within its timeout, or denies when ctx is done. A question that was answered lately or is being
// answered is not asked again. The question must not be changed, also not afterwards.
func (b *Binding) Authorize(ctx context.Context, name string, q *authorizerpb.AuthorizeRequest) Answer {
	return b.decide(ctx, name, q, false)
}

// Explain is Authorize that waits for plugins in shadow mode, too: its answer has in Detail what they would have decided.
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

// bound is a plugin as one policy has it.
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
	m.up.WithLabelValues(spec.Name) // also of one that never starts
	for decision, label := range labels {
		d.metrics.decisions[decision] = m.decisions.WithLabelValues(spec.Name, label, mode)
	}
	return d
}

// labels are the decisions that there are: every other number is a failure.
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
		a = d.callers(d.failed(failedCanceled, "the request was given up: "+err.Error()))
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

// callers is a failure that is the caller's doing: nobody gets past a plugin by not waiting for it, by asking for
// what it cannot be asked, or by keeping it busy themselves.
func (*bound) callers(a Answer) Answer {
	a.Decision = authorizerpb.Decision_DECISION_DENY
	return a
}

// encodes tells whether a question can be sent. Where Kubernetes takes any bytes, as in paths and in the values of
// field selectors, protobuf wants UTF-8.
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

// ask asks the plugin, and says for how long the answer may be kept.
func (d *bound) ask(ctx context.Context, q *authorizerpb.AuthorizeRequest) (a Answer, keep time.Duration) {
	p := d.plugin
	i, err := p.ready(ctx)
	if err != nil {
		return d.failed(failedDown, err.Error()), 0
	}
	trial, ok := p.circuit.allow()
	if !ok {
		return d.failed(failedCircuit, "it doesn't answer in time: questions are not asked for a while"), 0
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
		return d.callers(d.failed(failedBusy, err.Error())), 0
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
		return d.callers(d.failed(failedError, "the question is not one that can be sent: some text in it is not UTF-8")), 0
	default:
		result = breaker.Succeeded
		return d.failed(failedError, fmt.Sprintf("%s: %s", code, message(err))), 0
	}
}

// read takes the answer of a plugin for what it is worth.
func (d *bound) read(r *authorizerpb.AuthorizeResponse) (Answer, time.Duration) {
	if _, known := labels[r.GetDecision()]; !known {
		return d.failed(failedAnswer, fmt.Sprintf("the decision %s is not known", r.GetDecision())), 0
	}
	keep := d.spec.CacheTTL
	if ttl := r.GetCacheTtl(); ttl != nil {
		if err := ttl.CheckValid(); err != nil || ttl.AsDuration() < 0 {
			return d.failed(failedAnswer, fmt.Sprintf("the cache_ttl %s is no duration that there is", ttl)), 0
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

// failed is what a failure comes to, before shadow mode.
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

// effect counts an answer and is what it comes to for the request.
func (d *bound) effect(a Answer) Answer {
	d.metrics.decisions[a.Decision].Inc()
	if !d.spec.Shadow {
		return a
	}
	return d.shadowed(a)
}

// shadowed is what an answer comes to that has no effect.
func (d *bound) shadowed(a Answer) Answer {
	a.Detail = strings.TrimSuffix(fmt.Sprintf("shadow: it would be %s: %s", labels[a.Decision], cmp.Or(a.Detail, a.Reason)), ": ")
	a.Decision, a.Reason = authorizerpb.Decision_DECISION_NO_OPINION, ""
	return a
}

// withDropped are attributes of a record before which others were left out.
func withDropped(dropped int, attrs ...any) []any {
	if dropped > 0 {
		attrs = append(attrs, "dropped", dropped)
	}
	return attrs
}

// log says what a plugin in shadow mode would have done, and to whom.
func (d *bound) log(a Answer, q *authorizerpb.AuthorizeRequest) {
	if a.Failed || a.Decision == authorizerpb.Decision_DECISION_NO_OPINION {
		return
	}
	if dropped, ok := d.plugin.failures.take(); ok {
		d.plugin.log.Info("a plugin in shadow mode has decided", withDropped(dropped, "decision", labels[a.Decision], "reason", a.Reason,
			"user", short(q.GetUser().GetName()), "verb", short(q.GetVerb()), "target", short(target(q)))...)
	}
}

// target is what a question is about, as people write it: databases/status.example.com shop/orders.
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

// short is for the log: a request can have names of any length.
func short(text string) string { return fmt.Sprintf("%.256s", text) }
