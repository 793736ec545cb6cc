package members

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"
)

const (
	// clocksEvery is how often the clocks of members are read.
	clocksEvery = 30 * time.Second
	// clockFor is how long a clock that was read is trusted.
	clockFor = 10 * clocksEvery
)

// clock is what a member's clock said.
type clock struct {
	said time.Time
	at   time.Time // by this process's clock; only its monotonic reading counts
}

// readClock asks a member for its time: etcd's HTTP answers have a Date, and its gRPC answers have not. A member that serves no
// HTTP has no clock.
func (c *Cluster) readClock(ctx context.Context, m *member) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/version", nil)
	if err != nil {
		return
	}
	began := time.Now()
	answer, err := m.http.Do(q)
	if err != nil {
		return
	}
	took := time.Since(began)
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection is used again
	_ = answer.Body.Close()
	said, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.clock = clock{said.Add(500 * time.Millisecond), began.Add(took / 2)} // the Date is cut off to seconds
}

// keepReadingClock reads a member's clock at intervals, and soon again after a failure.
func (c *Cluster) keepReadingClock(m *member) {
	for {
		c.readClock(c.ctx, m)
		c.mu.Lock()
		known := !m.clock.at.IsZero()
		if !m.clockAsked {
			m.clockAsked = true
			c.wake()
		}
		c.mu.Unlock()
		again := clocksEvery
		if !known {
			again = askEvery
		}
		select {
		case <-time.After(again):
		case <-c.ctx.Done():
			return
		}
	}
}

// Time returns the time of the members' clocks, and whether it is known, which needs the clocks of most members. It is the
// median; of an even number, the one nearer to this process's clock.
func (c *Cluster) Time() (now time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var off []time.Duration // relative to this process's clock
	here := time.Now()
	for _, m := range c.members {
		if m.clock.at.IsZero() {
			continue
		}
		if age := here.Sub(m.clock.at); age < clockFor {
			off = append(off, m.clock.said.Add(age).Sub(here.Round(0)))
		}
	}
	if n := len(off); n == 0 || 2*n <= len(c.members) {
		return time.Time{}, false
	}
	slices.Sort(off)
	middle := off[len(off)/2]
	if lower := off[(len(off)-1)/2]; lower.Abs() < middle.Abs() {
		middle = lower
	}
	return here.Add(middle), true
}
