package flow_test

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	upstream "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/load/flow"
	"stele.dev/stele/policy"
)

// missing are the metrics of kube-apiserver that there are not here, see OVERLOAD.md.
var missing = []string{
	"demand_seats", "dispatch_r", "epoch_advance_total", "latest_s", "next_discounted_s_bounds", "next_s_bounds",
	"priority_level_request_utilization", "priority_level_seat_utilization", "read_vs_write_current_requests", "watch_count_samples",
}

// upstreamMetrics returns the metrics of kube-apiserver, each with one sample.
func upstreamMetrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	upstream.Register()
	ctx := context.Background()
	upstream.AddRequestsInQueues(ctx, "l", "s", 1)
	upstream.AddSeatsInQueues(ctx, "l", "s", 1)
	upstream.AddRequestsExecuting(ctx, "l", "s", 1)
	upstream.SetCurrentR("l", 1)
	upstream.SetDispatchMetrics("l", 1, 1, 1, 1, 1, 1)
	upstream.AddSeatConcurrencyInUse("l", "s", 1)
	upstream.AddReject(ctx, "l", "s", "time-out")
	upstream.AddDispatch(ctx, "l", "s")
	upstream.ObserveQueueLength(ctx, "l", "s", 1)
	upstream.ObserveWaitingDuration(ctx, "l", "s", "true", time.Second)
	upstream.ObserveExecutionDuration(ctx, "l", "s", time.Second)
	upstream.ObserveWatchCount(ctx, "l", "s", 1)
	upstream.AddEpochAdvance(ctx, "l", true)
	upstream.ObserveWorkEstimatedSeats("l", "s", 1)
	upstream.AddDispatchWithNoAccommodation("l", "s")
	upstream.SetPriorityLevelConfiguration("l", 1, 1, 1)
	upstream.NotePriorityLevelConcurrencyAdjustment("l", 1, 1, 1, 1, 1, 1)
	upstream.SetFairFrac(1)
	upstream.GetWaitingReadonlyConcurrency().Set(1)
	upstream.PriorityLevelExecutionSeatsGaugeVec.NewForLabelValuesSafe(0, 1, []string{"l"})
	upstream.PriorityLevelConcurrencyGaugeVec.NewForLabelValuesSafe(0, 1, []string{"waiting", "l"})
	upstream.ApiserverSeatDemands.NewForLabelValuesSafe(0, 1, []string{"l"})
	return families(t, legacyregistry.DefaultGatherer)
}

func families(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]*dto.MetricFamily{}
	for _, f := range all {
		if name, ok := strings.CutPrefix(f.GetName(), "apiserver_flowcontrol_"); ok {
			named[name] = f
		}
	}
	return named
}

// shape returns the labels of a metric, and the bounds of its buckets.
func shape(f *dto.MetricFamily) (labels []string, buckets []float64) {
	for _, l := range f.Metric[0].Label {
		labels = append(labels, l.GetName())
	}
	for _, b := range f.Metric[0].GetHistogram().GetBucket() {
		buckets = append(buckets, b.GetUpperBound())
	}
	return labels, buckets
}

func TestMetricsAreThoseOfKubernetes(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	c := newControl(10, func(o *flow.Options) { o.Metrics = registry })
	without := level("own", 1000)
	without.Queuing = nil
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{without}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
	fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })[0].EndFlow()
	taken(t, c, watchOf(tip, "alice")).EndFlow()
	fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
	refusedOf(t, t.Context(), c, requestOf(tip, "alice"))

	got, want := families(t, registry), upstreamMetrics(t)
	for name, theirs := range want {
		ours := got[name]
		if ours == nil {
			if !slices.Contains(missing, name) {
				t.Errorf("%s is missing", name)
			}
			continue
		}
		if slices.Contains(missing, name) {
			t.Errorf("%s is there: delete it from the list of those that are missing", name)
		}
		if ours.GetType() != theirs.GetType() {
			t.Errorf("%s is a %s, want a %s", name, ours.GetType(), theirs.GetType())
		}
		labels, buckets := shape(ours)
		if theirLabels, theirBuckets := shape(theirs); !slices.Equal(labels, theirLabels) || !slices.Equal(buckets, theirBuckets) {
			t.Errorf("%s has labels %v and buckets %v, want %v and %v", name, labels, buckets, theirLabels, theirBuckets)
		}
	}
	for name := range got {
		if want[name] == nil {
			t.Errorf("%s is none of kube-apiserver's metrics", name)
		}
	}
	for _, name := range missing {
		if want[name] == nil {
			t.Errorf("%s is not missing: kube-apiserver does not have it", name)
		}
	}
}

func TestMetricsAreWellFormed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	c := newControl(10, func(o *flow.Options) { o.Metrics = registry })
	taken(t, c, watchOf(tipOf(t, 1, policy.Flow{}), "alice"))
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		name := f.GetName()
		if !regexp.MustCompile(`^[a-z][a-z0-9_]*[a-z0-9]$`).MatchString(name) || f.GetHelp() == "" || !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("%s: help %q", name, f.GetHelp())
		}
		if total := strings.HasSuffix(name, "_total"); total != (f.GetType() == dto.MetricType_COUNTER) {
			t.Errorf("%s is a %s", name, f.GetType())
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if !slices.Contains([]string{"priority_level", "flow_schema", "reason", "execute", "type", "request_kind"}, l.GetName()) {
					t.Errorf("%s has the label %s", name, l.GetName())
				}
			}
		}
	}
}

// value returns the value of a metric with these values of labels, or the number of observations of a histogram.
func value(t *testing.T, g prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	f := families(t, g)[name]
	for _, m := range f.GetMetric() {
		values := map[string]bool{}
		for _, l := range m.Label {
			values[l.GetValue()] = true
		}
		if !slices.Equal(slices.Sorted(maps.Keys(values)), slices.Sorted(slices.Values(labels))) {
			continue
		}
		if h := m.GetHistogram(); h != nil {
			return float64(h.GetSampleCount())
		}
		return m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return -1
}

func TestWaitingRequestsAreCountedByKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		c := newControl(10, func(o *flow.Options) { o.Metrics = registry })
		tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
		holders := fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
		write := requestOf(tip, "alice")
		write.Info.Verb = "update"
		for _, r := range []*call.Call{write, watchOf(tip, "alice")} {
			go func() { _ = c.Take(context.Background(), r) }()
		}
		synctest.Wait()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP apiserver_current_inqueue_requests Maximal number of queued requests in this apiserver per request kind in last second.
# TYPE apiserver_current_inqueue_requests gauge
apiserver_current_inqueue_requests{request_kind="mutating"} 1
apiserver_current_inqueue_requests{request_kind="readOnly"} 1
`), "apiserver_current_inqueue_requests"); err != nil {
			t.Error(err)
		}
		for _, h := range holders {
			h.EndFlow()
		}
	})
}

func TestMetricsCountWhatHappens(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	c := newControl(10, func(o *flow.Options) { o.Metrics = registry })
	without := level("own", 1_000_000)
	without.Queuing = nil
	tip := tipOf(t, 1, policy.Flow{PriorityLevels: []policy.PriorityLevel{without}, FlowSchemas: []policy.FlowSchema{schemaFor("alice", "own")}})
	holders := fill(t, c, "own", func() *call.Call { return requestOf(tip, "alice") })
	n := float64(len(holders))
	refusedOf(t, t.Context(), c, requestOf(tip, "alice"))
	check := func(want float64, name string, labels ...string) {
		t.Helper()
		if got := value(t, registry, name, labels...); got != want {
			t.Errorf("%s%v = %v, want %v", name, labels, got, want)
		}
	}
	check(n, "dispatched_requests_total", "own", "alice")
	check(1, "rejected_requests_total", "own", "alice", "concurrency-limit")
	check(n, "current_executing_requests", "own", "alice")
	check(n, "current_executing_seats", "own", "alice")
	check(0, "current_inqueue_requests", "own", "alice")
	check(n+1, "work_estimated_seats", "own", "alice")
	check(n, "request_wait_duration_seconds", "own", "alice", "true")
	check(1, "request_wait_duration_seconds", "own", "alice", "false")
	check(float64(stateOf(c, "own").Seats.Nominal), "nominal_limit_seats", "own")
	for _, h := range holders {
		h.EndFlow()
	}
	check(0, "current_executing_requests", "own", "alice")
	check(n, "request_execution_seconds", "own", "alice", "regular")
}
