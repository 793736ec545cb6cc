package main

import (
	"io/fs"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"stele.dev/stele/cmd/stele/internal/client"
)

// diskMetrics measures the data directory when metrics are read.
func diskMetrics(dir string) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: client.DataBytesMetric, Help: "Size of the files in the data directory."},
			func() float64 { return float64(sizeOf(dir)) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: client.FreeBytesMetric, Help: "Free space on the disk of the data directory."},
			func() float64 {
				var s unix.Statfs_t
				if unix.Statfs(dir, &s) != nil {
					return 0
				}
				return float64(s.Bavail) * float64(s.Bsize)
			}),
	}
}

// sizeOf sums the files in a folder. Files that disappear meanwhile do not count.
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
