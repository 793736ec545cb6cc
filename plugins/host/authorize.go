package host

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/limits/flight"
	"stele.dev/stele/plugins/authorizerpb"
)

// Answer is the decision of a plugin or, if the plugin failed, of its failure policy. Shadow mode has been applied.
type Answer struct {
	Decision authorizerpb.Decision
	// Reason is for the user: the plugin's own, or that it is unavailable. Detail is for operators.
	Reason, Detail string
	// Failed is set if the plugin made no decision, Cached if the decision comes from the cache.
	Failed, Cached bool
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
	bound := b.plugins[name]
	if bound == nil {
		return Answer{
			Decision: authorizerpb.Decision_DECISION_DENY, Failed: true,
			Reason: unavailable(name), Detail: "the policy has no such plugin",
		}
	}
	d := bound.authorizer
	defer func() {
		if r := recover(); r != nil {
			a = d.effect(d.failed(d.panicked(r)))
		}
	}()
	return d.authorize(ctx, q, shadows)
}

func unavailable(name string) string { return fmt.Sprintf("authorizer plugin %q is unavailable", name) }

// authorizer asks a plugin to authorize requests.
type authorizer struct {
	*bound
	fails     authorizerpb.Decision
	decisions [authorizerpb.Decision_DECISION_DENY + 1]prometheus.Counter
	coalesced prometheus.Counter

	cache   cache[Answer]
	flights flight.Group[key, Answer]
}

func newAuthorizer(b *bound) *authorizer {
	d := &authorizer{bound: b, fails: authorizerpb.Decision_DECISION_DENY, cache: newCache[Answer]()}
	if b.spec.FailurePolicy == "NoOpinion" {
		d.fails = authorizerpb.Decision_DECISION_NO_OPINION
	}
	m, mode := b.plugin.host.metrics, "enforced"
	if b.spec.Shadow {
		mode = "shadow"
		d.flights.Most = b.plugin.host.options.MaxInFlight // nobody waits for these, so nothing else limits them
	}
	d.coalesced = m.coalesced.WithLabelValues(b.spec.Name)
	for decision, label := range labels {
		d.decisions[decision] = m.decisions.WithLabelValues(b.spec.Name, label, mode)
	}
	return d
}

// labels are the metric labels of the valid decisions: every other number is a failure.
var labels = map[authorizerpb.Decision]string{
	authorizerpb.Decision_DECISION_ALLOW:      "allow",
	authorizerpb.Decision_DECISION_DENY:       "deny",
	authorizerpb.Decision_DECISION_NO_OPINION: "no-opinion",
}

func (d *authorizer) authorize(ctx context.Context, q *authorizerpb.AuthorizeRequest, shadows bool) Answer {
	k := keyOf(q)
	if known, hit := d.cached(k); hit {
		d.metrics.hits.Inc()
		return d.effect(known)
	}
	call, shared := d.flights.Join(withSpan(d.plugin.host.ctx, ctx), k, func(ctx context.Context) (Answer, error) { return d.fly(ctx, k, q), nil })
	if shared {
		d.coalesced.Inc()
	}
	if d.spec.Shadow {
		return d.watch(ctx, call, shadows)
	}
	a, err := call.Wait(ctx)
	if err != nil {
		a = d.failed(&failure{why: failedCanceled, detail: "the request was given up: " + err.Error(), caller: true})
	}
	return d.effect(a)
}

// watch returns what a plugin in shadow mode would decide, if that is wanted. The question goes on without its caller.
func (d *authorizer) watch(ctx context.Context, call *flight.Call[key, Answer], wanted bool) Answer {
	switch {
	case call == nil:
		return d.effect(d.failed(&failure{why: failedBusy, detail: "too many questions are in flight"}))
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

// cached returns the cached answer to a question.
func (d *authorizer) cached(k key) (Answer, bool) {
	if d.spec.CacheTTL <= 0 {
		return Answer{}, false
	}
	a, hit := d.cache.get(k, time.Now())
	a.Cached = hit
	return a, hit
}

// fly asks a question for all callers that have it, and caches the answer.
func (d *authorizer) fly(ctx context.Context, k key, q *authorizerpb.AuthorizeRequest) (a Answer) {
	if known, hit := d.cached(k); hit {
		return known // an earlier question was answered just now
	}
	ctx, cancel := context.WithTimeout(ctx, d.spec.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			a = d.failed(d.panicked(r))
		}
		if d.spec.Shadow {
			d.log(a, q)
			d.effect(a) // it counts, though nobody waits
		}
	}()
	a, keep := d.question(ctx, q)
	if keep > 0 && !a.Failed {
		d.cache.put(k, a, len(a.Reason)+len(a.Detail), time.Now().Add(keep))
	}
	return a
}

// question asks the plugin, and returns for how long the answer may be cached.
func (d *authorizer) question(ctx context.Context, q *authorizerpb.AuthorizeRequest) (Answer, time.Duration) {
	var answer *authorizerpb.AuthorizeResponse
	f := d.ask(ctx, &question{user: q.GetUser().GetName(), message: q, timeout: d.spec.Timeout, ask: func(ctx context.Context, i *instance) (err error) {
		answer, err = i.authorizer.Authorize(ctx, q)
		return err
	}})
	switch {
	case f == nil:
		return d.read(answer)
	case f.why == failedCanceled: // those who asked have counted it
		return Answer{Decision: d.fails, Reason: unavailable(d.spec.Name), Detail: f.detail, Failed: true}, 0
	}
	return d.failed(f), 0
}

// failed counts and logs a failure, and returns the answer of the failure policy, before shadow mode.
func (d *authorizer) failed(f *failure) Answer {
	d.count(f)
	a := Answer{Decision: d.fails, Reason: unavailable(d.spec.Name), Detail: f.detail, Failed: true}
	if f.caller {
		a.Decision = authorizerpb.Decision_DECISION_DENY
	}
	return a
}

// read validates the answer of a plugin, and returns for how long it may be cached.
func (d *authorizer) read(r *authorizerpb.AuthorizeResponse) (Answer, time.Duration) {
	if _, known := labels[r.GetDecision()]; !known {
		return d.failed(&failure{why: failedAnswer, detail: fmt.Sprintf("the decision %s is unknown", r.GetDecision())}), 0
	}
	keep := d.spec.CacheTTL
	if ttl := r.GetCacheTtl(); ttl != nil {
		if err := ttl.CheckValid(); err != nil || ttl.AsDuration() < 0 {
			return d.failed(&failure{why: failedAnswer, detail: fmt.Sprintf("the cache_ttl %s is not a valid duration", ttl)}), 0
		}
		keep = min(keep, ttl.AsDuration())
	}
	return Answer{Decision: r.GetDecision(), Reason: cut(r.GetReason())}, keep
}

// effect counts an answer, and returns the answer to the request: in shadow mode, it has no effect.
func (d *authorizer) effect(a Answer) Answer {
	d.decisions[a.Decision].Inc()
	if !d.spec.Shadow {
		return a
	}
	return d.shadowed(a)
}

// shadowed returns an answer without an opinion, whose detail is the decision of a plugin in shadow mode.
func (d *authorizer) shadowed(a Answer) Answer {
	a.Detail = strings.TrimSuffix(fmt.Sprintf("shadow: it would be %s: %s", labels[a.Decision], cmp.Or(a.Detail, a.Reason)), ": ")
	a.Decision, a.Reason = authorizerpb.Decision_DECISION_NO_OPINION, ""
	return a
}

// log logs what a plugin in shadow mode would have decided, and for whom.
func (d *authorizer) log(a Answer, q *authorizerpb.AuthorizeRequest) {
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
	return targetName(r.GetResource(), r.GetSubresource(), r.GetGroup(), r.GetNamespace(), r.GetName())
}
