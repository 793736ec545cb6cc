package read

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	"stele.dev/stele/core/call"
)

// socket is a watch over WebSocket (RFC 6455), for clients that cannot read a stream in another way. Each event is a
// message: text if its encoding is text, else binary. Messages from the client are dropped.
type socket struct {
	text bool
	over chan struct{} // closed when the connection has ended

	mu   sync.Mutex      // one message or ping at a time, each with its own deadline
	conn *websocket.Conn // nil if the client's handshake was refused
}

// pingEvery is how often a socket gets a ping. Pings keep proxies from closing a quiet connection, and reveal a
// client that has vanished.
const pingEvery = 30 * time.Second

// asksForSocket reports whether the request is a WebSocket handshake. HTTP/2 has none.
func asksForSocket(q *http.Request) bool {
	return q.ProtoMajor == 1 && strings.EqualFold(q.Header.Get("Upgrade"), "websocket") &&
		strings.Contains(strings.ToLower(q.Header.Get("Connection")), "upgrade")
}

// newSocket answers the handshake by kube-apiserver's rules: with an Origin, and at most one subprotocol. It calls
// gone when the client disconnects. It returns nil if the connection cannot be taken over.
func newSocket(w http.ResponseWriter, q *http.Request, text bool, gone func()) *socket {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	s := &socket{text: text, over: make(chan struct{})}
	accepted := make(chan *websocket.Conn)
	go func() {
		defer close(s.over)
		defer gone()
		websocket.Handler(func(c *websocket.Conn) {
			accepted <- c
			_, _ = io.Copy(io.Discard, c) // until either side closes it
		}).ServeHTTP(hijacked{w, conn, buffered}, q)
	}()
	select {
	case s.conn = <-accepted:
		go s.keepAlive()
	case <-s.over:
	}
	return s
}

// hijacked is a ResponseWriter whose connection has been taken over.
type hijacked struct {
	http.ResponseWriter
	conn     net.Conn
	buffered *bufio.ReadWriter
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, h.buffered, nil }

// send sends a message. The error is ErrGone if the client has disconnected.
func (s *socket) send(message []byte) error {
	kind := byte(websocket.BinaryFrame)
	if s.text {
		kind = websocket.TextFrame
	}
	return s.write(message, kind)
}

func (s *socket) write(message []byte, kind byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return ErrGone
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(call.Stalled))
	frame := websocket.Codec{Marshal: func(any) ([]byte, byte, error) { return message, kind, nil }}
	if err := frame.Send(s.conn, nil); err != nil {
		return ErrGone
	}
	_ = s.conn.SetWriteDeadline(time.Time{}) // answers to the client's pings have none
	return nil
}

func (s *socket) keepAlive() {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.over:
			return
		case <-ticker.C:
			if s.write(nil, websocket.PingFrame) != nil {
				s.conn.Close()
				return
			}
		}
	}
}

// close closes the connection and waits until it has ended.
func (s *socket) close() {
	if s.conn != nil {
		_ = s.conn.SetDeadline(time.Now().Add(time.Second))
		s.conn.Close()
	}
	<-s.over
}
