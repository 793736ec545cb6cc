// Package audit is the projection that writes the audit log: lines of JSON, each an audit.k8s.io/v1 Event, made from the
// events of the log of record and of the log of decisions of this replica. [Render] makes the lines of one event. What the
// audit rule of a request selects has each of its lines exactly once.
//
// # Files
//
// The file is a function of the logs, up to the order in which lines of the two logs follow each other. Lines are appended
// to it. A cursor file beside it, replaced from time to time, records the positions in the logs up to which lines have been
// written and synced, and the size and the checksum of the file at that position. A start cuts off later lines and writes
// them again from the logs. If the cursor is missing or damaged, or the file does not match it, the start compares the file
// with the logs from where the file begins: it writes missing lines, and sets aside and rewrites lines that differ.
// So it repairs a file that was deleted, emptied, truncated or changed while no server ran. Lines of what the logs do not
// have any more stay as they are. A file that is moved or deleted while a server runs is noticed before the next line (see
// replaced.go).
//
// The time of a start does not depend on the size of the file: the cursor also has a mark near the end, with
// the checksum up to there. What follows the mark is checked at once, and what is before it in the
// background, while new lines are written; if that part differs, the file is then compared with the logs.
//
// A file that would become larger than the limit is renamed, and a new one begins. The files of the beginning says at which
// positions of the logs the new one begins. It is written before and after the rename, so that a start can finish a
// rotation that was cut off. Renamed files are compressed and deleted in the background; nothing reads them.
//
// The cursor of another log of record is an error: the file belongs to that log.
package audit

import (
	"bytes"
	"cmp"
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
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/projections/audit/hashing"
)

// Options for [Open].
type Options struct {
	// File that lines are appended to; the cursor is File + ".cursor".
	File string
	Log  eventlog.Reader
	// Start is the position before the log's first batch.
	Start eventlog.Head
	// Decisions is the log of decisions of this replica, and DecisionsStart the position before its first batch; nil for
	// none.
	Decisions      eventlog.Reader
	DecisionsStart eventlog.Head
	// Rotation says how large files get, and how many are kept.
	Rotation Rotation
	// MarkBytes is how much of the file a start checks before it goes on, about: 64 MiB if 0. The rest is
	// checked in the background.
	MarkBytes int64
	// Key hashes secrets.
	Key    *hashing.Key
	Logger *slog.Logger

	// step is called before each step of a rotation, and between writes; tests let it fail.
	step func(name string) error
	// wrap replaces the file in tests.
	wrap func(*os.File) file
}

// file is an open file.
type file interface {
	io.ReaderAt
	io.Writer
	io.Seeker
	io.Closer
	Truncate(size int64) error
	Sync() error
	Stat() (os.FileInfo, error)
}

// Writer follows logs into a file. Run belongs to one goroutine.
type Writer struct {
	o        Options
	start    heads
	readers  [2]eventlog.Reader
	file     file
	restored bool // the end of the file has been checked, and is the position at
	// unchecked is the mark before which the file has not been checked when it was restored.
	unchecked mark
	endCheck  func() // ends the check of that
	at        position
	torn      bool      // the file may have bytes after the position that are no lines
	lostEnd   bool      // the log of decisions has lost records whose lines the file has
	dirty     bool      // lines have been written since the last sync
	rotating  *rotation // what was begun and has to be finished; nil for none
	rotated   chan struct{}
	health    steady.Health
	done      [2]atomic.Uint64 // revisions up to which lines are durable
	lines     atomic.Uint64    // that this process has written
}

// Open opens the file, or creates it. Only the owner may read the file and the cursor. Run checks their
// content, as reading a large file takes time.
func Open(o Options) (*Writer, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.MarkBytes = cmp.Or(o.MarkBytes, 64<<20)
	if o.step == nil {
		o.step = func(string) error { return nil }
	}
	if err := os.MkdirAll(filepath.Dir(o.File), 0o700); err != nil {
		return nil, err
	}
	w := &Writer{o: o, start: heads{o.Start, o.DecisionsStart}, readers: [2]eventlog.Reader{o.Log, o.Decisions}, rotated: make(chan struct{}, 1), endCheck: func() {}}
	w.at = position{heads: w.start, begin: w.start}
	if _, err := readCursor(w.cursorFile(), w.start); err != nil && !errors.As(err, new(errNoCursor)) {
		return nil, err
	}
	for _, file := range []string{w.cursorFile(), w.beginFile()} {
		if err := RemoveUnfinished(file); err != nil {
			return nil, err
		}
	}
	return w, w.openFile()
}

func (w *Writer) openFile() error {
	f, err := os.OpenFile(w.o.File, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	w.file = f
	if w.o.wrap != nil {
		w.file = w.o.wrap(f)
	}
	return nil
}

func (w *Writer) cursorFile() string { return w.o.File + ".cursor" }

func (w *Writer) beginFile() string { return w.o.File + ".begin" }

// syncEvery is how often lines and the cursor are synced.
const syncEvery = time.Second

// finishWithin bounds how long Run takes to stop.
const finishWithin = 5 * time.Second

// Run follows the logs and writes their lines until the context ends. It then writes the lines of the
// events that the logs have at that time. It returns errors of the log of record. It retries what fails with the file,
// see Health.
func (w *Writer) Run(ctx context.Context) error {
	for !w.restored && ctx.Err() == nil {
		if err := w.restore(ctx); eventlog.IsFatal(err) {
			return fmt.Errorf("audit: %w", err)
		} else {
			w.attempt(ctx, err)
		}
	}
	defer w.startTidying(ctx)()
	checked := w.startCheck(ctx)
	defer func() { w.endCheck() }()
	batches, endFollowing := w.follow(ctx)
	defer func() { endFollowing() }()
	reopen := func() {
		w.endCheck()
		endFollowing()
		w.reopen(ctx)
		checked = w.startCheck(ctx)
		batches, endFollowing = w.follow(ctx)
	}
	ticks := time.NewTicker(syncEvery)
	defer ticks.Stop()
	for {
		select {
		case err := <-checked:
			if err != nil {
				endFollowing()
				w.repair(ctx, err)
				batches, endFollowing = w.follow(ctx)
			}
		case arrived := <-batches:
			if arrived.err != nil {
				return fmt.Errorf("audit: %w", arrived.err)
			}
			if !w.retryHere(ctx, func() error { return w.write(&arrived) }) {
				reopen() // what has arrived comes again
			}
		case <-ticks.C:
			if !w.retryHere(ctx, w.sync) {
				reopen()
			}
		case <-ctx.Done():
			w.endCheck()
			endFollowing()
			w.finish(context.WithoutCancel(ctx))
			return ctx.Err()
		}
	}
}

// finish writes the lines of all events that the logs have, and closes the file.
func (w *Writer) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishWithin)
	defer cancel()
	if w.restored && w.replaced() {
		w.reopen(ctx)
	}
	err := w.restore(ctx)
	for which, log := range w.readers {
		for err == nil && log != nil {
			a := arrival{which: which}
			if a.batches, err = log.CatchUp(ctx, w.at.heads[which]); len(a.batches) == 0 {
				break
			}
			err = w.write(&a)
		}
		if which == decisionLog && eventlog.IsFatal(err) {
			err = nil // the next start deals with it
		}
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
		w.health.Note(nil)
		return true
	}
	if ctx.Err() == nil && w.health.Note(err) {
		w.o.Logger.Error("the audit log cannot be written", "error", err)
	}
	_ = steady.Wait(ctx, syncEvery)
	return false
}

// write appends the lines of batches. If it fails, it has removed from the arrival what it has written.
func (w *Writer) write(a *arrival) error {
	if err := w.o.step("write"); err != nil {
		return err
	}
	var lines []byte
	for pending := 0; len(a.batches) > pending; {
		before := len(lines)
		if a.gap != nil && pending == 0 {
			lines = appendForgotten(lines, a.which, a.gap)
		}
		lines = w.render(lines, a.batches[pending])
		full := w.o.Rotation.full(w.at.size+int64(before), len(lines)-before)
		if pending++; !full && pending < len(a.batches) {
			continue
		}
		if full && before == 0 { // one batch alone
			if err := w.rotate(); err != nil {
				return err
			}
		} else if full {
			pending--
			lines = lines[:before]
		}
		if err := w.append(lines); err != nil {
			return err
		}
		w.at.heads[a.which] = a.batches[pending-1].Head()
		a.batches, a.gap, lines, pending = a.batches[pending:], nil, lines[:0], 0
	}
	return nil
}

// render appends the lines of a batch.
func (w *Writer) render(lines []byte, b *eventlog.Batch) []byte {
	for _, e := range b.Events {
		lines = Render(lines, e, w.o.Key)
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
	if err := w.cutTorn(); err != nil {
		return err
	}
	end, err := w.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := w.file.Write(lines); err != nil {
		cut := w.file.Truncate(end)
		w.torn = cut != nil
		return errors.Join(err, cut)
	}
	w.at.add(lines, w.o.MarkBytes)
	w.lines.Add(uint64(bytes.Count(lines, []byte{'\n'})))
	w.dirty = true
	return nil
}

// Lines returns how many lines this process has written. It may be called by any goroutine.
func (w *Writer) Lines() uint64 { return w.lines.Load() }

// cutTorn cuts off an incomplete write that append could not cut off.
func (w *Writer) cutTorn() error {
	if !w.torn {
		return nil
	}
	if err := w.file.Truncate(w.at.size); err != nil {
		return err
	}
	w.torn = false
	return nil
}

// sync makes the lines durable, and then the cursor.
func (w *Writer) sync() error {
	if !w.dirty {
		w.note()
		return nil
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	if err := w.at.save(w.cursorFile(), w.start); err != nil {
		return err
	}
	w.dirty = false
	w.note()
	return nil
}

// note makes known how far lines are durable.
func (w *Writer) note() {
	for i := range w.done {
		w.done[i].Store(w.at.heads[i].Revision)
	}
}

// Revision returns the revision up to which lines are durable: a start does not need the log up to there, unless the
// file is damaged. It is safe for concurrent use.
func (w *Writer) Revision() uint64 { return w.done[mainLog].Load() }

// DecisionsRevision returns the same of the log of decisions.
func (w *Writer) DecisionsRevision() uint64 { return w.done[decisionLog].Load() }

// Health returns why the file cannot be written; nil if it can. It is safe for concurrent use.
func (w *Writer) Health() error { return w.health.Err() }
