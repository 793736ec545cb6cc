package audit

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of all feeders. They are safe for concurrent use.
type Metrics struct {
	sent, failures, gaps, refused *prometheus.CounterVec
	up, revision                  *prometheus.Desc

	mu      sync.Mutex
	feeders []*Feeder
}

// NewMetrics returns metrics of no feeders.
func NewMetrics() *Metrics {
	labels := []string{"sink", "log"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Metrics{
		sent:     counter("stele_audit_sink_sent_lines_total", "Audit lines that the sink has taken."),
		failures: counter("stele_audit_sink_failures_total", "Attempts to send audit lines that failed."),
		gaps:     counter("stele_audit_sink_gaps_total", "How often records were not kept until the sink had their lines."),
		refused:  counter("stele_audit_sink_refused_lines_total", "Audit lines that the sink refused and that were set aside in a file."),
		up:       prometheus.NewDesc("stele_audit_sink_up", "Whether the sink takes audit lines.", labels, nil),
		revision: prometheus.NewDesc("stele_audit_sink_revision", "The sink has the lines of the log up to this revision.", labels, nil),
	}
}

func (m *Metrics) add(f *Feeder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.feeders = append(m.feeders, f)
	for _, v := range []*prometheus.CounterVec{m.sent, m.failures, m.gaps, m.refused} {
		v.WithLabelValues(f.o.Sink.Name(), f.o.LogName)
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(c chan<- *prometheus.Desc) {
	m.sent.Describe(c)
	m.failures.Describe(c)
	m.gaps.Describe(c)
	m.refused.Describe(c)
	c <- m.up
	c <- m.revision
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(c chan<- prometheus.Metric) {
	m.sent.Collect(c)
	m.failures.Collect(c)
	m.gaps.Collect(c)
	m.refused.Collect(c)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.feeders {
		up := 1.0
		if f.failing.Load() != nil {
			up = 0
		}
		c <- prometheus.MustNewConstMetric(m.up, prometheus.GaugeValue, up, f.o.Sink.Name(), f.o.LogName)
		c <- prometheus.MustNewConstMetric(m.revision, prometheus.GaugeValue, float64(f.done.Load()), f.o.Sink.Name(), f.o.LogName)
	}
}
