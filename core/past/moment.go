package past

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/history"
)

// Moment is a revision or a time. A time stands for the last revision up to it.
type Moment struct {
	Revision uint64
	Time     time.Time // used if Revision is 0
}

// Parse parses a moment. Its error is a Status.
func Parse(text string) (Moment, error) {
	if strings.Trim(text, "0123456789") == "" {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > 0 {
			return Moment{Revision: n}, nil
		}
	} else if t, err := time.Parse(time.RFC3339, text); err == nil {
		return Moment{Time: t}, nil
	}
	return Moment{}, status.BadRequestf("%q is not a moment: want a revision that is above 0, as 1200, or a time of RFC 3339, as 2026-03-01T12:00:00Z or 2026-03-01T13:00:00.5+01:00", text)
}

// NotYet returns the error for a revision after the newest one. It tells the client in how many seconds to try again.
func NotYet(revision, newest uint64) error {
	const retry = 1
	return storage.NewTooLargeResourceVersionError(revision, newest, retry)
}

// Resolve returns the revision of a moment, and a tip that is not older than it. The meaning of a past time never
// changes. Its errors are those of [Past.Check], or a Status that names the moments that can be read.
func (p *Past) Resolve(ctx context.Context, tip *commit.Tip, m Moment) (uint64, *commit.Tip, error) {
	if m.Revision > 0 {
		if m.Revision > tip.Revision() {
			var err error
			if tip, err = p.committer.Confirm(ctx); err != nil {
				return 0, nil, err
			}
			if m.Revision > tip.Revision() { // without Retry-After, so that clients do not retry forever
				return 0, nil, storage.NewTooLargeResourceVersionError(m.Revision, tip.Revision(), 0)
			}
		}
		return m.Revision, tip, p.Check(ctx, tip, m.Revision)
	}
	if !m.Time.Before(tip.Time) {
		var err error
		if tip, err = p.outlast(ctx, m.Time); err != nil {
			return 0, nil, err
		}
	}
	if err := p.history.Reach(ctx, tip.Revision()); err != nil {
		return 0, nil, err
	}
	revision, err := p.history.RevisionAt(ctx, m.Time)
	if err == nil {
		err = p.certain(ctx, tip, revision)
	}
	if oldest := p.history.Oldest(); errors.Is(err, history.ErrNone) || err == nil && revision < oldest {
		first, err := p.history.Time(ctx, oldest)
		if err != nil {
			return 0, nil, err
		}
		return 0, nil, status.Expired("%s is before all that is known: the first revision is %d, of %s", stamp(m.Time), oldest, stamp(first))
	}
	return revision, tip, err
}

// outlast returns a tip from which on no event can have a time up to t.
//
// If other replicas append, too, the log must have an event with a later time: a replica may have stamped a batch before it
// was paused, or its clock may be behind, and then its batches have the newest time of the log. Leases are renewed all the time,
// so such an event comes soon.
func (p *Past) outlast(ctx context.Context, t time.Time) (*commit.Tip, error) {
	// Once the tip is settled, later revisions of this process have a log time that is not before now.
	now := p.committer.Now()
	tip, err := p.committer.Settle(ctx)
	if err != nil {
		return nil, err
	}
	if !t.Before(now) && !t.Before(tip.Time) {
		return nil, status.BadRequestf("%s has not come yet: the newest revision is %d, of %s", stamp(t), tip.Revision(), stamp(tip.Time))
	}
	if p.hasten == nil {
		return tip, nil
	}
	late := time.NewTimer(outlastWithin)
	defer late.Stop()
	for {
		grown := p.committer.Grown()
		if tip = p.committer.Tip(); t.Before(tip.Time) {
			return tip, nil
		}
		p.hasten()
		select {
		case <-grown:
		case <-late.C:
			return nil, status.Unavailable(fmt.Sprintf("the state at %s is not certain yet: another replica may still append changes of that time, and the log got no later one within %v. Try again, or read revision %d, the newest one",
				stamp(t), outlastWithin, tip.Revision()))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// certain returns an error while the clock is behind the log: then the revision of a time may still change.
func (p *Past) certain(ctx context.Context, tip *commit.Tip, revision uint64) error {
	health := p.committer.ClockHealth()
	if health == nil || revision == tip.Revision() {
		return nil
	}
	if next, err := p.history.Time(ctx, revision+1); err != nil || !next.After(p.committer.Now()) {
		return err
	}
	return status.ClockBehind(health)
}

// Check returns an error if a revision cannot be read. The tip must be confirmed if the revision is newer than it. The
// error is a Status that names the nearest readable revision: "too large" if it was not issued yet, "expired" if it
// was lost in a restore or is no longer kept.
func (p *Past) Check(ctx context.Context, tip *commit.Tip, revision uint64) error {
	if revision > tip.Revision() {
		return NotYet(revision, tip.Revision())
	}
	if revision >= tip.EpochStart { // memory may answer it, so do not wait for the history
		return p.Kept(revision)
	}
	if err := p.NotLost(ctx, revision); err != nil {
		return err
	}
	return p.Kept(revision)
}

// retained is like Check, for a revision that exists, and objects of one resource.
func (p *Past) retained(ctx context.Context, r schema.GroupResource, revision uint64) error {
	if err := p.NotLost(ctx, revision); err != nil {
		return err
	}
	if err := p.Kept(revision); err != nil {
		return err
	}
	return p.KeptOf(r, revision)
}

// KeptOf returns an error if objects of a resource are no longer kept as they were at a revision.
func (p *Past) KeptOf(r schema.GroupResource, revision uint64) error {
	if oldest := p.history.OldestOf(r); revision < oldest {
		return status.Expired("%s of revision %d are not kept any more: the oldest revision that is kept is %d", r, revision, oldest)
	}
	return nil
}

// forgotten returns the error for clients of a read that found its revision forgotten.
func (p *Past) forgotten(r schema.GroupResource, revision uint64, err error) error {
	if !errors.Is(err, history.ErrForgotten) {
		return err
	}
	return cmp.Or(p.KeptOf(r, revision), err)
}

// Kept returns an error if a revision is no longer kept.
func (p *Past) Kept(revision uint64) error {
	if oldest := p.history.Oldest(); revision < oldest {
		return status.Expired("revision %d is not kept any more: the oldest that is kept is %d", revision, oldest)
	}
	return nil
}

// Time returns the time of a revision in the log.
func (p *Past) Time(ctx context.Context, revision uint64) (time.Time, error) {
	if err := p.history.Reach(ctx, revision); err != nil {
		return time.Time{}, err
	}
	return p.history.Time(ctx, revision)
}

// NotLost returns an error if a revision was lost by a restore: the client may have seen changes that no longer exist,
// and cannot continue from them. The revision must not be above that of the log.
func (p *Past) NotLost(ctx context.Context, revision uint64) error {
	// Once the history has reached a revision in a gap, it knows what follows the gap.
	if err := p.history.Reach(ctx, revision); err != nil {
		return err
	}
	if gap, lost := p.history.Lost(revision); lost {
		return status.Expired("revision %d was lost when the log was restored: the nearest are %d before it, and those from %d on", revision, gap.LostFrom-1, gap.Next)
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
