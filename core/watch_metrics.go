package core

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventBuckets are kube-apiserver's buckets of the sizes of watch events, in bytes.
var eventBuckets = prometheus.ExponentialBuckets(1024, 2, 8)

// watchedEvents collects kube-apiserver's two metrics of the events that watches sent. Both are made from one histogram: each
// event goes to every watcher, so an event costs two additions. It is safe for concurrent use.
type watchedEvents struct {
	by sync.Map // schema.GroupVersionResource -> *eventSizes
}

// eventSizes counts events by their sizes.
type eventSizes struct {
	counts [9]atomic.Uint64 // by bucket; the last one has what is larger
	bytes  atomic.Uint64
}

// of returns the sizes of the events of a served resource.
func (w *watchedEvents) of(r schema.GroupVersionResource) *eventSizes {
	s, ok := w.by.Load(r)
	if !ok {
		s, _ = w.by.LoadOrStore(r, &eventSizes{})
	}
	return s.(*eventSizes)
}

// eventBucket returns the index of the bucket of an event: each is twice as large as the one before it, and the first one has 1 KiB.
func eventBucket(bytes int) int { return min(bits.Len(uint(max(bytes-1, 0))>>10), len(eventBuckets)) }

// add counts an event of so many bytes.
func (s *eventSizes) add(bytes int) {
	s.counts[eventBucket(bytes)].Add(1)
	s.bytes.Add(uint64(bytes))
}

var (
	eventsDesc = prometheus.NewDesc("apiserver_watch_events_total", "Number of events sent in watch clients", []string{"group", "version", "resource"}, nil)
	sizesDesc  = prometheus.NewDesc("apiserver_watch_events_sizes", "Watch event size distribution in bytes", []string{"group", "version", "resource"}, nil)
)

// Describe implements prometheus.Collector.
func (w *watchedEvents) Describe(to chan<- *prometheus.Desc) { to <- eventsDesc; to <- sizesDesc }

// Collect implements prometheus.Collector.
func (w *watchedEvents) Collect(to chan<- prometheus.Metric) {
	w.by.Range(func(key, value any) bool {
		r, s := key.(schema.GroupVersionResource), value.(*eventSizes)
		buckets, all := map[float64]uint64{}, uint64(0)
		for i := range s.counts {
			all += s.counts[i].Load()
			if i < len(eventBuckets) {
				buckets[eventBuckets[i]] = all
			}
		}
		to <- prometheus.MustNewConstMetric(eventsDesc, prometheus.CounterValue, float64(all), r.Group, r.Version, r.Resource)
		to <- prometheus.MustNewConstHistogram(sizesDesc, all, float64(s.bytes.Load()), buckets, r.Group, r.Version, r.Resource)
		return true
	})
}
