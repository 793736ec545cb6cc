package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"stele.dev/stele/eventlog"
)

// Log is what a [Keeper] needs of a log. [eventlog.Log] is one.
type Log interface {
	Source
	// Trim removes the batches up to a revision from the backend, as far as the archive has them.
	Trim(ctx context.Context, upto uint64) error
	Usage() eventlog.Usage
	Now() time.Time
}

var _ Log = (*eventlog.Log)(nil)

// trimEvery is the time between two looks at what can be trimmed.
const trimEvery = time.Second

// longestPause is the longest time between two attempts that fail.
const longestPause = time.Minute

// DefaultWindow is the default of [KeeperOptions.Window].
const DefaultWindow = time.Hour

// KeeperOptions are the options for [NewKeeper].
type KeeperOptions struct {
	Archive *Archive
	Log     Log
	// Tip returns the newest position that is known to be in the log.
	Tip func() eventlog.Head
	// Trim says whether batches are removed from the backend once they are sealed. The archives of all processes that
	// read the log MUST then have them: it is for logs that only this process reads.
	Trim bool
	// Window is the age up to which batches stay in the backend, too; DefaultWindow if 0.
	Window time.Duration
	// WindowBytes is how much the backend may hold before younger batches are removed; half of its limit if 0.
	WindowBytes int64
	// Covered returns the revision up to which batches may be removed; nil for any. It bounds only the backend: the
	// archive keeps them.
	Covered func() uint64
	// Every is the time between two looks at the log; 200 ms if 0, and a quarter of that while the backend fills up, and
	// if its limit is small. The log has what was appended meanwhile in memory, up to some bytes, so that a shorter time
	// saves reading it from the backend.
	Every time.Duration
	// Logger gets messages for operators; nil for none.
	Logger *slog.Logger
}

// Keeper moves batches from the backend to an archive: it seals segments, and then trims the backend. Its methods are
// safe for concurrent use; Run is called once.
type Keeper struct {
	o       KeeperOptions
	problem atomic.Pointer[error]
	trimmed atomic.Uint64 // last revision that is known to be trimmed
	sealing atomic.Int64  // nanoseconds
	errors  atomic.Uint64

	// Only Run uses these.
	checked map[uint64]bool // first revisions of the segments that were read back
	looked  time.Time       // when it was last asked what can be trimmed
	probed  bool            // trimmed says what earlier processes have trimmed, too
}

// NewKeeper returns a keeper.
func NewKeeper(o KeeperOptions) *Keeper {
	if o.Window == 0 {
		o.Window = DefaultWindow
	}
	if o.Every == 0 {
		o.Every = 200 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Keeper{o: o, checked: map[uint64]bool{}}
}

// Run seals and trims until the context ends. It tries again after errors, ever less often up to once a minute, see
// [Keeper.Health].
func (k *Keeper) Run(ctx context.Context) error {
	defer k.o.Archive.Close()
	failed := k.o.Every // pause after an error
	for {
		err := k.step(ctx)
		k.note(ctx, err)
		pause := k.pause()
		if err != nil { // a failed segment is begun again, which is work
			failed = min(2*failed, longestPause)
			pause = failed
		} else {
			failed = k.o.Every
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// smallLimit is the limit of a backend that may fill up between two looks at it.
const smallLimit = 1 << 30

// pause returns how long to wait until the next step.
func (k *Keeper) pause() time.Duration {
	usage := k.o.Log.Usage()
	if k.o.Trim && usage.Limit > 0 && (usage.Limit < smallLimit || usage.Used > usage.Limit/4) {
		return k.o.Every / 4
	}
	return k.o.Every
}

// Health returns why batches cannot be sealed or removed from the backend, which fills up until they can; nil if all is
// well.
func (k *Keeper) Health() error {
	if err := k.problem.Load(); err != nil {
		return *err
	}
	return nil
}

// step seals and trims what can be.
func (k *Keeper) step(ctx context.Context) error {
	if err := k.o.Log.Usage().DiskFull(); err != nil {
		return err
	}
	began := time.Now()
	_, err := k.o.Archive.Seal(ctx, k.o.Log, k.o.Tip())
	k.sealing.Add(int64(time.Since(began)))
	if missing := (*eventlog.MissingError)(nil); errors.As(err, &missing) && ctx.Err() == nil { // others have trimmed the backend
		if fillErr := k.o.Archive.Fill(ctx, missing.To); fillErr == nil {
			_, err = k.o.Archive.Seal(ctx, k.o.Log, k.o.Tip())
		} else if !errors.Is(fillErr, errors.ErrUnsupported) {
			err = errors.Join(err, fillErr)
		}
	}
	if err != nil || !k.o.Trim || time.Since(k.looked) < trimEvery {
		return err
	}
	k.looked = time.Now()
	return k.trim(ctx)
}

// note records the outcome of a step, and logs when it changes.
func (k *Keeper) note(ctx context.Context, err error) {
	switch {
	case err == nil:
		if k.problem.Swap(nil) != nil {
			k.o.Logger.Info("older batches of the log are sealed again")
		}
	case ctx.Err() != nil: // the reason why it failed
	default:
		k.errors.Add(1)
		if k.problem.Swap(&err) == nil {
			k.o.Logger.Error("older batches of the log cannot be sealed, and stay where they are", "error", err)
		}
	}
}

// trim removes from the backend what is sealed, read back, outside of the window, and not needed any more.
func (k *Keeper) trim(ctx context.Context) error {
	if err := k.probe(ctx); err != nil {
		return err
	}
	for {
		upto, err := k.trimmable(ctx)
		if err != nil || upto <= k.trimmed.Load() {
			return err
		}
		if err := k.o.Log.Trim(ctx, upto); err != nil {
			return fmt.Errorf("remove revisions up to %d from the log's store: %w", upto, err)
		}
		k.trimmed.Store(upto)
	}
}

// probe finds out how far earlier processes have trimmed, so that not all segments are read back after a start.
func (k *Keeper) probe(ctx context.Context) error {
	segments := k.o.Archive.Segments()
	if k.probed || len(segments) == 0 {
		return nil
	}
	_, err := k.o.Log.Verbatim(ctx, segments[0].After)
	var missing *eventlog.MissingError
	if errors.As(err, &missing) {
		k.trimmed.Store(missing.To)
		err = nil
	}
	k.probed = err == nil
	return err
}

// trimmable returns the last revision that can be removed. What is behind a damaged segment stays, and so does what
// this segment has: the backend may be the only one to have it. If the backend does not have it any more either, the
// damage holds up nothing: else the backend would fill up.
func (k *Keeper) trimmable(ctx context.Context) (upto uint64, err error) {
	covered := ^uint64(0)
	if k.o.Covered != nil {
		covered = k.o.Covered()
	}
	limit := k.o.Log.Now().Add(-k.o.Window)
	usage := k.o.Log.Usage()
	most := cmp.Or(k.o.WindowBytes, usage.Limit/2)
	full := most > 0 && usage.Used > most
	for _, s := range k.o.Archive.state.Load().slots {
		if s.err != nil && s.last <= k.trimmed.Load() {
			continue
		}
		if s.err != nil || s.last > covered {
			return upto, nil
		}
		if s.last > k.trimmed.Load() && !s.info.LastTime.Before(limit) {
			if !full {
				return upto, nil
			}
			full = usage.Used > usage.Limit/4*3 // else one segment at a time: then the usage is asked again
		}
		if !k.checked[s.first] && s.last > k.trimmed.Load() {
			if err := k.o.Archive.check(ctx, s); err != nil {
				return upto, err
			}
			k.checked[s.first] = true
		}
		upto = s.last
	}
	return upto, nil
}

// check reads a segment in full, unless this process has done it when it sealed it. If the segment is damaged, the next
// Seal makes it again.
func (a *Archive) check(ctx context.Context, s slot) error {
	if s.readBack {
		return nil
	}
	err := s.segment.Verify(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	now := a.state.Load()
	i := slices.IndexFunc(now.slots, func(other slot) bool { return other.segment == s.segment })
	if i < 0 { // it was rewritten or dropped meanwhile
		return nil
	}
	slots := slices.Clone(now.slots)
	slots[i] = slot{first: s.first, last: s.last, file: s.file, err: err}
	if errors.Is(err, fs.ErrNotExist) {
		slots[i] = s.damaged("it is missing")
	}
	n := len(slots)
	for n > 0 && slots[n-1].err != nil {
		n--
	}
	a.abandon()
	a.tried = false
	a.state.Store(&state{slots: slots[:n:n], beyond: append(slices.Clone(now.beyond), slots[n:]...)})
	return err
}

// Close removes the files of the segment that is not complete. The archive can still be read.
func (a *Archive) Close() {
	a.writing.Lock()
	defer a.writing.Unlock()
	a.abandon()
}
