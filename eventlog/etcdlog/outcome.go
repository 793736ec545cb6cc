package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog/members"
)

// failed returns the answer to an append to which etcd has answered with an error.
func (b *Backend) failed(ctx context.Context, p eventlog.Proposal, err error) (eventlog.Answer, error) {
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return b.settleNoSpace(ctx, p, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), status.Code(err) == codes.ResourceExhausted && !errors.Is(err, rpctypes.ErrTooManyRequests):
		return eventlog.Answer{}, fmt.Errorf("%w: etcd refuses %d bytes, the --max-request-bytes of its members is smaller: %w", eventlog.ErrTooLarge, len(p.Value), err)
	}
	return eventlog.Answer{}, classify(err)
}

// classify marks the errors that prove that a transaction was not applied as refusals. After all others the outcome is
// unknown.
func classify(err error) error {
	switch {
	case members.IsNotSent(err), status.Code(err) == codes.PermissionDenied, status.Code(err) == codes.Unauthenticated,
		errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrInvalidAuthToken), errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthOldRevision):
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	default:
		return fmt.Errorf("etcd: %w", err)
	}
}

// SecondsMetric is the name of the histogram of requests to etcd.
const SecondsMetric = "stele_etcd_request_seconds"

func newSeconds() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: SecondsMetric, Help: "How long requests to etcd take: append writes a batch, read confirms or reads the newest, read_back reads older ones.",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
	}, []string{"operation"})
}

// newUpstreamSeconds returns kube-apiserver's histogram of requests to etcd, for its dashboards. Events of all kinds are in one log, so
// group and resource are empty.
func newUpstreamSeconds() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "etcd_request_duration_seconds", Help: "Etcd request latency in seconds for each operation and object type.",
		Buckets:     []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		ConstLabels: prometheus.Labels{"group": "", "resource": ""},
	}, []string{"operation"})
}

// observe counts a request that began at a time.
func (b *Backend) observe(operation string, began time.Time) {
	took := time.Since(began).Seconds()
	b.seconds.WithLabelValues(operation).Observe(took)
	b.upstreamSeconds.WithLabelValues(operation).Observe(took)
}

// Metrics returns collectors for the requests to etcd, and for the members of a cluster.
func (b *Backend) Metrics() []prometheus.Collector {
	return []prometheus.Collector{b.seconds, b.upstreamSeconds, memberMetrics{b}}
}

// memberMetrics are the states of the members of a cluster.
type memberMetrics struct{ *Backend }

var (
	memberCount  = prometheus.NewDesc("stele_etcd_members", "Members of etcd that --etcd-endpoints names.", nil, nil)
	memberUp     = prometheus.NewDesc("stele_etcd_member_up", "1 if requests can go to a member of etcd, else 0.", []string{"member"}, nil)
	memberLeader = prometheus.NewDesc("stele_etcd_member_leader", "1 if a member of etcd leads the others, else 0.", []string{"member"}, nil)
	memberAlarm  = prometheus.NewDesc("stele_etcd_member_alarm", "1 if a member of etcd knows of an alarm, else 0.", []string{"member", "alarm"}, nil)
)

// Describe implements prometheus.Collector.
func (memberMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- memberCount
	to <- memberUp
	to <- memberLeader
	to <- memberAlarm
}

// Collect implements prometheus.Collector.
func (b memberMetrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, on bool, labels ...string) {
		value := 0.0
		if on {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	all := b.Members()
	if len(all) > 0 {
		to <- prometheus.MustNewConstMetric(memberCount, prometheus.GaugeValue, float64(len(all)))
	}
	for _, m := range all {
		gauge(memberUp, m.Down == "", m.URL)
		gauge(memberLeader, m.Leader, m.URL)
		gauge(memberAlarm, m.NoSpace, m.URL, "NOSPACE")
		gauge(memberAlarm, m.Corrupt, m.URL, "CORRUPT")
	}
}

// Members returns what the members of the cluster said last; nil for an embedded etcd.
func (b *Backend) Members() []members.Member {
	if b.cluster == nil {
		return nil
	}
	return b.cluster.Members()
}

var _ eventlog.TimeSource = (*Backend)(nil)

// OthersTime implements [eventlog.TimeSource], by the clocks of the members of a cluster.
func (b *Backend) OthersTime() (now time.Time, known bool) {
	if b.cluster == nil {
		return time.Time{}, false
	}
	return b.cluster.Time()
}
