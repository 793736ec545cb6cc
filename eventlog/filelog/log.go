package filelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"stele.dev/stele/eventlog"
)

// Log is a log in a folder that forgets its oldest batches. Reads before [Log.Oldest] return an
// [*eventlog.ForgottenError], which names the position from which a reader can go on. It is safe for concurrent use.
type Log struct {
	*eventlog.Log
	Backend *Backend
	older   *forgotten
}

// OpenLog opens the log in a folder, or creates it. The caller closes it.
func OpenLog(ctx context.Context, dir string, files Options, o eventlog.Options) (*Log, error) {
	backend, err := Open(dir, files)
	if err != nil {
		return nil, err
	}
	if files.ReadOnly && backend.newest == 0 {
		return nil, errors.Join(fmt.Errorf("filelog: there is no log in %s", dir), backend.Close())
	}
	l := &Log{Backend: backend, older: new(forgotten)}
	backend.setOpening(true)
	l.Log, err = eventlog.Open(ctx, backend, o)
	backend.setOpening(false)
	if err == nil {
		err = l.findOldest()
	}
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	l.SetArchive(l.older)
	return l, nil
}

func (b *Backend) setOpening(opening bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opening = opening
}

// Close frees the log's resources.
func (l *Log) Close() error { return l.Backend.Close() }

// Oldest returns the position before the oldest batch that is kept, beside the first one.
func (l *Log) Oldest() eventlog.Head {
	if at := l.older.Tip(); at != (eventlog.Head{}) {
		return at
	}
	return l.Start()
}

// findOldest finds out what an earlier process has removed.
func (l *Log) findOldest() error {
	v := l.Backend.view()
	if v.mark == 0 {
		return nil
	}
	for i := 1; i < len(v.files); i++ {
		records, err := v.records(i)
		if err != nil {
			return err
		}
		if len(records) > 0 {
			at, _, err := l.positionBefore(v.files[i], records[0])
			l.older.at.Store(&at)
			return err
		}
	}
	return nil
}

// positionBefore returns the position before a batch, and its time.
func (l *Log) positionBefore(f *file, r record) (at eventlog.Head, t time.Time, err error) {
	in, err := os.Open(f.name)
	if err != nil {
		return at, t, err
	}
	defer in.Close()
	_, value, err := readRecord(in, f.name, r)
	if err != nil {
		return at, t, err
	}
	b, err := eventlog.DecodeBatch(r.first, value)
	if err != nil {
		return at, t, err
	}
	at = eventlog.Head{Log: b.Log, Epoch: b.Epoch, Revision: b.First - 1, Hash: b.Previous}
	return at, b.Time, nil
}

// Retain removes the oldest files until the rest takes at most a number of bytes, and those whose batches are all from
// before a moment. The newest file always stays; if it began before that moment, the next batch begins a new one. 0 and
// the zero Time are no limits.
func (l *Log) Retain(ctx context.Context, bytes int64, moment time.Time) error {
	v := l.Backend.view()
	total := int64(0)
	for _, f := range v.files {
		total += f.size
	}
	last := len(v.files) - 1
	keep := 1 // the oldest file that stays, beside the one of the first batch
	for keep < last && bytes > 0 && total > bytes {
		total -= v.files[keep].size
		keep++
	}
	var at eventlog.Head
	for i := max(keep, 2); i <= last; i++ {
		before, t, err := l.firstOf(&v, i)
		if err != nil {
			return err
		}
		if i > keep && !t.Before(moment) {
			break
		}
		keep, at = i, before
	}
	if keep == last && last > 0 {
		if _, t, err := l.firstOf(&v, last); err == nil && t.Before(moment) {
			l.Backend.beginFile()
		}
	}
	if keep < 2 || at == (eventlog.Head{}) {
		return nil
	}
	l.older.at.Store(&at) // first, so that readers are told that what follows is removed
	return l.Backend.Trim(ctx, at.Revision)
}

// firstOf returns the position before the first batch of a file, and the time of that batch.
func (l *Log) firstOf(v *view, i int) (eventlog.Head, time.Time, error) {
	records, err := v.records(i)
	if err != nil || len(records) == 0 {
		return eventlog.Head{}, time.Time{}, err
	}
	return l.positionBefore(v.files[i], records[0])
}

// Check reads the older files, which [OpenLog] does not. The error is a [*DamagedError] for the newest one that is damaged.
func (l *Log) Check(ctx context.Context) error {
	v := l.Backend.view()
	for i := len(v.files) - 2; i >= 0; i-- {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := scanWhole(v.files[i].name, v.files[i].size); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// SetAside moves a damaged file, and those before it, to another folder. Their batches are forgotten. to is the time of the
// first batch that is left.
func (l *Log) SetAside(ctx context.Context, damaged *DamagedError, folder string) (to time.Time, err error) {
	v := l.Backend.view()
	i := slices.IndexFunc(v.files, func(f *file) bool { return f.name == damaged.File })
	if i < 1 || i == len(v.files)-1 {
		return to, fmt.Errorf("filelog: %s cannot be set aside while the log is in use", damaged.File)
	}
	at, to, err := l.firstOf(&v, i+1)
	if err != nil {
		return to, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return to, err
	}
	for _, f := range v.files[1 : i+1] {
		if err := os.Link(f.name, filepath.Join(folder, filepath.Base(f.name))); err != nil && !errors.Is(err, fs.ErrExist) {
			return to, err
		}
	}
	l.older.at.Store(&at)
	return to, l.Backend.Trim(ctx, at.Revision)
}

// beginFile makes the next batch begin a new file.
func (b *Backend) beginFile() {
	b.appending.Lock()
	defer b.appending.Unlock()
	b.full = true
}

// forgotten is the archive of a log whose older batches are not kept.
type forgotten struct{ at atomic.Pointer[eventlog.Head] }

// Tip implements [eventlog.Archive].
func (f *forgotten) Tip() eventlog.Head {
	if at := f.at.Load(); at != nil {
		return *at
	}
	return eventlog.Head{}
}

// After implements [eventlog.Archive].
func (f *forgotten) After(context.Context, eventlog.Head) ([]*eventlog.Batch, error) {
	return nil, &eventlog.ForgottenError{Oldest: f.Tip()}
}

// Back implements [eventlog.Archive].
func (f *forgotten) Back(context.Context, uint64, int) ([]*eventlog.Batch, error) {
	return nil, &eventlog.ForgottenError{Oldest: f.Tip()}
}
