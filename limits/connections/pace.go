package connections

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Body returns the body of a request, which must arrive at the rate of the limits, and before the context ends: otherwise
// Read returns an error with code 408. Only the time counts in which Read waits, so a client is not blamed for a server
// that is slow to read. It returns the body itself if its connection has no limits.
func Body(ctx context.Context, w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	c := connOf(ctx)
	if c == nil || body == nil || body == http.NoBody {
		return body
	}
	l := &c.guard.limits
	p := &paced{ReadCloser: body, conn: c, control: http.NewResponseController(w), grace: l.BodyGrace, rate: int64(l.BodyRate)}
	p.until, _ = ctx.Deadline()
	return p
}

// paced is a body that must arrive at a rate. Read and Close are for one goroutine at a time.
type paced struct {
	io.ReadCloser
	conn    *Conn
	control *http.ResponseController
	grace   time.Duration
	rate    int64         // 0 or less for none
	until   time.Time     // zero for none
	read    int64         // bytes
	waited  time.Duration // in Read

	timer *time.Timer

	mu      sync.Mutex
	reading bool // guarded by mu
	slow    bool // guarded by mu; the body is not read any more
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	start := time.Now()
	if !p.begin(start) {
		return 0, p.tooSlow()
	}
	n, err := p.ReadCloser.Read(b)
	p.read += int64(n)
	p.waited += time.Since(start)
	p.conn.useful.Add(int64(n))
	if !p.done() || errors.Is(err, os.ErrDeadlineExceeded) {
		p.conn.guard.metrics.bodies.Inc()
		return 0, p.tooSlow()
	}
	return n, err
}

// begin starts a read. It reports whether the body may be read.
func (p *paced) begin(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slow {
		return false
	}
	patience := time.Duration(-1)
	if p.rate > 0 && p.grace >= 0 {
		patience = p.grace + time.Duration(p.read*int64(time.Second)/p.rate) - p.waited
	}
	if !p.until.IsZero() && (patience < 0 || p.until.Sub(now) < patience) {
		patience = max(p.until.Sub(now), 0)
	}
	p.reading = true
	switch {
	case patience < 0: // it may take any time
	case p.timer == nil:
		p.timer = time.AfterFunc(patience, p.expire)
	default:
		p.timer.Reset(patience)
	}
	return true
}

// done ends a read. It reports whether the read was in time.
func (p *paced) done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
	if p.timer != nil {
		p.timer.Stop()
	}
	return !p.slow
}

// expire ends a read that takes too long.
func (p *paced) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading { // the handler has not returned, so the answer's writer may be used
		p.slow = true
		_ = p.control.SetReadDeadline(time.Unix(1, 0))
	}
}

func (p *paced) tooSlow() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusRequestTimeout, Reason: metav1.StatusReasonTimeout,
		Message: fmt.Sprintf("the body of the request arrived too slowly: %d bytes in %s; send it at %d bytes a second at least", p.read, p.waited.Round(time.Millisecond), max(p.rate, 1)),
	}}
}
