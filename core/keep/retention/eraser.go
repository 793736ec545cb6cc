package retention

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/policy/reach"
	"stele.dev/stele/projections/history"
)

// Options for [New]. All are required but those with a default.
type Options struct {
	// Tip returns the newest state.
	Tip     func() *commit.Tip
	Log     eventlog.Reader
	Archive *archive.Archive
	History *history.Store
	// Values are the values beside the log's batches, in which floors are recorded; nil for none.
	Values Values
	// Record appends an event to the log before anything is erased; nil for none. See [commit.Committer.RecordErased].
	Record func(context.Context, *logpb.PastErased) error
	// Covered returns a revision of which a checkpoint is kept: nothing after it is erased.
	Covered func() uint64
	// Dir is the folder for the files of the horizon and of the floors.
	Dir string
	// Longest limits how long anything is kept; 0 for no limit.
	Longest time.Duration
	// MaxBytes limits the size of all segments; 0 for no limit. What is needed for the present stays beyond it.
	MaxBytes int64
	// Every is the time between two passes; 10 min if 0.
	Every time.Duration
	// Paused reports that this process is not to erase, because another replica does; nil for never.
	Paused func() bool
	// Now is the machine's time.
	Now func() time.Time
	// Elapsed is a clock that nobody can set. The default is that of the process.
	Elapsed func() time.Duration
	Logger  *slog.Logger
	Metrics prometheus.Registerer // nil for none
}

// Eraser erases what need not be kept. Run and Pass are for one goroutine; other methods say so if they are safe for concurrent
// use.
type Eraser struct {
	Options
	horizon *Horizon
	// erased are the floors at which a segment was written last, by its first revision and kind. It is only in
	// memory: after a start some segments are written again in vain.
	erased map[uint64]map[schema.GroupResource]floor
	// again has the first revisions of segments that the next pass writes again, see [erasure.gone].
	again map[uint64]bool
	mu    sync.Mutex // guards reached and its files
	// reached are the floors that were reached, as in the files.
	reached map[schema.GroupResource]floor
	saved   atomic.Pointer[Floors]    // the floors of contents, as in the file; nil before Restore
	at      atomic.Pointer[time.Time] // the last horizon
	freed   prometheus.Counter
	told    bool // that the horizon is behind
	// declared are the floors that the log has by an event, and bound says that it has recorded the tree of all batches before a gap.
	declared map[string]Reached
	bound    bool
}

// New opens the horizon's file and returns an Eraser.
func New(o Options) (*Eraser, error) {
	if o.Elapsed == nil {
		begun := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(begun) }
	}
	o.Longest = cmp.Or(o.Longest, reach.Forever)
	o.Every = cmp.Or(o.Every, 10*time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	horizon, err := OpenHorizon(filepath.Join(o.Dir, "horizon.json"), o.Elapsed)
	if err != nil {
		return nil, err
	}
	e := &Eraser{Options: o, horizon: horizon, erased: map[uint64]map[schema.GroupResource]floor{}, again: map[uint64]bool{}, reached: map[schema.GroupResource]floor{}, declared: map[string]Reached{},
		freed: prometheus.NewCounter(prometheus.CounterOpts{Name: "stele_retention_freed_bytes_total", Help: "Bytes of segments that retention has erased."})}
	if o.Metrics != nil {
		return e, o.Metrics.Register(e.freed)
	}
	return e, nil
}

// Run makes passes until the context ends.
func (e *Eraser) Run(ctx context.Context) error {
	for range steady.AtOnceAndEvery(ctx, e.Every) {
		if e.Paused != nil && e.Paused() {
			// another replica erases
		} else if err := e.Pass(ctx); err != nil && ctx.Err() == nil {
			e.Logger.Error("the past could not be erased as far as retention says; it is tried again", "error", err)
		}
	}
	return ctx.Err()
}

// Pass moves the floors, and erases what is below them.
func (e *Eraser) Pass(ctx context.Context) error {
	tip := e.Tip()
	horizon, behind, err := e.horizon.Step(e.Now(), tip.Revision(), tip.Time)
	if err != nil {
		return err
	}
	e.at.Store(&horizon)
	if behind != e.told {
		if e.told = behind; behind {
			e.Logger.Warn("the clock is far ahead of the time to which the past was erased: it is followed by an hour in each step; set the clock if it is wrong",
				"clock", e.Now().UTC().Format(time.RFC3339), "at", horizon.UTC().Format(time.RFC3339))
		}
	}
	segments := e.Archive.Segments()
	if len(segments) == 0 {
		return e.raise(ctx, nil)
	}
	limit := min(e.Covered(), segments[len(segments)-1].Last)
	if err := e.History.Reach(ctx, limit); err != nil {
		return err
	}
	floors, err := e.floors(ctx, tip, segments, horizon, limit)
	if err != nil {
		return err
	}
	if err := e.raise(ctx, floors); err != nil {
		return err
	}
	var errs []error
	for i := range segments {
		if s := &segments[i]; e.again[s.First] || e.due(s, floors) {
			if err := e.erase(ctx, s, floors); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// due reports whether a segment is to be written again: a floor has passed it for the first time, or is twice as far
// beyond it as when it was written last.
func (e *Eraser) due(s *segment.Info, floors map[schema.GroupResource]floor) bool {
	done := e.erased[s.First]
	passed := func(now, before uint64) bool {
		if now < s.Last || now == before {
			return false
		}
		return before < s.Last || now-s.Last >= 2*(before-s.Last)+(s.Last-s.First)
	}
	return slices.ContainsFunc(s.Groups, func(g segment.Group) bool {
		r := groupResource(&g)
		now, before := floors[r], done[r]
		return g.Payloads > 0 && passed(now.history, before.history) || g.Events > 0 && passed(now.records, before.records)
	})
}

// Erased returns for each kind the revision up to which the log may lack events and contents. It is safe for concurrent
// use, and for a nil Eraser.
func (e *Eraser) Erased() map[schema.GroupResource]uint64 {
	if e == nil || e.saved.Load() == nil {
		return nil
	}
	return e.saved.Load().ByKind()
}
