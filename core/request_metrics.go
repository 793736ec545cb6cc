package core

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	endpoints "k8s.io/apiserver/pkg/endpoints/metrics"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog"
)

// requestMetrics has kube-apiserver's metrics of requests, with the same names, labels and buckets, so that existing
// dashboards and alerts work. A test compares them with k8s.io/apiserver/pkg/endpoints/metrics.
type requestMetrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sli      *prometheus.HistogramVec
	sizes    *prometheus.HistogramVec
	running  *prometheus.GaugeVec
	ended    *prometheus.CounterVec // terminations
	aborted  *prometheus.CounterVec
	watched  watchedEvents
	// by caches the instruments of each combination of labels.
	by sync.Map // labels -> *instruments
}

// labels are the labels of kube-apiserver's metrics, without the component.
type labels struct {
	verb, dryRun, group, version, resource, subresource, scope string
	code                                                       int
}

type instruments struct {
	total    prometheus.Counter
	duration prometheus.Observer
	sli      prometheus.Observer // nil for a dry run
	size     prometheus.Observer // nil for what is no get or list
	ended    prometheus.Counter  // nil unless the code may be that of a request which the server ended to protect itself
}

// requestBuckets are kube-apiserver's buckets of durations, in seconds; those of the service level indicator lack the first two.
var requestBuckets = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}

func newRequestMetrics() *requestMetrics {
	ofTarget := []string{"verb", "group", "version", "resource", "subresource", "scope"}
	ofLong := append(ofTarget[:len(ofTarget):len(ofTarget)], "component")
	ofRequest := []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
	return &requestMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
		}, append(ofRequest[:len(ofRequest):len(ofRequest)], "code")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
			Buckets: requestBuckets,
		}, ofRequest),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_sli_duration_seconds", Help: "Response latency distribution (not counting webhook duration and priority & fairness queue wait times) in seconds for each verb, group, version, resource, subresource, scope and component.",
			Buckets: requestBuckets[2:],
		}, ofLong),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_response_sizes", Help: "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
			Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
		}, ofLong),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
		}, ofLong),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_terminations_total", Help: "Number of requests which apiserver terminated in self-defense.",
		}, append(ofLong[:len(ofLong):len(ofLong)], "code")),
		aborted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_aborts_total", Help: "Number of requests which apiserver aborted possibly due to a timeout, for each group, version, verb, resource, subresource and scope",
		}, ofTarget),
	}
}

func (m *requestMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.total, m.duration, m.sli, m.sizes, m.running, m.ended, m.aborted, &m.watched}
}

// request counts an answered request, its duration, which it returns, and the size of its answer.
func (m *requestMetrics) request(r *Request, t *catalog.Table) time.Duration {
	i := m.instruments(labelsOf(&r.Call, t))
	took := time.Since(r.Received)
	i.total.Inc()
	i.duration.Observe(took.Seconds())
	if i.sli != nil {
		i.sli.Observe((took - r.elsewhere()).Seconds())
	}
	if i.size != nil {
		i.size.Observe(float64(r.W.Size))
	}
	if i.ended != nil && r.protects() {
		i.ended.Inc()
	}
	return took
}

// abort counts a request whose answer was broken off.
func (m *requestMetrics) abort(c *call.Call, t *catalog.Table) {
	l := labelsOf(c, t)
	m.aborted.WithLabelValues(l.verb, l.group, l.version, l.resource, l.subresource, l.scope).Inc()
}

// elsewhere returns how long the request waited for seats, and for webhooks and plugins. As in kube-apiserver, that is not part of
// the service level.
func (r *Request) elsewhere() time.Duration { return r.Flow.Waited + r.paused() }

// protects reports whether the server has ended the request to protect itself: it took too long, or there was no room for it.
func (r *Request) protects() bool {
	return r.failure != nil && r.Stage != "mutation" && r.Stage != "validation" // a webhook may refuse with the same codes
}

func (m *requestMetrics) instruments(l labels) *instruments {
	if i, ok := m.by.Load(l); ok {
		return i.(*instruments)
	}
	target := []string{l.verb, l.group, l.version, l.resource, l.subresource, l.scope, endpoints.APIServerComponent}
	values := []string{l.verb, l.dryRun, l.group, l.version, l.resource, l.subresource, l.scope, endpoints.APIServerComponent}
	i := &instruments{
		duration: m.duration.WithLabelValues(values...),
		total:    m.total.WithLabelValues(append(values, strconv.Itoa(l.code))...),
	}
	if l.dryRun == "" {
		i.sli = m.sli.WithLabelValues(target...)
	}
	if l.verb == endpoints.MethodGet || l.verb == endpoints.MethodList {
		i.size = m.sizes.WithLabelValues(target...)
	}
	if l.code == http.StatusTooManyRequests || l.code == http.StatusGatewayTimeout {
		i.ended = m.ended.WithLabelValues(append(target, strconv.Itoa(l.code))...)
	}
	m.by.Store(l, i)
	return i
}

// watching counts a running watch until done is called. sent counts an event of so many bytes.
func (m *requestMetrics) watching(c *call.Call) (sent func(bytes int), done func()) {
	l := labelsOf(c, nil)
	g := m.running.WithLabelValues(endpoints.MethodWatch, l.group, l.version, l.resource, l.subresource, l.scope, endpoints.APIServerComponent)
	g.Inc()
	return m.watched.of(c.GVR()).add, g.Dec
}

// labelsOf returns the labels of a call. It names only served resources, because clients can send any number of other
// names. A nil table means that the call is known to be about a resource.
func labelsOf(c *call.Call, t *catalog.Table) labels {
	l := labels{verb: verbOfMethod(c.HTTP.Method), dryRun: dryRunOf(c.HTTP), code: c.W.Code}
	switch {
	case c.Info == nil:
	case !c.Info.IsResourceRequest:
		if path := c.HTTP.URL.Path; path == "/healthz" || path == "/livez" || path == "/readyz" {
			l.subresource = path // as upstream
		}
	case c.Kind != nil || t == nil || t.Has(c.Info) || served(c):
		l.verb, l.scope = verbOf(c), scopeOf(c)
		l.group, l.version, l.resource, l.subresource = c.Info.APIGroup, c.Info.APIVersion, c.Info.Resource, c.Info.Subresource
	}
	return l
}

// served reports whether the policy serves what a call asks for. A call that is refused before that was looked up has no Kind.
func served(c *call.Call) bool {
	if c.Tip == nil || c.Tip.Policy == nil {
		return false
	}
	kind := c.Tip.Policy.Version(c.GVR())
	return kind != nil && call.Serves(c.Info, kind)
}

// verbOf returns kube-apiserver's verb label of a request for a resource.
func verbOf(c *call.Call) string {
	switch c.Info.Verb {
	case "list":
		return endpoints.MethodList
	case "watch":
		return endpoints.MethodWatch
	case "patch":
		if mediaType := c.HTTP.Header.Get("Content-Type"); strings.HasPrefix(mediaType, "application/apply-patch+") {
			return endpoints.MethodApply
		}
	}
	return verbOfMethod(c.HTTP.Method)
}

func verbOfMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		return endpoints.MethodGet
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return method
	}
	return endpoints.OtherRequestMethod // one label, because clients can send any method
}

// scopeOf returns kube-apiserver's scope label: one object, the objects of a namespace, or all.
func scopeOf(c *call.Call) string {
	switch verb := c.Info.Verb; {
	case verb == "create", c.Info.Name != "" && verb != "list" && verb != "watch" && verb != "deletecollection":
		return "resource"
	case c.Info.Namespace != "":
		return "namespace"
	}
	return "cluster"
}

// dryRunOf returns the dry_run label: the value of the query parameter.
func dryRunOf(r *http.Request) string {
	if !strings.Contains(r.URL.RawQuery, "dryRun") {
		return ""
	}
	values := r.URL.Query()["dryRun"]
	if len(values) == 0 {
		return ""
	}
	for _, v := range values {
		if v != "All" {
			return "invalid"
		}
	}
	return "All"
}
