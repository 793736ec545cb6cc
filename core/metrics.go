package core

import (
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics/legacyregistry"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/schemas/workers"
)

// metrics has the pipeline's metrics and the handler of /metrics.
type metrics struct {
	*requestMetrics
	handler http.Handler
	stages  []prometheus.Observer // the duration of each stage of path
}

func newMetrics(registry *prometheus.Registry, c *commit.Committer, past *history.Store, evaluators *workers.Pool, further ...prometheus.Collector) *metrics {
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	m := &metrics{
		requestMetrics: newRequestMetrics(),
		handler:        promhttp.HandlerFor(prometheus.Gatherers{registry, prometheus.GathererFunc(ofAccess(legacyregistry.DefaultGatherer.Gather))}, promhttp.HandlerOpts{}),
	}
	stages := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "stele_stage_duration_seconds", Help: "Duration of the pipeline's stages.",
		Buckets: prometheus.ExponentialBuckets(1e-6, 4, 12),
	}, []string{"stage"})
	for i := range path {
		m.stages = append(m.stages, stages.WithLabelValues(path[i].name))
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	registry.MustRegister(further...)
	registry.MustRegister(m.total, m.duration, m.running, stages,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("stele_log_revision", "Revision of the log's tip, as far as it is known here.", func() float64 { return float64(c.Tip().Revision()) }),
		gauge("stele_history_revision", "Newest revision in the history. The difference to stele_log_revision is how far it is behind.", func() float64 { return float64(past.Revision()) }),
		gauge("stele_history_stuck", "1 if the history cannot follow the log, for example because the disk is full; the server's log has the reason.", func() float64 {
			if past.Health() != nil {
				return 1
			}
			return 0
		}),
		gauge("stele_policy_revision", "Revision at which the policy in force was activated.", func() float64 { return float64(c.Tip().PolicyRevision()) }),
		gauge("stele_log_unconfirmed_seconds", "Seconds since the log last confirmed the tip.", func() float64 { return c.Unconfirmed().Seconds() }),
	)
	if evaluators != nil {
		counter := func(name, help string, value func(workers.Stats) uint64) prometheus.Collector {
			return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(evaluators.Stats())) })
		}
		registry.MustRegister(
			gauge("stele_evaluation_workers", "Processes that evaluate what only CUE can check.", func() float64 { return float64(evaluators.Stats().Running) }),
			counter("stele_evaluations_total", "Evaluations of what only CUE can check.", func(s workers.Stats) uint64 { return s.Evaluations }),
			counter("stele_evaluations_overrun_total", "Evaluations that took too long, and whose worker was killed.", func(s workers.Stats) uint64 { return s.Overruns }),
			counter("stele_evaluations_crashed_total", "Evaluations that ended their worker.", func(s workers.Stats) uint64 { return s.Crashes }),
		)
	}
	return m
}

// ofAccess filters the metrics of Kubernetes' libraries: it keeps those about authentication, authorization and admission
// webhooks, which have the same names in kube-apiserver.
func ofAccess[F interface{ GetName() string }](gather func() ([]F, error)) func() ([]F, error) {
	prefixes := []string{"apiserver_authentication_", "authentication_", "apiserver_client_certificate_", "apiserver_authorization_", "apiserver_admission_webhook_"}
	return func() ([]F, error) {
		all, err := gather()
		return slices.DeleteFunc(all, func(f F) bool {
			return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f.GetName(), p) })
		}), err
	}
}
