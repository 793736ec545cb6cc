package tracing

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// queue passes spans that have ended to a processor, which sends them in the background, and counts what becomes of them. The
// library drops spans in silence when too many wait, so the queue does it before. It is safe for concurrent use.
type queue struct {
	sdktrace.SpanProcessor
	limit                 int64
	waiting               atomic.Int64 // that are not sent yet, also those that are being sent
	sent, dropped, failed atomic.Uint64
}

// newQueue returns a queue of the size that the library has. The environment variables OTEL_BSP_* change it.
func newQueue(exporter sdktrace.SpanExporter) *queue {
	q := &queue{}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(&counted{exporter, q}, func(o *sdktrace.BatchSpanProcessorOptions) { q.limit = int64(o.MaxQueueSize) })
	return q
}

// OnEnd implements [sdktrace.SpanProcessor].
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > q.limit {
		q.waiting.Add(-1)
		q.dropped.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// metrics returns collectors.
func (q *queue) metrics() []prometheus.Collector {
	counter := func(name, help, reason string, n *atomic.Uint64) prometheus.Collector {
		o := prometheus.CounterOpts{Name: name, Help: help}
		if reason != "" {
			o.ConstLabels = prometheus.Labels{"reason": reason}
		}
		return prometheus.NewCounterFunc(o, func() float64 { return float64(n.Load()) })
	}
	const dropped, help = "stele_tracing_dropped_spans_total", "Spans that were not sent: queue_full if too many waited, send_failed if the collector did not take them in time."
	return []prometheus.Collector{
		counter("stele_tracing_sent_spans_total", "Spans that the collector has taken.", "", &q.sent),
		counter(dropped, help, "queue_full", &q.dropped), counter(dropped, help, "send_failed", &q.failed),
	}
}

// counted counts what becomes of the spans that are sent.
type counted struct {
	sdktrace.SpanExporter
	queue *queue
}

// ExportSpans implements [sdktrace.SpanExporter].
func (c *counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	c.queue.waiting.Add(-int64(len(spans)))
	if err != nil {
		c.queue.failed.Add(uint64(len(spans)))
	} else {
		c.queue.sent.Add(uint64(len(spans)))
	}
	return err
}
