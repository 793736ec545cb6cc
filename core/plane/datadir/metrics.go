package datadir

import (
	"io/fs"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
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
				var s unix.Statfs_t
				if unix.Statfs(d.root, &s) != nil {
					return 0
				}
				return float64(s.Bavail) * float64(s.Bsize)
			}),
	}
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
