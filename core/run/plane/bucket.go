package plane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stele.dev/stele/core"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/keep/bucketsync"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/bucket"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/projections/checkpoint"
)

// Bucket is a place for segments and checkpoints that all replicas of a log share.
type Bucket struct {
	// Store is the place; nil for none. Then nothing leaves a store of the log that other processes can read.
	Store stores.Store
	// Place is its name, for messages, and for the replicas that lack it.
	Place string
	// Replace takes the bucket in place of the one that the log has recorded.
	Replace bool
	// Every is the time between two looks at it; 15 s if 0.
	Every time.Duration
	// AcceptUnrecorded uses a checkpoint of the bucket of which the log has no record, or segments of which a part is forgotten
	// without any. It never uses a checkpoint that differs from a record.
	AcceptUnrecorded bool
}

// openBucket opens the bucket, and fetches from it what this replica lacks.
func (p *Plane) openBucket(ctx context.Context) error {
	c := &p.config
	if p.Archive == nil {
		return nil
	}
	if c.Bucket.Store == nil {
		return p.refuseWithoutBucket(ctx)
	}
	opened, err := bucket.Open(ctx, bucket.Options{Store: c.Bucket.Store, Place: c.Bucket.Place, Log: p.Log, Replace: c.Bucket.Replace})
	if err != nil {
		return err
	}
	p.bucket = bucketsync.New(bucketsync.Options{
		Bucket: opened, Log: p.Log, Archive: p.Archive, Dir: p.path("fetching"), Leading: p.leads, Every: c.Bucket.Every, Logger: c.Logger, Metrics: c.Metrics,
		Recorded: p.checkRecorded, Past: p.checkPast, AcceptGaps: c.Bucket.AcceptUnrecorded,
		Adopt: func(ctx context.Context, floors bucket.Floors) error {
			if err := p.checkFloors(ctx, floors); err != nil {
				return err
			}
			return retention.RaiseFiles(ctx, p.path(retention.Folder), p.Archive.Segments(), reachedOf(floors), p.Log)
		},
	})
	p.Archive.FillWith(p.bucket.Fill)
	p.startup.measure(p.bucket.String)
	return p.bucket.Start(ctx, p.path("checkpoints"))
}

// checkRecorded returns why a checkpoint of the bucket is not to be used.
func (p *Plane) checkRecorded(ctx context.Context, revision uint64, fold checkpoint.Hash) error {
	err := commit.CheckRecorded(ctx, p.Log, revision, fold)
	if !errors.Is(err, commit.ErrUnrecorded) {
		return err
	}
	if p.config.Bucket.AcceptUnrecorded {
		p.config.Logger.Warn("a checkpoint of the bucket is used although the log has no record of it", "revision", revision)
		return nil
	}
	return fmt.Errorf("%w; if a former version of this program made it, and nobody else can write to the bucket, start once with --accept-unrecorded-checkpoint", err)
}

// checkPast compares segments with what the log has recorded of them.
func (p *Plane) checkPast(ctx context.Context, segments []segment.Info) (bound bool, err error) {
	return retention.CheckPast(ctx, p.Log, segments)
}

// refuseWithoutBucket returns an error if the log has a bucket, and this replica does not.
func (p *Plane) refuseWithoutBucket(ctx context.Context) error {
	if p.Log.Exclusive() {
		return nil
	}
	place, err := bucket.Recorded(ctx, p.Log)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err == nil && place != "" {
		err = &bucket.NeededError{Recorded: place}
	}
	return err
}

// useBucket tells the bucket what this replica has to store. It is called once the eraser is open.
func (p *Plane) useBucket(ctx context.Context) error {
	if p.bucket == nil {
		return nil
	}
	return p.bucket.Use(ctx, bucketsync.Source{
		Checkpoints: p.checkpoints,
		Floors: func() bucket.Floors {
			floors := bucket.Floors{}
			for kind, reached := range p.eraser.Reached() {
				floors[kind] = bucket.Floor{Contents: reached.Contents, Records: reached.Records}
			}
			return floors
		},
		Adopt: func(ctx context.Context, floors bucket.Floors) error {
			if err := p.checkReached(floors); err != nil {
				return err
			}
			if err := p.checkFloors(ctx, floors); err != nil {
				return err
			}
			return p.eraser.Adopt(ctx, reachedOf(floors))
		},
	})
}

// checkFloors returns an error if floors of the bucket are above those that the log has recorded.
func (p *Plane) checkFloors(ctx context.Context, floors bucket.Floors) error {
	err := retention.CheckRecorded(ctx, p.Log, reachedOf(floors))
	if errors.As(err, new(*retention.UnrecordedFloorError)) {
		return fmt.Errorf("%w: no replica of this version has written that; find out who can write to the bucket", err)
	}
	return err
}

// checkReached returns an error if changes may be erased that this replica has not applied: it would keep what was deleted
// meanwhile. That happens to a replica that was paused or cut off for longer than the past is kept. The error stops it
// when it needs such segments to go on; it starts again from a checkpoint.
func (p *Plane) checkReached(floors bucket.Floors) error {
	tip := p.Committer.Tip().Revision()
	for kind, floor := range floors {
		if erased := max(floor.Contents, floor.Records); erased > tip {
			return fmt.Errorf("this replica has applied the log up to revision %d, and changes of %s are erased up to revision %d: start it again: %w", tip, kind, erased, eventlog.ErrOvertaken)
		}
	}
	return nil
}

func reachedOf(floors bucket.Floors) map[string]retention.Reached {
	reached := make(map[string]retention.Reached, len(floors))
	for kind, floor := range floors {
		reached[kind] = retention.Reached{Contents: floor.Contents, Records: floor.Records}
	}
	return reached
}

// trims reports whether batches leave the log's store: only this process reads it, or what leaves it is in the bucket.
func (p *Plane) trims() bool {
	return p.config.Segments.Trim || p.Log.Exclusive() || p.config.Bucket.Store != nil
}

// trimmable returns the revision up to which batches may leave the log's store. If others read it, too, the bucket has
// them, and all replicas have applied them.
func (p *Plane) trimmable() uint64 {
	if p.Log.Exclusive() || p.bucket == nil {
		return ^uint64(0)
	}
	return min(p.bucket.Covered(), p.applied())
}

// checkStore warns that a store of the log that others read, too, fills up because there is no bucket.
func (p *Plane) checkStore() error {
	if p.trims() {
		return nil
	}
	if u := p.Log.Usage(); u.Limit > 0 && u.Used > u.Limit/2 {
		return fmt.Errorf("the etcd of the log has %d MiB in use, and refuses writes from %d MiB on: older events leave it only with a bucket that all replicas share; start them with --bucket", u.Used>>20, u.Limit>>20)
	}
	return nil
}

// bucketChecks returns the health checks of the bucket.
func (p *Plane) bucketChecks() []core.Check {
	if p.bucket == nil {
		return nil
	}
	return []core.Check{{Name: "bucket", Warns: true, Check: p.bucket.Health}}
}

// leads reports whether this replica does the work that one replica does for all. While no replica leads, all do it.
func (p *Plane) leads() bool { return p.Replicas == nil || !p.Replicas.Follows() }

// applied returns the revision that all live replicas have applied.
func (p *Plane) applied() uint64 {
	least := p.Committer.Tip().Revision()
	if p.Replicas == nil {
		return least
	}
	for _, replica := range p.Replicas.Live() {
		least = min(least, replica.Applied)
	}
	return least
}
