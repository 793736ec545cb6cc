// Package turns lets the writers of a log append in turns while several of them write. It only saves lost appends and
// keeps the shares fair: appends are as safe without it.
//
// The store keeps a line of writers. A writer that loses an append stands in it until it wins. A writer lets those go
// first who stood in the line before it, or before it had something to append. A writer that wins while others write,
// and soon has more to write, goes to the end of the line instead of leaving it. So writers at any distance take turns,
// and few appends are lost. A writer that has nothing to write when its turn may come leaves the line. If it does not,
// because its process ended, the others wait for it once, and take it out.
package turns

import (
	"sync"
	"time"
)

const (
	// busyFor is how long after a conflict a writer expects others.
	busyFor = time.Second
	// leastGrace is the least time that a writer in the line may take until it has something to append.
	leastGrace = time.Millisecond
	// Longest bounds the time that others wait for one writer.
	Longest = time.Second
	// MaxSkipped is how many writers one append takes out of the line: a store bounds what a transaction does.
	MaxSkipped = 64
)

// ID identifies a writer.
type ID = [16]byte

// Waiter is a writer in the line.
type Waiter struct {
	Writer    ID
	RoundTrip time.Duration // of its appends
	// Place is larger than the places of all who stood in the line before.
	Place uint64
}

// Turns is what one writer knows of the others. It is safe for concurrent use.
type Turns struct {
	writer ID
	leave  func()

	mu        sync.Mutex
	roundTrip time.Duration // of appends
	met       time.Time     // when this writer last met others
	won       time.Time     // when it last won; zero once it has more to append
	soon      bool          // after the win before, it soon had more to append
	last      uint64        // the last place in the line when it began to want to append; 0 if nobody stood there
	first     uint64        // the place of the writer that it lets go first; 0 for none
	since     time.Time     // when that began
	skipped   map[uint64]ID // by their place: writers that did not use their turn
	leaving   *time.Timer   // calls leave
}

// New returns the turns of a writer. leave makes it leave the line; it is called in a goroutine of its own.
func New(writer ID, leave func()) *Turns {
	return &Turns{writer: writer, leave: leave, skipped: map[uint64]ID{}}
}

// Wait returns how long a writer that has something to append should let others go first, given the line; 0 if it is
// its turn.
func (t *Turns) Wait(line []Waiter) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.won.IsZero() {
		t.soon, t.won = now.Sub(t.won) <= t.grace(), time.Time{}
	}
	if t.leaving != nil {
		t.leaving.Stop()
	}
	wait := t.waitForOthers(line, now)
	if wait > 0 {
		t.leaveAfter(wait + t.grace()) // unless it asks again
	}
	return wait
}

// waitForOthers returns how long to wait for those in the line who go first.
func (t *Turns) waitForOthers(line []Waiter, now time.Time) time.Duration {
	t.forget(line)
	if n := len(line); n > 0 && t.last == 0 {
		t.last = line[n-1].Place
	}
	before := true
	for _, w := range line {
		if w.Writer == t.writer {
			before = false
			continue
		}
		t.met = now
		if _, skipped := t.skipped[w.Place]; skipped || !before || w.Place > t.last {
			continue
		}
		if w.Place != t.first {
			t.first, t.since = w.Place, now
		}
		// A turn takes: to hear that it has come, to append, and here to hear of that.
		turn := min(3*w.RoundTrip+2*t.roundTrip+4*leastGrace, Longest)
		if wait := t.since.Add(turn).Sub(now); wait > 0 {
			return wait
		}
		t.skipped[w.Place] = w.Writer
	}
	return 0
}

// forget drops skipped writers that are not in the line any more.
func (t *Turns) forget(line []Waiter) {
	if len(t.skipped) == 0 {
		return
	}
	there := map[uint64]ID{}
	for _, w := range line {
		if id, skipped := t.skipped[w.Place]; skipped {
			there[w.Place] = id
		}
	}
	t.skipped = there
}

// Append is what an append does to the line: if it is lost, its writer stands in it; if it wins, its writer leaves the
// line, or goes to its end if Stays is set, and Skipped leave it.
type Append struct {
	RoundTrip time.Duration
	Stays     bool
	Skipped   []ID
	begun     time.Time
}

// Begin returns what the next append does to the line.
func (t *Turns) Begin() Append {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := Append{RoundTrip: t.roundTrip, begun: time.Now()}
	a.Stays = t.soon && a.begun.Sub(t.met) < busyFor
	for _, id := range t.skipped {
		if len(a.Skipped) == MaxSkipped {
			break // the next append takes out more
		}
		a.Skipped = append(a.Skipped, id)
	}
	return a
}

// End takes in the outcome of an append.
func (t *Turns) End(a Append, won bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.noteRoundTrip(now.Sub(a.begun))
	if won {
		t.won, t.last, t.first = now, 0, 0
	} else {
		t.met = now
	}
	if !won || a.Stays {
		t.leaveAfter(t.grace())
	}
}

// NoteRoundTrip takes in how long a call of the store took.
func (t *Turns) NoteRoundTrip(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noteRoundTrip(took)
}

func (t *Turns) noteRoundTrip(took time.Duration) {
	if t.roundTrip == 0 {
		t.roundTrip = took
	}
	t.roundTrip = (7*t.roundTrip + took) / 8
}

// grace returns how long a writer in the line may take until it has something to append.
func (t *Turns) grace() time.Duration { return max(leastGrace, t.roundTrip/2) }

// leaveAfter makes this writer leave the line after a time without a call of Wait.
func (t *Turns) leaveAfter(d time.Duration) {
	if t.leaving == nil {
		t.leaving = time.AfterFunc(d, t.leave)
		return
	}
	t.leaving.Reset(d)
}
