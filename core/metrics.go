package core

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // metrics of clients: those of controllers, and of webhooks
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // metrics of the queues of controllers
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/schemas/workers"
)

// metrics has the pipeline's metrics and the handler of /metrics.
type metrics struct {
	*requestMetrics
	*decisionMetrics
	*auditMetrics
	handler http.Handler
	stages  []prometheus.Observer // the duration of each stage of path
}

func newMetrics(registry *prometheus.Registry, c *commit.Committer, past *history.Store, evaluators *workers.Pool, v version.Info, further ...prometheus.Collector) *metrics {
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	m := &metrics{
		requestMetrics: newRequestMetrics(), decisionMetrics: newDecisionMetrics(), auditMetrics: newAuditMetrics(),
		handler: promhttp.HandlerFor(prometheus.Gatherers{registry, prometheus.GathererFunc(ofAccess(legacyregistry.DefaultGatherer.Gather))}, promhttp.HandlerOpts{}),
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
	registry.MustRegister(m.requestMetrics.collectors()...)
	registry.MustRegister(m.decisionMetrics.collectors()...)
	registry.MustRegister(m.auditMetrics.collectors()...)
	registry.MustRegister(stages, objectMetrics{c}, newBuildInfo(v),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("stele_log_revision", "Revision of the log's tip, as far as it is known here.", func() float64 { return float64(c.Tip().Revision()) }),
		gauge("stele_history_revision", "Newest revision in the history. The difference to stele_log_revision is how far it is behind.", func() float64 { return float64(past.Revision()) }),
		gauge("stele_history_stuck", "1 if the history cannot follow the log, for example because the disk is full; the server's log has the reason.", func() float64 {
			if past.Health() != nil {
				return 1
			}
			return 0
		}),
		gauge("stele_policy_revision", "Revision at which the policy in force was activated.", func() float64 { return float64(c.Tip().ActivationRevision()) }),
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

// stage observes a run of a stage.
func (m *metrics) stage(r *Request, i int, took time.Duration, err error) {
	m.stages[i].Observe(took.Seconds())
	if path[i].when != writes || r.write != nil || path[i].name != "mutation" && path[i].name != "validation" {
		return
	}
	if !r.Mode.OfClient() || r.Mode.IsPart() || err != nil && errors.As(err, new(*call.Again)) {
		return
	}
	m.admission(r, took, r.pausedSince(), err != nil)
}

// objectMetrics collects kube-apiserver's metrics of stored objects, for the kinds of the policy in force.
type objectMetrics struct{ committer *commit.Committer }

var (
	objectsDesc       = prometheus.NewDesc("apiserver_resource_objects", "Number of stored objects at the time of last check split by kind.", []string{"group", "resource"}, nil)
	objectsDescBefore = prometheus.NewDesc("apiserver_storage_objects", "[DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the time of last check split by kind.", []string{"resource"}, nil)
	sizeOfObjectsDesc = prometheus.NewDesc("apiserver_resource_size_estimate_bytes", "Size of the stored objects, as JSON.", []string{"group", "resource"}, nil)
)

// Describe implements prometheus.Collector.
func (objectMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- objectsDesc
	to <- objectsDescBefore
	to <- sizeOfObjectsDesc
}

// Collect implements prometheus.Collector.
func (m objectMetrics) Collect(to chan<- prometheus.Metric) {
	tip := m.committer.Tip()
	if tip == nil || tip.Policy == nil {
		return
	}
	for _, kind := range tip.Policy.Kinds() {
		r := kind.GroupResource()
		total := tip.Objects.Total(r, "")
		to <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(total.Objects), r.Group, r.Resource)
		to <- prometheus.MustNewConstMetric(objectsDescBefore, prometheus.GaugeValue, float64(total.Objects), r.String())
		to <- prometheus.MustNewConstMetric(sizeOfObjectsDesc, prometheus.GaugeValue, float64(total.Bytes), r.Group, r.Resource)
	}
}

// newBuildInfo returns kube-apiserver's metric of the version, with what /version answers.
func newBuildInfo(v version.Info) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
		ConstLabels: prometheus.Labels{"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit, "git_tree_state": v.GitTreeState,
			"build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform},
	}, func() float64 { return 1 })
}

// ofAccess filters the metrics of Kubernetes' libraries: it keeps those about authentication, authorization, admission
// webhooks, the queues of controllers and their clients, and encryption at rest, which have the same names in kube-apiserver and its controllers.
func ofAccess[F interface{ GetName() string }](gather func() ([]F, error)) func() ([]F, error) {
	prefixes := []string{"apiserver_authentication_", "authentication_", "apiserver_client_certificate_", "apiserver_authorization_", "apiserver_admission_webhook_", "workqueue_", "rest_client_request",
		"apiserver_storage_transformation_", "apiserver_storage_data_key_", "apiserver_storage_envelope_", "apiserver_envelope_encryption_", "apiserver_encryption_config_"}
	return func() ([]F, error) {
		all, err := gather()
		return slices.DeleteFunc(all, func(f F) bool {
			return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f.GetName(), p) })
		}), err
	}
}
