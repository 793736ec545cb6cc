package checkpoints

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/checkpoint"
)

// Options for [New]. Fields that are 0 have the default that their comments name.
type Options struct {
	Folder    *checkpoint.Folder
	Committer *commit.Committer
	// Events is how many revisions after a checkpoint the next one is made: 10,000, or a quarter of the number of
	// objects if that is more, because writing and loading a checkpoint takes the longer the more objects there are.
	Events uint64
	// Bytes is after how many bytes of batches the next one is made: 64 MiB, or an eighth of the last checkpoint.
	Bytes int64
	// Every is how long after a checkpoint the next one is made, if anything has changed: 1 h.
	Every time.Duration
	// Unrecorded leaves out the events in the log that say what the fold of a checkpoint is. No other replica and no backup
	// can then use it.
	Unrecorded bool
	// Metrics gets the metrics of the keeper; nil for none.
	Metrics prometheus.Registerer
	// Logger gets errors; nil for none.
	Logger *slog.Logger
}

// Keeper makes checkpoints in the background. It is for one goroutine.
type Keeper struct {
	o    Options
	last mark
	// asked is when the log was last asked to record a checkpoint.
	asked time.Time
	// failed is when the last attempt failed; zero if it did not.
	failed time.Time

	revision, size, seconds prometheus.Gauge
	failures                prometheus.Counter
}

// mark is a moment at which a checkpoint was taken.
type mark struct {
	revision uint64
	folded   int64
	size     int64
	at       time.Time
}

const (
	checkEvery = time.Second
	retryAfter = time.Minute
	// recordWithin bounds an attempt to record a checkpoint. The next one is recordAgain later.
	recordWithin = 10 * time.Second
	recordAgain  = 10 * time.Second
	// finishWithin bounds the checkpoint that is made when the keeper stops.
	finishWithin = 20 * time.Second
	// atStop is the share of Events and Bytes after which a checkpoint is made when the keeper stops.
	atStop = 5
)

// New returns a keeper for a committer that has read the log.
func New(o Options) *Keeper {
	o.Events = cmp.Or(o.Events, 10_000)
	o.Bytes = cmp.Or(o.Bytes, 64<<20)
	o.Every = cmp.Or(o.Every, time.Hour)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	k := &Keeper{
		o:        o,
		revision: gauge("stele_checkpoint_revision", "Revision of the newest checkpoint, from which the next start goes on; 0 if there is none."),
		size:     gauge("stele_checkpoint_bytes", "Size of the newest checkpoint."),
		seconds:  gauge("stele_checkpoint_seconds", "How long it took to write the newest checkpoint and to read it back."),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "stele_checkpoint_failures_total", Help: "Checkpoints that could not be written."}),
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(k.revision, k.size, k.seconds, k.failures)
	}
	k.last.at = time.Now()
	if good := o.Folder.Good(); len(good) > 0 {
		k.note(good[0], 0)
	}
	return k
}

// note records the newest checkpoint. Batches up to it, and folded bytes of them, count no longer.
func (k *Keeper) note(c checkpoint.Checkpoint, folded int64) {
	k.last = mark{revision: c.Revision, folded: folded, size: c.Size, at: time.Now()}
	k.revision.Set(float64(c.Revision))
	k.size.Set(float64(c.Size))
}

// Run makes checkpoints until the context ends. If much has changed since the last one, it then makes one more.
func (k *Keeper) Run(ctx context.Context) error {
	k.readOlder(ctx)
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if k.due(1) && (k.failed.IsZero() || time.Since(k.failed) >= retryAfter) {
				k.write(ctx, checkpoint.Background)
			}
			k.record(ctx)
		case <-ctx.Done():
			if k.due(atStop) {
				finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishWithin)
				defer cancel()
				k.write(finish, 0)
			}
			return ctx.Err()
		}
	}
}

// readOlder reads the checkpoint before the one that was loaded, and removes those before both. What it covers may then be erased
// from the log; until then nothing may, and a server that starts often would never erase anything.
func (k *Keeper) readOlder(ctx context.Context) {
	good := k.o.Folder.Good()
	if len(good) != 1 {
		return
	}
	revisions, err := k.o.Folder.Revisions() // the newest first
	for _, revision := range revisions {
		if revision >= good[0].Revision {
			continue
		}
		var unrecorded error
		_, err = k.o.Folder.Verify(ctx, revision, checkpoint.Background, func(info checkpoint.Info) error {
			if unrecorded = k.o.Committer.CheckRecorded(ctx, revision, info.Fold); errors.Is(unrecorded, commit.ErrForged) {
				return unrecorded
			}
			return k.o.Folder.RemoveOlder(revision)
		})
		if err == nil && unrecorded == nil {
			k.o.Folder.Record(revision)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
	}
	if err != nil {
		k.o.Logger.Warn("the older checkpoint cannot be read; nothing of the past is erased until the next one is made", "error", err)
	}
}

// due reports whether a share of what makes a new checkpoint due has happened since the last one.
func (k *Keeper) due(share uint64) bool {
	tip := k.o.Committer.Tip()
	if tip.Revision() <= k.last.revision || tip.Policies.Active == nil {
		return false
	}
	events := max(k.o.Events, uint64(tip.Objects.Count())/4) / share
	bytes := max(k.o.Bytes, k.last.size/8) / int64(share)
	return tip.Revision()-k.last.revision >= events || k.o.Committer.Folded()-k.last.folded >= bytes ||
		share == 1 && time.Since(k.last.at) >= k.o.Every
}

// record lets the log record the newest checkpoint, if it has not. That of an earlier version, and one that was made while the
// server stopped, are recorded so after the next start. The event alone makes no new checkpoint due.
func (k *Keeper) record(ctx context.Context) {
	good := k.o.Folder.Good()
	if k.o.Unrecorded || len(good) == 0 || good[0].Recorded || time.Since(k.asked) < recordAgain {
		return
	}
	k.asked = time.Now()
	within, cancel := context.WithTimeout(ctx, recordWithin)
	defer cancel()
	revision, err := k.o.Committer.RecordCheckpoint(within, good[0].Revision, good[0].Info.Fold)
	if err != nil {
		if ctx.Err() == nil {
			k.o.Logger.Warn("the log has not recorded a checkpoint: no other replica and no backup uses it before; it is tried again", "revision", good[0].Revision, "error", err)
		}
		return
	}
	k.o.Folder.Record(good[0].Revision)
	if revision == k.last.revision+1 {
		k.last.revision = revision
	}
}

// write makes a checkpoint of the tip.
func (k *Keeper) write(ctx context.Context, pace checkpoint.Pace) {
	begun, folded, tip := time.Now(), k.o.Committer.Folded(), k.o.Committer.Tip()
	written, err := k.o.Folder.Write(ctx, tip.Revision(), pace, tip.Save)
	if written.Revision != 0 {
		k.note(written, folded)
		k.seconds.Set(time.Since(begun).Seconds())
		k.o.Logger.Info("a checkpoint was made", "revision", written.Revision, "objects", tip.Objects.Count(), "bytes", written.Size, "for", time.Since(begun).Round(time.Millisecond))
	}
	if err == nil {
		k.failed = time.Time{}
		return
	}
	if ctx.Err() != nil {
		return
	}
	k.failures.Inc()
	if k.failed.IsZero() {
		k.o.Logger.Error("no checkpoint can be made, so that the next start replays more of the log; it is tried again every minute", "error", err)
	}
	k.failed = time.Now()
}
