package decisions

import (
	"net/http"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// CountFailures counts the failed authentications of a minute: by network, and those of all other networks by class. The
// reason of a count has the credential and what was wrong with it, such as "jwt: expired". Run then writes the counts
// without waiting for the end of its own minute.
func (r *Recorder) CountFailures(f *authn.FailureRecord) {
	if r == nil {
		return
	}
	known := map[string]uint64{} // by reason
	for _, s := range f.Sources {
		r.countFailure(s.Source, &s, s.Count)
		known[reasonOf(&s)] += s.Count
	}
	for _, c := range f.Classes {
		if rest := c.Count - min(c.Count, known[reasonOf(&c)]); rest > 0 {
			r.countFailure("", &c, rest)
		}
	}
	signal(r.counted)
}

func reasonOf(c *authn.FailureCount) string { return c.Method + ": " + c.Reason }

func (r *Recorder) countFailure(network string, f *authn.FailureCount, n uint64) {
	if n == 0 {
		return
	}
	m := &logpb.Metadata{
		Request: &logpb.Request{Status: http.StatusUnauthorized},
		Detail:  &logpb.Metadata_Decision{Decision: &logpb.Decision{Outcome: logpb.Outcome_OUTCOME_UNAUTHENTICATED, Stage: "authentication", Reason: reasonOf(f)}},
	}
	if network != "" {
		m.Request.SourceIps = []string{network}
	}
	r.counts.merge(alikeOf(&eventlog.Event{Meta: m}), "", counter{n, f.First, f.Last})
	r.metrics.counted.Add(float64(n))
}
