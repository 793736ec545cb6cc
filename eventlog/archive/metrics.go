package archive

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/eventlog/segment"
)

// Metrics returns collectors for the archive and what the keeper does.
func (k *Keeper) Metrics() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	counter := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
	}
	a := k.o.Archive
	return []prometheus.Collector{
		gauge("stele_log_segments", "Segments of the log in the data directory.", func() float64 { return float64(len(a.Segments())) }),
		gauge("stele_log_segment_bytes", "Size of these segments.", func() float64 {
			return sum(a.Segments(), func(i *segment.Info) float64 { return float64(i.Size()) })
		}),
		gauge("stele_log_segment_events", "Events that these segments keep.", func() float64 {
			return sum(a.Segments(), func(i *segment.Info) float64 { return float64(i.KeptEvents) })
		}),
		gauge("stele_log_damaged_segments", "Segments that cannot be read.", func() float64 { return float64(len(a.Damaged())) }),
		gauge("stele_log_oldest_revision", "The log keeps what follows this revision.", func() float64 { return float64(a.Oldest().Revision) }),
		gauge("stele_log_sealed_revision", "Segments have the log up to this revision.", func() float64 { return float64(a.Tip().Revision) }),
		gauge("stele_log_trimmed_revision", "The log up to this revision was removed from etcd, but for its first batch; 0 if unknown.", func() float64 { return float64(k.trimmed.Load()) }),
		counter("stele_log_seal_seconds_total", "Time spent on sealing segments.", func() float64 { return time.Duration(k.sealing.Load()).Seconds() }),
		counter("stele_log_seal_errors_total", "Failed attempts to seal or trim the log.", func() float64 { return float64(k.errors.Load()) }),
	}
}

func sum(infos []segment.Info, value func(*segment.Info) float64) (total float64) {
	for i := range infos {
		total += value(&infos[i])
	}
	return total
}
