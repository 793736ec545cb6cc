package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/limits/fairqueue"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
)

// The response headers with the UIDs of the flow schema and the priority level, in their canonical form.
const (
	schemaHeader = "X-Kubernetes-Pf-Flowschema-Uid"
	levelHeader  = "X-Kubernetes-Pf-Prioritylevel-Uid"
)

const (
	// maxWait bounds the time in a queue, and watchWait that of a watch, which has no deadline.
	maxWait   = time.Minute
	watchWait = 15 * time.Second
)

// watch is the verb of watches.
const watch = "watch"

// Classify sets the flow of a request that is explained, and its response headers. It takes no seats, and sets how many the
// request would take.
func (c *Control) Classify(r *call.Call) {
	c.classify(r, c.find(r.Tip, true))
	work := c.cost(r) // as in Take
	r.Flow.Would = max(1, work.Seats, work.FinalSeats)
}

func (c *Control) classify(r *call.Call, x *config) *schema {
	i := r.Info
	q := policy.Request{User: r.User.GetName(), Groups: r.User.GetGroups(), Verb: i.Verb, IsResource: i.IsResourceRequest,
		Group: i.APIGroup, Resource: i.Resource, Subresource: i.Subresource, Namespace: i.Namespace, Path: i.Path}
	r.Flow.Schema = x.table.Classify(&q)
	r.Flow.Distinguisher = r.Flow.Schema.Distinguish(&q)
	if byNamespace(r.Flow.Schema) && i.Namespace != "" && r.Tip.Objects.Get(commit.Namespaces, "", i.Namespace) == nil {
		r.Flow.Distinguisher = NoNamespace
	}
	r.Flow.Asked = call.Asked{User: q.User, Info: i}
	s := x.schemas[r.Flow.Schema]
	h := r.W.Header()
	h[schemaHeader], h[levelHeader] = s.uid, s.levelUID
	return s
}

// NoNamespace is the distinguisher of requests for namespaces that do not exist, in flow schemas that distinguish by namespace.
// They are one flow: a client may name any number of such namespaces, and would have as many flows.
const NoNamespace = "(no such namespace)"

func byNamespace(s *flows.Schema) bool { return s.Distinguisher == "ByNamespace" }

// Take classifies a request and takes seats for it, see [call.Flow]. It may wait. It returns an error with code 429 if there
// are no seats for the request, or if its flow has too many watches.
func (c *Control) Take(ctx context.Context, r *call.Call) error {
	s := c.classify(r, c.find(r.Tip, false))
	f := &r.Flow
	work := c.cost(r) // if this panics, nothing is counted yet
	if r.Info.Verb == watch && !s.watches.add(f.Distinguisher, s.Watches) {
		return s.refuse(r, WatchLimit)
	}
	m := s.series.handles()
	arrived := time.Now()
	f.Ticket.Details = &f.Asked
	waits := (*peak)(nil)
	err := s.level.set.Take(ctx, &f.Ticket, fairqueue.Flow{Schema: s.Name, Distinguisher: f.Distinguisher}, work, limit(ctx, r, arrived), func() {
		waits = c.inflight.waiting.of(r)
		waits.add(1, arrived)
	})
	now := time.Now()
	if waits != nil {
		waits.add(-1, now)
	}
	f.Waited = now.Sub(arrived)
	m.seats.Observe(float64(f.Ticket.Seats()))
	if n := f.Ticket.QueueLength(); n > 0 {
		m.queueLength.Observe(float64(n))
		m.noAccommodation.Inc()
	}
	if err != nil {
		m.refusedAfter.Observe(now.Sub(arrived).Seconds())
		if r.Info.Verb == watch {
			s.watches.remove(f.Distinguisher)
		}
		reason := fairqueue.Cancelled
		if refused := (*fairqueue.RefusedError)(nil); errors.As(err, &refused) {
			reason = refused.Reason
		}
		return s.refuse(r, reason)
	}
	if !s.level.exempt {
		m.dispatchedAfter.Observe(now.Sub(arrived).Seconds())
	}
	m.dispatched.Inc()
	f.Taken, f.Started, f.Seated = s, now, seated
	c.inflight.running.of(r).add(1, now)
	return nil
}

// limit returns how long a request may wait, as in kube-apiserver: a quarter of the time that it has, and a minute at most.
func limit(ctx context.Context, r *call.Call, now time.Time) time.Duration {
	wait := watchWait
	if r.Info.Verb != watch {
		if deadline, ok := ctx.Deadline(); ok {
			wait = min(deadline.Sub(r.Received)/4, maxWait)
		}
	}
	return max(wait-now.Sub(r.Received), 1)
}

// Release gives back the seats of a request.
func (s *schema) Release(r *call.Call) {
	f := &r.Flow
	if !atomic.CompareAndSwapInt32(&f.Seated, seated, 0) && !atomic.CompareAndSwapInt32(&f.Seated, pausing, 0) {
		return
	}
	f.Ticket.Release()
	m := s.series.handles()
	execution := m.execution
	if r.Info.Verb == watch {
		execution = m.watchExecution
	}
	now := time.Now()
	execution.Observe(now.Sub(f.Started).Seconds())
	s.control.inflight.running.of(r).add(-1, now)
}

// The values of Seated of a request that has seats, and of one that will take them again.
const (
	seated  = 1
	pausing = 2
)

// Pause gives back the seats of a request until resume is called.
func (s *schema) Pause(r *call.Call) (resume func()) {
	f := &r.Flow
	if !atomic.CompareAndSwapInt32(&f.Seated, seated, pausing) {
		return func() {}
	}
	f.Ticket.Pause()
	return func() {
		if atomic.CompareAndSwapInt32(&f.Seated, pausing, seated) {
			f.Ticket.Resume()
		}
	}
}

// End forgets the watch of a request.
func (s *schema) End(r *call.Call) {
	if r.Info.Verb == watch {
		s.watches.remove(r.Flow.Distinguisher)
	}
}

// watches counts the open watches of a flow schema by distinguisher.
type watches struct {
	mu   sync.Mutex
	open map[string]int
}

// add counts one more, and reports whether there were fewer than the limit; 0 is no limit.
func (w *watches) add(distinguisher string, limit int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.open[distinguisher]
	if limit > 0 && n >= limit {
		return false
	}
	w.open[distinguisher] = n + 1
	return true
}

func (w *watches) remove(distinguisher string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.open[distinguisher]; n > 1 {
		w.open[distinguisher] = n - 1
	} else {
		delete(w.open, distinguisher)
	}
}

// count returns the number of open watches.
func (w *watches) count() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.open {
		n += x
	}
	return n
}

// WatchLimit is the reason of refused watches, beside those of package fairqueue.
const WatchLimit = "watch-limit"

// refuse counts a refused request and returns its error.
func (s *schema) refuse(r *call.Call, reason string) error {
	now := time.Now()
	s.control.metrics.rejected.WithLabelValues(s.level.name, s.Name, reason).Inc()
	s.control.refused.add(s.Name, r.Flow.Distinguisher, reason, now)
	if reason == WatchLimit {
		s.level.watchesRefused.Add(1)
	}
	after := s.level.backoff.refused(now)
	distinguisher := r.Flow.Distinguisher
	if byNamespace(s.Schema) {
		distinguisher = r.Info.Namespace // the message must not say whether it exists
	}
	known := slices.Contains(r.User.GetGroups(), user.AllAuthenticated)
	err := status.TooManyRequests(s.explain(reason, distinguisher, known))
	d := err.ErrStatus.Details
	d.Group, d.Kind, d.Name, d.RetryAfterSeconds = r.Info.APIGroup, r.Info.Resource, r.Info.Name, int32(after)
	cause := metav1.StatusCause{Type: metav1.CauseType(reason), Message: fmt.Sprintf("flow schema %q", s.Name)}
	if known {
		cause.Field = s.Source.String()
	}
	d.Causes = []metav1.StatusCause{cause}
	return err
}

// explain returns the message of a refusal: what is full, which flow schema and level it is of, and what to do. Only a known user
// gets the file and line of the flow schema.
func (s *schema) explain(reason, distinguisher string, known bool) string {
	of := fmt.Sprintf("flow schema %q", s.Name)
	if !s.Builtin && known {
		of += fmt.Sprintf(" (%s)", s.Source)
	}
	flow := of
	switch s.Distinguisher {
	case "ByUser":
		flow = fmt.Sprintf("user %q in %s", distinguisher, of)
	case "ByNamespace":
		flow = fmt.Sprintf("namespace %q in %s", distinguisher, of)
		if distinguisher == "" {
			flow = fmt.Sprintf("requests outside of namespaces in %s", of)
		}
	}
	level := fmt.Sprintf("priority level %q", s.level.name)
	switch reason {
	case WatchLimit:
		each := ""
		switch s.Distinguisher {
		case "ByUser":
			each = " for each user"
		case "ByNamespace":
			each = " for each namespace"
		}
		return fmt.Sprintf("limited to %d watches%s by %s; close some, or raise watches in the flow schema", s.Watches, each, of)
	case fairqueue.QueueFull:
		return fmt.Sprintf("too many requests of %s wait for seats of %s; send fewer at a time and try again later, or raise queueLengthLimit or nominalConcurrencyShares of the priority level", flow, level)
	case fairqueue.ConcurrencyLimit:
		return fmt.Sprintf("too many requests of %s: all seats of %s are taken, and it has no queues; try again later, or raise nominalConcurrencyShares of the priority level", flow, level)
	case fairqueue.TimeOut:
		return fmt.Sprintf("the request of %s waited too long for seats of %s; try again later, or raise nominalConcurrencyShares of the priority level", flow, level)
	}
	return fmt.Sprintf("the request of %s was canceled while it waited for seats of %s", flow, level)
}
