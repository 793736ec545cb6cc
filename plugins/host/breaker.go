package host

import (
	"math/bits"
	"sync"
	"time"
)

// breaker keeps questions from a plugin that doesn't answer in time, so that they fail at once. It opens after
// five failures in a row, or when half of the last 32 failed; after a while, one question at a time
// tries whether the plugin answers again.
//
// Only silence counts: if errors did, who can provoke one could shut the plugin off for everybody.
type breaker struct {
	mu      sync.Mutex
	failed  uint32 // of the last results, a bit each, the last one the lowest
	results int    // since it closed
	state   breakerState
	until   time.Time          // open: when the next question tries
	pause   time.Duration      // of the last time that it opened
	change  func(breakerState) // hears of another state; no lock is held meanwhile
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

// allow tells whether a question may be asked; if so, done must be called.
func (b *breaker) allow() bool {
	defer b.changing()()
	switch {
	case b.state == closed:
		return true
	case b.state == open && !time.Now().Before(b.until):
		b.state = halfOpen // and this question is the one that tries
		return true
	}
	return false
}

type outcome int

const (
	answered outcome = iota
	silent
	abandoned // by the callers: says nothing of the plugin
)

func (b *breaker) done(o outcome) {
	defer b.changing()()
	switch {
	case b.state == open: // asked before it opened
	case o == abandoned:
		if b.state == halfOpen {
			b.until = time.Time{} // the next one tries
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

// try lets the next question through: the plugin has been started anew.
func (b *breaker) try() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Time{}
}

// shut tells whether all questions fail at once. When the next one would try, it is not: who asks only servers that are
// ready has to ask this one for it to find out.
func (b *breaker) shut() bool { return b.now() == open }

// now is the state in which the next question would find it.
func (b *breaker) now() breakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == open && !time.Now().Before(b.until) {
		return halfOpen
	}
	return b.state
}

// changing takes the lock. What it returns gives it back, and then tells of another state.
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
