package flow

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// prefix is that of the names of metrics, which are those of kube-apiserver.
const prefix = "apiserver_flowcontrol_"

// The labels of metrics.
const (
	levelLabel  = "priority_level"
	schemaLabel = "flow_schema"
)

// metrics are the counters and histograms. Gauges are read from the queues, by gauges.
type metrics struct {
	rejected, dispatched, noAccommodation *prometheus.CounterVec
	wait, execution, seats, queueLength   *prometheus.HistogramVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, append([]string{levelLabel, schemaLabel}, labels...))
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, append([]string{levelLabel, schemaLabel}, labels...))
	}
	durations := []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	return &metrics{
		rejected:        counter("rejected_requests_total", "Requests that were refused.", "reason"),
		dispatched:      counter("dispatched_requests_total", "Requests that got seats."),
		noAccommodation: counter("request_dispatch_no_accommodation_total", "Requests that found no free seats and were queued."),
		wait:            histogram("request_wait_duration_seconds", "How long requests waited for seats. execute says whether they got them.", durations, "execute"),
		execution:       histogram("request_execution_seconds", "How long requests held seats: watches only until their initial events are sent.", durations, "type"),
		seats:           histogram("work_estimated_seats", "Estimates of the seats of requests.", []float64{1, 2, 4, 8, 16, 32, 64, 100}),
		queueLength:     histogram("request_queue_length_after_enqueue", "Requests in a queue when one more has entered it, with that one.", []float64{0, 10, 25, 50, 100, 250, 500, 1000}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.rejected, m.dispatched, m.noAccommodation, m.wait, m.execution, m.seats, m.queueLength}
}

// series has the metrics of the requests of one schema in one level.
type series struct {
	metrics       *metrics
	level, schema string
	once          sync.Once
	used          atomic.Bool // h is set
	h             handles
}

type handles struct {
	dispatched, noAccommodation                                                  prometheus.Counter
	seats, queueLength, dispatchedAfter, refusedAfter, execution, watchExecution prometheus.Observer
}

// handles returns the metrics, which the first request creates.
func (s *series) handles() *handles {
	s.once.Do(func() {
		m := s.metrics
		s.h = handles{
			dispatched: m.dispatched.WithLabelValues(s.level, s.schema), noAccommodation: m.noAccommodation.WithLabelValues(s.level, s.schema),
			seats: m.seats.WithLabelValues(s.level, s.schema), queueLength: m.queueLength.WithLabelValues(s.level, s.schema),
			dispatchedAfter: m.wait.WithLabelValues(s.level, s.schema, "true"), refusedAfter: m.wait.WithLabelValues(s.level, s.schema, "false"),
			execution: m.execution.WithLabelValues(s.level, s.schema, "regular"), watchExecution: m.execution.WithLabelValues(s.level, s.schema, "watch"),
		}
		s.used.Store(true)
	})
	return &s.h
}

// gauges collects what the levels and flows do at the moment.
type gauges struct{ control *Control }

// gauge is a gauge of levels, or of the schemas in them.
type gauge[T any] struct {
	desc  *prometheus.Desc
	value func(*T) float64
}

func newGauge[T any](name, help string, value func(*T) float64, labels ...string) gauge[T] {
	return gauge[T]{prometheus.NewDesc(prefix+name, help, labels, nil), value}
}

var levelGauges = func() []gauge[LevelState] {
	level := func(name, help string, value func(*LevelState) float64) gauge[LevelState] {
		return newGauge(name, help, value, levelLabel)
	}
	return []gauge[LevelState]{
		level("nominal_limit_seats", "Seats of a priority level by its shares.", func(l *LevelState) float64 { return float64(l.Seats.Nominal) }),
		level("lower_limit_seats", "Seats that a priority level keeps when it lends as many as it may.", func(l *LevelState) float64 { return float64(l.Seats.Lower) }),
		level("upper_limit_seats", "Seats of a priority level that borrows as many as it may.", func(l *LevelState) float64 { return float64(l.Seats.Upper) }),
		level("current_limit_seats", "Seats that a priority level has.", func(l *LevelState) float64 { return float64(l.Seats.Current) }),
		level("target_seats", "Seats that a priority level would have if there were enough.", func(l *LevelState) float64 { return l.Seats.Target }),
		level("demand_seats_high_watermark", "Greatest demand for seats in the last adjustment period.", func(l *LevelState) float64 { return float64(l.Seats.Demand.High) }),
		level("demand_seats_average", "Average demand for seats in the last adjustment period, weighted by time.", func(l *LevelState) float64 { return l.Seats.Demand.Average }),
		level("demand_seats_stdev", "Standard deviation of the demand for seats in the last adjustment period, weighted by time.", func(l *LevelState) float64 { return l.Seats.Demand.Deviation }),
		level("demand_seats_smoothed", "Smoothed demand for seats.", func(l *LevelState) float64 { return l.Seats.Demand.Smoothed }),
		level("current_r", "Reading of the progress meter of fair queuing, in seat-seconds.", func(l *LevelState) float64 { return l.Queues.Progress }),
	}
}()

var flowGauges = func() []gauge[FlowState] {
	flow := func(name, help string, value func(*FlowState) float64) gauge[FlowState] {
		return newGauge(name, help, value, levelLabel, schemaLabel)
	}
	return []gauge[FlowState]{
		flow("current_inqueue_requests", "Requests that wait in queues.", func(f *FlowState) float64 { return float64(f.Waiting) }),
		flow("current_inqueue_seats", "Seats for which requests wait in queues.", func(f *FlowState) float64 { return float64(f.WaitingSeats) }),
		flow("current_executing_requests", "Requests that hold seats.", func(f *FlowState) float64 { return float64(f.Executing) }),
		flow("current_executing_seats", "Seats that are taken, also the final seats of requests that have ended.", func(f *FlowState) float64 { return float64(f.Taken) }),
	}
}()

// watchesDesc is a metric that kube-apiserver does not have.
var watchesDesc = prometheus.NewDesc("stele_flow_watches", "Open watches.", []string{schemaLabel}, nil)

var fairDesc = prometheus.NewDesc(prefix+"seat_fair_frac", "Part of their target seats that priority levels get, unless their limits say otherwise.", nil, nil)

// Describe implements [prometheus.Collector].
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, x := range levelGauges {
		to <- x.desc
	}
	for _, x := range flowGauges {
		to <- x.desc
	}
	to <- watchesDesc
	to <- fairDesc
}

// Collect implements [prometheus.Collector].
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	for _, l := range g.control.Levels() {
		for _, x := range levelGauges {
			to <- prometheus.MustNewConstMetric(x.desc, prometheus.GaugeValue, x.value(&l), l.Name)
		}
	}
	sums, watches, fair := g.control.sums()
	for n, f := range sums {
		for _, x := range flowGauges {
			to <- prometheus.MustNewConstMetric(x.desc, prometheus.GaugeValue, x.value(f), n[0], n[1])
		}
	}
	for schema, n := range watches {
		to <- prometheus.MustNewConstMetric(watchesDesc, prometheus.GaugeValue, float64(n), schema)
	}
	to <- prometheus.MustNewConstMetric(fairDesc, prometheus.GaugeValue, fair)
}

// sums returns what the flows do, in sum for each schema of a level that has had requests. It also returns the numbers of
// watches by schema, and the fair fraction.
func (c *Control) sums() (map[[2]string]*FlowState, map[string]int, float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sums, open := map[[2]string]*FlowState{}, map[string]int{}
	for n, s := range c.series {
		if s.used.Load() {
			sums[n] = &FlowState{}
		}
	}
	for _, l := range c.levels {
		for _, f := range l.set.Flows() {
			n := [2]string{l.name, f.Schema}
			if sums[n] == nil {
				if f.Executing+f.Waiting+f.Taken == 0 {
					continue
				}
				sums[n] = &FlowState{} // of a schema that the policy does not have any more
			}
			x := sums[n]
			x.Taken, x.Executing, x.Waiting, x.WaitingSeats = x.Taken+f.Taken, x.Executing+f.Executing, x.Waiting+f.Waiting, x.WaitingSeats+f.WaitingSeats
		}
	}
	for schema, w := range c.watches {
		if n := w.count(); n > 0 {
			open[schema] = n
		}
	}
	return sums, open, c.fair
}
