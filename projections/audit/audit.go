// Package audit is the projection that writes the audit log: one line of JSON, an audit.k8s.io/v1 Event,
// for every write in the log, made from the write's event. Each write has exactly one line. Refused
// writes have none.
//
// # Files
//
// The file is a function of the log. Lines are appended to it. A cursor file beside it, replaced from time
// to time, records the position in the log up to which lines have been written and synced, and the size
// and the checksum of the file at that position. A start cuts off later lines and writes them again from
// the log. If the cursor is missing or damaged, or the file does not match it, the start compares the file
// with the log from the beginning: it writes missing lines, and sets aside and rewrites lines that differ.
// So it repairs a file that was deleted, emptied, truncated or changed while no server ran.
//
// The time of a start does not depend on the size of the file: the cursor also has a mark near the end, with
// the checksum up to there. What follows the mark is checked at once, and what is before it in the
// background, while new lines are written; if that part differs, the file is then compared with the log.
//
// The cursor of another log is an error: the file belongs to that log.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/audit/hashing"
)

// Options for [Open].
type Options struct {
	// File that lines are appended to; the cursor is File + ".cursor".
	File string
	Log  eventlog.Reader
	// Start is the position before the log's first batch.
	Start eventlog.Head
	// MarkBytes is how much of the file a start checks before it goes on, about: 64 MiB if 0. The rest is
	// checked in the background.
	MarkBytes int64
	// Key hashes secrets.
	Key    *hashing.Key
	Logger *slog.Logger
}

// Writer follows a log into a file. Run belongs to one goroutine.
type Writer struct {
	o        Options
	file     *os.File
	restored bool // the end of the file has been checked, and is the position at
	// unchecked is the mark before which the file has not been checked when it was restored.
	unchecked mark
	at        position
	dirty     bool // lines have been written since the last sync
	problem   atomic.Pointer[error]
	done      atomic.Uint64 // revision up to which lines are durable
}

// Open opens the file, or creates it. Only the owner may read the file and the cursor. Run checks their
// content, as reading a large file takes time.
func Open(o Options) (*Writer, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MarkBytes == 0 {
		o.MarkBytes = 64 << 20
	}
	if err := os.MkdirAll(filepath.Dir(o.File), 0o700); err != nil {
		return nil, err
	}
	w := &Writer{o: o, at: position{head: o.Start}}
	if _, err := readCursor(w.cursorFile(), o.Start.Log); err != nil && !errors.As(err, new(errNoCursor)) {
		return nil, err
	}
	var err error
	w.file, err = os.OpenFile(o.File, os.O_RDWR|os.O_CREATE, 0o600)
	return w, err
}

func (w *Writer) cursorFile() string { return w.o.File + ".cursor" }

// syncEvery is how often lines and the cursor are synced.
const syncEvery = time.Second

// finishWithin bounds how long Run takes to stop.
const finishWithin = 5 * time.Second

// Run follows the log and writes its lines until the context ends. It then writes the lines of the
// events that the log has at that time. It returns errors of the log. It retries what fails with the file,
// see Health.
func (w *Writer) Run(ctx context.Context) error {
	synced := time.Now()
	for !w.restored && ctx.Err() == nil {
		if err := w.restore(ctx); eventlog.IsFatal(err) {
			return fmt.Errorf("audit: %w", err)
		} else {
			w.attempt(ctx, err)
		}
	}
	checked, endCheck := w.startCheck(ctx)
	for {
		select {
		case err := <-checked:
			w.repair(ctx, err)
		default:
		}
		wait, cancel := context.WithTimeout(ctx, syncEvery)
		batches, err := w.o.Log.Next(wait, w.at.head)
		cancel()
		switch {
		case ctx.Err() != nil:
			endCheck()
			w.finish(context.WithoutCancel(ctx))
			return ctx.Err()
		case err == nil:
			w.retry(ctx, func() error { return w.write(batches) })
		case errors.Is(err, context.DeadlineExceeded):
		case eventlog.IsFatal(err):
			endCheck()
			return fmt.Errorf("audit: %w", err)
		default: // the backend is unavailable
			w.pause(ctx)
		}
		if time.Since(synced) >= syncEvery {
			w.retry(ctx, w.sync)
			synced = time.Now()
		}
	}
}

// finish writes the lines of all events that the log has, and closes the file.
func (w *Writer) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishWithin)
	defer cancel()
	err := w.restore(ctx)
	for err == nil {
		var batches []*eventlog.Batch
		if batches, err = w.o.Log.CatchUp(ctx, w.at.head); len(batches) == 0 {
			break
		}
		err = w.write(batches)
	}
	if err := errors.Join(err, w.sync(), w.file.Close()); err != nil {
		w.o.Logger.Error("the audit log is not complete; it is completed at the next start", "error", err)
	}
}

// retry calls do until it succeeds or the context ends.
func (w *Writer) retry(ctx context.Context, do func() error) {
	for ctx.Err() == nil {
		if w.attempt(ctx, do()) {
			return
		}
	}
}

// attempt records the result of an attempt, and pauses if it failed. It reports whether it succeeded.
func (w *Writer) attempt(ctx context.Context, err error) bool {
	if err == nil {
		w.problem.Store(nil)
		return true
	}
	if ctx.Err() == nil && w.problem.Swap(&err) == nil {
		w.o.Logger.Error("the audit log cannot be written", "error", err)
	}
	w.pause(ctx)
	return false
}

func (w *Writer) pause(ctx context.Context) {
	select {
	case <-time.After(syncEvery):
	case <-ctx.Done():
	}
}

// write appends the lines of batches.
func (w *Writer) write(batches []*eventlog.Batch) error {
	if err := w.append(w.render(batches)); err != nil {
		return err
	}
	w.at.head = batches[len(batches)-1].Head()
	return nil
}

// render returns the lines of batches.
func (w *Writer) render(batches []*eventlog.Batch) (lines []byte) {
	for _, b := range batches {
		for _, e := range b.Events {
			lines = Render(lines, e, w.o.Key)
		}
	}
	return lines
}

// append writes lines at the end of the file. If another program has changed the file, its end is not the
// position; the next start then compares the file with the log. append cuts off an incomplete write, so
// that it can be retried.
func (w *Writer) append(lines []byte) error {
	if len(lines) == 0 {
		return nil
	}
	end, err := w.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := w.file.Write(lines); err != nil {
		return errors.Join(err, w.file.Truncate(end))
	}
	w.at.add(lines, w.o.MarkBytes)
	w.dirty = true
	return nil
}

// sync makes the lines durable, and then the cursor.
func (w *Writer) sync() error {
	if !w.dirty {
		w.done.Store(w.at.head.Revision)
		return nil
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	if err := w.at.save(w.cursorFile()); err != nil {
		return err
	}
	w.dirty = false
	w.done.Store(w.at.head.Revision)
	return nil
}

// Revision returns the revision up to which lines are durable: a start does not need the log up to there, unless the
// file is damaged. It is safe for concurrent use.
func (w *Writer) Revision() uint64 { return w.done.Load() }

// Health returns why the file cannot be written; nil if it can. It is safe for concurrent use.
func (w *Writer) Health() error {
	if err := w.problem.Load(); err != nil {
		return *err
	}
	return nil
}
