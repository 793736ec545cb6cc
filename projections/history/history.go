// Package history is the projection of the past: it answers which versions an object had, what existed at a
// revision, and what each revision changed. It follows the log by itself, behind the committer, so that
// writes never wait for it.
//
// # Storage
//
// The contents are in the log, and only there. The store keeps an index of them on disk, in Pebble: for each
// name its versions, for each resource and each namespace its changes, and now and then the list of what
// existed (a base), so that a list at a revision is the base before it and the changes since. An answer
// costs what is in it, whatever else the log has. Memory does not grow with the log. keys.go has the keys.
//
// # Damage
//
// The log, and the calls of [Store.Forget], determine the keys of the index. It has a prefix of the log at any
// moment, also after a crash, and the position to which that corresponds. If its
// files turn out to be damaged, at the start or by a read, it is made again from the log. A full disk stops
// the index from growing as long as it lasts; what it has can be read.
package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/history/disk"
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
	o        Options
	contents contents
	visible  atomic.Pointer[index] // nil until the log is known to continue it
	stopped  atomic.Bool           // Run has ended
	problem  atomic.Pointer[error]

	// Only Run uses these.
	current  *index
	fold     *fold
	begin    eventlog.Head // where an index begins that is made again
	asked    bool          // the log has been asked whether it has the position found in the folder
	followed bool          // the log has continued that position

	forgetting sync.Mutex                                      // held while something is forgotten
	raised     atomic.Pointer[map[schema.GroupResource]uint64] // floors of contents, see [Store.Forget]

	mu     sync.Mutex
	grown  chan struct{} // closed and replaced when the view, or the health, changes
	toSave *time.Timer   // runs while there is something to save
}

// Epoch is a gap after a restore: the revisions from LostFrom to Next-1 were lost.
type Epoch struct{ LostFrom, Next uint64 }

// Options for [Open].
type Options struct {
	// Dir is the folder for the files. It is created if it does not exist. Only one Store may use it at a
	// time, and nothing else may be in it.
	Dir string
	Log eventlog.Reader
	// Start is the position before the log's first batch.
	Start  eventlog.Head
	Logger *slog.Logger

	files vfs.FS // of tests
}

// Open opens the folder. If its files are damaged or of another log, Open removes them, and Run makes them
// again. The store answers nothing until Run has found that the log continues them. Errors are those of
// the file system.
func Open(o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{o: o, begin: o.Start, grown: make(chan struct{})}
	s.contents = newContents(o.Log, s.learn)
	if s.o.files == nil {
		s.o.files = vfs.Default
	}
	s.raised.Store(&map[schema.GroupResource]uint64{})
	err := s.open()
	if errors.Is(err, errUnusable) {
		o.Logger.Warn("the history is made again from the log", "folder", o.Dir, "reason", err)
		if err = removeAll(s.o.files, o.Dir); err == nil {
			err = s.open()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return s, nil
}

// open opens the index in the folder.
func (s *Store) open() error {
	x, err := open(disk.New(s.o.files, s.diskChanged), s.o.Dir, s.begin, s.o.Logger)
	if err != nil {
		return err
	}
	f, err := newFold(x)
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", errUnusable, context.Cause(x.damaged)), x.close())
	}
	s.current, s.fold, s.asked, s.followed = x, f, false, false
	return nil
}

// Close closes the files. Run must have ended.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.toSave != nil {
		s.toSave.Stop()
	}
	s.mu.Unlock()
	return s.current.close()
}

const (
	saveEvery = 30 * time.Second // how long changes may be in memory only
	pause     = time.Second      // before a retry
)

// Run follows the log until the context ends, or the log cannot be read any further. It retries after
// disk errors, see [Store.Health].
func (s *Store) Run(ctx context.Context) (err error) {
	defer func() {
		s.stopped.Store(true)
		s.fail(fmt.Errorf("the log is not followed any more: %w", err))
	}()
	for ctx.Err() == nil {
		err := s.follow(ctx)
		forgotten := (*eventlog.ForgottenError)(nil)
		switch {
		case err == nil || ctx.Err() != nil:
		case s.current.damaged.Err() != nil:
			s.rebuildIndex(ctx, context.Cause(s.current.damaged))
		case errors.As(err, &forgotten) && forgotten.Oldest != s.begin:
			s.begin = forgotten.Oldest
			s.rebuildIndex(ctx, err)
		case s.unusable(err):
			s.rebuildIndex(ctx, err)
		case eventlog.IsFatal(err):
			return fmt.Errorf("history: %w", err)
		default: // the backend is unavailable
			s.wait(ctx)
		}
	}
	if err := s.current.settle(); err != nil {
		s.o.Logger.Error("the history is not saved; the next start makes the rest again from the log", "error", err)
	}
	return ctx.Err()
}

// unusable reports whether an error of the log may mean that the index is of another log, or of one that was
// restored. If the log is damaged instead, the error comes again with the next index.
func (s *Store) unusable(err error) bool {
	var missing *eventlog.MissingError // the log has a hole, and the index is right
	return eventlog.IsFatal(err) && !errors.As(err, &missing) && !errors.As(err, new(*eventlog.KeyError)) && !s.followed && s.current.view.Load().head != s.begin
}

// follow adds batches to the index until there is an error.
func (s *Store) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.current.damaged, cancel)()
	for {
		next := s.o.Log.Next
		if !s.asked { // do not wait: ask whether the log has the position found in the folder
			next = s.o.Log.CatchUp
		}
		batches, err := next(ctx, s.fold.head)
		if err != nil {
			return err
		}
		s.asked = true
		for _, b := range batches {
			s.followed = true
			if err := s.fold.add(b); err != nil {
				return err
			}
			if s.fold.full() {
				if err := s.commit(ctx); err != nil {
					return err
				}
			}
		}
		if err := s.commit(ctx); err != nil {
			return err
		}
	}
}

// commit writes to the index what was added, and makes it visible to readers.
func (s *Store) commit(ctx context.Context) error {
	select {
	case <-s.current.disk.Working():
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.fold.commit(); err != nil {
		return err
	}
	s.visible.Store(s.current)
	s.wake()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.toSave == nil {
		s.toSave = time.AfterFunc(saveEvery, s.save)
	}
	return nil
}

// save begins to make durable what has been added.
func (s *Store) save() {
	s.mu.Lock()
	s.toSave = nil
	s.mu.Unlock()
	if x := s.visible.Load(); x != nil {
		x.save()
	}
}

// rebuildIndex makes the index again from the log. It retries until it succeeds or the context ends.
func (s *Store) rebuildIndex(ctx context.Context, reason error) {
	if s.current.view.Load().head != s.o.Start {
		s.o.Logger.Warn("the history is made again from the log", "folder", s.o.Dir, "reason", reason)
	}
	s.visible.Store(nil)
	s.wake()
	if err := s.current.close(); err != nil {
		s.o.Logger.Debug("damaged files of the history", "error", err)
	}
	for ctx.Err() == nil {
		err := removeAll(s.o.files, s.o.Dir)
		if err == nil {
			err = s.open()
		}
		if err == nil {
			s.recovered()
			return
		}
		if s.fail(err) {
			s.o.Logger.Error("the history cannot go on", "revision", 0, "error", err)
		}
		s.wait(ctx)
	}
}

// diskChanged notes that the disk cannot be written to, or that it can again.
func (s *Store) diskChanged(err error) {
	if err == nil {
		s.recovered()
	} else if s.fail(err) {
		s.o.Logger.Error("the history cannot go on", "revision", s.Revision(), "error", err)
	}
}

// fail sets the error that Health returns. It reports whether there was none before.
func (s *Store) fail(err error) (first bool) {
	first = s.problem.Swap(&err) == nil
	s.wake()
	return first
}

// recovered removes the error that Health returns.
func (s *Store) recovered() {
	if !s.stopped.Load() && s.problem.Swap(nil) != nil {
		s.o.Logger.Info("the history goes on")
	}
	s.wake()
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

// wake wakes those who wait for a change of the view or of the health.
func (s *Store) wake() {
	s.mu.Lock()
	close(s.grown)
	s.grown = make(chan struct{})
	s.mu.Unlock()
}

// look returns the state that a query reads. Until the log has confirmed the index, it is empty.
func (s *Store) look() *view {
	if x := s.visible.Load(); x != nil && x.damaged.Err() == nil {
		return x.view.Load()
	}
	return &view{head: s.o.Start, oldest: 1}
}

// Revision returns the revision up to which the store has the history. Before a query about a later one,
// call [Store.Wait].
func (s *Store) Revision() uint64 { return s.look().head.Revision }

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
