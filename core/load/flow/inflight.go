package flow

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	endpoints "k8s.io/apiserver/pkg/endpoints/metrics"
	"stele.dev/stele/core/call"
)

// inflight counts the requests that run, and those that wait for seats, as kube-apiserver does. A watch runs until its initial
// events are sent.
type inflight struct{ running, waiting kinds }

// kinds counts the requests that read apart from those that may change something.
type kinds struct{ reading, mutating peak }

func (k *kinds) of(r *call.Call) *peak {
	switch r.Info.Verb {
	case "get", "list", watch:
		return &k.reading
	}
	return &k.mutating
}

// peak is a number and its maximum in the last second. It is safe for concurrent use.
type peak struct {
	mu            sync.Mutex
	now           int
	most, earlier int // in the second that runs, and in the one before it
	second        int64
}

// began is when the program began: seconds are counted from there, because the clock may be set back.
var began = time.Now()

func secondOf(at time.Time) int64 { return int64(at.Sub(began) / time.Second) }

// add adds to the number at a time.
func (p *peak) add(n int, at time.Time) {
	p.mu.Lock()
	p.turn(secondOf(at))
	p.now += n
	p.most = max(p.most, p.now)
	p.mu.Unlock()
}

// turn begins another second.
func (p *peak) turn(second int64) {
	if second <= p.second {
		return
	}
	if p.earlier = p.now; second == p.second+1 {
		p.earlier = p.most
	}
	p.most, p.second = p.now, second
}

// value returns the maximum.
func (p *peak) value() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(secondOf(time.Now()))
	return float64(max(p.most, p.earlier))
}

var (
	inflightDesc = prometheus.NewDesc("apiserver_current_inflight_requests",
		"Maximal number of currently used inflight request limit of this apiserver per request kind in last second.", []string{"request_kind"}, nil)
	inqueueDesc = prometheus.NewDesc("apiserver_current_inqueue_requests",
		"Maximal number of queued requests in this apiserver per request kind in last second.", []string{"request_kind"}, nil)
)

// Describe implements [prometheus.Collector].
func (i *inflight) Describe(to chan<- *prometheus.Desc) {
	to <- inflightDesc
	to <- inqueueDesc
}

// Collect implements [prometheus.Collector].
func (i *inflight) Collect(to chan<- prometheus.Metric) {
	i.running.collect(to, inflightDesc)
	i.waiting.collect(to, inqueueDesc)
}

func (k *kinds) collect(to chan<- prometheus.Metric, desc *prometheus.Desc) {
	to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, k.reading.value(), endpoints.ReadOnlyKind)
	to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, k.mutating.value(), endpoints.MutatingKind)
}
