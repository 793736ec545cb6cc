package read

import (
	"context"
	"sync"
	"time"
)

// apart is the most time between the ends of two streams when the server stops, and maxSpread is the most between the
// first and the last.
const (
	apart     = 10 * time.Millisecond
	maxSpread = 5 * time.Second
)

// departure ends all streams when the server stops. It is safe for concurrent use.
type departure struct {
	began context.Context // ends when the server stops
	begin context.CancelFunc

	mu      sync.Mutex
	streams int           // that are open
	gone    chan struct{} // closed when the last of them has ended; nil before the first one
	step    time.Duration // between the ends of two streams; set when the server stops
	turns   int           // that were given to streams since then
}

func newDeparture() *departure {
	d := &departure{}
	d.began, d.begin = context.WithCancel(context.Background())
	return d
}

// Drain ends all streams at once: watches with a bookmark, if the client accepts bookmarks. It does not wait for them.
// Streams that begin later end at once, too. Other reads are served as before.
func (d *departure) Drain() { d.begin() }

// DrainSpread is Drain, but the streams end one after the other, so that their clients do not all ask other servers
// in one moment. It returns when all have ended, or when the context ends.
func (d *departure) DrainSpread(ctx context.Context) {
	d.mu.Lock()
	if d.streams > 0 {
		d.step = min(apart, maxSpread/time.Duration(d.streams))
	}
	d.mu.Unlock()
	d.begin()
	for ctx.Err() == nil {
		d.mu.Lock()
		streams, gone := d.streams, d.gone
		d.mu.Unlock()
		if streams == 0 {
			return
		}
		select {
		case <-gone:
		case <-ctx.Done():
		}
	}
}

// enter adds a stream. turn is closed when the stream must end because the server stops. The caller calls leave when the
// stream has ended.
func (d *departure) enter() (turn <-chan struct{}, leave func()) {
	come, left := make(chan struct{}), make(chan struct{})
	late := d.began.Err() != nil
	d.mu.Lock()
	if d.streams++; d.streams == 1 {
		d.gone = make(chan struct{})
	}
	d.mu.Unlock()
	stop := context.AfterFunc(d.began, func() {
		defer close(come)
		if !late {
			d.wait(left)
		}
	})
	return come, sync.OnceFunc(func() {
		stop()
		close(left)
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.streams--; d.streams == 0 {
			close(d.gone)
		}
	})
}

// wait waits for the next turn, or until the stream has left.
func (d *departure) wait(left <-chan struct{}) {
	d.mu.Lock()
	pause := time.Duration(d.turns) * d.step
	d.turns++
	d.mu.Unlock()
	if pause == 0 {
		return
	}
	select {
	case <-time.After(pause):
	case <-left:
	}
}
