package memory

import (
	"runtime/metrics"

	"github.com/prometheus/client_golang/prometheus"
)

// reason is why a share was refused.
type reason uint8

const (
	noRoom reason = iota
	tooLarge
	reasons
)

var reasonLabels = [reasons]string{noRoom: "full", tooLarge: "too_large"}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("stele_memory_"+name, help, labels, nil)
}

var (
	limitDesc   = describe("limit_bytes", "Soft limit of the process's memory, as the runtime knows it.")
	budgetDesc  = describe("budget_bytes", "Memory that requests and watches may take together: what the limit leaves beside the server's own.")
	ownDesc     = describe("own_bytes", "Memory that the server holds itself: objects, recent changes, caches, the log, the runtime.")
	liveDesc    = describe("live_bytes", "Memory in use at the end of the last garbage collection.")
	takenDesc   = describe("taken_bytes", "Memory that requests and watches have taken of the budget.", "kind")
	waitingDesc = describe("waiting", "Requests that wait for memory.", "kind")
	waitsDesc   = describe("waits_total", "Requests that had to wait for memory.", "kind")
	refusedDesc = describe("refused_total", "Requests that were refused for lack of memory: full is a 429 after a wait, too_large a 413.", "kind", "reason")
	gcDesc      = describe("gc_cpu_seconds_total", "Estimated CPU time of garbage collections. If it grows by more than a fifth of all CPU time, the limit is too low.")
)

// Describe implements prometheus.Collector.
func (g *Guard) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{limitDesc, budgetDesc, ownDesc, liveDesc, takenDesc, waitingDesc, waitsDesc, refusedDesc, gcDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g *Guard) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gc := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(gc)
	counter(gcDesc, gc[0].Value.Float64())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refresh()
	gauge(limitDesc, g.limit)
	gauge(budgetDesc, g.budget)
	gauge(ownDesc, g.own)
	gauge(liveDesc, g.live)
	for k := range kinds {
		gauge(takenDesc, g.taken[k], k.String())
		gauge(waitingDesc, int64(len(g.waiting[k])), k.String())
		counter(waitsDesc, float64(g.waits[k]), k.String())
		for r, label := range reasonLabels {
			counter(refusedDesc, float64(g.refused[k][r]), k.String(), label)
		}
	}
}
