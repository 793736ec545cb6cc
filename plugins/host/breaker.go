package host

import (
	"math/bits"
	"sync"
	"time"

	"stele.dev/stele/limits/breaker"
)

// circuit keeps questions from a plugin that does not answer in time, so that they fail at once. It opens after five
// failures in a row, or when half of the last 32 failed. Only silence counts as a failure: if errors did, a client that
// can provoke one could shut the plugin off for everybody. It is safe for concurrent use.
type circuit struct {
	mu      sync.Mutex
	breaker breaker.Breaker
	failed  uint32              // the last results, a bit each, the last one the lowest
	results int                 // since it closed
	change  func(breaker.State) // called after a change, without the lock
}

func newCircuit(change func(breaker.State)) *circuit {
	return &circuit{breaker: breaker.Breaker{First: time.Second, Last: 30 * time.Second}, change: change}
}

// allow reports whether a question may be asked. If so, the caller must call done, and tell it whether this is a trial.
func (c *circuit) allow() (trial, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.breaker.Allow(time.Now())
}

// done takes the outcome of a question.
func (c *circuit) done(trial bool, o breaker.Outcome) {
	c.mu.Lock()
	now := time.Now()
	was := c.breaker.State(now)
	c.count(trial, o, now)
	is := c.breaker.State(now)
	c.mu.Unlock()
	if is != was {
		c.change(is)
	}
}

func (c *circuit) count(trial bool, o breaker.Outcome, now time.Time) {
	switch {
	case trial:
		if c.breaker.Tried(o, now); o == breaker.Succeeded {
			c.failed, c.results = 0, 0
		}
		return
	case o == breaker.Unknown, c.breaker.State(now) != breaker.Closed: // it was asked before the circuit opened
		return
	}
	c.failed <<= 1
	if o == breaker.Failed {
		c.failed |= 1
	}
	if c.results++; c.results >= 32 && c.failed == 0 {
		c.breaker.Calm()
	}
	if c.failed&0b11111 == 0b11111 || c.results >= 32 && bits.OnesCount32(c.failed) >= 16 {
		c.breaker.Open(now)
	}
}

// retry lets the next question through as a trial, because the plugin was started again.
func (c *circuit) retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breaker.Retry()
}

// state returns the state that the next question meets. A client that only asks ready servers must ask this one for the
// circuit to close, so the plugin is healthy again as soon as the next question is a trial.
func (c *circuit) state() breaker.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.breaker.State(time.Now())
}
