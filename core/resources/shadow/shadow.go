// Package shadow lets a proposed policy decide beside the one in force. Requests are decided again after they were
// answered, on the state on which they were decided, and the differences are counted and grouped. Nothing else changes:
// neither answers nor the log. A shadow is held in the memory of one server. Clients start, read and end it as a virtual
// resource, shadows of policy.stele.dev/v1.
package shadow

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/read"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// Limits of the queue and of the table of differences.
const (
	// maxWaiting and maxBytes limit the requests that wait, by number and by size.
	maxWaiting = 4096
	maxBytes   = 16 << 20
	// overhead is the size of a request that waits, without its body.
	overhead = 1 << 10
	// maxGroups limits the groups of differences.
	maxGroups = 1000
	// maxReasons limits the reasons why requests could not be decided.
	maxReasons = 20
	// patience is how long one request may take to be decided again.
	patience = 10 * time.Second
)

// Seen is an answered request: what it asked for, and how the policy in force decided it. It never changes.
type Seen struct {
	decide.Question
	Verdict decide.Verdict
}

// size is how much memory a request takes, about.
func (s *Seen) size() int {
	n := overhead
	if s.Body != nil {
		n += len(s.Body.Raw)
	}
	return n
}

// Outcomes of comparisons.
const (
	outcomeSame      = "same"
	outcomeRefused   = "refused"
	outcomeAllowed   = "allowed"
	outcomeUndecided = "undecided"
	outcomeDropped   = "dropped"
)

// Shadows holds the shadow of a server, if there is one. It is safe for concurrent use.
type Shadows struct {
	decide  decide.Engine
	logger  *slog.Logger
	running atomic.Pointer[running]
	counter *prometheus.CounterVec
	counts  map[string]prometheus.Counter
}

// New returns Shadows without a shadow. It asks the engine in one goroutine at a time.
func New(engine decide.Engine, logger *slog.Logger) *Shadows {
	s := &Shadows{decide: engine, logger: logger, counts: map[string]prometheus.Counter{}}
	s.counter = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stele_shadow_requests_total", Help: "Requests that a proposed policy decided beside the policy in force, by outcome: same, refused or allowed by the proposed policy only, undecided, or dropped because too many were waiting.",
	}, []string{"outcome"})
	for _, outcome := range []string{outcomeSame, outcomeRefused, outcomeAllowed, outcomeUndecided, outcomeDropped} {
		s.counts[outcome] = s.counter.WithLabelValues(outcome)
	}
	return s
}

// Collector returns the metrics.
func (s *Shadows) Collector() prometheus.Collector { return s.counter }

// Active reports whether there is a shadow.
func (s *Shadows) Active() bool { return s.running.Load() != nil }

// Offer queues an answered request, or counts it as dropped if too many are waiting. It ends the shadow if its policy has
// come into force.
func (s *Shadows) Offer(seen *Seen) {
	if r := s.shadowAt(seen.Tip); r != nil {
		r.offer(seen)
	}
}

// shadowAt returns the shadow, nil if there is none. It ends the shadow if its policy has come into force at the tip.
func (s *Shadows) shadowAt(tip *commit.Tip) *running {
	r := s.running.Load()
	if r == nil || tip.ActivationRevision() <= r.since || tip.Policy.Digest() != r.proposed.Digest() {
		return r
	}
	s.end(r, "its policy is in force")
	return nil
}

// start starts a shadow. It returns false if there is one.
func (s *Shadows) start(r *running) bool {
	if !s.running.CompareAndSwap(nil, r) {
		return false
	}
	s.logger.Info("a shadow policy decides beside the policy in force", "digest", r.proposed.DigestString(), "user", r.shadow.Status.User)
	return true
}

// end ends a shadow, and drops the requests that wait. It returns false if it has ended before.
func (s *Shadows) end(r *running, why string) bool {
	if !s.running.CompareAndSwap(r, nil) {
		return false
	}
	r.stop()
	found := r.status(func(string) shown { return messages }).Requests
	s.logger.Info("the shadow policy has ended", "digest", r.proposed.DigestString(), "why", why,
		"same", found.Same, "refused", found.Refused, "allowed", found.Allowed, "undecided", found.Undecided, "dropped", found.Dropped)
	return true
}

// running is a shadow. Its goroutine runs while requests wait.
type running struct {
	of       *Shadows
	shadow   *Shadow // without counts
	proposed *policy.Policy
	asked    *policy.Policy // the same, without its authorizers outside of it
	since    uint64         // the revision of the policy in force when it was started
	// layered is asked with what clients had brought at the policy revision layeredAt.
	layered   *policy.Policy
	layeredAt uint64
	ctx       context.Context
	stop      context.CancelFunc

	mu      sync.Mutex
	queue   []entry
	bytes   int // of the queue
	working bool
	found   found
}

// entry is a request that waits, or a mark that is closed when all before it are decided.
type entry struct {
	seen *Seen
	mark chan struct{}
}

// newRunning returns a shadow that is not started.
func newRunning(of *Shadows, shadow *Shadow, proposed, asked *policy.Policy, since uint64) *running {
	r := &running{of: of, shadow: shadow, proposed: proposed, asked: asked, since: since, found: newFound()}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

func (r *running) offer(seen *Seen) {
	n := seen.size()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= maxWaiting || r.bytes+n > maxBytes {
		r.count("", outcomeDropped)
		return
	}
	r.bytes += n
	r.add(entry{seen: seen})
}

// add adds to the queue, and starts the goroutine if it does not run. r.mu must be held.
func (r *running) add(e entry) {
	r.queue = append(r.queue, e)
	if !r.working {
		r.working = true
		go r.work()
	}
}

// count counts a request about a kind. r.mu must be held.
func (r *running) count(kind, outcome string) {
	r.of.counts[outcome].Inc()
	r.found.about(kind).count(outcome)
}

// kindOf returns the stored kind that a request is about; "" if it is about none.
func (r *running) kindOf(seen *Seen) string {
	of := schema.GroupResource{Group: seen.Info.APIGroup, Resource: seen.Info.Resource}
	if !seen.Info.IsResourceRequest || (seen.Tip.Policy == nil || seen.Tip.Policy.Kind(of) == nil) && r.proposed.Kind(of) == nil {
		return ""
	}
	return of.String()
}

// work decides the requests that wait, until none does or the shadow ends.
func (r *running) work() {
	for {
		e, ok := r.nextEntry()
		switch {
		case !ok:
			return
		case e.mark != nil:
			close(e.mark)
		default:
			is := r.decide(e.seen)
			if r.ctx.Err() == nil {
				r.record(e.seen, is)
			}
		}
	}
}

func (r *running) nextEntry() (e entry, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		for _, e := range r.queue {
			if e.mark != nil {
				close(e.mark)
			}
		}
		r.queue, r.bytes = nil, 0
	}
	if len(r.queue) == 0 {
		r.working = false
		return entry{}, false
	}
	e = r.queue[0]
	r.queue[0] = entry{}
	r.queue = r.queue[1:]
	if e.seen != nil {
		r.bytes -= e.seen.size()
	}
	return e, true
}

// over returns the proposed policy with what clients have brought at a tip. Only the goroutine of the shadow calls it.
func (r *running) over(tip *commit.Tip) *policy.Policy {
	if tip.Policy == nil || tip.Policy.Brought() == nil {
		return r.asked
	}
	if rev := tip.PolicyRevision(); r.layered == nil || r.layeredAt != rev {
		r.layered, r.layeredAt = commit.Layered(r.asked, r.layered, func(schema.GroupResource) *objects.State { return tip.Objects }, func(schema.GroupResource, string, error) {}), rev
	}
	return r.layered
}

// decide decides a request under the proposed policy. A panic makes it unknown.
func (r *running) decide(seen *Seen) (v decide.Verdict) {
	if seen.Verdict.Unknown != "" {
		return seen.Verdict
	}
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			r.of.logger.Error("a request could not be decided by the shadow policy", "auditID", seen.AuditID, "panic", fmt.Sprint(p))
			v = decide.Verdict{Unknown: "it failed inside the server; see the server's log"}
		}
	}()
	v = r.of.decide(ctx, &seen.Question, r.over(seen.Tip))
	if len(v.Reviewers) > 0 {
		return decide.Verdict{Unknown: decide.Reviewed}
	}
	return v
}

// record counts a request that was decided again.
func (r *running) record(seen *Seen, is decide.Verdict) {
	was, kind := &seen.Verdict, r.kindOf(seen)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case is.Unknown != "":
		r.count(kind, outcomeUndecided)
		r.found.about(kind).undecided(is.Unknown)
	case (was.Stage == "") == (is.Stage == ""):
		r.count(kind, outcomeSame)
	case is.Stage != "":
		r.count(kind, outcomeRefused)
		r.found.add(seen, kind, true, &is)
	default:
		r.count(kind, outcomeAllowed)
		by := *was
		if !read.Quotes(was.Stage) || was.Stage == "conditions" {
			by.Rule, by.Source = is.Rule, is.Source // the grant, not what lacks it
		}
		r.found.add(seen, kind, false, &by)
	}
}

// await waits until the requests that were offered before are decided, but not for long.
func (r *running) await(ctx context.Context) {
	mark := make(chan struct{})
	r.mu.Lock()
	if !r.working || r.ctx.Err() != nil {
		r.mu.Unlock()
		return
	}
	r.add(entry{mark: mark})
	r.mu.Unlock()
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-mark:
	case <-timer.C:
	case <-ctx.Done():
	case <-r.ctx.Done():
	}
}

// kinds returns the kinds of which requests were seen.
func (r *running) kinds() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind := range r.found.of {
		if kind != "" {
			list = append(list, kind)
		}
	}
	return list
}

// status returns what was found, as far as a reader may know it.
func (r *running) status(may func(kind string) shown) Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shadow.Status
	r.found.writeStatus(&s, may)
	for _, e := range r.queue {
		if e.seen != nil {
			s.Waiting++
		}
	}
	return s
}
