// Package connections limits what clients take of the server before their requests are known: connections, TLS
// handshakes, resets and control frames of HTTP/2, and bodies that arrive slowly. A [Guard] wraps the listener and the
// handler of a server; what it refuses or closes, it counts.
//
// The limits follow three rules. A new connection gets in as long as another one is of less use: the guard closes the
// connection that has been without a request for longest, and those that never had a request of a known user first. A
// source, an IPv4 address or the /64 network of an IPv6 address, gets only a part of what there is. What is refused is
// refused before it costs anything.
package connections

import (
	"math"
	"net/http"
	"net/netip"
	"runtime"
	"time"
)

// Limits are the limits of a [Guard]. A field of 0 has the default that its comment names; a negative one means no limit.
type Limits struct {
	// Total is how many connections may be open; by default as [DefaultTotal] says for the memory.
	Total int
	// PerSource is how many of them one source may have; by default half of Total. Loopback addresses have no such limit.
	PerSource int
	// Opening is how many connections may be before their first request: in the TLS handshake, or silent. The default is 1000.
	Opening int
	// OpeningPerSource is how many of these one source may have; by default a quarter of Opening.
	OpeningPerSource int
	// OpeningTime is how long a connection may take until the header of its first request has arrived, or with HTTP/2 the
	// client's first frame. The default is 15 seconds.
	OpeningTime time.Duration
	// Handshakes is how many TLS handshakes are computed at a time; by default as many as half of the processors. Others
	// wait, and sources take turns.
	Handshakes int
	// HeaderTime is how long the header of a later request of HTTP/1 may take to arrive. The default is 20 seconds.
	HeaderTime time.Duration
	// HeaderBytes is how large the header of a request may be. The default is 256 KiB.
	HeaderBytes int
	// IdleTime is how long a connection may be without a request. The default is 90 seconds.
	IdleTime time.Duration
	// Streams is how many requests may be open on a connection of HTTP/2. The default is 250.
	Streams int
	// Resets is how many requests a second a client may cancel on a connection of HTTP/2, ten times as many at once. The
	// default is 100.
	Resets int
	// ControlBytes is how many bytes a second a client may send on a connection of HTTP/2 that are no requests, 64 times as
	// many at once: control frames such as PING, SETTINGS and WINDOW_UPDATE. The default is 64 KiB.
	ControlBytes int
	// BodyGrace is how long the server waits for a body of a request, in sum, before BodyRate counts. The default is 10 seconds.
	BodyGrace time.Duration
	// BodyRate is how many bytes a second of a body must arrive on average, while the server waits for them after
	// BodyGrace. The default is 4 KiB.
	BodyRate int
	// Window is how many bytes of a body a client of HTTP/2 may send before the server reads them; by default as
	// [DefaultWindow] says for the memory. A connection has as many for each stream: bodies that are not read yet do not keep
	// those of other streams from arriving.
	Window int
	// AnswerTime is how long a request and its answer may take, unless the handler allows more. The default is 90 seconds.
	AnswerTime time.Duration
}

// mostConnections is the default of [Limits.Total] if there is no limit on memory.
const mostConnections = 20_000

// DefaultTotal returns the default of [Limits.Total] for a process that may use so many bytes of memory, 0 for no limit:
// a connection for each 256 KiB, which is several times what an idle connection takes, and between 1,000 and 20,000. It is
// at most half of the files that the process may open.
func DefaultTotal(memory int64) int {
	total := int64(mostConnections)
	if memory > 0 {
		total = min(max(memory>>18, 1000), total)
	}
	if files := openFiles(); files > 0 {
		total = min(total, int64(min(files/2, math.MaxInt32)))
	}
	return int(max(total, 1))
}

// DefaultWindow returns the default of [Limits.Window] for a process that may use so many bytes of memory, 0 for no limit: from
// 64 KiB, which is the least that HTTP/2 knows, for up to 512 MiB, to 256 KiB. A client whose packets take 100 ms can send
// 640 KiB a second with the least.
func DefaultWindow(memory int64) int {
	const least, most = 64 << 10, 256 << 10
	if memory <= 0 {
		return most
	}
	return int(min(max(memory>>13, least), most))
}

// WithDefaults returns the limits with the defaults of the fields that are 0. memory is as for [DefaultTotal].
func (l Limits) WithDefaults(memory int64) Limits {
	set(&l.Total, DefaultTotal(memory))
	set(&l.PerSource, max(l.Total/2, 1))
	if l.Total < 0 && l.PerSource == 1 {
		l.PerSource = mostConnections / 2
	}
	set(&l.Opening, 1000)
	set(&l.OpeningPerSource, max(l.Opening/4, 1))
	set(&l.OpeningTime, 15*time.Second)
	set(&l.Handshakes, max(runtime.GOMAXPROCS(0)/2, 1))
	set(&l.HeaderTime, 20*time.Second)
	set(&l.HeaderBytes, 256<<10)
	set(&l.IdleTime, 90*time.Second)
	set(&l.Streams, 250)
	set(&l.Resets, 100)
	set(&l.ControlBytes, 64<<10)
	set(&l.BodyGrace, 10*time.Second)
	set(&l.BodyRate, 4<<10)
	set(&l.Window, DefaultWindow(memory))
	set(&l.AnswerTime, 90*time.Second)
	return l
}

func set[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Configure sets the limits that a server enforces by itself.
func (l Limits) Configure(s *http.Server) {
	s.ReadHeaderTimeout, s.IdleTimeout, s.WriteTimeout = max(l.HeaderTime, 0), max(l.IdleTime, 0), max(l.AnswerTime, 0)
	s.MaxHeaderBytes = l.HeaderBytes
	if l.HeaderBytes < 0 {
		s.MaxHeaderBytes = math.MaxInt32
	}
	if s.HTTP2 == nil {
		s.HTTP2 = &http.HTTP2Config{}
	}
	s.HTTP2.MaxConcurrentStreams = l.Streams
	if l.Streams < 0 {
		s.HTTP2.MaxConcurrentStreams = math.MaxInt32
	}
	s.HTTP2.MaxReceiveBufferPerStream = l.Window
	s.HTTP2.MaxReceiveBufferPerConnection = int(min(int64(l.Window)*int64(s.HTTP2.MaxConcurrentStreams), math.MaxInt32))
}

// Source returns the source of an address and port: the IPv4 address, or the /64 network of the IPv6 address, because a
// client that has one address of it can use all. It is the zero Prefix if the address is not one of IP.
func Source(remote string) netip.Prefix {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	return sourceOf(address.Addr())
}

func sourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits)
	return p
}
