// Package decisions records what leaves no event in the log of record: requests that were refused, conflicts, writes that
// change nothing, dry runs, and the reads that the audit rules of the policy select. It keeps them in a log of its own on
// the disk of the replica, in the format of the log of record, so that they can be looked up, explained, sent to sinks and
// verified.
//
// # Promises
//
// A [Recorder] never blocks a request, except for [Recorder.RecordSync], and its memory and disk are bounded. Nothing is
// lost silently: decisions beyond the [Budget] are counted by what they have in common (TYPE_DECISIONS_COUNTED), and gaps
// are recorded (TYPE_DECISIONS_LOST): decisions that found the queue full, that could not be written, or that a crash has
// lost. The log ends with TYPE_DECISIONS_CLOSED if the server stopped cleanly; if it does not, the next start records a
// gap. Every minute in which something was added, the head of the log is recorded in the log of record
// ([Options.Anchor]).
package decisions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/filelog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/audit/hashing"
)

// Defaults of [Options].
const (
	DefaultBytes = 1 << 30
	DefaultAge   = 30 * 24 * time.Hour
)

const (
	// gather is how long decisions wait for others, to be written together.
	gather = 100 * time.Millisecond
	// every is how often counts and anchors are written, and old files are removed.
	every = time.Minute
	// appendTimeout bounds an append. Those of local files do not wait, unless the disk hangs.
	appendTimeout = 10 * time.Second
)

// Options for [Open].
type Options struct {
	// Dir is the folder of the log.
	Dir string
	// Bytes and Age say how much is kept: DefaultBytes and DefaultAge if 0.
	Bytes int64
	Age   time.Duration
	// Queue is the maximum size of the decisions that wait to be written, in bytes; 16 MiB if 0.
	Queue int64
	// Budget is how fast the log grows; DefaultBudget for the zero Budget.
	Budget Budget
	// Key makes the hashes in place of secrets; nil to leave out bodies that may have secrets.
	Key *hashing.Key
	// Keys encrypt bodies where they are stored; nil for none.
	Keys eventlog.Keys
	// Software is the name of the program, which the first event of a new log records.
	Software string
	// Anchor records a head of the log in the log of record. It is called once a minute if the head has changed; nil for
	// no anchors.
	Anchor func(ctx context.Context, head eventlog.Head) error
	// Files are the options of the log's files.
	Files  filelog.Options
	Logger *slog.Logger // may be nil
}

// Recorder writes the log of decisions of a replica. Its methods are safe for concurrent use, except Run, which is called
// once, and Close, which is called after Run.
type Recorder struct {
	o       Options
	log     *filelog.Log
	index   *index
	metrics *metrics
	budget  budget
	counts  counts

	mu      sync.Mutex
	waiting []*pending
	bytes   int64         // of waiting
	writing bool          // decisions that are not in waiting any more are being written
	stopped bool          // nothing is taken any more
	gaps    []gap         // what is lost and not recorded yet, at most maxGaps
	problem error         // of the newest attempt to write; nil if it succeeded
	lost    uint64        // decisions that could not be written since an attempt succeeded
	wake    chan struct{} // has an item if something waits
	urgent  chan struct{} // has an item if somebody waits for a record to be on disk
	counted chan struct{} // has an item if the counts are of a whole minute already

	tip eventlog.Head // of the goroutine that writes
}

// pending is a decision that waits to be written. Without an event it marks a place in the queue.
type pending struct {
	event *eventlog.Event // nil for a request to write what waits
	size  int64
	done  chan error // gets the outcome; nil if nobody waits
	err   error      // it could not be encoded
}

// gap is a span of time in which decisions were lost.
type gap struct {
	from, to time.Time
	count    uint64 // 0 if it is not known
	why      string
}

// Open opens the log in the folder, or begins one. A log that is damaged is set aside beside the folder, and a new one
// begins with a record of the gap.
func Open(ctx context.Context, o Options) (*Recorder, error) {
	o.Bytes, o.Age, o.Queue = cmp.Or(o.Bytes, DefaultBytes), cmp.Or(o.Age, DefaultAge), cmp.Or(o.Queue, 16<<20)
	if o.Budget == (Budget{}) {
		o.Budget = DefaultBudget
	}
	if o.Budget.Share == (Rate{}) {
		o.Budget.Share = shareOf(o.Bytes)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	r := &Recorder{o: o, metrics: newMetrics(), wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), counted: make(chan struct{}, 1)}
	r.budget.init(o.Budget)
	if err := r.open(ctx); err != nil {
		if !damaged(err) {
			return nil, fmt.Errorf("log of decisions: %w", err)
		}
		aside, asideErr := setAside(o.Dir)
		if asideErr != nil {
			return nil, fmt.Errorf("log of decisions: %w, and it could not be set aside: %w", err, asideErr)
		}
		o.Logger.Error("the log of decisions is damaged, a new one begins", "error", err, "aside", aside)
		if openErr := r.open(ctx); openErr != nil {
			return nil, fmt.Errorf("log of decisions: %w", openErr)
		}
		now := time.Now()
		r.lose(gap{now, now, 0, fmt.Sprintf("the former log was damaged (%v) and is set aside as %s", err, filepath.Base(aside))})
	}
	r.updateShares()
	return r, nil
}

// updateShares gives owners shares while the log is at least half full.
func (r *Recorder) updateShares() { r.budget.setFull(r.log.Usage().Used >= r.o.Bytes/2) }

// damaged reports whether an error means that the log in the folder cannot be used.
func damaged(err error) bool {
	return errors.As(err, new(*filelog.DamagedError)) || eventlog.IsFatal(err) && !errors.As(err, new(*eventlog.UnsupportedError)) && !errors.As(err, new(*eventlog.KeyError))
}

// setAside renames the folder, and returns its new name.
func setAside(dir string) (string, error) {
	base := dir + ".damaged-" + time.Now().UTC().Format("20060102T150405Z")
	aside := base
	for n := 2; ; n++ {
		if _, err := os.Lstat(aside); errors.Is(err, os.ErrNotExist) {
			return aside, os.Rename(dir, aside)
		}
		aside = fmt.Sprintf("%s-%d", base, n)
	}
}

// open opens the log, and notes a gap if its writer did not close it.
func (r *Recorder) open(ctx context.Context) (err error) {
	if r.log, err = filelog.OpenLog(ctx, r.o.Dir, r.o.Files, eventlog.Options{Software: r.o.Software, SealsAlways: true}); err != nil {
		return err
	}
	r.log.SetKeys(r.o.Keys)
	newest, err := r.log.Back(ctx, math.MaxUint64>>1, 1)
	if err == nil && len(newest) == 0 {
		err = &eventlog.CorruptError{Reason: "the log has no batch"}
	}
	if err == nil {
		r.tip = newest[0].Head()
		r.index, err = openIndex(ctx, filepath.Join(r.o.Dir, indexFolder), r.log, r.tip)
	}
	if err != nil {
		return errors.Join(err, r.log.Close())
	}
	switch last := newest[0].Events[len(newest[0].Events)-1]; last.Meta.GetType() {
	case logpb.Type_TYPE_DECISIONS_CLOSED, logpb.Type_TYPE_LOG_CREATED:
	default:
		// Counts are written once a minute, so those of the minute before are lost, too.
		r.lose(gap{newest[0].Time.Add(-every), time.Now(), 0, "the server did not stop cleanly; of the minute before, counts of decisions beyond the limits may be lost"})
	}
	if r.log.Ahead() > eventlog.MaxAhead { // the clock was wrong, or is
		set, _, err := r.log.SetClock(ctx, r.tip)
		if err != nil {
			r.o.Logger.Warn("the time of the log of decisions is ahead of the clock", "error", err)
			return nil
		}
		r.tip = set.Head()
	}
	return nil
}

// Log returns the log of decisions, for readers. Readers that are behind its oldest batch get an
// [*eventlog.ForgottenError], which names where they can go on.
func (r *Recorder) Log() *filelog.Log { return r.log }

// Record takes a decision to be written soon, if the budget has room for it; else it is counted. It does not block. The
// caller MUST NOT change the event afterwards.
func (r *Recorder) Record(e *eventlog.Event) {
	if r == nil {
		return
	}
	size := sizeOf(e)
	if !r.budget.take(e, size, time.Now()) {
		r.counts.add(e, 1)
		r.metrics.counted.Inc()
		return
	}
	if !r.enqueue(&pending{event: e, size: size}, false) {
		r.counts.add(e, 1)
		r.metrics.overflowed.Inc()
	}
}

// ErrNotRecorded is the reason why [Recorder.RecordSync] fails.
var ErrNotRecorded = errors.New("the decision could not be recorded")

// RecordSync writes a decision, and returns when it is on disk. It ignores the budget: the requests wait for it. The error
// is [ErrNotRecorded], with the reason.
func (r *Recorder) RecordSync(ctx context.Context, e *eventlog.Event) error {
	if r == nil {
		return fmt.Errorf("%w: there is no log of decisions", ErrNotRecorded)
	}
	p := &pending{event: e, size: sizeOf(e), done: make(chan error, 1)}
	if !r.enqueue(p, true) {
		r.counts.add(e, 1)
		r.metrics.overflowed.Inc()
		return fmt.Errorf("%w: too many decisions wait to be written", ErrNotRecorded)
	}
	select {
	case err := <-p.done:
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotRecorded, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrNotRecorded, context.Cause(ctx))
	}
}

// enqueue puts a decision into the queue. It returns false if the queue is full.
func (r *Recorder) enqueue(p *pending, urgent bool) bool {
	r.mu.Lock()
	full := r.stopped || r.bytes+p.size > r.o.Queue
	if !full {
		r.waiting = append(r.waiting, p)
		r.bytes += p.size
	}
	r.mu.Unlock()
	if full {
		return false
	}
	signal(r.wake)
	if urgent {
		signal(r.urgent)
	}
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// flushWait is how long [Recorder.Flush] waits at most.
const flushWait = time.Second

// Flush waits until the decisions that were taken before are written, for a second at most, so that those who look them up
// find them. The error is that of the context. A Recorder that is nil has nothing to write.
func (r *Recorder) Flush(ctx context.Context) error {
	if r == nil {
		return nil
	}
	p := &pending{done: make(chan error, 1)}
	if !r.enqueue(p, true) {
		return nil
	}
	timer := time.NewTimer(flushWait)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Count counts n decisions that are alike, without recording them one by one. It does not block.
func (r *Recorder) Count(e *eventlog.Event, n uint64) {
	if r != nil {
		r.counts.add(e, n)
		r.metrics.counted.Add(float64(n))
	}
}

// Run writes decisions until the context ends, and then those that wait. It ends the log with TYPE_DECISIONS_CLOSED.
func (r *Recorder) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	gathered := time.NewTimer(gather)
	gathered.Stop()
	checked := r.check(ctx)
	defer func() { <-checked }()
	heads, anchored := r.anchors(ctx)
	defer func() { <-anchored }()
	gathering := false
	for {
		select {
		case <-r.wake:
			if !gathering { // later decisions do not put off the write
				gathering = true
				gathered.Reset(gather)
			}
		case <-r.urgent:
			r.flush(ctx, nil)
		case <-gathered.C:
			gathering = false
			r.flush(ctx, nil)
		case <-r.counted:
			r.flush(ctx, r.counts.take(time.Now()))
		case <-tick.C:
			r.flush(ctx, r.counts.take(time.Now()))
			offer(heads, r.tip)
			r.retain(ctx)
		case <-ctx.Done():
			r.finish(context.WithoutCancel(ctx))
			return ctx.Err()
		}
	}
}

// check checks the older files in the background. Files that are damaged are set aside, and the gap is recorded. The
// channel is closed when that has ended.
func (r *Recorder) check(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			err := r.log.Check(ctx)
			damage := (*filelog.DamagedError)(nil)
			if !errors.As(err, &damage) {
				if err != nil && ctx.Err() == nil {
					r.o.Logger.Warn("the older decisions could not be checked", "error", err)
				}
				return
			}
			aside := r.o.Dir + ".damaged-" + time.Now().UTC().Format("20060102T150405Z")
			to, err := r.log.SetAside(ctx, damage, aside)
			if err != nil {
				r.o.Logger.Error("decisions are damaged, and could not be set aside", "damage", damage, "error", err)
				return
			}
			r.o.Logger.Error("decisions are damaged; the file and older ones are set aside", "damage", damage, "aside", aside)
			r.lose(gap{time.Unix(0, 0), to, 0, fmt.Sprintf("the log was damaged (%v); older decisions are set aside in %s", damage, filepath.Base(aside))})
		}
	}()
	return done
}

// finish writes what waits, and closes the log.
func (r *Recorder) finish(ctx context.Context) {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.flush(ctx, append(r.counts.take(time.Now()), &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_DECISIONS_CLOSED}}))
	if err := r.index.save(); err != nil {
		r.o.Logger.Warn("the index of the log of decisions is not complete; the next start completes it", "error", err)
	}
}

// Close frees the log's resources.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	return r.log.Close()
}

// flush writes what waits, and then further events.
func (r *Recorder) flush(ctx context.Context, further []*eventlog.Event) {
	r.mu.Lock()
	list := r.waiting
	r.waiting, r.bytes = nil, 0
	gaps := r.gaps
	r.gaps, r.writing = nil, true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.writing = false
	}()
	before := make([]*pending, 0, len(gaps)+len(list)+len(further)) // gaps come first: they were before what waits
	for _, g := range gaps {
		before = append(before, &pending{event: g.event()})
	}
	list = append(before, list...)
	for _, e := range further {
		list = append(list, &pending{event: e})
	}
	for len(list) > 0 {
		entries, n := r.encode(list)
		err := error(nil)
		if len(entries) > 0 {
			err = r.append(ctx, entries)
		}
		for _, p := range list[:n] {
			failure := cmp.Or(p.err, err)
			if failure != nil && p.event != nil {
				r.failed(p.event, failure)
			}
			if p.done != nil {
				p.done <- failure
			}
		}
		list = list[n:]
		if len(entries) > 0 {
			r.note(err)
		}
	}
}

// encode encodes the first decisions of a list, as many as fit into a batch. n is how many it took.
func (r *Recorder) encode(list []*pending) (entries []*eventlog.Entry, n int) {
	size, limit := 0, r.log.BatchLimit()
	for _, p := range list {
		if p.event == nil {
			n++
			continue
		}
		entry, err := r.log.Encode(context.Background(), p.event)
		if err != nil {
			r.note(fmt.Errorf("encode a decision: %w", err)) // logs only what is new
			p.err = err
			n++
			continue
		}
		if size += entry.Size(); size > limit && len(entries) > 0 {
			break
		}
		entries, n = append(entries, entry), n+1
	}
	return entries, n
}

// append appends a batch of entries.
func (r *Recorder) append(ctx context.Context, entries []*eventlog.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	batch, newer, err := r.log.Append(ctx, r.tip, eventlog.NewDraft(entries))
	switch {
	case err != nil:
		return err
	case batch == nil:
		r.tip = newer[len(newer)-1].Head() // an append whose outcome was not known was applied all the same
		return r.append(ctx, entries)
	}
	r.tip = batch.Head()
	r.index.add(batch)
	r.metrics.add(batch)
	r.updateShares()
	return nil
}

// failed counts an event that could not be written.
func (r *Recorder) failed(e *eventlog.Event, err error) {
	now := time.Now()
	switch d := e.Meta; d.GetType() {
	case logpb.Type_TYPE_DECISIONS_COUNTED:
		r.counts.putBack(e)
		return
	case logpb.Type_TYPE_DECISIONS_LOST:
		lost := d.GetDecisionsLost()
		r.lose(gap{time.Unix(0, lost.GetFromUnixNano()), now, lost.GetCount(), lost.GetWhy()})
		return
	case logpb.Type_TYPE_DECISION:
		r.metrics.lost.Inc()
		r.mu.Lock()
		r.lost++
		r.mu.Unlock()
		decided := now
		if at := d.GetDecision().GetRecordedUnixNano(); at > 0 {
			decided = time.Unix(0, at)
		}
		r.lose(gap{decided, now, 1, "they could not be written: " + err.Error()})
	}
}

// maxGaps is how many gaps are told apart. Further ones are added to the last.
const maxGaps = 16

// lose adds to the gaps that are recorded next.
func (r *Recorder) lose(g gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	signal(r.wake)
	i := slices.IndexFunc(r.gaps, func(x gap) bool { return x.why == g.why })
	if i < 0 && len(r.gaps) < maxGaps {
		r.gaps = append(r.gaps, g)
		return
	}
	if i < 0 {
		i = maxGaps - 1
	}
	x := &r.gaps[i]
	if x.count > 0 && g.count > 0 {
		x.count += g.count
	} else {
		x.count = 0
	}
	if x.from.After(g.from) {
		x.from = g.from
	}
	if x.to.Before(g.to) {
		x.to = g.to
	}
}

func (g gap) event() *eventlog.Event {
	return &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_DECISIONS_LOST, Detail: &logpb.Metadata_DecisionsLost{
		DecisionsLost: &logpb.DecisionsLost{FromUnixNano: g.from.UnixNano(), ToUnixNano: g.to.UnixNano(), Count: g.count, Why: g.why},
	}}}
}

// note remembers the result of an attempt to write, and logs changes.
func (r *Recorder) note(err error) {
	r.mu.Lock()
	was := r.problem
	if r.problem = err; err == nil {
		r.lost = 0
	}
	r.mu.Unlock()
	switch {
	case err != nil && was == nil:
		r.o.Logger.Error("decisions cannot be recorded; they are counted", "error", err)
	case err == nil && was != nil:
		r.o.Logger.Warn("decisions are recorded again")
	}
}

// Health returns why decisions cannot be recorded; nil if they can.
func (r *Recorder) Health() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem == nil {
		return nil
	}
	return fmt.Errorf("decisions cannot be recorded, %d are lost and will be recorded as a gap: %w", r.lost, r.problem)
}

// retain removes what is not kept any more.
func (r *Recorder) retain(ctx context.Context) {
	err := r.log.Retain(ctx, r.o.Bytes, time.Now().Add(-r.o.Age))
	if err == nil {
		err = r.index.forget(r.log.Oldest().Revision)
	}
	if err != nil {
		r.o.Logger.Error("old decisions could not be removed", "error", err)
	}
}
