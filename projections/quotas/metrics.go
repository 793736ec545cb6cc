// This file has the metrics of resource quotas: what they limit and what of it is used, under the names of
// kube-state-metrics, and how many writes they refused. Their number is bounded, however many quotas there are.

package quotas

import (
	"github.com/prometheus/client_golang/prometheus"
)

// MaxQuotas is the number of quotas whose usage is reported: the first ones, ordered by namespace and name.
const MaxQuotas = 500

// Metrics is the collector. It is safe for concurrent use.
type Metrics struct {
	state    func() *State
	refusals *prometheus.CounterVec
}

// NewMetrics returns the metrics of the quotas of a state, which is asked for in each collection.
func NewMetrics(state func() *State) *Metrics {
	return &Metrics{state, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stele_resourcequota_refusals_total", Help: "Writes that were refused because a quota had no room, by what it limits.",
	}, []string{"resource"})}
}

// Refused counts a refused write, once for each limit that it exceeds. What quotas can count is defined by the policy, so there are
// few names.
func (m *Metrics) Refused(x *Exceeded) {
	for i := range x.Charges {
		m.refusals.WithLabelValues(x.Charges[i].Name).Inc()
	}
}

var (
	usage    = prometheus.NewDesc("kube_resourcequota", "What a quota limits (hard), and what of it is used (used), of the first 500 quotas.", []string{"namespace", "resourcequota", "resource", "type"}, nil)
	number   = prometheus.NewDesc("stele_resourcequotas", "Quotas in all namespaces.", nil, nil)
	exceeded = prometheus.NewDesc("stele_resourcequotas_exceeded", "Quotas of which more is used than they allow, because they were lowered or the policy changed.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	to <- usage
	to <- number
	to <- exceeded
	m.refusals.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	all, over := 0, 0
	m.state().All(func(q *Quota) bool {
		above := false
		for i := range q.Lines {
			l := &q.Lines[i]
			above = above || l.Tracked() && l.Used.Cmp(l.Hard) > 0
			if all >= MaxQuotas {
				continue
			}
			hard, used := l.Hard.Quantity(l.Format), l.Used.Quantity(l.Format)
			to <- prometheus.MustNewConstMetric(usage, prometheus.GaugeValue, hard.AsApproximateFloat64(), q.Namespace, q.Name, l.Name, "hard")
			if l.Tracked() {
				to <- prometheus.MustNewConstMetric(usage, prometheus.GaugeValue, used.AsApproximateFloat64(), q.Namespace, q.Name, l.Name, "used")
			}
		}
		all++
		if above {
			over++
		}
		return true
	})
	to <- prometheus.MustNewConstMetric(number, prometheus.GaugeValue, float64(all))
	to <- prometheus.MustNewConstMetric(exceeded, prometheus.GaugeValue, float64(over))
	m.refusals.Collect(to)
}
