package commit

import (
	"context"
	"fmt"
	"time"

	"stele.dev/stele/eventlog"
)

const (
	clockEvery = 10 * time.Second
	// A clock was ahead if between two batches log time made a step of minStep or more, and the
	// clock says now that it is a time between them.
	minStep = time.Hour
)

// Now returns the time of the clock by which the next event is written.
func (c *Committer) Now() time.Time { return c.log.Now() }

// ClockHealth returns an error while the clock is behind the log: what is written has the time of
// the newest event until then.
func (c *Committer) ClockHealth() error {
	if ahead := c.log.Ahead(); ahead > eventlog.MaxAhead {
		return fmt.Errorf("this machine's clock says %s, and the newest event of the log is of %s: times are not told apart until then. Set the clock; if it is right now, restart with --accept-clock",
			c.log.Now().UTC().Format(time.RFC3339), c.Tip().Time.UTC().Format(time.RFC3339))
	}
	return nil
}

// AcceptClock sets log time back to the clock, if log time is further ahead than
// [eventlog.MaxAhead]. It is called before Run, by an operator's order.
func (c *Committer) AcceptClock(ctx context.Context) error {
	for c.log.Ahead() > eventlog.MaxAhead {
		if err := c.setClock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkClock sets log time back if it is ahead of the clock because a clock was ahead once, and
// logs what is wrong with the clock. It is called by the goroutine of Run. Its error is one after
// which this replica must stop; after any other it is tried again.
func (c *Committer) checkClock(ctx context.Context) error {
	told := ""
	switch ahead, jumped := c.log.Ahead(), c.log.Jumped(); {
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

// setClock appends the event that sets log time back, or applies what others appended.
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

// clockWasAhead reports whether a clock was ahead when the newest events were written, and not
// that it is behind now: what is ahead of it begins with one long step, and the clock is within
// that step.
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

// batchAt returns the batch with a revision, or the one before the gap that it is in.
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
