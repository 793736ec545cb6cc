package commit

import (
	"context"
	"fmt"
	"time"

	"stele.dev/stele/eventlog"
)

const (
	// MaxUnconfirmed is the longest time that a replica answers from memory without a confirmation from the log.
	MaxUnconfirmed = 30 * time.Second
	// confirmEvery is the interval at which an idle replica confirms its tip.
	confirmEvery = 10 * time.Second
	// A confirmation for at least manyAskers is followed by a rest twice as long as it took, up to maxRest. More callers then
	// share the next one: it costs every member of the backend more than a request costs this replica.
	manyAskers = 8
	maxRest    = 5 * time.Millisecond
)

// askers wait for a confirmation that begins after they were added: callers, and proposals that were refused.
type askers struct {
	callers int           // including those that have gone
	done    chan struct{} // closed by the confirmation; nil if there are no callers
	refused []*pending
}

// Unconfirmed returns how long ago the tip was last confirmed to be the log's.
func (c *Committer) Unconfirmed() time.Duration {
	if c.log.Exclusive() {
		return 0
	}
	return time.Since(c.began) - time.Duration(c.confirmed.Load())
}

// noteConfirmed records that the tip was the log's newest state at some moment after a time.
func (c *Committer) noteConfirmed(at time.Time) {
	now := int64(at.Sub(c.began)) // by the monotonic clock: that of the machine may jump
	for {
		was := c.confirmed.Load()
		if now <= was || c.confirmed.CompareAndSwap(was, now) {
			return
		}
	}
}

// Confirm returns a tip that was the log's newest state at some moment after the call. It does not wait for appends,
// except for one that the log has already.
func (c *Committer) Confirm(ctx context.Context) (*Tip, error) {
	if c.log.Exclusive() {
		return c.Tip(), nil
	}
	var done <-chan struct{}
	err := c.enqueue(c.asked, func() {
		if c.askers.callers++; c.askers.done == nil {
			c.askers.done = make(chan struct{})
		}
		done = c.askers.done
	})
	if err != nil {
		return nil, err
	}
	return c.await(ctx, done)
}

// Settle is like Confirm, but after all appends in progress at the time of the call. The tip contains every event that
// the caller has read from the log.
func (c *Committer) Settle(ctx context.Context) (*Tip, error) {
	done := make(chan struct{})
	if err := c.enqueue(c.wake, func() { c.settlers = append(c.settlers, done) }); err != nil {
		return nil, err
	}
	if _, err := c.await(ctx, done); err != nil {
		return nil, err
	}
	return c.Confirm(ctx)
}

// await returns the tip once done is closed.
func (c *Committer) await(ctx context.Context, done <-chan struct{}) (*Tip, error) {
	select {
	case <-done:
		return c.Tip(), nil
	case <-c.stopping:
		return nil, c.stopped
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// askAgain makes a refused proposal wait for the next confirmation that begins.
func (c *Committer) askAgain(p *pending) error {
	return c.enqueue(c.asked, func() { c.askers.refused = append(c.askers.refused, p) })
}

// confirm confirms the tip for all who wait, one read of the log after the other, beside the appends.
func (c *Committer) confirm(ctx context.Context) error {
	idle := time.NewTicker(confirmEvery)
	defer idle.Stop()
	for {
		select {
		case <-c.asked:
		case <-idle.C:
			if c.Unconfirmed() < confirmEvery {
				continue
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		c.mu.Lock()
		asking := c.askers
		c.askers = askers{}
		c.mu.Unlock()
		begun := time.Now()
		if err := c.reachNewest(ctx); err != nil {
			c.mu.Lock()
			c.askers.refused = append(c.askers.refused, asking.refused...) // stop answers them
			c.mu.Unlock()
			return err
		}
		c.answer(asking)
		if asking.callers+len(asking.refused) >= manyAskers {
			sleep(ctx, min(2*time.Since(begun), maxRest))
		}
	}
}

// answer tells askers that the tip is confirmed. Refused proposals are evaluated once more, on the confirmed tip.
func (c *Committer) answer(a askers) {
	if a.done != nil {
		close(a.done)
	}
	for _, p := range a.refused {
		p.confirmed = true
	}
	c.putBack(a.refused)
}

// reachNewest returns when the tip has reached the position that was the log's newest at some moment after the call.
// While the log cannot be read, it tries again.
func (c *Committer) reachNewest(ctx context.Context) error {
	for pause := shortPause; ; pause = min(2*pause, longPause) {
		begun := time.Now()
		err := c.confirmOnce(ctx, begun)
		if err == nil {
			c.noteConfirmed(begun)
			return nil
		}
		if eventlog.IsFatal(err) || ctx.Err() != nil {
			return err
		}
		c.logger.Warn("the log cannot be read", "error", err)
		sleep(ctx, pause)
	}
}

func (c *Committer) confirmOnce(ctx context.Context, begun time.Time) error {
	before := c.Tip().Head
	newest, err := c.log.ReadHead(ctx)
	if err == nil {
		err = checkNewest(before, newest)
	}
	if err != nil {
		return err
	}
	return c.reach(ctx, newest.Revision, time.Since(begun))
}

// checkNewest returns an error if a position was the newest once and what is the newest now does not come after it.
func checkNewest(before, newest eventlog.Head) error {
	if newest.Revision < before.Revision || newest.Revision == before.Revision && newest != before {
		return fmt.Errorf("%w: it is at %v, this process at %v", eventlog.ErrDiverged, newest, before)
	}
	return nil
}

// reach returns when the tip has reached a revision that the log has. Mostly it is about to: by an append whose answer
// is on its way, or by a batch that follow brings. After patience, reach reads it from the log.
func (c *Committer) reach(ctx context.Context, revision uint64, patience time.Duration) error {
	for {
		grown, tip := *c.grown.Load(), c.Tip()
		if tip.Revision() >= revision {
			return nil
		}
		late := time.NewTimer(patience)
		select {
		case <-grown:
			late.Stop()
			continue
		case <-late.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		batches, err := c.log.CatchUp(ctx, tip.Head)
		if err != nil {
			return err
		}
		if err := c.bring(ctx, batches); err != nil {
			return err
		}
	}
}
