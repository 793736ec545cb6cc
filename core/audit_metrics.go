package core

import (
	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/policy/audits"
)

// auditMetrics has kube-apiserver's metrics of audit that are about requests. Those about lines are with what writes them.
type auditMetrics struct {
	levels   [audits.RequestResponse + 1]prometheus.Counter
	level    *prometheus.CounterVec
	rejected prometheus.Counter
}

func newAuditMetrics() *auditMetrics {
	m := &auditMetrics{
		level: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_audit_level_total", Help: "Counter of policy levels for audit events (1 per request).",
		}, []string{"level"}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_requests_rejected_total", Help: "Counter of apiserver requests rejected due to an error in audit logging backend.",
		}),
	}
	for level := range m.levels {
		m.levels[level] = m.level.WithLabelValues(audits.LevelName(audits.Level(level)))
	}
	return m
}

func (m *auditMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.level, m.rejected}
}

// audited counts the level of a request that has been answered: None if no audit rule was looked up, because its user is not known.
func (m *auditMetrics) audited(rule *audits.Rule) {
	if rule == nil {
		m.levels[audits.None].Inc()
		return
	}
	m.levels[rule.Level].Inc()
}
