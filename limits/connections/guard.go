package connections

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"stele.dev/stele/limits/fair"
)

// Guard enforces limits on the connections of one port. Its methods are safe for concurrent use.
type Guard struct {
	limits     Limits
	handshakes *fair.Semaphore[netip.Prefix] // computed at the moment; nil without a limit
	metrics    metrics

	mu      sync.Mutex
	open    map[*Conn]struct{}
	sources map[netip.Prefix]*source
	opening list.List // of *Conn, the oldest first; those before the first request
}

// source has the connections of one source. The guard's mu guards it.
type source struct {
	prefix        netip.Prefix
	local         bool // a loopback address
	open, opening int
}

// New returns a guard with limits, to which it adds no defaults: see [Limits.WithDefaults].
func New(l Limits) *Guard {
	g := &Guard{limits: l, open: map[*Conn]struct{}{}, sources: map[netip.Prefix]*source{}}
	if l.Handshakes > 0 {
		g.handshakes = fair.New[netip.Prefix](l.Handshakes, 0) // those that wait are limited by Opening
	}
	g.metrics.init(g)
	return g
}

// Limits returns the limits.
func (g *Guard) Limits() Limits { return g.limits }

// Listener returns a listener with the connections of another one that the limits let in. It closes the others.
func (g *Guard) Listener(inner net.Listener) net.Listener { return &listener{inner, g} }

type listener struct {
	net.Listener
	guard *Guard
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.guard.admit(raw); c != nil {
			return c, nil
		}
	}
}

// admit returns the connection, or closes it and returns nil.
func (g *Guard) admit(raw net.Conn) *Conn {
	g.metrics.accepted.Inc()
	c := &Conn{Conn: raw, guard: g}
	c.used.Store(int64(time.Since(epoch)))
	why, closing := g.enter(c)
	for _, old := range closing {
		old.Close()
	}
	if why != "" {
		g.metrics.refused.WithLabelValues(why).Inc()
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // nothing is left of it
		}
		raw.Close()
		return nil
	}
	return c
}

// enter adds a connection, or returns why it is refused. It also returns connections that the caller must close.
func (g *Guard) enter(c *Conn) (why string, closing []*Conn) {
	var remote netip.Addr
	_, local := c.RemoteAddr().(*net.UnixAddr)
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		remote, _ = netip.AddrFromSlice(tcp.IP)
	} else if ap, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		remote = ap.Addr()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	prefix := sourceOf(remote)
	s := g.sources[prefix]
	if s == nil {
		s = &source{prefix: prefix, local: local || remote.Unmap().IsLoopback()}
	}
	if why, closing = g.room(s); why != "" {
		return why, closing
	}
	g.sources[prefix] = s // again, if its last connection was closed just now
	g.open[c] = struct{}{}
	s.open++
	s.opening++
	c.source, c.entry = s, g.opening.PushBack(c)
	if g.limits.OpeningTime > 0 {
		c.late = time.AfterFunc(g.limits.OpeningTime, func() { c.shut(closedLate) })
	}
	return "", closing
}

// few is how many connections a source may have to get one of the last places.
const few = 4

// room makes room for a connection of the source, or returns why there is none. The caller holds mu, and closes the
// connections.
func (g *Guard) room(s *source) (why string, closing []*Conn) {
	l := &g.limits
	if l.PerSource > 0 && s.open >= l.PerSource && !s.local {
		if closing = g.idlest(s, l.PerSource); len(closing) == 0 {
			return refusedSource, nil
		}
	}
	if most := l.Total; most > 0 {
		if s.open >= few && !s.local {
			most -= min(most/16, 64) // the last places are for this machine, and for sources with few connections
		}
		if len(g.open) >= most {
			more := g.idlest(nil, l.Total)
			if closing = append(closing, more...); len(more) == 0 {
				return refusedTotal, closing
			}
		}
	}
	if l.OpeningPerSource > 0 && s.opening >= l.OpeningPerSource && !s.local {
		old := g.silent(s)
		if old == nil {
			return refusedOpening, closing
		}
		closing = append(closing, old)
	}
	if l.Opening > 0 && g.opening.Len() >= l.Opening {
		old := g.silent(nil)
		if old == nil {
			return refusedOpening, closing
		}
		closing = append(closing, old)
	}
	return "", closing
}

// idlest removes some of the connections without a request, of one source if that is not nil: a part of the limit, so that a
// flood does not make each new connection look at all others. Those that never had a request of a known user go first,
// then those that had no request for longest. The caller holds mu, and closes them.
func (g *Guard) idlest(s *source, limit int) []*Conn {
	var idle []*Conn
	for c := range g.open {
		if (s == nil || c.source == s) && c.requests.Load() == 0 {
			idle = append(idle, c)
		}
	}
	slices.SortFunc(idle, func(a, b *Conn) int {
		if known := a.known.Load(); known != b.known.Load() {
			if known {
				return 1
			}
			return -1
		}
		return int(a.used.Load() - b.used.Load())
	})
	idle = idle[:min(len(idle), max(limit/64, 1))]
	for _, c := range idle {
		g.remove(c)
		g.metrics.closed.WithLabelValues(closedIdlest).Inc()
	}
	return idle
}

// silent removes the oldest connection that has sent nothing yet, of one source if that is not nil. It returns nil if there is
// none. The caller holds mu, and closes it.
func (g *Guard) silent(s *source) *Conn {
	for e := g.opening.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*Conn); (s == nil || c.source == s) && !c.spoke.Load() {
			g.remove(c)
			g.metrics.closed.WithLabelValues(closedSilent).Inc()
			return c
		}
	}
	return nil
}

// remove forgets a connection. It reports whether it was there. The caller holds mu.
func (g *Guard) remove(c *Conn) bool {
	if _, found := g.open[c]; !found {
		return false
	}
	g.opened(c)
	delete(g.open, c)
	if c.source.open--; c.source.open == 0 {
		delete(g.sources, c.source.prefix)
	}
	return true
}

// opened notes that a connection is past its opening. The caller holds mu.
func (g *Guard) opened(c *Conn) {
	if c.entry == nil {
		return
	}
	g.opening.Remove(c.entry)
	c.entry = nil
	c.source.opening--
	if c.late != nil {
		c.late.Stop()
	}
}

// Attach makes a server use the guard, after its TLS configuration and its handler are set. Its listener must be one of
// [Guard.Listener].
func (g *Guard) Attach(s *http.Server) {
	g.limits.Configure(s)
	s.Handler = g.handler(s.Handler)
	s.HTTP2.CountError = g.metrics.http2Error
	next := s.ConnContext
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if c := guarded(conn); c != nil {
			ctx = context.WithValue(ctx, connKey{}, c)
		}
		if next != nil {
			ctx = next(ctx, conn)
		}
		return ctx
	}
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if c := guarded(conn); c != nil && state != http.StateNew {
			c.began(state)
		}
	}
	config := s.TLSConfig.GetConfigForClient
	s.TLSConfig.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if c := guarded(hello.Conn); c != nil {
			if err := c.hello(hello); err != nil {
				return nil, err
			}
		}
		if config == nil {
			return nil, nil
		}
		return config(hello)
	}
}

// guarded returns the guard's connection below another; nil if there is none.
func guarded(conn net.Conn) *Conn {
	for {
		switch c := conn.(type) {
		case *Conn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

type connKey struct{}

// connOf returns the connection of a request; nil if it has none that is guarded.
func connOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// SourceOf returns the source of a request, the zero Prefix if its connection is not one of a guard.
func SourceOf(ctx context.Context) netip.Prefix {
	if c := connOf(ctx); c != nil {
		return c.source.prefix
	}
	return netip.Prefix{}
}

// Known notes that the user of a request is known, so that its connection is not among the first to be closed.
func Known(ctx context.Context) {
	if c := connOf(ctx); c != nil && !c.known.Load() {
		c.known.Store(true)
	}
}

// handler counts the requests of each connection.
func (g *Guard) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		growStack()
		c := connOf(r.Context())
		if c == nil {
			next.ServeHTTP(w, r)
			return
		}
		c.begin(r)
		defer c.end(r)
		if c.leaving.Load() {
			w.Header().Set("Connection", "close") // net/http sends a GOAWAY for it
		}
		next.ServeHTTP(w, r)
	})
}
