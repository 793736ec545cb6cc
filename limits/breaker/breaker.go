// Package breaker is a circuit breaker: it refuses calls to what keeps failing, so that they fail at once. After a
// pause it lets one call at a time through as a trial. Each failed trial doubles the pause.
package breaker

import "time"

// State is a state of a breaker.
type State int

// The states, from good to bad.
const (
	Closed   State = iota // all calls are made
	HalfOpen              // the next call is a trial, or one is on its way
	Open                  // no calls are made
)

// Outcome is the result of a call.
type Outcome int

// The outcomes. A call that was given up tells nothing.
const (
	Unknown Outcome = iota
	Succeeded
	Failed
)

// Breaker is a circuit breaker, closed at first. Its owner guards it, counts failures, and decides when to open it.
type Breaker struct {
	// First and Last are the shortest and the longest pause.
	First, Last time.Duration

	pause  time.Duration
	until  time.Time // when open: no trial before it
	open   bool
	trying bool // a trial is on its way
}

// Allow reports whether a call may be made. If the call is a trial, its outcome must be reported to [Breaker.Tried].
func (b *Breaker) Allow(now time.Time) (trial, ok bool) {
	switch b.State(now) {
	case Closed:
		return false, true
	case Open:
		return false, false
	}
	if b.trying {
		return false, false
	}
	b.trying = true
	return true, true
}

// Tried takes the outcome of a trial. Success closes the breaker. After an unknown outcome the next call is a trial.
func (b *Breaker) Tried(o Outcome, now time.Time) {
	b.trying = false
	switch o {
	case Succeeded:
		b.open = false
	case Failed:
		b.Open(now)
	}
}

// Open refuses calls for a pause, which is twice as long as the last one.
func (b *Breaker) Open(now time.Time) {
	b.pause = min(max(2*b.pause, b.First), b.Last)
	b.until, b.open = now.Add(b.pause), true
}

// Retry ends the pause: the next call is a trial.
func (b *Breaker) Retry() { b.until = time.Time{} }

// Calm makes the next pause the shortest again.
func (b *Breaker) Calm() { b.pause = 0 }

// Wait returns for how long calls are refused: for the shortest pause while a trial is on its way.
func (b *Breaker) Wait(now time.Time) time.Duration {
	if b.trying {
		return b.First
	}
	return b.until.Sub(now)
}

// State returns the state that the next call meets.
func (b *Breaker) State(now time.Time) State {
	switch {
	case !b.open:
		return Closed
	case b.trying || !now.Before(b.until):
		return HalfOpen
	}
	return Open
}

// Unused reports whether the last pause ended that long ago, and no trial is on its way.
func (b *Breaker) Unused(now time.Time, by time.Duration) bool {
	return !b.trying && now.Sub(b.until) > by
}
