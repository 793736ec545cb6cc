package authn

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"stele.dev/stele/limits/connections"
	"stele.dev/stele/limits/lru"
)

// DefaultFailuresPerMinute is how many wrong credentials a source may try in a minute by default.
const DefaultFailuresPerMinute = 120

const (
	// throttledSources and throttledCredentials are how many sources with failures, and wrong credentials, are remembered.
	throttledSources     = 16 << 10
	throttledCredentials = 16 << 10
)

// Throttle limits how many wrong credentials a source may try: then credentials that are not known are refused unchecked,
// until the source has been quiet for some time. A source is as for package connections. Several clients may share one,
// so:
//
//   - A credential that was valid within the last hour is always checked, and that of an open stream.
//   - A credential that was wrong before is refused from half of the limit on. So a client that repeats a wrong one
//     leaves the other half to credentials that were not seen yet.
//
// The limit counts as a bucket that leaks: after a burst, credentials are checked at the rate of the limit. Throttle
// holds no credentials, only hashes with a secret seed. Its memory is bounded. It is safe for concurrent use, and
// implements prometheus.Collector.
type Throttle struct {
	most    float64 // failures in a minute
	seed    maphash.Seed
	valid   RecentHashes
	refused prometheus.Counter

	mu      sync.Mutex // held together with what the caches hold
	sources *lru.Cache[netip.Prefix, *attempts]
	wrong   *lru.Cache[uint64, struct{}]
}

// attempts are the failures of a source. The throttle's mu guards them.
type attempts struct {
	failures float64 // at that time; they decrease
	at       time.Time
	checking float64 // credentials that are being checked
}

// NewThrottle returns a throttle with a limit of failures in a minute, or nil if that is negative: a nil throttle refuses
// nothing. 0 means [DefaultFailuresPerMinute].
func NewThrottle(perMinute int) *Throttle {
	if perMinute < 0 {
		return nil
	}
	perMinute = cmp.Or(perMinute, DefaultFailuresPerMinute)
	return &Throttle{
		most: float64(perMinute), seed: maphash.MakeSeed(),
		sources: lru.New[netip.Prefix, *attempts](throttledSources), wrong: lru.New[uint64, struct{}](throttledCredentials),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stele_authentication_throttled_total", Help: "Credentials that were refused unchecked, after too many failures of their source.",
		}),
	}
}

var throttledSourcesDesc = prometheus.NewDesc("stele_authentication_throttled_sources",
	"Sources (IPv4 addresses, /64 networks of IPv6) whose failed authentications are counted at the moment.", nil, nil)

// Describe implements prometheus.Collector.
func (t *Throttle) Describe(c chan<- *prometheus.Desc) {
	c <- throttledSourcesDesc
	t.refused.Describe(c)
}

// Collect implements prometheus.Collector.
func (t *Throttle) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.MustNewConstMetric(throttledSourcesDesc, prometheus.GaugeValue, float64(t.sources.Len()))
	t.refused.Collect(c)
}

// ThrottledError reports that a credential was refused unchecked.
type ThrottledError struct {
	Source netip.Prefix // may be the zero Prefix
	// After is how long the client should wait before it tries again.
	After time.Duration
	// Why says what there was too much of.
	Why string
}

func (e *ThrottledError) Error() string {
	if !e.Source.IsValid() {
		return e.Why
	}
	from := e.Source.String()
	if e.Source.IsSingleIP() {
		from = e.Source.Addr().String()
	}
	return e.Why + " from " + from
}

// check calls verify for a credential, unless the source of the request has too many failures. hash is of the credential.
// verify returns whether the credential is valid, and an error if it is wrong.
func (t *Throttle) check(r *http.Request, hash uint64, verify func() (valid bool, err error)) error {
	if t == nil {
		_, err := verify()
		return err
	}
	now := time.Now()
	known := t.valid.Has(hash, now) || ofStream(r.Context())
	var a *attempts
	if !known {
		var err error
		if a, err = t.begin(r, hash, now); err != nil {
			t.refused.Inc()
			return &Rejection{Method: ByToken, Reason: Throttled, Err: err}
		}
	}
	valid, err := verify()
	failed := err != nil && isWrong(err)
	switch {
	case valid:
		t.valid.Add(hash, now)
	case failed:
		t.valid.Remove(hash)
		if a == nil {
			a = t.source(r)
		}
	}
	if a != nil {
		t.end(a, hash, failed, known)
	}
	return err
}

// isWrong reports whether an error means that a credential is wrong: not that it could not be checked.
func isWrong(err error) bool {
	_, reason := classify(err)
	return reason != Unavailable && reason != Throttled
}

// source returns the attempts of a request's source.
func (t *Throttle) source(r *http.Request) *attempts {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, _ := t.attempts(sourceOf(r.Context(), r.RemoteAddr))
	return a
}

// attempts returns the attempts of a source. The caller holds mu.
func (t *Throttle) attempts(source netip.Prefix) (a *attempts, found bool) {
	a, found = t.sources.Get(source)
	if !found {
		a = &attempts{}
		t.sources.Add(source, a, 1)
	}
	return a, found
}

func sourceOf(ctx context.Context, remote string) netip.Prefix {
	if source := connections.SourceOf(ctx); source.IsValid() {
		return source
	}
	return connections.Source(remote)
}

// begin counts a check of credentials from the source of a request. It returns an error if the credentials are not checked.
func (t *Throttle) begin(r *http.Request, hash uint64, now time.Time) (*attempts, error) {
	source := sourceOf(r.Context(), r.RemoteAddr)
	t.mu.Lock()
	defer t.mu.Unlock()
	a, found := t.attempts(source)
	if !found {
		a.checking++
		return a, nil
	}
	a.leak(now, t.most)
	most := t.most
	if _, wrong := t.wrong.Get(hash); wrong {
		most /= 2
	}
	// As long as there are few failures, any number may be checked at once: many clients may have come together.
	if over := a.failures + 1 - most; over > 0 || a.failures > t.most/4 && a.failures+a.checking >= t.most {
		return nil, &ThrottledError{source, max(time.Duration(over/t.most*float64(time.Minute)), time.Second), "too many failed authentications"}
	}
	a.checking++
	return a, nil
}

// end ends a check. known means that begin was not called.
func (t *Throttle) end(a *attempts, hash uint64, failed, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !known {
		a.checking--
	}
	if failed {
		a.leak(time.Now(), t.most)
		a.failures++
		t.wrong.Add(hash, struct{}{}, 1)
	}
}

// leak forgets failures: most in a minute.
func (a *attempts) leak(now time.Time, most float64) {
	if !a.at.IsZero() {
		a.failures = max(0, a.failures-now.Sub(a.at).Minutes()*most)
	}
	a.at = now
}

// hashCertificate returns the hash of a client certificate.
func (t *Throttle) hashCertificate(raw []byte) uint64 {
	if t == nil {
		return 0
	}
	return maphash.Bytes(t.seed, raw)
}

// hashToken returns the hash of the headers that may have a token.
func (t *Throttle) hashToken(h http.Header) uint64 {
	if t == nil {
		return 0
	}
	authorization, protocols := h["Authorization"], h["Sec-Websocket-Protocol"]
	if len(authorization) == 1 && len(protocols) == 0 {
		return maphash.String(t.seed, authorization[0])
	}
	var all maphash.Hash
	all.SetSeed(t.seed)
	for _, values := range [][]string{authorization, protocols} {
		for _, v := range values {
			_, _ = all.WriteString(v)
			_ = all.WriteByte(0)
		}
	}
	return all.Sum64()
}

// throttledIn returns the first ThrottledError in an error, nil if there is none.
func throttledIn(err error) *ThrottledError {
	var all utilerrors.Aggregate // errors.As does not look into it
	var throttled *ThrottledError
	if errors.As(err, &all) {
		for _, e := range all.Errors() {
			if throttled = throttledIn(e); throttled != nil {
				return throttled
			}
		}
		return nil
	}
	errors.As(err, &throttled)
	return throttled
}
