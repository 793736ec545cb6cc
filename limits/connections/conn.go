package connections

import (
	"container/list"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a connection that a [Guard] has let in.
type Conn struct {
	net.Conn
	guard *Guard

	// The guard's mu guards these.
	source *source
	entry  *list.Element // among those that open; nil from the first request on
	late   *time.Timer   // closes the connection if the first request is late

	requests atomic.Int32 // in handlers at the moment
	used     atomic.Int64 // when the last one ended, or the connection began: nanoseconds since epoch
	known    atomic.Bool  // a user of a request was known
	spoke    atomic.Bool  // the client has sent a TLS hello
	leaving  atomic.Bool  // the client is told to go away
	begun    atomic.Bool  // the first request has begun

	computing atomic.Bool // it has a place among the handshakes

	http2 atomic.Bool
	// What the client sent that was of use: headers of requests, bodies, and acknowledgements of what it got.
	useful atomic.Int64
	// These are of the goroutine that reads.
	received int64 // bytes
	check    int64 // the number of received bytes at which frames are counted next
	control  level

	mu     sync.Mutex
	resets level // guarded by mu
}

// epoch is when the process began. Reading the time since then is cheaper than reading the date.
var epoch = time.Now()

// level is how full a bucket is that leaks.
type level struct {
	now  float64
	at   time.Time
	seen int64 // what was added in all
}

// add adds to the bucket, which has lost rate a second since. It reports whether it holds no more than full.
func (l *level) add(n, rate, full float64) bool {
	now := time.Now()
	if !l.at.IsZero() {
		l.now = max(0, l.now-now.Sub(l.at).Seconds()*rate)
	}
	l.at = now
	l.now = max(0, l.now+n)
	return l.now <= full
}

// hello begins a handshake whose client has said which protocols it speaks. It waits for a place among the handshakes
// that are computed.
func (c *Conn) hello(h *tls.ClientHelloInfo) error {
	c.spoke.Store(true)
	c.http2.Store(slices.Contains(h.SupportedProtos, "h2"))
	if c.guard.handshakes == nil {
		return nil
	}
	if err := c.guard.handshakes.Acquire(h.Context(), c.source.prefix); err != nil {
		return err
	}
	c.computing.Store(true)
	return nil
}

// computed gives back the place among the handshakes.
func (c *Conn) computed() {
	if c.computing.CompareAndSwap(true, false) {
		c.guard.handshakes.Release()
	}
}

// began notes that the first request begins: the handshake is done.
func (c *Conn) began(state http.ConnState) {
	if state == http.StateHijacked {
		c.requests.Add(1) // it is in use until it is closed
		c.http2.Store(false)
	}
	if c.begun.Swap(true) {
		return
	}
	c.computed()
	g := c.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened(c)
}

// requestBytes is what a request's header may have beside its token.
const requestBytes = 16 << 10

func (c *Conn) begin(r *http.Request) {
	c.requests.Add(1)
	useful := requestBytes
	if token := r.Header["Authorization"]; len(token) > 0 {
		useful += len(token[0])
	}
	c.useful.Add(int64(useful))
}

// end ends a request. Its context has ended before only if the client has cancelled it, or is gone.
func (c *Conn) end(r *http.Request) {
	c.used.Store(int64(time.Since(epoch)))
	c.requests.Add(-1)
	if r.ProtoMajor != 2 || r.Context().Err() == nil || c.guard.limits.Resets <= 0 {
		return
	}
	rate := float64(c.guard.limits.Resets)
	c.mu.Lock()
	ok := c.resets.add(1, rate, 10*rate)
	c.mu.Unlock()
	if !ok && c.leaving.CompareAndSwap(false, true) {
		c.guard.metrics.abuses.WithLabelValues(abuseResets).Inc()
		// The next answer tells the client to go away. It may end its other requests until then.
		time.AfterFunc(leavingTime, func() { c.shut(closedResets) })
	}
}

// leavingTime is how long a connection stays whose client was told to go away.
const leavingTime = 5 * time.Second

// firstFlight is more than a server sends before it has computed a signature: a HelloRetryRequest.
const firstFlight = 128

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	if len(b) > firstFlight && c.computing.Load() {
		c.computed()
	}
	http2 := c.http2.Load()
	if http2 {
		// What else is ready for this connection is encoded first, and the next write sends all of it. Otherwise each of the streams
		// that a change wakes would cost a record of TLS and a system call.
		runtime.Gosched()
	}
	n, err := c.Conn.Write(b)
	if http2 {
		c.useful.Add(int64(n) / 8) // the client opens its window for it
	}
	return n, err
}

// checkEvery is after how many bytes frames are counted.
const checkEvery = 64 << 10

// errFlood ends a connection with too many control frames.
var errFlood = errors.New("connections: too many control frames")

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received += int64(n)
	if c.received < c.check || !c.http2.Load() {
		return n, err
	}
	c.check = c.received + checkEvery
	rate := float64(c.guard.limits.ControlBytes)
	if rate <= 0 {
		return n, err
	}
	// A window that was opened before is useful later: what is useful beyond what came in is lost.
	rest := c.received - c.useful.Load()
	added := rest - c.control.seen
	c.control.seen = rest
	if !c.control.add(float64(added), rate, 64*rate) {
		c.guard.metrics.abuses.WithLabelValues(abuseFrames).Inc()
		c.shut(closedFrames)
		return 0, errFlood
	}
	return n, err
}

// shut closes the connection for a reason, unless it is closed.
func (c *Conn) shut(why string) {
	g := c.guard
	g.mu.Lock()
	open := g.remove(c)
	g.mu.Unlock()
	if open {
		g.metrics.closed.WithLabelValues(why).Inc()
		c.Close()
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	g := c.guard
	g.mu.Lock()
	g.remove(c)
	g.mu.Unlock()
	c.computed()
	return c.Conn.Close()
}
