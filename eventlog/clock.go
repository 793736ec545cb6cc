package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"stele.dev/stele/eventlog/logpb"
)

const (
	// MaxAhead is how far log time may be ahead of the clock before this is reported. Until the clock
	// has caught up, appends repeat the log time of the previous batch.
	MaxAhead = 5 * time.Minute
	// A clock that jumps ahead by more than maxJump is ignored for ignoreFor.
	maxJump   = time.Minute
	ignoreFor = 10 * time.Minute
)

// ClockSet records that log time was set back at a revision, and to what.
type ClockSet struct {
	Revision uint64
	Time     time.Time
}

// ClockSets are all clock sets of a log, in the order of their revisions. They are a fold over the log,
// see [ClockSets.After].
type ClockSets []ClockSet

// Time returns the log time of a revision, given the time in its batch. A revision that was written with
// a clock that was ahead gets the time at which the clock was corrected, so that time never decreases
// from one revision to the next.
func (c ClockSets) Time(revision uint64, written time.Time) time.Time {
	for _, set := range c {
		if revision < set.Revision && written.After(set.Time) {
			written = set.Time
		}
	}
	return written
}

// After returns c with the clock set that a batch contains, if any. It does not change c.
func (c ClockSets) After(b *Batch) ClockSets {
	if b.Events[0].Meta.GetClockSet() == nil {
		return c
	}
	return append(c[:len(c):len(c)], ClockSet{b.First, b.Time})
}

// LastBefore returns the last revision between from and to whose log time is before limit; 0 if there is
// none, or if it is not kept any more.
func LastBefore(ctx context.Context, log Reader, sets ClockSets, from, to uint64, limit time.Time) (last uint64, err error) {
	for at := from; from <= to; at = from + (to-from)/2 {
		batches, err := log.Back(ctx, at, 1)
		if forgotten := (*ForgottenError)(nil); errors.As(err, &forgotten) {
			from = max(at, forgotten.Oldest.Revision) + 1
			continue
		}
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

// Now returns this process's time. It ignores a jump ahead of the clock for some minutes.
func (l *Log) Now() time.Time { return l.clock.current() }

// Jumped returns by how much the clock has jumped ahead, as long as this jump is ignored; else 0.
func (l *Log) Jumped() time.Duration { return l.clock.jumped() }

// Ahead returns by how much the log time of the newest known batch is ahead of the clock; else 0.
func (l *Log) Ahead() time.Duration {
	_, newest := l.newestTime()
	return max(0, newest.Sub(l.Now()))
}

// SetClock sets log time back to the clock, by an event of its own, when the caller found log time ahead
// ([Log.Ahead]). Like [Log.Append] it is conditional on `after` being the tip; if it is not, the batch is
// nil and newer holds what follows. The caller MUST know that the clock is right. Errors are those of
// Append. It is safe for concurrent use.
func (l *Log) SetClock(ctx context.Context, after Head) (set *Batch, newer []*Batch, err error) {
	draft, err := draftOf(&logpb.Metadata{
		Type:   logpb.Type_TYPE_CLOCK_SET,
		Detail: &logpb.Metadata_ClockSet{ClockSet: &logpb.ClockSet{AheadNano: int64(l.Ahead())}},
	})
	if err != nil {
		return nil, nil, err
	}
	return l.append(ctx, after, draft, l.Now())
}

// newestTime returns the last revision and the time of the newest known batch.
func (l *Log) newestTime() (uint64, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newestRevision, l.newest
}

// logTime returns the time for the next batch: the clock's, or that of the newest known batch if that is
// later.
func (l *Log) logTime() time.Time {
	_, newest := l.newestTime()
	if now := l.Now(); now.After(newest) {
		return now
	}
	return newest
}

// noteTime records the log time at a revision, if it is the newest. The caller holds l.mu.
func (l *Log) noteTime(revision uint64, t time.Time) {
	if revision >= l.newestRevision {
		l.newestRevision, l.newest = revision, t
	}
}

// clock reads the wall clock, and ignores a sudden jump ahead of it for ignoreFor: what is written with a
// wrong time cannot be changed later. It finds jumps by a second clock of elapsed time, which nobody can
// set. Its methods are safe for concurrent use.
type clock struct {
	read    func() time.Time
	elapsed func() time.Duration // nil: every reading is accepted

	mu       sync.Mutex
	accepted time.Time     // the last accepted reading
	at       time.Duration // elapsed time at that reading
	ignored  time.Duration // by how much the clock is ahead of what is expected; 0 if it has not jumped
	since    time.Duration // elapsed time when the jump was noticed
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
	c.accepted = read()
	if elapsed != nil {
		c.at = elapsed()
	}
	return c
}

// withSleep returns a clock of elapsed time that includes the time in which the machine slept. Go's
// monotonic clock stops during sleep, so that the wall clock would seem to jump. all may be unknown (0).
func withSleep(awake, all func() time.Duration) func() time.Duration {
	return func() time.Duration { return max(awake(), all()) }
}

func (c *clock) current() time.Time {
	now, _ := c.readings()
	return now
}

func (c *clock) jumped() time.Duration {
	_, jumped := c.readings()
	return jumped
}

// readings returns the time, and by how much an ignored jump is ahead of it.
func (c *clock) readings() (now time.Time, jumped time.Duration) {
	if c.elapsed == nil {
		return c.read(), 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, elapsed := c.read().Round(0), c.elapsed() // without its monotonic reading, which a jump does not change
	expected := c.accepted.Add(elapsed - c.at).Round(0)
	ahead := wall.Sub(expected)
	if ahead <= maxJump || c.ignored > 0 && elapsed-c.since >= ignoreFor {
		c.accepted, c.at, c.ignored = wall, elapsed, 0
		return wall, 0
	}
	if c.ignored == 0 {
		c.since = elapsed
	}
	c.ignored = ahead
	return expected, ahead
}
