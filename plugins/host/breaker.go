package host

import (
	"math/bits"
	"sync"
	"time"
)

// breaker is a circuit breaker: when a plugin does not answer in time, it makes questions fail at once. It opens after
// five failures in a row, or when half of the last 32 questions failed. After a pause, one question at a time tries
// whether the plugin answers again.
//
// Only questions without an answer count as failures. If errors did, a user who can provoke one could shut the plugin
// off for everybody.
type breaker struct {
	mu      sync.Mutex
	failed  uint32 // the last results, one bit each: 1 for a failure; the newest is the lowest bit
	results int    // number of results since it closed
	state   breakerState
	until   time.Time          // when it is open: the time of the next try
	pause   time.Duration      // the last pause
	change  func(breakerState) // called when the state has changed, without the lock
}

type breakerState int

const (
	closed breakerState = iota
	halfOpen
	open
)

const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// allow reports whether a question may be asked. If so, the caller must call done.
func (b *breaker) allow() bool {
	defer b.changing()()
	switch {
	case b.state == closed:
		return true
	case b.state == open && !time.Now().Before(b.until):
		b.state = halfOpen // this question is the try
		return true
	}
	return false
}

type outcome int

const (
	answered outcome = iota
	silent
	abandoned // given up by the callers: says nothing about the plugin
)

// done records the outcome of a question.
func (b *breaker) done(o outcome) {
	defer b.changing()()
	switch {
	case b.state == open: // the question was asked before the breaker opened
	case o == abandoned:
		if b.state == halfOpen {
			b.until = time.Time{} // the next question is another try
			b.state = open
		}
	case b.state == halfOpen && o == answered:
		b.failed, b.results = 0, 0
		b.state = closed
	case b.state == halfOpen:
		b.open()
	default:
		b.failed <<= 1
		if o == silent {
			b.failed |= 1
		}
		if b.results++; b.results >= 32 && b.failed == 0 {
			b.pause = 0
		}
		if b.failed&0b11111 == 0b11111 || b.results >= 32 && bits.OnesCount32(b.failed) >= 16 {
			b.open()
		}
	}
}

func (b *breaker) open() {
	b.pause = min(max(2*b.pause, firstPause), lastPause)
	b.until = time.Now().Add(b.pause)
	b.state = open
}

// try lets the next question through, after the plugin was restarted.
func (b *breaker) try() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Time{}
}

// shut reports whether all questions fail at once. It is false when the next question would be a try: a load balancer
// must send requests for that, and it sends them only to servers that are ready.
func (b *breaker) shut() bool { return b.now() == open }

// now returns the state that the next question will find.
func (b *breaker) now() breakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == open && !time.Now().Before(b.until) {
		return halfOpen
	}
	return b.state
}

// changing takes the lock. The returned function releases it, and then calls change if the state is another one.
func (b *breaker) changing() func() {
	b.mu.Lock()
	was := b.state
	return func() {
		is := b.state
		b.mu.Unlock()
		if is != was {
			b.change(is)
		}
	}
}
