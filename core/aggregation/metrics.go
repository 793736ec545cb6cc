package aggregation

import (
	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/policy"
)

// metrics has kube-aggregator's metrics of availability, with the same names, and counts the requests of each server.
type metrics struct {
	unavailable *prometheus.GaugeVec
	failures    *prometheus.CounterVec
	requests    *prometheus.CounterVec
}

// What became of a request for another server.
const (
	wasAnswered    = "answered"    // the answer has begun
	wasUnanswered  = "unanswered"  // the server was asked, and did not answer as it must
	wasUnavailable = "unavailable" // the server was not asked: it is not available, or its circuit is open
	wasBusy        = "busy"        // the server was not asked: it has too many requests
)

func newMetrics() *metrics {
	return &metrics{
		unavailable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aggregator_unavailable_apiservice", Help: "Gauge of APIServices which are marked as unavailable broken down by APIService name.",
		}, []string{"name"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aggregator_unavailable_apiservice_total", Help: "Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
		}, []string{"name", "reason"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stele_aggregated_requests_total", Help: "Requests for API groups that other servers answer, by server and outcome.",
		}, []string{"server", "outcome"}),
	}
}

// Metrics returns the metrics of the servers.
func (s *Servers) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.metrics.unavailable, s.metrics.failures, s.metrics.requests}
}

// available notes whether a version is available.
func (m *metrics) available(a *policy.Aggregate, version string, is bool, reason string) {
	name := version + "." + a.Group
	if is {
		m.unavailable.WithLabelValues(name).Set(0)
		return
	}
	m.unavailable.WithLabelValues(name).Set(1)
	m.failures.WithLabelValues(name, reason).Inc()
}

// request counts a request.
func (m *metrics) request(a *policy.Aggregate, outcome string) {
	m.requests.WithLabelValues(a.Name(), outcome).Inc()
}
