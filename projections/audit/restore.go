package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"time"

	"stele.dev/stele/eventlog"
)

// restore truncates the file to what it was when the cursor was saved: the log has the rest. If there is
// no cursor, or the file does not match it, restore compares the file with the log from the beginning.
func (w *Writer) restore(ctx context.Context) error {
	if w.restored {
		return nil
	}
	err := w.resume()
	if err == nil {
		err = w.checkEpoch(ctx)
	}
	if err != nil {
		reason := errNoCursor("")
		if !errors.As(err, &reason) {
			return err
		}
		if err := w.compare(ctx, string(reason)); err != nil {
			return err
		}
	}
	w.restored = true
	if !w.dirty { // else sync does it
		w.done.Store(w.at.head.Revision)
	}
	return nil
}

// resume continues from the cursor. The error is an [errNoCursor] if the cursor cannot be used.
func (w *Writer) resume() error {
	p, err := readCursor(w.cursorFile(), w.o.Start.Log)
	if err != nil {
		return err
	}
	info, err := w.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < p.size {
		return errNoCursor(fmt.Sprintf("the file has %d of %d bytes", info.Size(), p.size))
	}
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, io.NewSectionReader(w.file, p.mark.Size, p.size-p.mark.Size)); err != nil {
		return err
	}
	if sum.Sum32() != p.tail {
		return errNoCursor(otherSum)
	}
	if err := w.file.Truncate(p.size); err != nil {
		return err
	}
	w.at = p
	w.unchecked = p.mark
	return nil
}

// checkEpoch returns an [errNoCursor] if the log was restored from an older copy without what the cursor has seen, and
// has begun an epoch since. Without an epoch the log is not to be trusted, which Run reports.
func (w *Writer) checkEpoch(ctx context.Context) error {
	if _, err := w.o.Log.CatchUp(ctx, w.at.head); !errors.Is(err, eventlog.ErrDiverged) {
		return nil
	}
	newest, err := w.o.Log.Back(ctx, math.MaxUint64, 1)
	if err != nil || len(newest) == 0 || newest[0].Epoch <= w.at.head.Epoch {
		return nil
	}
	w.unchecked = mark{} // compare reads all
	return errNoCursor(fmt.Sprintf("the log has lost revisions up to %d", w.at.head.Revision))
}

const otherSum = "the file has another checksum"

// checkStep is how much of the file is read between two rests, and checkRest how long they are: what is before the
// mark may be many gigabytes, and nobody waits for it.
const (
	checkStep = 4 << 20
	checkRest = 20 * time.Millisecond
)

// check reads the part of the file before a mark, which is not written meanwhile. The error is an [errNoCursor] if it
// was changed.
func (w *Writer) check(ctx context.Context, m mark) error {
	sum := crc32.New(castagnoli)
	for at := int64(0); at < m.Size; at += checkStep {
		if _, err := io.Copy(sum, io.NewSectionReader(w.file, at, min(checkStep, m.Size-at))); err != nil {
			return err
		}
		select {
		case <-time.After(checkRest):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if sum.Sum32() != m.Sum {
		return errNoCursor(otherSum)
	}
	return nil
}

// startCheck checks in the background what restore has not, and sends the result once. The function that it returns
// ends the check.
func (w *Writer) startCheck(ctx context.Context) (checked <-chan error, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	result, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		if err := w.check(ctx, w.unchecked); ctx.Err() == nil {
			result <- err
		}
	}()
	return result, func() { cancel(); <-done }
}

// repair compares the file with the log, if its part before the mark was changed. err is the result of the check.
func (w *Writer) repair(ctx context.Context, err error) {
	reason := errNoCursor("")
	switch {
	case err == nil:
	case errors.As(err, &reason):
		w.done.Store(0) // nothing that is compared may be erased meanwhile
		w.retry(ctx, func() error { return w.compare(ctx, string(reason)) })
	default:
		w.o.Logger.Warn("the audit log could not be read to its end; the next start checks it again", "file", w.o.File, "error", err)
	}
}

// compare reads the log from the beginning, and keeps the part of the file that matches it. From the
// first line that differs on, it writes the file anew. It sets aside what the file had there, unless that
// is the beginning of the new lines.
func (w *Writer) compare(ctx context.Context, reason string) error {
	info, err := w.file.Stat()
	if err != nil {
		return err
	}
	w.at = position{head: w.o.Start}
	for same := true; ; {
		batches, err := w.o.Log.CatchUp(ctx, w.at.head)
		if err != nil {
			return err
		}
		lines := w.render(batches)
		if same {
			matching, err := w.matching(lines)
			if err != nil {
				return err
			}
			w.at.add(lines[:matching], w.o.MarkBytes)
			lines = lines[matching:]
			if same = len(lines) == 0 && len(batches) > 0; !same {
				if err := w.replace(lines); err != nil {
					return err
				}
			}
		}
		if len(batches) == 0 {
			break
		}
		if err := w.append(lines); err != nil {
			return err
		}
		w.at.head = batches[len(batches)-1].Head()
	}
	if w.at.size != info.Size() && info.Size() > 0 { // not at the first start
		w.o.Logger.Warn("the audit log was completed from the log", "file", w.o.File, "reason", reason, "bytes", info.Size(), "bytesNow", w.at.size)
	}
	w.dirty = true
	return nil
}

// matching returns how many bytes of lines the file has at the position, counting whole lines only.
func (w *Writer) matching(lines []byte) (int, error) {
	there := make([]byte, len(lines))
	n, err := w.file.ReadAt(there, w.at.size)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	same := 0
	for same < n && there[same] == lines[same] {
		same++
	}
	return bytes.LastIndexByte(lines[:same], '\n') + 1, nil
}

// replace truncates the file at the position, where lines will be written. Unless the rest of the file is
// the beginning of lines, replace saves it in another file for whoever has changed it.
func (w *Writer) replace(lines []byte) error {
	rest := io.NewSectionReader(w.file, w.at.size, 1<<62)
	begin := make([]byte, len(lines)+1)
	n, err := io.ReadFull(rest, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if !bytes.HasPrefix(lines, begin[:n]) {
		if _, err := rest.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := w.setAside(rest); err != nil {
			return err
		}
	}
	return w.file.Truncate(w.at.size)
}

// setAside copies the rest of the file to another file.
func (w *Writer) setAside(rest io.Reader) error {
	name := w.o.File + ".replaced-" + time.Now().UTC().Format("20060102T150405.000000000Z")
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, rest)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	w.o.Logger.Warn("the audit log has lines that differ from the log; they are written anew", "file", w.o.File, "at", w.at.size, "replaced", name)
	return nil
}
