// Package balance is a TCP balancer with health checks, for machines without haproxy. It passes TLS through: clients see
// the certificate of the server that they reach.
//
// A new connection goes to the server with the fewest connections among those whose /readyz says 200. A server that is not
// ready keeps the connections that it has, so that it can end them in its own time. See [Run] for the program.
package balance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options for [New].
type Options struct {
	// Servers are the addresses of the servers.
	Servers []string
	// TLS is for the health checks: it has the authorities of the servers' certificates.
	TLS *tls.Config
	// Every is the time between two health checks of a server; 500 ms if 0. A check may take as long, but at least a
	// second: a busy machine does not make all servers look dead.
	Every time.Duration
	// Logger gets a message when a server becomes ready or ceases to be; nil for none.
	Logger *slog.Logger
}

// Balancer gives each connection to a server. Its methods are safe for concurrent use.
type Balancer struct {
	options Options

	mu      sync.Mutex
	servers []*server
	open    map[net.Conn]bool // of clients and to servers
}

// server is one of the servers. Its fields are guarded by the balancer's mu.
type server struct {
	address string
	ready   bool
	conns   int
}

// New returns a balancer, which knows of no server that is ready until it runs.
func New(o Options) *Balancer {
	if o.Every == 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Balancer{options: o, open: map[net.Conn]bool{}}
	for _, address := range o.Servers {
		b.servers = append(b.servers, &server{address: address})
	}
	return b
}

// Run accepts connections until the context ends, closes the listener and all connections, and returns nil; or it returns
// the error of the listener. It is called once.
func (b *Balancer) Run(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer b.closeAll()
	defer cancel()
	for _, s := range b.servers {
		running.Go(func() { b.check(ctx, s) })
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // no more file descriptors, or the client is gone
			b.options.Logger.Warn("a connection could not be accepted", "error", err)
			pause(ctx, 10*time.Millisecond)
			continue
		}
		running.Go(func() { b.serve(ctx, conn) })
	}
}

// check asks a server whether it is ready until the context ends.
func (b *Balancer) check(ctx context.Context, s *server) {
	transport := &http.Transport{TLSClientConfig: b.options.TLS, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: max(b.options.Every, time.Second)}
	for ctx.Err() == nil {
		b.set(s, ask(ctx, client, s.address))
		pause(ctx, b.options.Every)
	}
}

// ask returns nil if a server says that it is ready.
func ask(ctx context.Context, client *http.Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz is %d", answer.StatusCode)
	}
	return nil
}

// set records whether a server is ready.
func (b *Balancer) set(s *server, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.ready == (err == nil) {
		return
	}
	if s.ready = err == nil; s.ready {
		b.options.Logger.Info("a server is ready", "server", s.address)
	} else {
		b.options.Logger.Info("a server is not ready", "server", s.address, "reason", err)
	}
}

// serve connects a client with a server.
func (b *Balancer) serve(ctx context.Context, client net.Conn) {
	defer b.forget(client)
	if !b.keep(ctx, client) {
		return
	}
	s, conn := b.connect(ctx)
	if s == nil {
		return // the client sees that the connection is closed
	}
	defer b.leave(s)
	defer b.forget(conn)
	if !b.keep(ctx, conn) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(conn, client)
	}()
	pass(client, conn)
	<-done
}

// pass copies what one side sends until it ends, and tells the other side that it has ended. After an error both end.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite() // it may be closed
	}
}

// dialTimeout is how long connecting to a server may take.
const dialTimeout = time.Second

// connect connects to a server that is ready, and counts the connection. A server that does not accept connections is
// not ready from then on. It returns nil if there is no server.
func (b *Balancer) connect(ctx context.Context) (*server, net.Conn) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	for {
		s := b.choose()
		if s == nil {
			return nil, nil
		}
		conn, err := dialer.DialContext(ctx, "tcp", s.address)
		if err == nil {
			return s, conn
		}
		b.leave(s)
		b.set(s, err)
	}
}

// choose returns the server with the fewest connections among those that are ready, and counts one more.
func (b *Balancer) choose() (least *server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servers {
		if s.ready && (least == nil || s.conns < least.conns) {
			least = s
		}
	}
	if least != nil {
		least.conns++
	}
	return least
}

// leave counts one connection less.
func (b *Balancer) leave(s *server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.conns--
}

// keep records an open connection; false if the balancer ends.
func (b *Balancer) keep(ctx context.Context, conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[conn] = true
	return ctx.Err() == nil
}

// forget closes a connection.
func (b *Balancer) forget(conn net.Conn) {
	conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, conn)
}

// closeAll closes all connections.
func (b *Balancer) closeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.open {
		conn.Close()
	}
}

// Connections returns how many connections each server has, by its address, and which servers are ready.
func (b *Balancer) Connections() (conns map[string]int, ready map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	conns, ready = map[string]int{}, map[string]bool{}
	for _, s := range b.servers {
		conns[s.address], ready[s.address] = s.conns, s.ready
	}
	return conns, ready
}

// pause waits, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
