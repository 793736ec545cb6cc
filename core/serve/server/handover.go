package server

import (
	"errors"
	"net"
	"sync"
)

// Handover lets servers use listeners one after the other, so that the port answers without a break. The methods are
// safe for concurrent use.
type Handover struct {
	address  net.Addr
	accepted chan accepted
	closed   chan struct{}
	close    func() error
}

// accepted is what the listener's Accept has returned.
type accepted struct {
	conn net.Conn
	err  error
}

// NewHandover takes over listeners. Close closes them. The address is that of the first.
func NewHandover(listeners ...net.Listener) *Handover {
	h := &Handover{address: listeners[0].Addr(), accepted: make(chan accepted), closed: make(chan struct{})}
	h.close = sync.OnceValue(func() error {
		close(h.closed)
		var errs []error
		for _, l := range listeners {
			errs = append(errs, l.Close())
		}
		return errors.Join(errs...)
	})
	for _, l := range listeners {
		go h.run(l)
	}
	return h
}

// run accepts connections of a listener until the handover is closed.
func (h *Handover) run(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		select {
		case h.accepted <- accepted{conn, err}:
		case <-h.closed:
			if err == nil {
				conn.Close()
			}
			return
		}
	}
}

// Close closes the listeners.
func (h *Handover) Close() error { return h.close() }

// Listener returns a listener for a server. Closing it leaves the connections that come later to the other listeners of
// the handover.
func (h *Handover) Listener() net.Listener {
	closed := make(chan struct{})
	return &turn{Handover: h, closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// turn is a listener of a handover.
type turn struct {
	*Handover
	closed chan struct{}
	close  func()
}

// Accept implements [net.Listener].
func (t *turn) Accept() (net.Conn, error) {
	select {
	case <-t.closed: // also if a connection waits
		return nil, t.closedError()
	default:
	}
	select {
	case a := <-t.accepted:
		return a.conn, a.err
	case <-t.closed:
	case <-t.Handover.closed:
	}
	return nil, t.closedError()
}

// closedError returns the error of Accept on a closed listener.
func (t *turn) closedError() error {
	return &net.OpError{Op: "accept", Net: t.Addr().Network(), Addr: t.Addr(), Err: net.ErrClosed}
}

// Close implements [net.Listener].
func (t *turn) Close() error {
	t.close()
	return nil
}

// Addr implements [net.Listener].
func (t *turn) Addr() net.Addr { return t.address }
