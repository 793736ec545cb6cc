// Package audit is the projection that writes the audit log: one line of JSON, an
// audit.k8s.io/v1 Event, for every write, made from the event that is the write. What
// is in the log is in the audit log, once; what was refused is not.
//
// # Files
//
// Lines are appended to one file. Beside it a cursor, replaced from time to time, says
// up to which position of the log they have been written and synced. After a crash
// the file may have more lines than the cursor says, and a torn one at its end: the
// torn one is cut off, and the last whole one tells what need not be written again.
package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"stele.dev/stele/eventlog"
)

// Options for [Open].
type Options struct {
	// File that lines are appended to; the cursor is File + ".cursor".
	File string
	Log  eventlog.Reader
	// Start is the position before the log's first batch.
	Start  eventlog.Head
	Logger *slog.Logger
}

// Writer follows a log into a file. Run belongs to one goroutine.
type Writer struct {
	o    Options
	file *os.File
	at   eventlog.Head // written up to here
	// written is the revision of the last line; it may be beyond at after a crash.
	written uint64
	dirty   bool // something has been written since the last sync
	problem atomic.Pointer[error]
	done    atomic.Uint64
}

// cursor is what the cursor file holds.
type cursor struct {
	Log      string `json:"log"`
	Epoch    uint64 `json:"epoch,omitempty"`
	Revision uint64 `json:"revision"`
	Hash     string `json:"hash"`
}

// ErrForeignCursor reports a cursor that another log has left.
var ErrForeignCursor = errors.New("audit: the cursor is of another log")

// Open opens the file, or creates it, and finds out where to go on. Both files are for
// their owner alone.
func Open(o Options) (*Writer, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Dir(o.File), 0o700); err != nil {
		return nil, err
	}
	w := &Writer{o: o, at: o.Start}
	if err := w.readCursor(); err != nil {
		return nil, err
	}
	var err error
	if w.file, err = os.OpenFile(o.File, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if w.written, err = repair(w.file); err != nil {
		return nil, errors.Join(fmt.Errorf("audit: %s: %w", o.File, err), w.file.Close())
	}
	w.done.Store(max(w.at.Revision, w.written))
	return w, nil
}

func (w *Writer) readCursor() error {
	data, err := os.ReadFile(w.o.File + ".cursor")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var c cursor
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("audit: %s.cursor: %w", w.o.File, err)
	}
	if c.Log != w.o.Start.Log.String() {
		return fmt.Errorf("%w: %s.cursor says %s, this log is %s", ErrForeignCursor, w.o.File, c.Log, w.o.Start.Log)
	}
	w.at = eventlog.Head{Log: w.o.Start.Log, Epoch: c.Epoch, Revision: c.Revision}
	hash, err := hex.DecodeString(c.Hash)
	if err != nil || copy(w.at.Hash[:], hash) != len(w.at.Hash) {
		return fmt.Errorf("audit: %s.cursor: hash %q", w.o.File, c.Hash)
	}
	return nil
}

// longestLine bounds how far back the last whole line is looked for.
const longestLine = 1 << 20

// repair cuts off a torn last line, leaves the file at its end, and returns the revision
// of the last line, 0 if there is none.
func repair(f *os.File) (revision uint64, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return 0, err
	}
	tail := make([]byte, min(size, 2*longestLine))
	start := size - int64(len(tail))
	if _, err := f.ReadAt(tail, start); err != nil {
		return 0, err
	}
	end := bytes.LastIndexByte(tail, '\n') + 1
	if end < len(tail) {
		if err := f.Truncate(start + int64(end)); err != nil {
			return 0, err
		}
	}
	if _, err := f.Seek(start+int64(end), io.SeekStart); err != nil {
		return 0, err
	}
	if end == 0 {
		return 0, nil
	}
	line := tail[bytes.LastIndexByte(tail[:end-1], '\n')+1 : end]
	var event auditv1.Event
	if err := json.Unmarshal(line, &event); err != nil {
		return 0, fmt.Errorf("its last line is no audit event: %w", err)
	}
	return strconv.ParseUint(event.Annotations[RevisionAnnotation], 10, 64)
}

// syncEvery is how long a line may be unsynced, and the cursor behind.
const syncEvery = time.Second

// finishWithin bounds how long stopping takes.
const finishWithin = 5 * time.Second

// Run writes what the log has until the context ends, and then what it has by that
// time. Its error is the log's; trouble with the file is tried again, see Health.
func (w *Writer) Run(ctx context.Context) error {
	synced := time.Now()
	for {
		wait, cancel := context.WithTimeout(ctx, syncEvery)
		batches, err := w.o.Log.Next(wait, w.at)
		cancel()
		switch {
		case ctx.Err() != nil:
			w.finish(context.WithoutCancel(ctx))
			return ctx.Err()
		case err == nil:
			w.retry(ctx, func() error { return w.write(batches) })
		case errors.Is(err, context.DeadlineExceeded):
		case eventlog.IsFatal(err):
			return fmt.Errorf("audit: %w", err)
		default: // the backend is away
			w.pause(ctx)
		}
		if time.Since(synced) >= syncEvery {
			w.retry(ctx, w.sync)
			synced = time.Now()
		}
	}
}

// finish writes what is in the log already.
func (w *Writer) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishWithin)
	defer cancel()
	err := error(nil)
	for err == nil {
		var batches []*eventlog.Batch
		if batches, err = w.o.Log.CatchUp(ctx, w.at); len(batches) == 0 {
			break
		}
		err = w.write(batches)
	}
	if err := errors.Join(err, w.sync(), w.file.Close()); err != nil {
		w.o.Logger.Error("the audit log is not complete; it is completed at the next start", "error", err)
	}
}

// retry does something until it succeeds or the context ends.
func (w *Writer) retry(ctx context.Context, do func() error) {
	for ctx.Err() == nil {
		err := do()
		if err == nil {
			w.problem.Store(nil)
			return
		}
		if w.problem.Swap(&err) == nil {
			w.o.Logger.Error("the audit log cannot be written", "error", err)
		}
		w.pause(ctx)
	}
}

func (w *Writer) pause(ctx context.Context) {
	select {
	case <-time.After(syncEvery):
	case <-ctx.Done():
	}
}

// write appends the lines of batches. What a failed write leaves behind is cut off, so
// that it can be tried again.
func (w *Writer) write(batches []*eventlog.Batch) error {
	var lines []byte
	written := w.written
	for _, b := range batches {
		for _, e := range b.Events {
			if e.Last() <= w.written {
				continue
			}
			var err error
			if lines, err = Render(lines, e, w.written); err != nil {
				return err
			}
			written = e.Last()
		}
	}
	if len(lines) > 0 {
		start, err := w.file.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		if _, err := w.file.Write(lines); err != nil {
			return errors.Join(err, w.file.Truncate(start))
		}
		w.dirty = true
	}
	w.at, w.written = batches[len(batches)-1].Head(), max(written, w.at.Revision)
	w.done.Store(w.at.Revision)
	return nil
}

// sync makes the lines durable, and then the cursor that says so.
func (w *Writer) sync() error {
	if !w.dirty {
		return nil
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	data, err := json.Marshal(cursor{Log: w.at.Log.String(), Epoch: w.at.Epoch, Revision: w.at.Revision, Hash: w.at.Hash.String()})
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(w.o.File+".cursor", data, 0o600); err != nil {
		return err
	}
	w.dirty = false
	return nil
}

// Revision is the one up to which lines have been written. It is safe for concurrent
// use.
func (w *Writer) Revision() uint64 { return w.done.Load() }

// Health is the trouble that there is with the file, if any. It is safe for concurrent
// use.
func (w *Writer) Health() error {
	if err := w.problem.Load(); err != nil {
		return *err
	}
	return nil
}
