package read

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/loopback"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/call/wire"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/status"
	"stele.dev/stele/limits/memory"
	"stele.dev/stele/projections/objects"
)

// Stream writes watch events to one client. It buffers events while more are available, up to a size.
type Stream struct {
	rd       *Reader
	c        *call.Call
	version  versions.Version                                     // converts objects to the client's version
	encode   func(object []byte, revision uint64) ([]byte, error) // nil if objects are sent as they are
	flusher  *http.ResponseController
	patience *call.Patience
	begun    bool // the header is sent
	buffer   []byte
	large    *[]byte // the buffer, if it is one of largeBuffers, with a share of memory
	small    []byte  // the stream's own buffer, while large is in its place
	ctx      context.Context
	free     func() // gives back the share of memory of the stream
	Format   negotiate.Format
	socket   *socket         // nil if events are the answer's body
	events   loopback.Events // takes the events as they are; nil if they are encoded
	sent     func(bytes int) // counts an event; nil until the stream is counted
	ended    context.CancelFunc
	leaving  <-chan struct{} // closed when the stream must end because the server stops
	left     func()
}

// NewStream negotiates the format of events. The returned context ends when the client disconnects.
func (rd *Reader) NewStream(ctx context.Context, c *call.Call) (*Stream, context.Context, error) {
	f, err := c.Format()
	if err != nil {
		return nil, nil, err
	}
	if err := f.Streams(); err != nil {
		return nil, nil, err
	}
	s := &Stream{rd: rd, c: c, Format: f, flusher: http.NewResponseController(c.W), patience: call.NewPatience(c)}
	if c.Kind != nil {
		s.version = c.ShownVersion()
	}
	if c.Cancel != nil {
		c.Cancel() // ends the stream of an earlier round
	}
	if s.free, err = rd.roomForStream(ctx); err != nil {
		return nil, nil, err
	}
	ctx, s.ended = context.WithCancel(ctx)
	s.ctx, s.events = ctx, loopback.EventsOf(ctx)
	s.leaving, s.left = rd.enter()
	c.Cancel = s.end
	return s, ctx, nil
}

// roomForStream takes the share of memory of a stream. Streams of the program's own parts are not refused: without them the
// server does not do its work.
func (rd *Reader) roomForStream(ctx context.Context) (free func(), err error) {
	if authn.Inside(ctx) {
		rd.Memory.Hold(memory.Watches, streamCost)
		return func() { rd.Memory.Free(memory.Watches, streamCost) }, nil
	}
	return rd.Memory.Take(ctx, memory.Watches, streamCost)
}

// end frees the stream when the request is done.
func (s *Stream) end() {
	s.ended()
	if s.socket != nil {
		s.socket.close()
	} else if s.begun {
		s.patience.End()
	}
	s.left()
	s.release()
	s.free()
}

// Count counts the stream and its events in the metrics of watches, until done is called.
func (s *Stream) Count() (done func()) {
	s.sent, done = s.rd.Watching(s.c)
	return done
}

// Leaving returns a channel that is closed when the stream must end because the server stops.
func (s *Stream) Leaving() <-chan struct{} { return s.leaving }

// Jitter returns a random duration between three quarters of d and d.
func Jitter(d time.Duration) time.Duration {
	return d - d/4 + time.Duration(rand.Int64N(int64(d/4)))
}

// Begin sends the header at once, because clients wait for it, or takes over the connection for a WebSocket.
func (s *Stream) Begin() {
	if asksForSocket(s.c.HTTP) {
		text := s.Format.MediaType == negotiate.JSON
		if s.socket = newSocket(s.c.W, s.c.HTTP, text, s.ended); s.socket != nil {
			s.c.W.Code, s.c.Sent = http.StatusSwitchingProtocols, true
			return
		}
	}
	s.c.WriteHeader(s.Format.StreamType())
	s.begun = true
	s.patience.Begin()
	s.c.W.WriteHeader(http.StatusOK)
	s.c.Sent = true
	defer s.patience.Write()()
	_ = s.flusher.Flush()
}

const (
	// streamCost is the memory of an open stream that waits for events: its goroutines, the request, the stream of HTTP/2 with
	// its buffers, the watcher with a short queue. It is an estimate, and not measured.
	streamCost = 32 << 10
	// bufferAtOnce is the size at which the buffer is written to the connection, if there is memory for it; else at bufferLeast.
	// A stream keeps a buffer of bufferLeast while it waits for events.
	bufferAtOnce = 64 << 10
	bufferLeast  = 4 << 10
)

// largeBuffers are *[]byte for bufferAtOnce bytes.
var largeBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, bufferAtOnce+bufferLeast)
	return &b
}}

// Frame adds an event to the buffer. On a WebSocket it is sent at once, as a message of its own.
func (s *Stream) Frame(kind string, object []byte) error {
	if s.events != nil {
		s.count(len(object))
		if s.events(kind, object) != nil {
			return ErrGone
		}
		return nil
	}
	if len(object) > bufferAtOnce {
		done, err := s.rd.Memory.Take(s.ctx, memory.Buffers, int64(len(object)))
		if err != nil {
			return err
		}
		defer done()
		defer s.release()
	}
	framed, err := wire.AppendEvent(s.buffer, s.Format.MediaType, s.socket == nil, kind, object)
	if err != nil {
		return err
	}
	s.count(len(framed) - len(s.buffer))
	s.buffer = framed
	if s.socket == nil && len(s.buffer) < bufferAtOnce && len(object) <= bufferAtOnce && (len(s.buffer) < bufferLeast || s.enlarge()) {
		return nil
	}
	return s.write()
}

func (s *Stream) count(bytes int) {
	if s.sent != nil {
		s.sent(bytes)
	}
}

// enlarge makes the buffer a large one, if there is memory for it. Slow clients keep theirs for long.
func (s *Stream) enlarge() bool {
	if s.large == nil && s.rd.Memory.Try(memory.Buffers, bufferAtOnce) {
		s.large = largeBuffers.Get().(*[]byte)
		s.small, s.buffer = s.buffer, append((*s.large)[:0], s.buffer...)
	}
	return s.large != nil
}

// release gives back the large buffer after it was written.
func (s *Stream) release() {
	if s.large != nil {
		largeBuffers.Put(s.large)
		s.rd.Memory.Free(memory.Buffers, bufferAtOnce)
		s.large, s.buffer, s.small = nil, s.small, nil
	}
	if s.buffer = s.buffer[:0]; cap(s.buffer) > 2*bufferLeast {
		s.buffer = nil
	}
}

// ErrGone reports that a stream has ended: its client has disconnected, or the server stops.
var ErrGone = errors.New("read: the client disconnected")

// write writes the buffer to the connection.
func (s *Stream) write() error {
	if len(s.buffer) == 0 {
		return nil
	}
	var err error
	if s.socket != nil {
		err = s.socket.send(s.buffer)
	} else {
		defer s.patience.Write()()
		_, err = s.c.W.Write(s.buffer)
	}
	s.release()
	if err != nil {
		return ErrGone
	}
	return nil
}

// Flush sends the buffer to the client.
func (s *Stream) Flush() error {
	if len(s.buffer) == 0 {
		return nil
	}
	if err := s.write(); err != nil {
		return err
	}
	defer s.patience.Write()()
	if err := s.flusher.Flush(); err != nil {
		return ErrGone
	}
	return nil
}

// Fail ends the stream with an ERROR event.
func (s *Stream) Fail(err error, position uint64) error {
	if errors.Is(err, ErrGone) {
		return nil
	}
	if errors.Is(err, objects.ErrExpired) {
		oldest := s.rd.Committer.Tip().Revision()
		if expired := (*objects.ExpiredError)(nil); errors.As(err, &expired) {
			oldest = expired.Oldest
		}
		err = status.Expired("too old resource version: %d (%d)", position, oldest)
	}
	st, internal := status.From(err)
	if internal {
		s.rd.Logger.Error("a watch failed", "auditID", s.c.AuditID, "path", s.c.HTTP.URL.Path, "error", err)
	}
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	if s.Frame("ERROR", text) == nil {
		_ = s.Flush()
	}
	return nil
}
