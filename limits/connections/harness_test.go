package connections_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/limits/connections"
)

// keys are made once: that takes time.
var keys = sync.OnceValues(func() (*pki.Authority, *tls.Certificate) {
	ca, err := pki.LoadAuthority(folder)
	if err != nil {
		panic(err)
	}
	certificate, err := ca.ServerCertificate(folder, []string{"server"})
	if err != nil {
		panic(err)
	}
	now, err := certificate.Get(nil) // later it would be renewed by the clock of a test
	if err != nil {
		panic(err)
	}
	return ca, now
})

// today is the time at which certificates are verified: tests have a clock of their own.
func today() time.Time { return started }

var started = time.Now()

// port is a server with a guard, on a network of pipes.
type port struct {
	*connections.Guard
	t     *testing.T
	roots *x509.CertPool
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

// listen serves a handler until the test ends.
func listen(t *testing.T, l connections.Limits, handler http.HandlerFunc) *port {
	ca, certificate := keys()
	p := &port{Guard: connections.New(l.WithDefaults(0)), t: t, roots: ca.Pool(), conns: make(chan net.Conn), over: make(chan struct{})}
	s := server.New(handler, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }, nil, p.Guard, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- s.ServeTLS(p.Listener(p), "", "") }()
	t.Cleanup(func() {
		s.Close()
		<-ended
		synctest.Wait()
		if open := p.metric("stele_connections_open"); open != 0 {
			t.Errorf("%v connections are open after the end", open)
		}
		if opening := p.metric("stele_connections_opening"); opening != 0 {
			t.Errorf("%v connections are opening after the end", opening)
		}
	})
	return p
}

// Accept implements net.Listener.
func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.over) })
	return nil
}

func (p *port) Addr() net.Addr { return address("server:443") }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// end is the server's end of a pipe.
type end struct {
	net.Conn
	remote address
}

func (e end) RemoteAddr() net.Addr { return e.remote }

// buffered is a pipe with a buffer for what it sends, as a network has. Without one, two ends that say goodbye at the same
// time wait for each other.
type buffered struct {
	net.Conn
	queue chan []byte
	over  chan struct{}
	once  *sync.Once
}

func newBuffered(c net.Conn) buffered {
	b := buffered{c, make(chan []byte, 16), make(chan struct{}), new(sync.Once)}
	go func() {
		defer c.Close()
		for {
			select {
			case part := <-b.queue:
				if _, err := c.Write(part); err != nil {
					b.Close()
					return
				}
			case <-b.over:
				return
			}
		}
	}()
	return b
}

func (b buffered) Write(part []byte) (int, error) {
	select {
	case <-b.over:
		return 0, io.ErrClosedPipe
	default:
	}
	select {
	case b.queue <- bytes.Clone(part):
		return len(part), nil
	case <-b.over:
		return 0, io.ErrClosedPipe
	}
}

func (b buffered) Close() error {
	b.once.Do(func() { close(b.over) })
	return b.Conn.Close()
}

// connect opens a connection from an IP address, without TLS.
func (p *port) connect(from string) net.Conn {
	pipe, serving := net.Pipe()
	client := newBuffered(pipe)
	p.conns <- end{serving, address(net.JoinHostPort(from, "1234"))}
	synctest.Wait() // it is admitted, or closed
	p.t.Cleanup(func() { client.Close() })
	return client
}

// handshake opens a connection of TLS.
func (p *port) handshake(from string, protocols ...string) (*tls.Conn, error) {
	c := tls.Client(p.connect(from), &tls.Config{RootCAs: p.roots, ServerName: "server", Time: today, NextProtos: protocols})
	return c, c.Handshake()
}

// client returns an HTTP client from an IP address.
func (p *port) client(from string, http2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	tr := &http.Transport{
		Protocols:       protocols,
		TLSClientConfig: &tls.Config{RootCAs: p.roots, ServerName: "server", Time: today},
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return p.connect(from), nil },
	}
	p.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func get(t *testing.T, c *http.Client) {
	t.Helper()
	resp, err := c.Get("https://server/")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// metric returns the sum of a metric of the guard, with a label value if that is given.
func (p *port) metric(name string, label ...string) float64 {
	p.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.Metrics()...)
	families, err := registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	sum, found := 0., false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if len(label) == 0 || m.GetLabel()[0].GetValue() == label[0] {
				sum, found = sum+m.GetCounter().GetValue()+m.GetGauge().GetValue(), true
			}
		}
	}
	if !found {
		p.t.Errorf("there is no metric %s %q", name, label)
	}
	return sum
}

// expect compares a metric.
func (p *port) expect(want float64, name string, label ...string) {
	p.t.Helper()
	if got := p.metric(name, label...); got != want {
		p.t.Errorf("%s %q is %v, want %v", name, label, got, want)
	}
}

// frames is a client of HTTP/2 that sends any frames. It drops what it receives, but for the last GOAWAY.
type frames struct {
	*http2.Framer
	conn   *tls.Conn
	header []byte // of a GET
	over   chan struct{}
	goaway *http2.ErrCode // nil if there was none; to be read when over
	reset  map[uint32]http2.ErrCode
	stream uint32
}

func (p *port) frames(from string, settings ...http2.Setting) *frames {
	p.t.Helper()
	conn, err := p.handshake(from, "h2")
	if err != nil {
		p.t.Fatal(err)
	}
	f := &frames{Framer: http2.NewFramer(conn, conn), conn: conn, over: make(chan struct{}), reset: map[uint32]http2.ErrCode{}}
	go func() {
		defer close(f.over)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.GoAwayFrame:
				f.goaway = &frame.ErrCode
			case *http2.RSTStreamFrame:
				f.reset[frame.StreamID] = frame.ErrCode
			}
		}
	}()
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err = errors.Join(err, f.WriteSettings(settings...)); err != nil {
		p.t.Fatal(err)
	}
	f.header = header("GET")
	return f
}

// noWindow keeps the server from sending bodies.
var noWindow = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}

func header(method string) []byte {
	var b strings.Builder
	e := hpack.NewEncoder(&b)
	for _, field := range [][2]string{{":method", method}, {":scheme", "https"}, {":path", "/"}, {":authority", "server"}} {
		_ = e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}) // to memory
	}
	return []byte(b.String())
}

// open opens a stream with a GET, and returns its number.
func (f *frames) open() (uint32, error) {
	if f.stream == 0 {
		f.stream = 1
	} else {
		f.stream += 2
	}
	return f.stream, f.WriteHeaders(http2.HeadersFrameParam{StreamID: f.stream, BlockFragment: f.header, EndStream: true, EndHeaders: true})
}

// closed waits until the server closes a connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Hour))
	if _, err := io.Copy(io.Discard, c); err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Error("the connection is open after an hour")
	}
}

// hello returns what a client of TLS sends first.
func hello(t *testing.T, p *port) []byte {
	t.Helper()
	client, other := net.Pipe()
	defer client.Close()
	defer other.Close()
	go tls.Client(client, &tls.Config{RootCAs: p.roots, ServerName: "server", Time: today}).Handshake()
	b := make([]byte, 16<<10)
	n, err := other.Read(b)
	if err != nil {
		t.Error(err)
	}
	return b[:n]
}
