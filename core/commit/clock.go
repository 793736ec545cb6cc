package commit

import (
	"context"
	"fmt"
	"time"

	"stele.dev/stele/eventlog"
)

const (
	clockEvery = 10 * time.Second
	// The clock was ahead if log time made a step of at least minStep between two batches, and the clock now shows a
	// time between them.
	minStep = time.Hour
)

// Now returns the time that the next event will have.
func (c *Committer) Now() time.Time { return c.log.Now() }

// ClockHealth returns an error while the clock differs much from those of the machines that keep the log, when all writes are
// refused, or while it is behind the log, when new events have the time of the newest one.
func (c *Committer) ClockHealth() error {
	if err := c.log.CheckClock(); err != nil {
		return err
	}
	if ahead := c.log.Ahead(); ahead > eventlog.MaxAhead {
		return fmt.Errorf("this machine's clock says %s, and the newest event of the log is of %s: times are not told apart until then. Set the clock; if it is right now, restart with --accept-clock",
			c.log.Now().UTC().Format(time.RFC3339), c.Tip().Time.UTC().Format(time.RFC3339))
	}
	return nil
}

// AcceptClock sets log time back to the clock, if log time is further ahead than [eventlog.MaxAhead]. Only an
// operator may order this. It must be called before Run.
func (c *Committer) AcceptClock(ctx context.Context) error {
	if err := c.log.CheckClock(); err != nil {
		return err
	}
	for c.log.Ahead() > eventlog.MaxAhead {
		if err := c.setClock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkClock sets log time back if the clock was once ahead, and logs problems of the clock. Only the goroutine of Run
// calls it. After a returned error this replica must stop; after other errors it tries again.
func (c *Committer) checkClock(ctx context.Context) error {
	told := ""
	switch ahead, jumped, off := c.log.Ahead(), c.log.Jumped(), c.log.CheckClock(); {
	case off != nil: // this clock says nothing about log time
		if told = "off"; told != c.clockTold {
			c.logger.Error("the clock is wrong; writes are refused", "reason", off)
		}
	case ahead > eventlog.MaxAhead:
		told = "behind"
		was, err := c.clockWasAhead(ctx)
		if was {
			c.logger.Warn("log time is set back to the clock: a clock was ahead when the newest events were written", "ahead", ahead.Round(time.Second))
			err = c.setClock(ctx)
		}
		switch {
		case eventlog.IsFatal(err):
			return err
		case err != nil:
			c.logger.Warn("log time cannot be set back to the clock; it is tried again", "error", err)
		case was:
			told = ""
		case told != c.clockTold:
			c.logger.Error("the clock is behind the log", "reason", c.ClockHealth())
		}
	case jumped > 0:
		if told = "jumped"; told != c.clockTold {
			c.logger.Warn("the clock has jumped ahead; for some minutes it is not believed", "by", jumped.Round(time.Second))
		}
	}
	c.clockTold = told
	return nil
}

// setClock appends the event that sets log time back, or applies what other replicas appended.
func (c *Committer) setClock(ctx context.Context) error {
	set, newer, err := c.log.SetClock(ctx, c.Tip().Head)
	if err != nil {
		return fmt.Errorf("set log time back: %w", err)
	}
	if set != nil {
		newer = append([]*eventlog.Batch{set}, newer...)
	}
	return c.apply(newer)
}

// clockWasAhead reports whether the clock was ahead when the newest events were written, rather than being behind now:
// log time made one long step, and the clock is within that step.
func (c *Committer) clockWasAhead(ctx context.Context) (bool, error) {
	tip := c.Tip()
	last, err := eventlog.LastBefore(ctx, c.log, tip.ClockSets, 1, tip.Revision(), c.log.Now())
	if err != nil || last == 0 {
		return false, err
	}
	before, err := c.batchAt(ctx, last)
	if err != nil {
		return false, err
	}
	ahead, err := c.batchAt(ctx, last+1)
	if err != nil {
		return false, err
	}
	return ahead.Time.Sub(tip.ClockSets.Time(before.First, before.Time)) >= minStep, nil
}

// batchAt returns the batch that contains a revision, or the batch before the gap that contains it.
func (c *Committer) batchAt(ctx context.Context, revision uint64) (*eventlog.Batch, error) {
	batches, err := c.log.Back(ctx, revision, 1)
	if err == nil && len(batches) == 0 {
		err = fmt.Errorf("the log has nothing at revision %d", revision)
	}
	if err != nil {
		return nil, err
	}
	return batches[0], nil
}
