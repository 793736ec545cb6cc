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
	done    func() // written

	mu      sync.Mutex
	since   time.Time // guarded by mu: when the write that runs began; zero if none does
	running bool      // guarded by mu: the timer runs, perhaps since an earlier write
	timer   *time.Timer
}

// NewPatience returns the patience of a call's answer.
func NewPatience(c *Call) *Patience {
	p := &Patience{control: http.NewResponseController(c.W), http1: c.HTTP.ProtoMajor == 1}
	p.done = p.written
	return p
}

// Begin lets the answer take any time from now on, as long as each write ends in time. It is called before the first write.
func (p *Patience) Begin() { _ = p.control.SetWriteDeadline(time.Time{}) }

// End is called after the last write. What is still buffered must be read in time.
func (p *Patience) End() { _ = p.control.SetWriteDeadline(time.Now().Add(Stalled)) }

// Write is called before a write or a flush, and the function that it returns after it. HTTP/2 keeps a write back while the
// client does not open the window of the stream, even if it reads the connection.
//
// A timer that is set and stopped for each event costs much of what the event does. So it goes on after a write, and looks
// when it fires whether another one has begun.
func (p *Patience) Write() (done func()) {
	now := time.Now()
	if p.http1 {
		_ = p.control.SetWriteDeadline(now.Add(Stalled))
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = now
	if !p.running {
		p.set(Stalled)
	}
	return p.done
}

// set starts the timer. The caller holds mu.
func (p *Patience) set(d time.Duration) {
	p.running = true
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.expire)
	} else {
		p.timer.Reset(d)
	}
}

func (p *Patience) written() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
}

// expire ends the stream of HTTP/2, and with it the write, if that has taken too long.
func (p *Patience) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	if p.since.IsZero() {
		return
	}
	if left := Stalled - time.Since(p.since); left > 0 {
		p.set(left)
		return
	}
	_ = p.control.SetWriteDeadline(time.Unix(1, 0)) // the handler has not returned, so the answer's writer may be used
}
