package etcdtest

import (
	"net"
	"sync"
	"time"
)

// link forwards connections from a listener to a member. It is safe for concurrent use.
type link struct {
	listener net.Listener
	network  string
	target   string

	mu    sync.Mutex
	conns map[net.Conn]bool // both ends; nil after close
	delay time.Duration     // of each direction
	cut   chan struct{}     // closed when the link is healed; nil if it is not cut
}

// newLink forwards what a listener accepts to a Unix socket.
func newLink(listener net.Listener, socket string) *link {
	l := &link{listener: listener, network: "unix", target: socket, conns: map[net.Conn]bool{}}
	go l.accept()
	return l
}

func (l *link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.forward(from)
	}
}

func (l *link) forward(from net.Conn) {
	defer from.Close()
	if !l.add(from) {
		return
	}
	defer l.remove(from)
	l.passable()
	to, err := net.Dial(l.network, l.target)
	if err != nil {
		return
	}
	defer to.Close()
	if !l.add(to) {
		return
	}
	defer l.remove(to)
	var both sync.WaitGroup
	both.Go(func() { l.copy(to, from) })
	both.Go(func() { l.copy(from, to) })
	both.Wait()
}

// copy forwards one direction of a connection. It closes both ends when one is closed.
func (l *link) copy(to, from net.Conn) {
	type chunk struct {
		due   time.Time
		bytes []byte
	}
	chunks := make(chan chunk, 1024)
	go func() {
		defer close(chunks)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				chunks <- chunk{time.Now().Add(l.delayNow()), b[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	failed := false
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		l.passable()
		if _, err := to.Write(c.bytes); err != nil && !failed {
			failed = true
			_ = from.Close()
		}
	}
	l.passable()
	if w, ok := to.(interface{ CloseWrite() error }); !ok || w.CloseWrite() != nil {
		_ = to.Close()
	}
	_ = from.Close()
	_ = to.Close()
}

// passable waits while the link is cut.
func (l *link) passable() {
	for {
		l.mu.Lock()
		cut := l.cut
		l.mu.Unlock()
		if cut == nil {
			return
		}
		<-cut
	}
}

func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case cut && l.cut == nil && l.conns != nil:
		l.cut = make(chan struct{})
	case !cut && l.cut != nil:
		close(l.cut)
		l.cut = nil
	}
}

func (l *link) setDelay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

func (l *link) delayNow() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return false
	}
	l.conns[c] = true
	return true
}

func (l *link) remove(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// drop ends the connections that are open.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *link) close() {
	_ = l.listener.Close()
	l.setCut(false)
	l.drop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = nil
}
