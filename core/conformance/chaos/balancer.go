package chaos

import (
	"io"
	"net"
	"sync"
	"time"
)

// Balancer forwards TCP connections to one of some addresses: the first that accepts, beginning with another one each time. It is safe
// for concurrent use.
type Balancer struct {
	listener net.Listener

	mu      sync.Mutex
	targets []string
	next    int
	open    map[net.Conn]struct{} // both ends of all connections; nil after Close
	copying sync.WaitGroup
}

// NewBalancer returns a balancer that listens on a free port of this machine. The caller closes it.
func NewBalancer(targets ...string) (*Balancer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Balancer{listener: listener, targets: targets, open: map[net.Conn]struct{}{}}
	b.copying.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // closed
			}
			b.copying.Go(func() { b.forward(c) })
		}
	})
	return b, nil
}

// Address returns the address where the balancer listens.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// SetTargets replaces the addresses. Connections stay.
func (b *Balancer) SetTargets(targets ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.targets = targets
}

// Reset closes all connections, so that clients connect again.
func (b *Balancer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.open {
		_ = c.Close()
	}
}

// Close stops listening and closes all connections.
func (b *Balancer) Close() error {
	err := b.listener.Close()
	b.Reset()
	b.mu.Lock()
	b.open = nil
	b.mu.Unlock()
	b.copying.Wait()
	return err
}

// forward connects a client with an address, until one of both closes the connection.
func (b *Balancer) forward(client net.Conn) {
	defer client.Close()
	server := b.dial()
	if server == nil {
		return
	}
	defer server.Close()
	if !b.track(client, server) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, client)
	delete(b.open, server)
}

// dial connects to the first address that accepts; nil if none does.
func (b *Balancer) dial() net.Conn {
	b.mu.Lock()
	targets, first := b.targets, b.next
	b.next++
	b.mu.Unlock()
	for i := range targets {
		if c, err := net.DialTimeout("tcp", targets[(first+i)%len(targets)], time.Second); err == nil {
			return c
		}
	}
	return nil
}

// track records connections for Reset and Close. It returns false if the balancer is closed.
func (b *Balancer) track(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		if b.open != nil {
			b.open[c] = struct{}{}
		}
	}
	return b.open != nil
}
