package reload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count reloads of files and their failures, and show the hashes of the contents in use, so that replicas can
// be compared. It is a collector, and safe for concurrent use.
type Metrics struct {
	reloads *prometheus.CounterVec
	info    *prometheus.Desc
	mu      sync.Mutex
	inUse   map[string]string // hashes of contents
}

// NewMetrics returns the metrics of a part of the program: stele_PART_file_reloads_total and stele_PART_file_info.
func NewMetrics(part string) *Metrics {
	return &Metrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stele_" + part + "_file_reloads_total", Help: "How often files that " + part + " rests on were read again, and with which success.",
		}, []string{"file", "status"}),
		info:  prometheus.NewDesc("stele_"+part+"_file_info", "What is in use of a file that "+part+" rests on, as a hash.", []string{"file", "hash"}, nil),
		inUse: map[string]string{},
	}
}

// Outcome returns the File.Outcome of a file with a flag's name: it counts and logs each reload.
func (m *Metrics) Outcome(logger *slog.Logger, flag, path string) func(error) {
	success, failure := m.reloads.WithLabelValues(flag, "success"), m.reloads.WithLabelValues(flag, "failure")
	return func(err error) {
		if err != nil {
			failure.Inc()
			logger.Error("a changed file cannot be used; what it said before stays in use", "flag", "--"+flag, "file", path, "error", err)
			return
		}
		success.Inc()
		logger.Info("a changed file is in use", "flag", "--"+flag, "file", path)
	}
}

// InUse records the content of a file that is now in use. The content must not be a secret: many people can read
// metrics, and can test a guess against the hash.
func (m *Metrics) InUse(file string, content []byte) {
	hash := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inUse[file] = hash
}

// Digest returns a digest of all contents that are in use; "" if there are none. Replicas with the same files have the
// same digest.
func (m *Metrics) Digest() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.inUse) == 0 {
		return ""
	}
	h := sha256.New()
	for _, file := range slices.Sorted(maps.Keys(m.inUse)) {
		fmt.Fprintf(h, "%q %s\n", file, m.inUse[file])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.reloads.Describe(to)
	to <- m.info
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.reloads.Collect(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	for file, hash := range m.inUse {
		to <- prometheus.MustNewConstMetric(m.info, prometheus.GaugeValue, 1, file, hash)
	}
}
