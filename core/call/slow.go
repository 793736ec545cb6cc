package call

import "time"

// A client that reads slowly keeps its answer's memory, but not its seats: it would keep other requests waiting for a
// server that is idle. A request gives back its seats once it has waited for its client for longer than slowFrom, and than
// a client takes that reads slowRate bytes a second. A server that is overloaded still writes several times faster.
const (
	slowFrom = 250 * time.Millisecond
	slowRate = 4 << 20
	// unpaced is how much of an answer the server's buffers hold, so that a write does not wait for the client.
	unpaced = 4 << 10
)

// pace releases the seats of a request while its client is slow to read. It is used by the goroutine of the request.
type pace struct {
	request *Call         // nil if it has no seats
	waited  time.Duration // in writes
	began   time.Time     // when the write that runs began
	timer   *time.Timer   // runs during a write; nil before the first one that may wait
}

// begin is called before bytes are written, with their number and that of all before them. It reports whether end must be called
// afterwards.
func (p *pace) begin(sent int) bool {
	if sent <= unpaced {
		return false
	}
	p.began = time.Now()
	if left := allowed(sent) - p.waited; p.timer == nil {
		c, taken := p.request, p.request.Flow.Taken
		p.timer = time.AfterFunc(left, func() { taken.Release(c) })
	} else {
		p.timer.Reset(left)
	}
	return true
}

// end is called after a write.
func (p *pace) end() {
	p.timer.Stop()
	p.waited += time.Since(p.began)
}

// allowed returns how long a client may take to read n bytes.
func allowed(n int) time.Duration {
	return slowFrom + time.Duration(n)*time.Second/slowRate
}
