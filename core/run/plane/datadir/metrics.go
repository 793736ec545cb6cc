package datadir

import (
	"io/fs"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/eventlog"
)

// The names of the metrics of a data directory.
const (
	BytesMetric     = "stele_data_bytes"
	FreeBytesMetric = "stele_data_free_bytes"
)

// Metrics returns collectors that measure the data directory whenever metrics are read.
func (d *Dir) Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: BytesMetric, Help: "Size of the files in the data directory."},
			func() float64 { return float64(sizeOf(d.root)) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: FreeBytesMetric, Help: "Free space on the disk of the data directory."},
			func() float64 {
				free, _ := d.freeBytes() // 0 if it is not known
				return float64(free)
			}),
		d.usage("stele_log_used_bytes", "What the log takes in etcd's database.",
			func(u eventlog.Usage) float64 { return float64(u.Used) }),
		d.usage("stele_log_allocated_bytes", "Size of etcd's database file. What is allocated and not used is used again.",
			func(u eventlog.Usage) float64 { return float64(u.Allocated) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "apiserver_storage_size_bytes", Help: "Size of the storage database file physically allocated in bytes.", ConstLabels: prometheus.Labels{"storage_cluster_id": "etcd-0"}},
			func() float64 { return float64(d.usageNow().Allocated) }),
		d.usage("stele_log_limit_bytes", "The value of stele_log_used_bytes from which on writes are refused; deletes are accepted up to some more.",
			func(u eventlog.Usage) float64 { return float64(u.Limit) }),
		d.usage("stele_log_min_free_disk_bytes", "Free space of the disk below which writes are refused; deletes are accepted down to some less.",
			func(u eventlog.Usage) float64 { return float64(u.DiskLimit) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "stele_log_refused_total", Help: "Appends to the log that were refused because it is full."},
			func() float64 { return float64(d.usageNow().Refused) }),
		storeMetrics{d},
	}
}

// storeMetrics are those of the store of the log, once it is open.
type storeMetrics struct{ *Dir }

// Describe implements prometheus.Collector. It says nothing, because the store is opened later.
func (storeMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (d storeMetrics) Collect(to chan<- prometheus.Metric) {
	if store := d.store.Load(); store != nil {
		for _, c := range store.Metrics() {
			c.Collect(to)
		}
	}
}

// usage returns a gauge of the log's usage.
func (d *Dir) usage(name, help string, value func(eventlog.Usage) float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(d.usageNow()) })
}

// usageNow returns the log's usage, zero before OpenLog.
func (d *Dir) usageNow() eventlog.Usage {
	if log := d.log.Load(); log != nil {
		return log.Usage()
	}
	return eventlog.Usage{}
}

// sizeOf sums the sizes of the files in a folder. Files that disappear meanwhile do not count.
func sizeOf(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
