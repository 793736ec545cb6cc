package core

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/policy"
)

// decisionMetrics has kube-apiserver's metrics of authorization and admission. They count what clients ask for, and not what is
// explained, replayed or a part of another request.
type decisionMetrics struct {
	attempts   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	terminal   *prometheus.CounterVec
	step       *prometheus.HistogramVec
	controller *prometheus.HistogramVec

	authorized [results]struct {
		count prometheus.Counter
		took  prometheus.Observer
	}
	admitted [mutating + 1][operations][2]admissionObservers
}

// The results of authorization: the values of kube-apiserver's label, and conditional for what depends on the object.
const (
	resultAllowed = iota
	resultDenied
	resultNoOpinion
	resultError
	resultConditional
	results
)

var resultNames = [results]string{"allowed", "denied", "no-opinion", "error", "conditional"}

// The types of admission.
const (
	validating = iota
	mutating
)

const operations = 3

var operationNames = [operations]string{"CREATE", "UPDATE", "DELETE"}

// admissionObservers observe one sort of admission. The names of its controllers are those of kube-apiserver which do the same.
type admissionObservers struct {
	once                   sync.Once
	step, rules, reviewers prometheus.Observer
}

func newDecisionMetrics() *decisionMetrics {
	buckets := []float64{0.005, 0.025, 0.1, 0.5, 1.0, 2.5}
	m := &decisionMetrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authorization_attempts_total", Help: "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion', 'error' or, if it depends on the object, 'conditional'.",
		}, []string{"result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "authorization_duration_seconds", Help: "Authorization duration in seconds broken out by result.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"result"}),
		terminal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authorization_decisions_total", Help: "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
		}, []string{"type", "name", "decision"}),
		step: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_admission_step_admission_duration_seconds", Help: "Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).",
			Buckets: buckets,
		}, []string{"type", "operation", "rejected"}),
		controller: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_admission_controller_admission_duration_seconds", Help: "Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
			Buckets: buckets,
		}, []string{"name", "type", "operation", "rejected"}),
	}
	for i, name := range resultNames {
		m.authorized[i].count, m.authorized[i].took = m.attempts.WithLabelValues(name), m.duration.WithLabelValues(name)
	}
	return m
}

func (m *decisionMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.attempts, m.duration, m.terminal, m.step, m.controller}
}

// authorization counts a decision about a request, and how long it took.
func (m *decisionMetrics) authorization(d *policy.Decision, took time.Duration) {
	result, decision := resultNoOpinion, ""
	switch {
	case d.Allowed:
		result, decision = resultAllowed, "allowed"
	case d.Pending != nil:
		result, decision = resultConditional, "conditional"
	case d.Denied:
		result, decision = resultDenied, "denied"
	case slices.ContainsFunc(d.Said, func(s policy.Said) bool { return s.Failed }):
		result = resultError
	}
	m.authorized[result].count.Inc()
	m.authorized[result].took.Observe(took.Seconds())
	if decision != "" {
		m.terminal.WithLabelValues(authorizerType(d), d.Authorizer, decision).Inc()
	}
}

// authorizerType returns what sort of authorizer decided. kube-apiserver has the types RBAC and Webhook; those outside of the
// policy are told apart by their names.
func authorizerType(d *policy.Decision) string {
	switch d.Authorizer {
	case policy.RBACAuthorizer:
		return "RBAC"
	case policy.DenyAuthorizer:
		return "Deny"
	case policy.MastersAuthorizer:
		return "PrivilegedGroup"
	}
	return "Outside"
}

// admission counts a run of the stage mutation or validation, and how long it took; outside is the part in which webhooks and
// plugins were asked.
func (m *decisionMetrics) admission(r *Request, took, outside time.Duration, rejected bool) {
	kind, refused := validating, 0
	if r.Stage == "mutation" {
		kind = mutating
	}
	if rejected {
		refused = 1
	}
	o := m.observers(kind, operationIndex(r), refused)
	o.step.Observe(took.Seconds())
	o.rules.Observe((took - outside).Seconds())
	if outside > 0 {
		o.reviewers.Observe(outside.Seconds())
	}
}

func operationIndex(r *Request) int {
	switch r.operation() {
	case policy.Create:
		return 0
	case policy.Delete:
		return 2
	}
	return 1
}

// observers returns the observers of one sort of admission, which its first run creates.
func (m *decisionMetrics) observers(kind, operation, refused int) *admissionObservers {
	o := &m.admitted[kind][operation][refused]
	o.once.Do(func() {
		labels := []string{[]string{"validate", "admit"}[kind], operationNames[operation], []string{"false", "true"}[refused]}
		name := []string{"Validating", "Mutating"}[kind]
		controller := func(what string) prometheus.Observer {
			return m.controller.WithLabelValues(append([]string{name + what}, labels...)...)
		}
		o.step, o.rules, o.reviewers = m.step.WithLabelValues(labels...), controller("AdmissionPolicy"), controller("AdmissionWebhook")
	})
	return o
}
