package bucketsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/bucket"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/projections/checkpoint"
)

// Options for [New]. All are required but those with a default.
type Options struct {
	Bucket  *bucket.Bucket
	Log     *eventlog.Log
	Archive *archive.Archive
	// Dir is a folder for files that are being fetched, on the disk of the archive.
	Dir string
	// Leading reports whether this replica stores what the bucket lacks; nil for always.
	Leading func() bool
	// Adopt is told what was erased of a segment before the segment is used.
	Adopt func(context.Context, bucket.Floors) error
	// Recorded returns why a checkpoint of the bucket is not to be used: the log has not recorded this fold of the revision.
	Recorded func(ctx context.Context, revision uint64, fold checkpoint.Hash) error
	// Past compares segments, which are those of a log from its beginning, with what the log has recorded before batches of them were
	// forgotten. bound reports that nothing is left that could not be compared.
	Past func(ctx context.Context, segments []segment.Info) (bound bool, err error)
	// AcceptGaps lets a replica begin from segments of the bucket of which batches are forgotten, and the log has no record.
	AcceptGaps bool
	// Every is the time between two looks at the bucket; 15 s if 0.
	Every time.Duration
	// ScrubEvery is the time between two readings of all segments, which finds those that are damaged; a day if 0.
	ScrubEvery time.Duration
	// Logger gets messages for operators; nil for none.
	Logger *slog.Logger
	// Metrics gets the metrics; nil for none.
	Metrics prometheus.Registerer
}

// Source is what a running replica has to store. Its functions are safe for concurrent use.
type Source struct {
	// Checkpoints is the folder of checkpoints.
	Checkpoints *checkpoint.Folder
	// Floors returns what was erased.
	Floors func() bucket.Floors
	// Adopt is as in [Options], from now on.
	Adopt func(context.Context, bucket.Floors) error
}

// Syncer keeps a replica and a bucket alike. Its methods are safe for concurrent use; Run is called once.
type Syncer struct {
	o      Options
	source Source
	// running is held while segments are fetched or stored.
	running turn
	// verified are the segments of the bucket that this process has read there, by their first revision: those that it has
	// stored, and those that it had to rely on.
	verified map[uint64]bucket.Segment
	// adopted are the segments of others whose floors this replica has taken over, by their first revision.
	adopted map[uint64]bucket.Segment

	// foreign are the segments that Start has fetched, until it is done.
	foreign []segment.Info
	started bool

	covered     atomic.Uint64 // see Covered
	checkpoints atomic.Uint64 // see CheckpointsCovered
	erases      atomic.Bool   // see MayErase
	health      steady.Health
	fetching    atomic.Pointer[string]

	stored, fetched prometheus.Counter
	failures        prometheus.Counter
	reached         prometheus.Gauge
}

// turn is a lock whose waiting ends with a context.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) leave() { <-t }

// New returns a Syncer.
func New(o Options) *Syncer {
	o.Every, o.ScrubEvery = cmp.Or(o.Every, 15*time.Second), cmp.Or(o.ScrubEvery, 24*time.Hour)
	if o.Leading == nil {
		o.Leading = func() bool { return true }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	s := &Syncer{
		o: o, source: Source{Adopt: o.Adopt}, running: make(turn, 1), verified: map[uint64]bucket.Segment{}, adopted: map[uint64]bucket.Segment{},
		stored:   counter("stele_bucket_stored_bytes_total", "Bytes that this replica has stored in the bucket."),
		fetched:  counter("stele_bucket_fetched_bytes_total", "Bytes that this replica has fetched from the bucket."),
		failures: counter("stele_bucket_failures_total", "Looks at the bucket that failed."),
		reached:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "stele_bucket_revision", Help: "The bucket has the log up to this revision, as this replica has seen it."}),
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(s.stored, s.fetched, s.failures, s.reached)
	}
	return s
}

// Covered returns the revision up to which the bucket has the log without a gap, in segments that this process has read
// back from there: others may be removed from the log's store. It is 0 while this replica does not lead.
func (s *Syncer) Covered() uint64 {
	if !s.o.Leading() {
		return 0
	}
	return s.covered.Load()
}

// CheckpointsCovered returns the revision of the older of the newest two checkpoints in the bucket; 0 if there are fewer.
// Nothing that is newer may be erased, so that a new replica can start from either of them.
func (s *Syncer) CheckpointsCovered() uint64 { return s.checkpoints.Load() }

// MayErase reports whether this replica erases the past: it leads, and it has all that the bucket has.
func (s *Syncer) MayErase() bool { return s.o.Leading() && s.erases.Load() }

// Health returns why the last look at the bucket failed; nil if it did not.
func (s *Syncer) Health() error { return s.health.Err() }

// String says what is being fetched.
func (s *Syncer) String() string {
	if text := s.fetching.Load(); text != nil {
		return *text
	}
	return "looking at the bucket"
}

// Use sets what the replica has to store. It MUST be called before Run.
func (s *Syncer) Use(ctx context.Context, source Source) error {
	if err := s.running.take(ctx); err != nil {
		return err
	}
	defer s.running.leave()
	s.source = source
	return nil
}

// Run looks at the bucket until the context ends.
func (s *Syncer) Run(ctx context.Context) error {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { s.scrub(ctx) })
	for {
		s.note(ctx, s.Sync(ctx))
		if err := steady.Wait(ctx, s.o.Every); err != nil {
			return err
		}
	}
}

// scrub reads all segments from time to time. The next look at the bucket fetches those that are damaged.
func (s *Syncer) scrub(ctx context.Context) {
	for steady.Wait(ctx, s.o.ScrubEvery) == nil {
		begun := time.Now()
		_ = s.o.Archive.Scrub(ctx, func() error { // at a tenth of a processor and of the disk
			defer func() { begun = time.Now() }()
			return steady.Wait(ctx, 9*time.Since(begun))
		})
	}
}

// note records the outcome of a look at the bucket, and logs when it changes.
func (s *Syncer) note(ctx context.Context, err error) {
	switch {
	case err == nil:
		if s.health.Note(nil) {
			s.o.Logger.Info("the bucket is in use again", "bucket", s.o.Bucket.Place())
		}
	case ctx.Err() != nil:
	default:
		s.failures.Inc()
		if s.health.Note(err) {
			s.o.Logger.Error("the bucket and the segments of this replica are not alike; nothing leaves the log's store until they are", "bucket", s.o.Bucket.Place(), "error", err)
		}
	}
}

// Sync looks at the bucket once: it fetches what is damaged or was rewritten, and stores what the bucket lacks if this
// replica leads.
func (s *Syncer) Sync(ctx context.Context) error {
	if err := s.running.take(ctx); err != nil {
		return err
	}
	defer s.running.leave()
	leads := s.o.Leading()
	content, err := s.fetchListed(ctx, 0)
	if err != nil {
		return err
	}
	s.reached.Set(float64(content.Last()))
	if !leads {
		s.erases.Store(false)
		return nil
	}
	s.erases.Store(true)
	return errors.Join(s.store(ctx, content), s.storeCheckpoints(ctx, content))
}

// Fill gets segments up to a revision that has left the log's store. It is for [archive.Archive.FillWith].
func (s *Syncer) Fill(ctx context.Context, upto uint64) error {
	if err := s.running.take(ctx); err != nil {
		return err
	}
	defer s.running.leave()
	content, err := s.fetchListed(ctx, upto)
	if err != nil {
		return err
	}
	if tip := s.o.Archive.Tip().Revision; tip < upto {
		return fmt.Errorf("the bucket %s ends at revision %d: %w", s.o.Bucket.Place(), content.Last(), &eventlog.MissingError{From: tip + 1, To: upto})
	}
	return nil
}

// Start fetches what the replica lacks, and into the folder checkpoints a checkpoint from which it can start, if it has
// none that is new enough. It removes what an interrupted fetch has left.
func (s *Syncer) Start(ctx context.Context, checkpoints string) error {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		content, err := s.fetchAll(ctx)
		if err == nil { // it is not held: to compare a checkpoint is to read the log, which may need Fill
			err = s.fetchCheckpoint(ctx, content, checkpoints)
		}
		if err == nil {
			break
		}
		if !bucket.Gone(err) || attempt == attempts { // a newer checkpoint may have replaced it
			return err
		}
	}
	if err := s.running.take(ctx); err != nil {
		return err
	}
	defer s.running.leave()
	if err := s.checkGaps(ctx); err != nil {
		return err
	}
	s.foreign, s.started = nil, true
	return os.RemoveAll(s.o.Dir)
}

// fetchAll fetches the segments that the archive lacks.
func (s *Syncer) fetchAll(ctx context.Context) (*bucket.Content, error) {
	if err := s.running.take(ctx); err != nil {
		return nil, err
	}
	defer s.running.leave()
	return s.fetchListed(ctx, ^uint64(0))
}
