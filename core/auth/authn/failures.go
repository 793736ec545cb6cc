package authn

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/limits/steady"
)

// FailureOptions are the options of [NewFailureLog].
type FailureOptions struct {
	// Record gets the record of each window with a failure; nil to record nothing.
	Record func(*FailureRecord)
	Logger *slog.Logger // may be nil
}

// failureWindow is the time that one record covers.
const failureWindow = time.Minute

// FailureLog counts failed authentications and reports them in sum: for each window with a failure, one log message
// and one [FailureRecord]. It contains no part of a credential, and nothing that a client can choose, except its address.
//
// A failed authentication changes nothing, so it is not an event of the log of record; otherwise, anyone without a
// credential could fill the log.
//
// A failure costs a lookup in a small table. The memory is fixed, regardless of the number of failures and addresses.
// FailureLog implements [Failures], [Attempts] and prometheus.Collector, and is safe for concurrent use; Run is for
// one goroutine.
type FailureLog struct {
	options  FailureOptions
	totals   [methods][reasons]atomic.Uint64 // since the start
	attempts *prometheus.CounterVec
	users    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	// looked up once, because they are used for each request
	known, unknown, wrong attempted
	kinds                 map[string]prometheus.Counter // by type of user

	mu     sync.Mutex
	window window // guarded by mu, which is not held while writing
}

// attempted has the metrics of attempts with one result.
type attempted struct {
	count prometheus.Counter
	took  prometheus.Observer
}

func (a attempted) add(took time.Duration) {
	a.count.Inc()
	a.took.Observe(took.Seconds())
}

// NewFailureLog returns a FailureLog without failures.
func NewFailureLog(o FailureOptions) *FailureLog {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l := &FailureLog{
		options: o,
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authentication_attempts", Help: "Requests by whether it was found out who sent them: success, failure (they had no credentials) or error.",
		}, []string{"result"}),
		users: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authenticated_user_requests", Help: "Requests whose senders are known, by kinds of usernames.",
		}, []string{"username"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "authentication_duration_seconds", Help: "Duration of authentication.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"result"}),
	}
	of := func(result string) attempted {
		return attempted{l.attempts.WithLabelValues(result), l.duration.WithLabelValues(result)}
	}
	l.known, l.unknown, l.wrong = of("success"), of("failure"), of("error")
	l.kinds = map[string]prometheus.Counter{}
	for _, kind := range slices.Concat(namedUsers, []string{emailUsers, otherUsers}) {
		l.kinds[kind] = l.users.WithLabelValues(kind)
	}
	return l
}

// Failed implements [Failures].
func (l *FailureLog) Failed(r *http.Request, err error) {
	method, reason := classify(err)
	l.totals[method][reason].Add(1)
	from, now := prefix(r.RemoteAddr), time.Now()
	l.mu.Lock()
	l.window.add(source{from, method, reason}, now)
	l.mu.Unlock()
}

// Attempted implements [Attempts].
func (l *FailureLog) Attempted(u user.Info, err error, took time.Duration) {
	switch {
	case u != nil:
		l.known.add(took)
		l.kinds[kindOfUser(u.GetName())].Inc()
	case err != nil:
		l.wrong.add(took)
	default:
		l.unknown.add(took)
	}
}

// namedUsers are the user names that get a metric label of their own, as in kube-apiserver. All other names are
// unbounded, and private.
var namedUsers = []string{"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}

const emailUsers, otherUsers = "email_id", "other"

func kindOfUser(name string) string {
	switch {
	case slices.Contains(namedUsers, name):
		return name
	case strings.Contains(name, "@"):
		return emailUsers
	}
	return otherUsers
}

var failuresDesc = prometheus.NewDesc("stele_authentication_failures_total",
	"Requests with credentials of which none was valid, by the credential and what was wrong with it.", []string{"method", "reason"}, nil)

// Describe implements prometheus.Collector.
func (l *FailureLog) Describe(c chan<- *prometheus.Desc) {
	c <- failuresDesc
	l.attempts.Describe(c)
	l.users.Describe(c)
	l.duration.Describe(c)
}

// Collect implements prometheus.Collector.
func (l *FailureLog) Collect(c chan<- prometheus.Metric) {
	for m := range l.totals {
		for r := range l.totals[m] {
			if n := l.totals[m][r].Load(); n > 0 {
				c <- prometheus.MustNewConstMetric(failuresDesc, prometheus.CounterValue, float64(n), Method(m).String(), Reason(r).String())
			}
		}
	}
	l.attempts.Collect(c)
	l.users.Collect(c)
	l.duration.Collect(c)
}

// prefix returns the network of an address. All addresses of a network count as one source, because a client that has
// one of them can mostly use others.
func prefix(remote string) netip.Prefix {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	a := address.Addr().Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 24
	}
	p, _ := a.Prefix(bits)
	return p
}

// source is an origin of failures of one class.
type source struct {
	from   netip.Prefix
	method Method
	reason Reason
}

// mostSources is the number of sources that a window tells apart.
const mostSources = 64

// window counts failures by source. It keeps the most frequent sources: a new source replaces the one with the fewest
// failures and starts from its count (the Space-Saving algorithm of Metwally et al.). So a frequent source stays,
// regardless of how many others there are. For each count, window knows by how much it may be too high.
type window struct {
	start   time.Time // time of the first failure
	last    time.Time
	total   uint64
	counts  [methods][reasons]tally
	at      map[source]int
	sources []counted
}

type tally struct {
	count       uint64
	first, last time.Time
}

type counted struct {
	source
	tally
	inherited uint64 // part of count that may belong to earlier sources
}

func (w *window) add(s source, now time.Time) {
	if w.total == 0 {
		w.start = now
	}
	w.total, w.last = w.total+1, now
	w.counts[s.method][s.reason].add(now)
	i, ok := w.at[s]
	switch {
	case ok:
	case len(w.sources) < mostSources:
		if w.at == nil {
			w.at = make(map[source]int, mostSources)
		}
		i = len(w.sources)
		w.sources = append(w.sources, counted{source: s})
		w.at[s] = i
	default:
		i = 0
		for j := range w.sources {
			if w.sources[j].count < w.sources[i].count {
				i = j
			}
		}
		few := w.sources[i].count
		delete(w.at, w.sources[i].source)
		w.sources[i] = counted{source: s, tally: tally{count: few}, inherited: few}
		w.at[s] = i
	}
	w.sources[i].add(now)
}

func (t *tally) add(now time.Time) {
	if t.first.IsZero() {
		t.first = now
	}
	t.count, t.last = t.count+1, now
}

// FailureRecord is the record of a window.
type FailureRecord struct {
	Kind string `json:"kind"` // AuthenticationFailures
	// First and Last are the times of the first and the last failure.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Count uint64    `json:"count"`
	// Classes counts all failures by class, highest first.
	Classes []FailureCount `json:"classes"`
	// Sources are the most frequent sources. Each count is a lower bound.
	Sources []FailureCount `json:"sources"`
	// Elsewhere is the number of failures from other sources.
	Elsewhere uint64 `json:"elsewhere,omitempty"`
}

// FailureCount is a number of failures of a class, from a source if that is given.
type FailureCount struct {
	Source string    `json:"source,omitempty"` // network, as 192.0.2.0/24; "?" if it is not known
	Method string    `json:"method"`
	Reason string    `json:"reason"`
	Count  uint64    `json:"count"`
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
}

// record returns the record of the window, nil if there was no failure.
func (w *window) record() *FailureRecord {
	if w.total == 0 {
		return nil
	}
	r := &FailureRecord{Kind: "AuthenticationFailures", First: w.start.UTC(), Last: w.last.UTC(), Count: w.total, Elsewhere: w.total}
	for m := range w.counts {
		for n, t := range w.counts[m] {
			if t.count > 0 {
				r.Classes = append(r.Classes, count(Method(m), Reason(n), t))
			}
		}
	}
	for _, c := range w.sources {
		c.count -= c.inherited
		from := "?"
		if c.from.IsValid() {
			from = c.from.String()
		}
		counted := count(c.method, c.reason, c.tally)
		counted.Source = from
		r.Sources = append(r.Sources, counted)
		r.Elsewhere -= c.count
	}
	most := func(a, b FailureCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), a.First.Compare(b.First), cmp.Compare(a.Source, b.Source))
	}
	slices.SortFunc(r.Classes, most)
	slices.SortFunc(r.Sources, most)
	return r
}

// networks returns the sources summed over classes, highest first.
func (r *FailureRecord) networks() []FailureCount {
	var networks []FailureCount
	for _, s := range r.Sources {
		i := slices.IndexFunc(networks, func(n FailureCount) bool { return n.Source == s.Source })
		if i < 0 {
			i = len(networks)
			networks = append(networks, FailureCount{Source: s.Source})
		}
		networks[i].Count += s.Count
	}
	slices.SortStableFunc(networks, func(a, b FailureCount) int { return cmp.Compare(b.Count, a.Count) })
	return networks
}

func count(m Method, r Reason, t tally) FailureCount {
	return FailureCount{Method: m.String(), Reason: r.String(), Count: t.count, First: t.first.UTC(), Last: t.last.UTC()}
}

// Run reports each window until the context ends, and then the last one.
func (l *FailureLog) Run(ctx context.Context) error {
	for range steady.Every(ctx, failureWindow) {
		l.tell()
	}
	l.tell()
	return ctx.Err()
}

// toldInMessages limits the classes and sources in a log message. The record has all.
const toldInMessages = 5

func (l *FailureLog) tell() {
	l.mu.Lock()
	w := l.window
	l.window = window{}
	l.mu.Unlock()
	r := w.record()
	if r == nil {
		return
	}
	var classes, sources []string
	for _, c := range r.Classes[:min(len(r.Classes), toldInMessages)] {
		classes = append(classes, fmt.Sprintf("%d %s: %s", c.Count, c.Method, meanings[c.Reason]))
	}
	networks := r.networks()
	for _, c := range networks[:min(len(networks), toldInMessages)] {
		sources = append(sources, fmt.Sprintf("%d from %s", c.Count, c.Source))
	}
	l.options.Logger.Warn("requests had no valid credentials", "count", r.Count, "since", r.First, "classes", strings.Join(classes, "; "), "sources", strings.Join(sources, ", "))
	if l.options.Record != nil {
		l.options.Record(r)
	}
}
