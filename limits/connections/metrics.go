package connections

import "github.com/prometheus/client_golang/prometheus"

// These are the reasons for which a connection is refused.
const (
	refusedTotal   = "limit"
	refusedSource  = "source"
	refusedOpening = "handshakes"
)

// These are the reasons for which a connection is closed.
const (
	closedIdlest = "idlest"  // another one was more useful
	closedSilent = "silent"  // it sent nothing while others wanted to
	closedLate   = "late"    // no request began in time
	closedResets = "resets"  // the client cancelled too many requests
	closedFrames = "control" // the client sent too many control frames
)

// These are the ways in which a client abuses HTTP/2.
const (
	abuseResets = "resets"
	abuseFrames = "control"
)

// metrics are the metrics of a guard.
type metrics struct {
	collectors []prometheus.Collector
	accepted   prometheus.Counter
	refused    *prometheus.CounterVec
	closed     *prometheus.CounterVec
	abuses     *prometheus.CounterVec
	http2      *prometheus.CounterVec
	bodies     prometheus.Counter
}

func (m *metrics) init(g *Guard) {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.collectors = append(m.collectors, c)
		return c
	}
	counters := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, v := range values {
			c.WithLabelValues(v)
		}
		m.collectors = append(m.collectors, c)
		return c
	}
	gauge := func(name, help string, value func() int) {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
	}
	locked := func(value func() int) func() int {
		return func() int {
			g.mu.Lock()
			defer g.mu.Unlock()
			return value()
		}
	}
	m.accepted = counter("stele_connections_accepted_total", "Connections that clients have opened, with those that were refused.")
	m.refused = counters("stele_connections_refused_total", "Connections that were closed at once, by the limit: limit (all connections), source (those of one source), handshakes.",
		"reason", refusedTotal, refusedSource, refusedOpening)
	m.closed = counters("stele_connections_closed_total", "Connections that a limit closed later: idlest and silent (to let others in), late (no request began in time), resets and control (abuse of HTTP/2).",
		"reason", closedIdlest, closedSilent, closedLate, closedResets, closedFrames)
	m.abuses = counters("stele_server_http2_abuses_total", "Connections of HTTP/2 whose clients cancelled too many requests (resets) or sent too many control frames (control).",
		"kind", abuseResets, abuseFrames)
	m.http2 = counters("stele_server_http2_errors_total", "Errors of connections and streams of HTTP/2, by the names of Go's HTTP/2 server.", "type")
	m.bodies = counter("stele_server_slow_bodies_total", "Requests that were ended because their body came too slowly.")
	gauge("stele_connections_open", "Open connections.", locked(func() int { return len(g.open) }))
	gauge("stele_connections_opening", "Open connections before their first request: in the TLS handshake, or silent.", locked(g.opening.Len))
	gauge("stele_connections_sources", "Sources of open connections: IPv4 addresses, and /64 networks of IPv6.", locked(func() int { return len(g.sources) }))
	gauge("stele_connections_limit", "How many connections may be open; 0 for no limit.", func() int { return max(g.limits.Total, 0) })
	gauge("stele_connections_handshakes_waiting", "TLS handshakes that wait for their turn.", func() int {
		if g.handshakes == nil {
			return 0
		}
		_, waiting := g.handshakes.State()
		return waiting
	})
}

// http2Error counts an error of HTTP/2. Go has a fixed number of types.
func (m *metrics) http2Error(kind string) { m.http2.WithLabelValues(kind).Inc() }

// Metrics returns the metrics of the guard.
func (g *Guard) Metrics() []prometheus.Collector { return g.metrics.collectors }
