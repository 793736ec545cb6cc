// Package history is the projection of the past: it has every version of every object, and what each
// revision changed. It follows the log by itself, behind the committer, so that writes never wait for it.
//
// # Storage
//
// Changes are numbered from 1 on. Memory holds 24 bytes of each ([entry]), which link to the versions of
// the same name before and after it and contain fingerprints of the namespace and the name. It also holds
// a hash table from each name to its newest change. So a list at a revision is a scan over memory, a version
// is found in O(log n), and only the objects in the answer are read from disk. Everything else is in files,
// as records in compressed blocks, with a cache of blocks in memory. The newest records stay in memory
// until they fill a block.
//
// # Damage
//
// The files are a function of the log alone. Data that the cursor does not cover is cut off. Damaged data
// is made again from the log: all of it if the damage is found at the start, or one block if it is found
// by a read. A disk error stops this projection only, and only as long as it lasts.
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

// Change is what one revision changed. It is immutable and safe for concurrent use.
type Change struct {
	Revision uint64
	Time     time.Time // log time
	// Meta is the metadata of the event; all changes of a bulk share it.
	Meta *logpb.Metadata
	// Object is the object that was changed; nil if the event is about none.
	Object *logpb.Object
	// Previous is the revision of the previous version; 0 if the object was new.
	Previous uint64
	Deleted  bool
	// Payload is the object after the change, as JSON without resourceVersion. Of a deleted object it
	// is the last state. It is nil if it has been erased, or if there is no object.
	Payload []byte
	// Request is the body of the request; nil if the object is what it asked for.
	Request []byte
	// Kept is the object after the change as it was stored; nil if clients saw all its fields.
	Kept []byte
}

// Written returns the object as it was stored. A policy that shows more fields renders it from this.
func (c *Change) Written() []byte {
	if c.Kept != nil {
		return c.Kept
	}
	return c.Payload
}

// Store answers queries of the past, up to [Store.Revision]. All methods are safe for concurrent use; Run
// is called once.
type Store struct {
	o       Options
	view    atomic.Pointer[view]
	problem atomic.Pointer[error]

	// Only Run uses these.
	current  *generation
	asked    bool // the log has been asked whether it has the position found in the folder
	followed bool // the log has continued that position

	mu    sync.Mutex
	grown chan struct{} // closed and replaced when the view, or the health, changes
	open  []*generation // to be closed: readers may still hold one that has been given up
}

// Epoch is a gap after a restore: the revisions from LostFrom to Next-1 were lost.
type Epoch struct{ LostFrom, Next uint64 }

// Options for [Open].
type Options struct {
	// Dir is the folder for the files. It is created if it does not exist. Only one Store may use it at a
	// time.
	Dir string
	Log eventlog.Reader
	// Start is the position before the log's first batch.
	Start  eventlog.Head
	Logger *slog.Logger
}

// Open opens the folder. If its files are damaged or of another log, Open removes them, and Run makes them
// again. The store answers nothing until Run has found that the log continues them. Errors are those of
// the file system.
func Open(o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{o: o, grown: make(chan struct{})}
	g, err := open(o.Dir, o.Start)
	if errors.Is(err, errUnusable) {
		if err != errEmpty {
			o.Logger.Warn("the history is made again from the log", "folder", o.Dir, "reason", err)
		}
		g, err = start(o.Dir, o.Start)
	}
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	s.use(g)
	s.view.Store(&view{generation: g, head: o.Start}) // empty until the log is known to continue it
	return s, nil
}

// Close closes the files. Run must have ended, and there must be no readers.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, g := range s.open {
		errs = append(errs, g.close())
	}
	s.open = nil
	return errors.Join(errs...)
}

const (
	// The cursor is saved after saveBytes were written, or after saveEvery.
	saveBytes = 64 << 20
	saveEvery = 30 * time.Second
	pause     = time.Second // before a retry
)

// Run follows the log until the context ends, or the log cannot be read any further. It retries after
// disk errors, see [Store.Health].
func (s *Store) Run(ctx context.Context) (err error) {
	defer func() { s.fail(fmt.Errorf("the log is not followed any more: %w", err)) }()
	saved := time.Now()
	for {
		batches, err := s.next(ctx, saved)
		switch {
		case ctx.Err() != nil:
			if err := s.current.save(); err != nil {
				s.o.Logger.Error("the history is not saved; the next start makes the rest again from the log", "error", err)
			}
			return ctx.Err()
		case err == nil:
			s.retry(ctx, func() error { return s.fold(ctx, batches) })
		case errors.Is(err, context.DeadlineExceeded):
		case eventlog.IsFatal(err) && !s.followed && s.current.written.Written > 0: // if the log is damaged, the error comes again
			s.o.Logger.Warn("the history is made again from the log", "folder", s.o.Dir, "reason", err)
			s.retry(ctx, s.startAgain)
		case eventlog.IsFatal(err):
			return fmt.Errorf("history: %w", err)
		default: // the backend is unavailable
			s.wait(ctx)
		}
		if s.current.unsaved() >= saveBytes || time.Since(saved) >= saveEvery {
			s.retry(ctx, s.current.save)
			saved = time.Now()
		}
	}
}

// next waits for batches, or until the cursor should be saved. The first call does not wait: it asks the
// log whether it has the position found in the folder.
func (s *Store) next(ctx context.Context, saved time.Time) (batches []*eventlog.Batch, err error) {
	switch {
	case !s.asked:
		batches, err = s.o.Log.CatchUp(ctx, s.current.head)
	case s.current.unsaved() > 0:
		until, cancel := context.WithDeadline(ctx, saved.Add(saveEvery))
		batches, err = s.o.Log.Next(until, s.current.head)
		cancel()
	default:
		batches, err = s.o.Log.Next(ctx, s.current.head)
	}
	if err == nil && len(batches) > 0 && !s.current.continuedBy(batches[0]) {
		return nil, fmt.Errorf("%w: another batch followed %v", eventlog.ErrDiverged, s.current.head)
	}
	return batches, err
}

// retry calls do until it succeeds or the context ends.
func (s *Store) retry(ctx context.Context, do func() error) {
	for ctx.Err() == nil {
		err := do()
		if err == nil {
			if s.problem.Swap(nil) != nil {
				s.o.Logger.Info("the history goes on")
			}
			return
		}
		if ctx.Err() != nil { // the reason why it failed
			return
		}
		if s.fail(err) {
			s.o.Logger.Error("the history cannot go on", "revision", s.Revision(), "error", err)
		}
		s.wait(ctx)
	}
}

// fail sets the error that Health returns. It reports whether there was none before.
func (s *Store) fail(err error) (first bool) {
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

// Health returns why the store does not follow the log: a disk error, as long as it lasts, or that Run has
// ended. It returns nil if the store follows the log.
func (s *Store) Health() error {
	if err := s.problem.Load(); err != nil {
		return fmt.Errorf("history: %w", *err)
	}
	return nil
}

// use makes g the current generation.
func (s *Store) use(g *generation) {
	s.current = g
	s.mu.Lock()
	s.open = append(s.open, g)
	s.mu.Unlock()
}

// startAgain removes the files, so that all is made again from the log.
func (s *Store) startAgain() error {
	g, err := start(s.o.Dir, s.o.Start)
	if err != nil {
		return err
	}
	s.use(g)
	s.publish()
	return nil
}

// publish makes all changes up to the last complete batch visible to readers.
func (s *Store) publish() {
	s.view.Store(s.current.view(s.current.changes))
	s.wake()
}

// wake wakes those who wait for a change of the view or of the health.
func (s *Store) wake() {
	s.mu.Lock()
	close(s.grown)
	s.grown = make(chan struct{})
	s.mu.Unlock()
}

// fold adds the changes of batches, except those that it has already. It may be retried after an error.
func (s *Store) fold(ctx context.Context, batches []*eventlog.Batch) error {
	defer s.publish()
	s.asked = true
	for _, b := range batches {
		if b.Last() <= s.current.head.Revision { // done before the error
			continue
		}
		s.followed, s.current.folding = true, b.Hash
		at := s.current.changes
		for e, i := range eachChange(b.Events) {
			if at++; at <= s.current.last {
				continue
			}
			if err := s.add(ctx, e, i); err != nil {
				return err
			}
		}
		s.current.head, s.current.changes = b.Head(), at
	}
	return nil
}

// add makes change i of an event the newest one.
func (s *Store) add(ctx context.Context, e *eventlog.Event, i int) error {
	g := s.current
	revision := e.Revision + uint64(i)
	if full := len(g.tail.data) >= blockBytes; full || len(g.tail.starts) > 0 && !g.continues(revision) {
		if err := g.flush(); err != nil {
			return err
		}
	}
	if g.last == maxChanges {
		return fmt.Errorf("more than %d changes", maxChanges)
	}
	added, err := s.entry(ctx, e, i)
	if err != nil {
		return err
	}
	tail := g.tail
	if err := tail.add(e, i); err != nil {
		return err
	}
	if !g.index.add(g.last+1, added) {
		return fmt.Errorf("revision %d follows no newest version", revision)
	}
	g.tail = tail
	g.last++
	g.runs = follow(g.runs, g.last, revision)
	if started := e.Meta.GetEpochStarted(); started != nil {
		g.epochs = append(slices.Clip(g.epochs), Epoch{started.GetLostFrom(), started.GetNext()})
	}
	if e.Meta.GetClockSet() != nil {
		g.clocks = append(slices.Clip(g.clocks), eventlog.ClockSet{Revision: revision, Time: e.Time})
	}
	return nil
}

// entry returns the entry of change i of an event, linked to the previous version.
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
	p := s.current.prints.object(resourceOf(object), object.GetNamespace(), object.GetName())
	added.bits |= p.resource
	added.space, added.name = p.space, p.name
	if previous != 0 {
		for c := range s.current.candidates(p) {
			if revisionOf(s.current.runs, c) == previous {
				added.prev = c
				return added, nil
			}
		}
	}
	// A new object: there may have been a deleted one of the same name.
	for c := range s.current.candidates(p) {
		r := reader{s: s, ctx: ctx, view: s.current.view(s.current.last)}
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

// Revision returns the revision up to which the store has the history. Before a query about a later one,
// call [Store.Wait].
func (s *Store) Revision() uint64 { return s.view.Load().head.Revision }

// ErrBehind reports that the store has not reached a revision of the log, and will not soon. The error
// says why.
var ErrBehind = errors.New("the history is behind the log")

// patience is how long [Store.Reach] waits for a store that makes progress.
const patience = 10 * time.Second

// Reach waits until the store has a revision that the log has. It returns [ErrBehind] at once if the store
// does not follow the log, and after 10 s if it is far behind, for example while the history is made
// again. Other errors are those of the context.
func (s *Store) Reach(ctx context.Context, revision uint64) error {
	if s.Revision() >= revision {
		return nil
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		changed := s.changed()
		at, problem := s.Revision(), s.problem.Load()
		if at >= revision {
			return nil
		}
		if problem != nil {
			return fmt.Errorf("%w: it has reached revision %d, not yet %d: %w", ErrBehind, at, revision, *problem)
		}
		select {
		case <-changed:
		case <-late.C:
			return fmt.Errorf("%w: it is being brought from revision %d to %d; try again", ErrBehind, at, revision)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Wait waits until the store has a revision, which the log need not have yet. The error is that of the
// context.
func (s *Store) Wait(ctx context.Context, revision uint64) error {
	for {
		changed := s.changed()
		if s.Revision() >= revision {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// changed returns a channel that is closed when the view or the health changes.
func (s *Store) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grown
}
