package plane

import (
	"context"
	"os"
	"time"

	"stele.dev/stele/core/keep/retention"
)

// Retention limits how long the past is kept, beside the policy.
type Retention struct {
	// Longest is how long anything of the past is kept; 0 for as long as the policy says.
	Longest time.Duration
	// MaxBytes is the maximum size of all segments; 0 for no limit.
	MaxBytes int64
	// Every is the time between two looks at what can be erased; 10 min if 0.
	Every time.Duration
}

// openRetention makes what erases the past that need not be kept, and tells the history what is erased already.
func (p *Plane) openRetention(ctx context.Context) (err error) {
	if p.Archive == nil {
		return nil
	}
	dir := p.path(retention.Folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	p.eraser, err = retention.New(retention.Options{
		Tip: p.Committer.Tip, Log: p.Log, Values: p.Log, Archive: p.Archive, History: p.History, Record: p.Committer.RecordErased, Covered: p.covered, Dir: dir, Paused: p.paused, Now: p.Committer.Now,
		Longest: p.config.Retention.Longest, MaxBytes: p.config.Retention.MaxBytes, Every: p.config.Retention.Every, Logger: p.config.Logger, Metrics: p.config.Metrics,
	})
	if err != nil {
		return err
	}
	if err := p.eraser.Restore(ctx); err != nil {
		return err
	}
	return p.useBucket(ctx)
}

// covered returns the revision up to which the past may be erased: that of the older one of two good checkpoints, so that
// a start can always go on from one. What the audit log and its sinks do not have yet is not erased.
func (p *Plane) covered() uint64 {
	upto := p.checkpoints.Covered()
	if p.audit != nil {
		upto = min(upto, p.audit.Revision())
	}
	upto = min(upto, p.sinkFloor())
	if p.bucket != nil { // new replicas start from there, and others have no audit log yet of what they have not applied
		upto = min(upto, p.bucket.CheckpointsCovered(), p.applied())
	}
	return upto
}

// paused reports that another replica erases the past, and this one fetches what that has rewritten.
func (p *Plane) paused() bool { return p.bucket != nil && !p.bucket.MayErase() }

// readFloors tells the objects up to which revision the log may lack what retention has erased.
func (p *Plane) readFloors() error {
	if p.Archive == nil {
		return nil
	}
	floors, err := retention.ReadFloors(p.path(retention.Folder), p.Archive.Segments())
	p.objects.MayLack(floors.ByKind())
	return err
}
