package eventlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"stele.dev/stele/eventlog/logpb"
)

const (
	// MaxAhead is how far log time may be ahead of the clock without anybody being told: appends
	// take the log time of the batch before until the clock has come there.
	MaxAhead = 5 * time.Minute
	// A clock that is suddenly ahead by more than maxJump is not believed for disbelief.
	maxJump   = time.Minute
	disbelief = 10 * time.Minute
)

// ClockSet is a revision at which log time was set back, and the time from which it goes on.
type ClockSet struct {
	Revision uint64
	Time     time.Time
}

// ClockSets holds all of a log, in the order of their revisions. It is a fold over the log, see
// [ClockSets.After].
type ClockSets []ClockSet

// Time returns the log time of a revision, given the time that its batch has. What was written
// with a clock that was ahead counts as written when that was set right. So of two revisions
// the later one never has the earlier time.
func (c ClockSets) Time(revision uint64, written time.Time) time.Time {
	for _, set := range c {
		if revision < set.Revision && written.After(set.Time) {
			written = set.Time
		}
	}
	return written
}

// After returns the sets that there are after a batch. It does not change c.
func (c ClockSets) After(b *Batch) ClockSets {
	if b.Events[0].Meta.GetClockSet() == nil {
		return c
	}
	return append(c[:len(c):len(c)], ClockSet{b.First, b.Time})
}

// LastBefore returns the last revision among those from one to another whose log time is before a
// limit; 0 if there is none.
func LastBefore(ctx context.Context, log Reader, sets ClockSets, from, to uint64, limit time.Time) (last uint64, err error) {
	for at := from; from <= to; at = from + (to-from)/2 {
		batches, err := log.Back(ctx, at, 1)
		if err != nil {
			return 0, err
		}
		if len(batches) == 0 {
			return 0, fmt.Errorf("eventlog: the log has nothing at revision %d", at)
		}
		b := batches[0]
		if sets.Time(b.First, b.Time).Before(limit) {
			last, from = b.Last(), max(at, b.Last())+1 // an epoch may begin behind b
		} else if b.First <= from {
			break
		} else {
			to = b.First - 1
		}
	}
	return last, nil
}

// Now returns the time that the next batch would have by this process's clock. It is the clock's,
// but for the first minutes after the clock jumped ahead.
func (l *Log) Now() time.Time { return l.clock.now() }

// Jumped returns by how much the clock has jumped ahead, while that is not believed; else 0.
func (l *Log) Jumped() time.Duration { return l.clock.jumped() }

// Ahead returns by how much the log time of the newest batch seen is ahead of the clock; 0 if it
// is not.
func (l *Log) Ahead() time.Duration {
	_, newest := l.newestTime()
	return max(0, newest.Sub(l.Now()))
}

// SetClock sets log time to the clock, which the caller has found behind it ([Log.Ahead]), by an event of
// its own. Like [Log.Append] it is conditional on `after` being the tip; if it is not, the batch is nil
// and newer holds what follows. The caller MUST know that the clock is right now. Errors are those of
// Append. It is safe for concurrent use.
func (l *Log) SetClock(ctx context.Context, after Head) (set *Batch, newer []*Batch, err error) {
	entry, err := Encode(&Event{Meta: &logpb.Metadata{
		Type:   logpb.Type_TYPE_CLOCK_SET,
		Detail: &logpb.Metadata_ClockSet{ClockSet: &logpb.ClockSet{AheadNano: int64(l.Ahead())}},
	}})
	if err != nil {
		return nil, nil, err
	}
	return l.append(ctx, after, NewDraft([]*Entry{entry}), l.Now())
}

// newestTime returns the revision of the newest batch seen, and its time.
func (l *Log) newestTime() (uint64, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newestRevision, l.newest
}

// logTime is the time of the next batch: the clock's, but never before a batch that was seen.
func (l *Log) logTime() time.Time {
	_, newest := l.newestTime()
	if now := l.Now(); now.After(newest) {
		return now
	}
	return newest
}

// saw takes note of a batch's time. l.mu is held.
func (l *Log) saw(b *Batch) {
	if b.Last() >= l.newestRevision {
		l.newestRevision, l.newest = b.Last(), b.Time
	}
}

// clock reads a clock that may be set while the process runs. Time that has elapsed is told by
// another clock, which cannot be set: a clock that is suddenly ahead of that is not believed
// at once, since what is written with it could not be taken back. Its methods are safe for
// concurrent use.
type clock struct {
	read    func() time.Time
	elapsed func() time.Duration

	mu       sync.Mutex
	believed time.Time     // the last time that was believed
	at       time.Duration // what had elapsed then
	doubted  time.Duration // by how much the clock is ahead of what is believed; 0 if it is not in doubt
	since    time.Duration // what had elapsed when the doubt began
}

func newClock(read func() time.Time, elapsed func() time.Duration) *clock {
	if read == nil {
		read = time.Now
		if elapsed == nil {
			start, booted := time.Now(), sinceBoot()
			elapsed = withSleep(func() time.Duration { return time.Since(start) }, func() time.Duration { return sinceBoot() - booted })
		}
	}
	c := &clock{read: read, elapsed: elapsed}
	c.believed = read()
	if elapsed != nil {
		c.at = elapsed()
	}
	return c
}

// withSleep returns the time that has elapsed, with what the machine slept. Go's monotonic clock stands still
// meanwhile: after a night the clock would seem to have jumped. The other clock may not be known.
func withSleep(awake, all func() time.Duration) func() time.Duration {
	return func() time.Duration { return max(awake(), all()) }
}

func (c *clock) now() time.Time {
	now, _ := c.look()
	return now
}

func (c *clock) jumped() time.Duration {
	_, jumped := c.look()
	return jumped
}

func (c *clock) look() (now time.Time, jumped time.Duration) {
	if c.elapsed == nil {
		return c.read(), 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, elapsed := c.read().Round(0), c.elapsed() // without its monotonic reading, which a jump does not change
	expected := c.believed.Add(elapsed - c.at).Round(0)
	ahead := wall.Sub(expected)
	if ahead <= maxJump || c.doubted > 0 && elapsed-c.since >= disbelief {
		c.believed, c.at, c.doubted = wall, elapsed, 0
		return wall, 0
	}
	if c.doubted == 0 {
		c.since = elapsed
	}
	c.doubted = ahead
	return expected, ahead
}
