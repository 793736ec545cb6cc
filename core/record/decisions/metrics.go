package decisions

import (
	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/eventlog"
)

// metrics has the metrics of a recorder.
type metrics struct {
	recorded                  *prometheus.CounterVec
	counted, overflowed, lost prometheus.Counter
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		recorded:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "stele_decisions_recorded_total", Help: "Decisions that were recorded one by one in the log of decisions."}, []string{"outcome"}),
		counted:    counter("stele_decisions_counted_total", "Decisions beyond the budget of the log of decisions, and failed authentications, which are recorded as counts."),
		overflowed: counter("stele_decisions_overflowed_total", "Decisions that found the queue of the log of decisions full, and are recorded as counts."),
		lost:       counter("stele_decisions_lost_total", "Decisions that could not be written. The log of decisions records how many, when it can be written again."),
	}
}

// add counts the decisions of a batch. Only the goroutine that writes calls it.
func (m *metrics) add(b *eventlog.Batch) {
	for _, e := range b.Events {
		if d := e.Meta.GetDecision(); d != nil {
			m.recorded.WithLabelValues(outcomeName(d.GetOutcome())).Inc()
		}
	}
}

// Metrics returns the collectors of the recorder's metrics.
func (r *Recorder) Metrics() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		r.metrics.recorded, r.metrics.counted, r.metrics.overflowed, r.metrics.lost,
		gauge("stele_decisions_bytes", "Size of the log of decisions on the disk.", func() float64 { return float64(r.log.Usage().Allocated) }),
		gauge("stele_decisions_waiting_bytes", "Size of the decisions that wait to be written.", func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return float64(r.bytes)
		}),
		gauge("stele_decisions_failing", "1 if decisions cannot be written; /readyz?verbose and the server's log have the reason.", func() float64 {
			if r.Health() != nil {
				return 1
			}
			return 0
		}),
	}
}
