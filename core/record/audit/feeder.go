// Package audit sends audit lines to other systems: a webhook, a collector of OpenTelemetry, standard output.
//
// A [Feeder] reads one log for one sink: the log of record, or the log of decisions of this replica. The log is the buffer:
// a feeder holds one batch of lines, and stores in a file how far the sink has got. A sink that refuses, hangs or answers
// something else costs nothing but that batch: the feeder tries again, with longer and longer pauses, and sends what the
// sink has missed when it is back. So each line is sent at least once, and those of a log are sent in order.
//
// A sink may refuse one line for ever and take others. Such a line is written to a file beside the cursor, so that it holds up
// no others and is not lost (see refused.go).
//
// The log of record is sent by one replica, the leader. The others follow how far it has got, which it records in the log
// from time to time ([Feeder.Cursor]), so that a new leader goes on from there.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/projections/audit"
	"stele.dev/stele/projections/audit/hashing"
)

// Record is a line of the audit log, and what it was made from.
type Record struct {
	// Line is a JSON object, an Event of audit.k8s.io/v1, and a newline.
	Line []byte
	// Event is the event of the log; nil if the line says that others are missing.
	Event *eventlog.Event
}

// Sink is where lines are sent.
type Sink interface {
	// Name identifies the sink in metrics, in the names of cursors and in the log. It is unique.
	Name() string
	// Send sends records. If it fails, the same records are sent again. The error is [ErrTooLarge] if fewer or smaller
	// records may be taken, and [ErrRefused] if sending the same records again can hardly succeed. They are not sent again
	// after a [PartlyRefused].
	Send(ctx context.Context, records []Record) error
}

// ErrTooLarge says that a sink does not take so much at once.
var ErrTooLarge = errors.New("the sink does not take so many bytes at once")

// ErrRefused says that a sink does not take these records, or anything, until somebody changes something.
var ErrRefused = errors.New("the sink refuses the records")

// Batching says how lines are sent. The fields are those of kube-apiserver's flags --audit-webhook-batch-max-size,
// --audit-webhook-batch-max-wait and --audit-webhook-initial-backoff.
type Batching struct {
	// Size is how many lines are sent at once at most; 400 if 0.
	Size int
	// Wait is how long lines wait for others; 1 s if 0.
	Wait time.Duration
	// Backoff is the pause after the first failure, doubled after each further one up to a minute; 1 s if 0.
	Backoff time.Duration
	// Timeout bounds one attempt; 30 s if 0.
	Timeout time.Duration
}

const (
	// maxBytes bounds the lines of a batch. One that is larger is a batch of its own.
	maxBytes = 4 << 20
	// maxBackoff bounds the pause between attempts.
	maxBackoff = time.Minute
	// refusalEvery is how often it is logged that a sink refuses everything.
	refusalEvery = time.Minute
	// keepFor is how long the log is kept for a sink that takes nothing.
	keepFor = 7 * 24 * time.Hour
)

// Options for [NewFeeder].
type Options struct {
	Sink Sink
	// LogName is "record" or "decisions".
	LogName string
	Log     eventlog.Reader
	// Start is the position before the log's first batch.
	Start eventlog.Head
	// Begin is where a new sink of the log of record begins; the zero Head for the end that the log has when Run starts.
	Begin eventlog.Head
	// Leads reports whether this replica sends the log; nil if it always does.
	Leads func() bool
	// File has the cursor.
	File     string
	Batching Batching
	Key      *hashing.Key
	Metrics  *Metrics
	Logger   *slog.Logger
}

// Feeder sends the lines of a log to a sink. Run belongs to one goroutine; the other methods are safe for concurrent use.
type Feeder struct {
	o       Options
	at      eventlog.Head // up to which the sink has everything
	read    eventlog.Head // up to which events are in batch
	batch   []Record      // what the sink has not got of what was read
	bytes   int
	answer  *answer // for which the file of refused lines has to be written; nil for none
	saved   eventlog.Head
	savedAt time.Time
	witness *Record // one that the sink has taken; nil if none is known

	aside    atomic.Uint64 // lines that this process has set aside
	done     atomic.Uint64
	lines    atomic.Uint64
	standing atomic.Bool
	movedAt  atomic.Int64 // when done has changed, as Unix nanoseconds
	failing  atomic.Pointer[failure]
}

// failure is why a sink takes nothing, and since when.
type failure struct {
	err   error
	since time.Time
	told  time.Time // when it was logged last
}

// NewFeeder returns a feeder. It reads the cursor when it runs.
func NewFeeder(o Options) *Feeder {
	b := &o.Batching
	b.Size, b.Wait, b.Backoff, b.Timeout = cmp.Or(b.Size, 400), cmp.Or(b.Wait, time.Second), cmp.Or(b.Backoff, time.Second), cmp.Or(b.Timeout, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Leads == nil {
		o.Leads = func() bool { return true }
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	return &Feeder{o: o}
}

// Cursor returns how far the sink has got, for the log of record.
func (f *Feeder) Cursor() *logpb.SinkCursor {
	return &logpb.SinkCursor{Sink: f.o.Sink.Name(), Revision: f.done.Load()}
}

// Cursors returns how far the sinks of feeders of the log of record have got.
func Cursors(feeders []*Feeder) (cursors []*logpb.SinkCursor) {
	for _, f := range feeders {
		cursors = append(cursors, f.Cursor())
	}
	return cursors
}

// Floor returns the revision up to which the sink does not need the log any more. It does not go on needing it if it has
// taken nothing for a week: then it gets a line that says what is missing. The same holds if this replica does not lead, and
// has not been told for a week how far the sink has got.
func (f *Feeder) Floor() uint64 {
	if p := f.failing.Load(); p != nil && time.Since(p.since) > keepFor {
		return math.MaxUint64
	}
	if f.standing.Load() && time.Since(time.Unix(0, f.movedAt.Load())) > keepFor {
		return math.MaxUint64
	}
	return f.done.Load()
}

// Lines returns how many lines the sink has taken from this process.
func (f *Feeder) Lines() uint64 { return f.lines.Load() }

// Health returns why the sink takes nothing, and which lines it has refused; nil if there is nothing to say.
func (f *Feeder) Health() error {
	var failing error
	if p := f.failing.Load(); p != nil {
		failing = fmt.Errorf("%s has taken no audit lines since %s: %w", f.o.Sink.Name(), p.since.UTC().Format(time.RFC3339), p.err)
	}
	return errors.Join(failing, f.refusedHealth())
}

// poll is how often a feeder looks whether it leads, and how long it waits for the log at a time.
const poll = time.Second

// finishWithin bounds how long Run takes to stop.
const finishWithin = 5 * time.Second

// Run sends lines until the context ends, and what the log has then, as far as the sink takes it at once. Errors of the log
// and of the sink are logged and retried; the error is that of the context.
func (f *Feeder) Run(ctx context.Context) error {
	f.o.Metrics.add(f)
	f.try(ctx, func() error { return f.open(ctx) })
	leads, began := false, false
	f.standing.Store(true)
	for ctx.Err() == nil {
		began = true
		if now := f.o.Leads(); now != leads {
			leads = now
			f.standing.Store(!leads)
			f.drop()
		}
		if leads {
			f.lead(ctx)
		} else {
			f.stand(ctx)
		}
		f.save(false)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishWithin)
	defer cancel()
	if !began { // the server stops as soon as it has started
		leads = f.o.Leads() && f.open(last) == nil
	}
	if leads {
		f.finish(last)
	}
	f.save(true)
	return ctx.Err()
}

// drop forgets lines that were read and not sent.
func (f *Feeder) drop() { f.batch, f.bytes, f.read, f.answer = nil, 0, f.at, nil }

// lead fills a batch and sends it.
func (f *Feeder) lead(ctx context.Context) {
	until := time.Now().Add(poll)
	for len(f.batch) < f.o.Batching.Size && f.bytes < maxBytes && time.Now().Before(until) {
		wait, cancel := context.WithDeadline(ctx, until)
		batches, err := f.o.Log.Next(wait, f.read)
		cancel()
		was := len(f.batch)
		if err == nil {
			f.take(batches)
		} else {
			f.logFailed(ctx, err)
		}
		switch {
		case len(f.batch) == 0:
			f.note(f.read)
		case was == 0:
			until = time.Now().Add(f.o.Batching.Wait)
		}
		if ctx.Err() != nil {
			return
		}
	}
	if len(f.batch) > 0 {
		f.flush(ctx)
	}
}

// take adds the lines of batches, as many as a batch may have.
func (f *Feeder) take(batches []*eventlog.Batch) {
	for _, b := range batches {
		for _, e := range b.Events {
			f.add(audit.Render(nil, e, f.o.Key), e)
		}
		f.read = b.Head()
		if len(f.batch) >= f.o.Batching.Size || f.bytes >= maxBytes {
			return
		}
	}
}

// add adds lines to the batch.
func (f *Feeder) add(lines []byte, e *eventlog.Event) {
	f.bytes += len(lines)
	for len(lines) > 0 {
		n := lineLength(lines)
		f.batch = append(f.batch, Record{lines[:n:n], e})
		lines = lines[n:]
	}
}

func lineLength(lines []byte) int {
	for i, c := range lines {
		if c == '\n' {
			return i + 1
		}
	}
	return len(lines)
}

// logFailed handles an error of the log.
func (f *Feeder) logFailed(ctx context.Context, err error) {
	forgotten := (*eventlog.ForgottenError)(nil)
	switch {
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
	case errors.As(err, &forgotten) && forgotten.Oldest.Revision > f.read.Revision:
		gap := audit.Gap{From: f.read.Revision + 1, To: forgotten.Oldest.Revision}
		f.o.Logger.Warn("records were not kept until a sink had their audit lines", "sink", f.o.Sink.Name(), "log", f.o.LogName, "from", gap.From, "to", gap.To)
		f.o.Metrics.gaps.WithLabelValues(f.o.Sink.Name(), f.o.LogName).Inc()
		f.add(audit.AppendGap(nil, f.o.LogName, gap), nil)
		f.read = forgotten.Oldest
	case errors.Is(err, eventlog.ErrDiverged): // the log was restored from an older copy
		if at, findErr := f.newest(ctx, f.read.Revision); findErr == nil && at != f.read {
			f.o.Logger.Warn("the log lacks events whose audit lines were sent", "sink", f.o.Sink.Name(), "log", f.o.LogName, "revision", f.read.Revision)
			f.at = at
			f.drop()
			return
		}
		_ = steady.Wait(ctx, poll)
	default:
		_ = steady.Wait(ctx, poll)
	}
}

// flush sends the batch, until the sink takes it or this replica does not lead any more.
func (f *Feeder) flush(ctx context.Context) {
	pause := f.o.Batching.Backoff
	for refusals := 0; ctx.Err() == nil && f.o.Leads(); {
		err := f.send(ctx)
		if refusals = countRefusal(refusals, err); refusals >= refusalsBefore {
			err = f.isolate(ctx, len(f.batch))
		}
		if f.sent(ctx, err) {
			f.note(f.read)
			f.drop()
			return
		}
		_ = steady.Wait(ctx, pause)
		pause = min(2*pause, maxBackoff)
	}
}

// send sends the batch in parts that the sink takes. If it fails, what was taken or set aside is not in the batch any more.
func (f *Feeder) send(ctx context.Context) error {
	if err := f.writeAnswer(); err != nil {
		return err
	}
	for len(f.batch) > 0 {
		if err := f.sendSome(ctx, min(len(f.batch), f.o.Batching.Size)); err != nil {
			return err
		}
	}
	return nil
}

// took removes the first n records from the batch, of which the sink has taken a number.
func (f *Feeder) took(n, taken int) {
	f.o.Metrics.sent.WithLabelValues(f.o.Sink.Name(), f.o.LogName).Add(float64(taken))
	f.lines.Add(uint64(taken))
	if last := f.batch[n-1]; taken == n && len(last.Line) <= maxWitness {
		f.witness = &last
	}
	f.batch = f.batch[n:]
}

// attempt sends records once. What is too large alone is sent without the bodies of the request and of the answer.
func (f *Feeder) attempt(ctx context.Context, records []Record) error {
	limited, cancel := context.WithTimeout(ctx, f.o.Batching.Timeout)
	defer cancel()
	err := f.o.Sink.Send(limited, records)
	if len(records) == 1 && errors.Is(err, ErrTooLarge) {
		if without, cut := audit.WithoutBodies(records[0].Line); cut {
			return f.attempt(ctx, []Record{{without, records[0].Event}})
		}
	}
	return err
}

// sendSome sends the first n records of the batch, in parts if they are too large, and sets aside those of which the sink rejects
// some.
func (f *Feeder) sendSome(ctx context.Context, n int) error {
	err := f.attempt(ctx, f.batch[:n])
	partly := (*PartlyRefused)(nil)
	switch {
	case err == nil:
		f.took(n, n)
	case errors.As(err, &partly):
		return f.setPartAside(n, partly)
	case n > 1 && errors.Is(err, ErrTooLarge):
		if err := f.sendSome(ctx, n/2); err != nil {
			return err
		}
		return f.sendSome(ctx, n-n/2)
	}
	return err
}

// sent records the result of an attempt. It logs when the sink begins to fail, and when it is back.
func (f *Feeder) sent(ctx context.Context, err error) bool {
	if err == nil {
		if p := f.failing.Swap(nil); p != nil {
			f.o.Logger.Info("a sink takes audit lines again", "sink", f.o.Sink.Name(), "log", f.o.LogName, "after", time.Since(p.since).Round(time.Second))
		}
		return true
	}
	if ctx.Err() != nil { // the server stops
		return false
	}
	f.o.Metrics.failures.WithLabelValues(f.o.Sink.Name(), f.o.LogName).Inc()
	now := time.Now()
	next := &failure{err, now, now}
	switch p := f.failing.Load(); {
	case p == nil:
		f.o.Logger.Error("a sink takes no audit lines; they are sent when it does", "sink", f.o.Sink.Name(), "log", f.o.LogName, "error", err)
	case errors.Is(err, ErrRefused) && now.Sub(p.told) >= refusalEvery: // somebody has to change something
		f.o.Logger.Error("a sink refuses all audit lines; they are kept for a week, and then left out", "sink", f.o.Sink.Name(), "log", f.o.LogName, "since", p.since.UTC().Format(time.RFC3339), "error", err)
		next.since = p.since
	default:
		next.since, next.told = p.since, p.told
	}
	f.failing.Store(next)
	return false
}

// finish sends what the log has, in one attempt for each batch.
func (f *Feeder) finish(ctx context.Context) {
	for {
		if len(f.batch) == 0 {
			batches, err := f.o.Log.CatchUp(ctx, f.read)
			if err != nil || len(batches) == 0 {
				return
			}
			f.take(batches)
		}
		if err := f.send(ctx); err != nil {
			return
		}
		f.note(f.read)
		f.drop()
	}
}

// stand follows the log without sending, and takes over how far the leader has got.
func (f *Feeder) stand(ctx context.Context) {
	f.failing.Store(nil)
	wait, cancel := context.WithTimeout(ctx, poll)
	defer cancel()
	batches, err := f.o.Log.Next(wait, f.read)
	if err != nil {
		if forgotten := (*eventlog.ForgottenError)(nil); errors.As(err, &forgotten) {
			f.read = forgotten.Oldest
		} else if !errors.Is(err, context.DeadlineExceeded) {
			_ = steady.Wait(ctx, poll)
		}
		return
	}
	f.read = batches[len(batches)-1].Head()
	for _, b := range batches {
		if revision := f.anchored(b); revision > f.at.Revision {
			if at, err := f.newest(ctx, revision); err == nil && at.Revision > f.at.Revision {
				f.note(at)
			}
		}
	}
}

// anchored returns how far the sink has got according to a batch; 0 if it does not say.
func (f *Feeder) anchored(b *eventlog.Batch) (revision uint64) {
	for _, e := range b.Events {
		for _, c := range e.Meta.GetDecisionsAnchored().GetSinks() {
			if c.GetSink() == f.o.Sink.Name() {
				revision = max(revision, c.GetRevision())
			}
		}
	}
	return revision
}

// newest returns the newest position of the log at or before a revision.
func (f *Feeder) newest(ctx context.Context, revision uint64) (eventlog.Head, error) {
	for from := revision; ; {
		older, err := f.o.Log.Back(ctx, from, 1)
		if err != nil || len(older) == 0 {
			return f.o.Start, err
		}
		if older[0].Last() <= revision {
			return older[0].Head(), nil
		}
		from = older[0].First - 1
	}
}

// note records that the sink has everything up to a position.
func (f *Feeder) note(at eventlog.Head) {
	f.at = at
	if f.done.Swap(at.Revision) != at.Revision {
		f.movedAt.Store(time.Now().UnixNano())
	}
}

// try calls do until it succeeds.
func (f *Feeder) try(ctx context.Context, do func() error) {
	for ctx.Err() == nil {
		err := do()
		if err == nil {
			return
		}
		f.o.Logger.Warn("the cursor of a sink cannot be read; it is tried again", "sink", f.o.Sink.Name(), "log", f.o.LogName, "error", err)
		_ = steady.Wait(ctx, 10*time.Second)
	}
}
