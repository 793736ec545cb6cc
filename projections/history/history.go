// Package history is the projection that answers for the past: every version of every
// object, and what each revision changed. It follows the log by itself, behind the
// committer, so that writes never wait for it.
//
// # What is kept, and where
//
// Changes are numbered from 1 on. In memory are 24 bytes of each ([entry]): which versions
// of its name came before and after it, and fingerprints of where the object is; and a hash
// table that leads from a name to its newest change. So a list at a revision is a scan over
// memory, a version is found in O(log n), and only what is part of the answer is read. All
// else is in files, as records in compressed blocks; some blocks that were read are kept in
// memory. The newest records are in memory until they fill a block.
//
// # Trust
//
// The files are a function of the log and nothing else. What the cursor does not vouch for is
// cut off; what is damaged is made again from the log, all of it when that is found out at
// the start, and a block when it is read. Trouble with the disk stops nothing but this
// projection, and only until it is over.
package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Change is what one revision did. It never changes and is safe for concurrent use.
type Change struct {
	Revision uint64
	Time     time.Time // log time
	// Meta is the metadata of the event; all changes of a bulk share it.
	Meta *logpb.Metadata
	// Object that was changed; nil if the change was about none.
	Object *logpb.Object
	// Previous is the revision of the version before; 0 if the object was new.
	Previous uint64
	Deleted  bool
	// Payload is the object after the change, as JSON without resourceVersion; of a deleted
	// object its last state. nil if it is gone, or there is no object.
	Payload []byte
	// Request is the body of the request, where the object is not what that asked for.
	Request []byte
	// Kept is the object after the change as it is kept, where it has fields that were not shown.
	Kept []byte
}

// Written is the payload to make another representation of, under a policy that may show more.
func (c *Change) Written() []byte {
	if c.Kept != nil {
		return c.Kept
	}
	return c.Payload
}

// Store answers for the past up to the revision that it has come to. All methods are safe
// for concurrent use; Run belongs to one goroutine.
type Store struct {
	o       Options
	view    atomic.Pointer[view]
	problem atomic.Pointer[error]

	// Both are Run's.
	kept     *kept
	asked    bool // the log whether it has the position that was found in the folder
	followed bool // and it has continued it

	mu    sync.Mutex
	grown chan struct{} // closed, and replaced, when there is more
	open  []*kept       // to be closed: readers may still hold one that has been given up
}

// Epoch is a new history after a restore: revisions from LostFrom up to Next, that one
// excluded, were lost.
type Epoch struct{ LostFrom, Next uint64 }

// Options for [Open].
type Options struct {
	// Dir is the folder for what does not fit into memory. It is created if need be, and
	// belongs to one Store at a time.
	Dir string
	Log eventlog.Reader
	// Start is the position before the log's first batch.
	Start  eventlog.Head
	Logger *slog.Logger
}

// Open opens the folder. What is in it that is not of this log, or damaged, is removed: Run
// makes it again. Nothing is answered before Run has asked the log whether it continues what
// is there. An error is of the file system.
func Open(o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{o: o, grown: make(chan struct{})}
	k, err := open(o.Dir, o.Start)
	if errors.Is(err, errUnusable) {
		if err != errEmpty {
			o.Logger.Warn("the history is made again from the log", "folder", o.Dir, "reason", err)
		}
		k, err = start(o.Dir, o.Start)
	}
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	s.use(k)
	s.view.Store(&view{kept: k, head: o.Start}) // more once the log is known to continue it
	return s, nil
}

// Close frees what the store holds, once Run has ended and nobody reads any more.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, k := range s.open {
		errs = append(errs, k.close())
	}
	s.open = nil
	return errors.Join(errs...)
}

const (
	// The cursor is saved after so much, or so long.
	saveBytes = 64 << 20
	saveEvery = 30 * time.Second
	pause     = time.Second // before something that failed is tried again
)

// Run follows the log until the context ends, or the log cannot be followed any further.
// Trouble with the disk is tried again, see [Store.Health].
func (s *Store) Run(ctx context.Context) (err error) {
	defer func() { s.trouble(fmt.Errorf("the log is not followed any more: %w", err)) }()
	saved := time.Now()
	for {
		batches, err := s.next(ctx, saved)
		switch {
		case ctx.Err() != nil:
			if err := s.kept.save(); err != nil {
				s.o.Logger.Error("the history is not saved; what is missing is made again from the log", "error", err)
			}
			return ctx.Err()
		case err == nil:
			s.retry(ctx, func() error { return s.fold(ctx, batches) })
		case errors.Is(err, context.DeadlineExceeded):
		case eventlog.IsFatal(err) && !s.followed && s.kept.written.Written > 0: // if the log is at fault it says so again
			s.o.Logger.Warn("the history is made again from the log", "folder", s.o.Dir, "reason", err)
			s.retry(ctx, s.startAgain)
		case eventlog.IsFatal(err):
			return fmt.Errorf("history: %w", err)
		default: // the backend is away
			s.wait(ctx)
		}
		if s.kept.unsaved() >= saveBytes || time.Since(saved) >= saveEvery {
			s.retry(ctx, s.kept.save)
			saved = time.Now()
		}
	}
}

// next waits for batches, or until the cursor should be saved. At first it does not wait: the
// log says whether it has the position that was found in the folder.
func (s *Store) next(ctx context.Context, saved time.Time) (batches []*eventlog.Batch, err error) {
	switch {
	case !s.asked:
		batches, err = s.o.Log.CatchUp(ctx, s.kept.head)
	case s.kept.unsaved() > 0:
		until, cancel := context.WithDeadline(ctx, saved.Add(saveEvery))
		batches, err = s.o.Log.Next(until, s.kept.head)
		cancel()
	default:
		batches, err = s.o.Log.Next(ctx, s.kept.head)
	}
	if err == nil && len(batches) > 0 && !s.kept.continuedBy(batches[0]) {
		return nil, fmt.Errorf("%w: after %v there was something else", eventlog.ErrDiverged, s.kept.head)
	}
	return batches, err
}

// retry does something until it succeeds or the context ends.
func (s *Store) retry(ctx context.Context, do func() error) {
	for ctx.Err() == nil {
		err := do()
		if err == nil {
			if s.problem.Swap(nil) != nil {
				s.o.Logger.Info("the history goes on")
			}
			return
		}
		if ctx.Err() != nil { // which is what it failed of
			return
		}
		if s.trouble(err) {
			s.o.Logger.Error("the history cannot go on", "revision", s.Revision(), "error", err)
		}
		s.wait(ctx)
	}
}

// trouble is from now on what keeps the store from following the log; it reports whether nothing
// did before.
func (s *Store) trouble(err error) (first bool) {
	first = s.problem.Swap(&err) == nil
	s.wake()
	return first
}

func (s *Store) wait(ctx context.Context) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// Health is what keeps the store from following the log, if anything does: trouble with the
// disk, until that is over, or that Run has ended.
func (s *Store) Health() error {
	if err := s.problem.Load(); err != nil {
		return fmt.Errorf("history: %w", *err)
	}
	return nil
}

// use makes k what is written to and read from.
func (s *Store) use(k *kept) {
	s.kept = k
	s.mu.Lock()
	s.open = append(s.open, k)
	s.mu.Unlock()
}

func (s *Store) startAgain() error {
	k, err := start(s.o.Dir, s.o.Start)
	if err != nil {
		return err
	}
	s.use(k)
	s.publish()
	return nil
}

// publish shows readers what there is up to the last whole batch.
func (s *Store) publish() {
	s.view.Store(s.kept.view(s.kept.changes))
	s.wake()
}

// wake lets those look again who wait.
func (s *Store) wake() {
	s.mu.Lock()
	close(s.grown)
	s.grown = make(chan struct{})
	s.mu.Unlock()
}

// fold adds what batches have that is not there yet. It may be called again after an error.
func (s *Store) fold(ctx context.Context, batches []*eventlog.Batch) error {
	defer s.publish()
	s.asked = true
	for _, b := range batches {
		if b.Last() <= s.kept.head.Revision { // done before the error
			continue
		}
		s.followed, s.kept.folding = true, b.Hash
		at := s.kept.changes
		for e, i := range eachChange(b.Events) {
			if at++; at <= s.kept.last {
				continue
			}
			if err := s.add(ctx, e, i); err != nil {
				return err
			}
		}
		s.kept.head, s.kept.changes = b.Head(), at
	}
	return nil
}

// add makes change i of an event the newest one.
func (s *Store) add(ctx context.Context, e *eventlog.Event, i int) error {
	k := s.kept
	revision := e.Revision + uint64(i)
	if full := len(k.tail.data) >= blockBytes; full || len(k.tail.starts) > 0 && !k.continues(revision) {
		if err := k.flush(); err != nil {
			return err
		}
	}
	if k.last == maxChanges {
		return fmt.Errorf("more than %d changes", maxChanges)
	}
	added, err := s.entry(ctx, e, i)
	if err != nil {
		return err
	}
	tail := k.tail
	if err := tail.add(e, i); err != nil {
		return err
	}
	if !k.index.add(k.last+1, added) {
		return fmt.Errorf("revision %d follows no newest version", revision)
	}
	k.tail = tail
	k.last++
	k.runs = follow(k.runs, k.last, revision)
	if started := e.Meta.GetEpochStarted(); started != nil {
		k.epochs = append(slices.Clip(k.epochs), Epoch{started.GetLostFrom(), started.GetNext()})
	}
	if e.Meta.GetClockSet() != nil {
		k.clocks = append(slices.Clip(k.clocks), eventlog.ClockSet{Revision: revision, Time: e.Time})
	}
	return nil
}

// entry is that of change i of an event, with the version before.
func (s *Store) entry(ctx context.Context, e *eventlog.Event, i int) (entry, error) {
	object, previous := about(e.Meta, i)
	added := entry{}
	if deletes(e.Meta) {
		added.bits |= deleted
	}
	if object == nil {
		added.bits |= noObject
		return added, nil
	}
	p := s.kept.prints.object(resourceOf(object), object.GetNamespace(), object.GetName())
	added.bits |= p.resource
	added.space, added.name = p.space, p.name
	if previous != 0 {
		for c := range s.kept.candidates(p) {
			if revisionOf(s.kept.runs, c) == previous {
				added.prev = c
				return added, nil
			}
		}
	}
	// A new object: there may have been another one of that name.
	for c := range s.kept.candidates(p) {
		r := reader{s: s, ctx: ctx, view: s.kept.view(s.kept.last)}
		earlier, err := r.object(c)
		if err != nil {
			return entry{}, err
		}
		if samePlace(earlier, object) {
			added.prev = c
			break
		}
	}
	return added, nil
}

// Revision that the store has come to. Questions about later ones are for after [Store.Wait].
func (s *Store) Revision() uint64 { return s.view.Load().head.Revision }

// ErrBehind reports that the store has not come to a revision of the log, and that it is not
// worth to wait for that. The error says why.
var ErrBehind = errors.New("the history is behind the log")

// patience is how long [Store.Reach] waits for a store that is on its way.
const patience = 10 * time.Second

// Reach returns when the store has come to a revision that the log has. [ErrBehind] at once if
// something keeps it from following the log, and soon if it is far behind, as while it is made
// again; else the error is that of the context.
func (s *Store) Reach(ctx context.Context, revision uint64) error {
	if s.Revision() >= revision {
		return nil
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		grown := s.more()
		at, trouble := s.Revision(), s.problem.Load()
		if at >= revision {
			return nil
		}
		if trouble != nil {
			return fmt.Errorf("%w: it has come to revision %d, not yet to %d: %w", ErrBehind, at, revision, *trouble)
		}
		select {
		case <-grown:
		case <-late.C:
			return fmt.Errorf("%w: it is on its way from revision %d to %d", ErrBehind, at, revision)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Wait returns when the store has come to a revision, which need not be there yet, or the
// context ends.
func (s *Store) Wait(ctx context.Context, revision uint64) error {
	for {
		grown := s.more()
		if s.Revision() >= revision {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// more is closed when there may be something new.
func (s *Store) more() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grown
}
