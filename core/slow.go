package core

import (
	"time"

	"golang.org/x/time/rate"
	"stele.dev/stele/core/status"
)

// A request that took longer than slowAfter is logged, with the time of each stage; of many, the log has slowBurst at once and then one
// in slowEvery. Watches, and other requests that go on for as long as their clients want, are not slow.
const (
	slowAfter = time.Second
	slowBurst = 20
	slowEvery = time.Second
)

func newSlowLimit() *rate.Limiter { return rate.NewLimiter(rate.Every(slowEvery), slowBurst) }

// logSlow logs a request that was slow.
func (p *Pipeline) logSlow(r *Request, took time.Duration) {
	if took < slowAfter || r.Info == nil {
		return
	}
	if _, limited := r.HTTP.Context().Deadline(); !limited || !p.slow.Allow() {
		return
	}
	user, slowest := "", 0
	if r.User != nil {
		user = status.Brief(r.User.GetName())
	}
	for i := range path {
		if r.Timings.Took(i) > r.Timings.Took(slowest) {
			slowest = i
		}
	}
	p.logger.Warn("a request was slow", "auditID", r.AuditID, "method", r.HTTP.Method, "path", r.HTTP.URL.Path, "user", user, "code", r.W.Code,
		"took", took.Round(time.Millisecond), "stage", path[slowest].name, "microseconds", r.Timings.String(),
		"waitedForSeats", r.Flow.Waited.Round(time.Millisecond), "waitedForReviewers", r.paused().Round(time.Millisecond))
}
