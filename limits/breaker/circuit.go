package breaker

import (
	"math/bits"
	"sync"
	"time"
)

// Circuit keeps questions from a plugin or a webhook that does not answer in time, so that they fail at once. It opens
// after five failures in a row, or when half of the last 32 failed. Only silence should count as a failure: if errors
// did, a client that can provoke one could shut the plugin off for everybody. It is safe for concurrent use.
type Circuit struct {
	mu      sync.Mutex
	breaker Breaker
	failed  uint32      // the last results, a bit each, the last one the lowest
	results int         // since it closed
	change  func(State) // called after a change, without the lock
}

// NewCircuit returns a closed circuit. change is called when its state has changed by an outcome.
func NewCircuit(change func(State)) *Circuit {
	return &Circuit{breaker: Breaker{First: time.Second, Last: 30 * time.Second}, change: change}
}

// Allow reports whether a question may be asked. If so, the caller must call [Circuit.Done], and tell it whether this is a trial.
func (c *Circuit) Allow() (trial, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.breaker.Allow(time.Now())
}

// Done takes the outcome of a question.
func (c *Circuit) Done(trial bool, o Outcome) {
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

func (c *Circuit) count(trial bool, o Outcome, now time.Time) {
	switch {
	case trial:
		if c.breaker.Tried(o, now); o == Succeeded {
			c.failed, c.results = 0, 0
		}
		return
	case o == Unknown, c.breaker.State(now) != Closed: // it was asked before the circuit opened
		return
	}
	c.failed <<= 1
	if o == Failed {
		c.failed |= 1
	}
	if c.results++; c.results >= 32 && c.failed == 0 {
		c.breaker.Calm()
	}
	if c.failed&0b11111 == 0b11111 || c.results >= 32 && bits.OnesCount32(c.failed) >= 16 {
		c.breaker.Open(now)
	}
}

// Retry lets the next question through as a trial, because the plugin was started again.
func (c *Circuit) Retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breaker.Retry()
}

// State returns the state that the next question meets. A client that only asks ready servers must ask this one for the
// circuit to close, so the plugin is healthy again as soon as the next question is a trial.
func (c *Circuit) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.breaker.State(time.Now())
}
