package webhooks

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Reasons why a webhook could not be asked.
const (
	failedTimeout       = "timeout"       // it did not answer in its time
	failedCanceled      = "canceled"      // the client did not wait, or its own time was over
	failedCircuit       = "circuit"       // the circuit breaker is open
	failedBusy          = "busy"          // it answered too many other questions
	failedCall          = "call"          // the connection failed, or the answer was none
	failedStatus        = "status"        // it answered with an error of HTTP
	failedAnswer        = "answer"        // its answer is invalid
	failedConfiguration = "configuration" // this replica lacks its service or a secret
)

// metrics are those that kube-apiserver has not. Package review counts the others.
type metrics struct {
	webhooks *Webhooks
	failures *prometheus.CounterVec
	inFlight *prometheus.Desc
	waiting  *prometheus.Desc
	circuit  *prometheus.Desc
}

func newMetrics(w *Webhooks) *metrics {
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("stele_admission_webhook_"+name, help, []string{"name"}, nil)
	}
	return &metrics{
		webhooks: w,
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stele_admission_webhook_failures_total", Help: "Questions that an admission webhook did not answer, by reason.",
		}, []string{"name", "reason"}),
		inFlight: gauge("in_flight", "Questions that an admission webhook is answering."),
		waiting:  gauge("waiting", "Questions that wait until an admission webhook has answered others."),
		circuit: gauge("circuit_state",
			"State of the circuit breaker: 0 is closed, 1 half open (the next question is a try), 2 open (questions fail at once)."),
	}
}

func (m *metrics) forget(name string) {
	m.failures.DeletePartialMatch(prometheus.Labels{"name": name})
}

func (m *metrics) describe(to chan<- *prometheus.Desc) {
	m.failures.Describe(to)
	to <- m.inFlight
	to <- m.waiting
	to <- m.circuit
}

// collect collects the state of each webhook in use. Two webhooks may have the same name in two teams: they count as one.
func (m *metrics) collect(to chan<- prometheus.Metric) {
	m.failures.Collect(to)
	type state struct{ running, waiting, circuit int }
	states := map[string]state{}
	m.webhooks.mu.Lock()
	for _, h := range m.webhooks.hooks {
		s := states[h.name]
		running, waiting := h.places.State()
		states[h.name] = state{s.running + running, s.waiting + waiting, max(s.circuit, int(h.circuit.State()))}
	}
	m.webhooks.mu.Unlock()
	for name, s := range states {
		to <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, float64(s.running), name)
		to <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(s.waiting), name)
		to <- prometheus.MustNewConstMetric(m.circuit, prometheus.GaugeValue, float64(s.circuit), name)
	}
}
