package delivery

import "github.com/prometheus/client_golang/prometheus"

// metrics count what a follower does.
type metrics struct {
	pulls *prometheus.CounterVec
	last  prometheus.Gauge
}

func newMetrics() metrics {
	m := metrics{
		pulls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stele_policy_source_pulls_total", Help: "How often the newest version of the policy was asked for, by outcome: success, or failure if it could not be read, is refused, or has errors.",
		}, []string{"outcome"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stele_policy_source_last_success_timestamp_seconds", Help: "When the newest version of the policy was last read and accepted, in seconds since 1970; 0 if never.",
		}),
	}
	for _, outcome := range []string{"success", "failure"} {
		m.pulls.WithLabelValues(outcome)
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector { return []prometheus.Collector{m.pulls, m.last} }

// count counts one pull.
func (m *metrics) count(s *State, err error) {
	if err != nil {
		m.pulls.WithLabelValues("failure").Inc()
		return
	}
	m.pulls.WithLabelValues("success").Inc()
	m.last.Set(float64(s.Pulled.UnixMilli()) / 1000)
}
