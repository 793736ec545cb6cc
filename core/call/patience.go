package call

import (
	"net/http"
	"sync"
	"time"
)

// Patience ends an answer whose client has stopped reading for [Stalled]. It is for answers that may take any time:
// others have a deadline as a whole. It is for one goroutine.
type Patience struct {
	control *http.ResponseController
	http1   bool

	mu      sync.Mutex
	writing bool // guarded by mu
	timer   *time.Timer
}

// NewPatience returns the patience of a call's answer.
func NewPatience(c *Call) *Patience {
	return &Patience{control: http.NewResponseController(c.W), http1: c.HTTP.ProtoMajor == 1}
}

// Begin lets the answer take any time from now on, as long as each write ends in time. It is called before the first write.
func (p *Patience) Begin() { _ = p.control.SetWriteDeadline(time.Time{}) }

// End is called after the last write. What is still buffered must be read in time.
func (p *Patience) End() { _ = p.control.SetWriteDeadline(time.Now().Add(Stalled)) }

// Write is called before a write or a flush, and the function that it returns after it. HTTP/2 keeps a write back while the
// client does not open the window of the stream, even if it reads the connection.
func (p *Patience) Write() (done func()) {
	if p.http1 {
		_ = p.control.SetWriteDeadline(time.Now().Add(Stalled))
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = true
	if p.timer == nil {
		p.timer = time.AfterFunc(Stalled, p.expire)
	} else {
		p.timer.Reset(Stalled)
	}
	return p.written
}

func (p *Patience) written() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = false
	p.timer.Stop()
}

// expire ends the stream of HTTP/2, and with it the write.
func (p *Patience) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writing { // the handler has not returned, so the answer's writer may be used
		_ = p.control.SetWriteDeadline(time.Unix(1, 0))
	}
}
