package host

import (
	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/limits/breaker"
)

// Reasons why a question failed.
const (
	failedTimeout  = "timeout"  // the plugin did not answer in time
	failedDown     = "down"     // the plugin does not run
	failedCircuit  = "circuit"  // the circuit breaker is open
	failedBusy     = "busy"     // the plugin answered too many other questions
	failedLost     = "lost"     // the connection broke
	failedError    = "error"    // the plugin answered with an error
	failedAnswer   = "answer"   // the plugin's answer is invalid
	failedPanic    = "panic"    // the host panicked
	failedCanceled = "canceled" // the caller did not wait
)

type metrics struct {
	decisions, reviews        *prometheus.CounterVec
	failures                  *prometheus.CounterVec
	duration                  *prometheus.HistogramVec
	inFlight, up              *prometheus.GaugeVec
	hits, coalesced, restarts *prometheus.CounterVec
}

// circuits collects the states of the circuit breakers when metrics are scraped, as they also change with time.
type circuits struct {
	host *Host
	desc *prometheus.Desc
}

func newMetrics(r prometheus.Registerer, h *Host) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "stele_plugin_" + name, Help: help}, append([]string{"plugin"}, labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "stele_plugin_" + name, Help: help}, []string{"plugin"})
	}
	m := &metrics{
		decisions: counter("decisions_total", "Decisions of plugins, including those of failure policies. Decisions in shadow mode have no effect.", "decision", "mode"),
		reviews:   counter("reviews_total", "Verdicts of admission plugins, including those of failure policies. Verdicts in shadow mode have no effect.", "verdict", "stage", "mode"),
		failures:  counter("failures_total", "Questions that a plugin did not decide, by reason.", "reason"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stele_plugin_duration_seconds", Help: "Time that plugins took to answer.",
			Buckets: prometheus.ExponentialBuckets(20e-6, 2.5, 13),
		}, []string{"plugin"}),
		inFlight:  gauge("in_flight", "Questions that plugins are answering."),
		up:        gauge("up", "Running processes of the plugin: two while a new generation takes over."),
		hits:      counter("cache_hits_total", "Questions that were answered from the cache."),
		coalesced: counter("coalesced_total", "Questions that shared the answer to an identical one."),
		restarts:  counter("restarts_total", "Attempts to start a plugin after the first one, including failed ones."),
	}
	if r == nil {
		return m, nil
	}
	collectors := []prometheus.Collector{circuits{h, prometheus.NewDesc("stele_plugin_circuit_state",
		"State of the circuit breaker: 0 is closed, 1 half open (the next question is a try), 2 open (questions fail at once).", []string{"plugin"}, nil)}}
	for _, v := range m.vectors() {
		collectors = append(collectors, v)
	}
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func (m *metrics) vectors() []vector {
	return []vector{m.decisions, m.reviews, m.failures, m.duration, m.inFlight, m.up, m.hits, m.coalesced, m.restarts}
}

// forget deletes the series of a plugin that no policy has any more.
func (m *metrics) forget(plugin string) {
	for _, v := range m.vectors() {
		v.DeletePartialMatch(prometheus.Labels{"plugin": plugin})
	}
}

func (c circuits) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect collects the state of each plugin in use; if two generations of a plugin run, the worse state.
func (c circuits) Collect(to chan<- prometheus.Metric) {
	worst := map[string]breaker.State{}
	c.host.mu.Lock()
	for _, p := range c.host.plugins {
		if p.users > 0 {
			worst[p.spec.Name] = max(worst[p.spec.Name], p.circuit.State())
		}
	}
	c.host.mu.Unlock()
	for name, state := range worst {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(state), name)
	}
}
