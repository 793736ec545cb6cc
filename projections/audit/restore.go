package audit

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/steady"
)

// restore truncates the file to what it was when the cursor was saved: the logs have the rest. If there is
// no cursor, or the file does not match it, restore compares the file with the logs from where it begins.
func (w *Writer) restore(ctx context.Context) error {
	if w.restored {
		return nil
	}
	if err := w.openIfLost(); err != nil {
		return err
	}
	at, err := w.readBegin()
	if err != nil {
		return err
	}
	err = w.resume(at)
	if err == nil {
		err = w.checkHeads(ctx)
	}
	if err != nil {
		reason := errNoCursor("")
		if !errors.As(err, &reason) {
			return err
		}
		if err := w.compare(ctx, at, string(reason)); err != nil {
			return err
		}
	}
	w.restored = true
	if !w.dirty { // else sync does it
		w.note()
	}
	return nil
}

// resume continues from the cursor. The error is an [errNoCursor] if the cursor cannot be used. The file begins at the
// positions of at.
func (w *Writer) resume(at heads) error {
	p, err := readCursor(w.cursorFile(), w.start)
	if err != nil {
		return err
	}
	if p.begin != at {
		return errNoCursor("the cursor is of another file")
	}
	info, err := w.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < p.size {
		return errNoCursor(fmt.Sprintf("the file has %d of %d bytes", info.Size(), p.size))
	}
	if err := w.checkTail(p); err != nil {
		return err
	}
	if err := w.file.Truncate(p.size); err != nil {
		return err
	}
	w.at = p
	w.unchecked = p.mark
	return nil
}

// checkTail compares what follows the mark with its checksum.
func (w *Writer) checkTail(p position) error {
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, io.NewSectionReader(w.file, p.mark.Size, p.size-p.mark.Size)); err != nil {
		return err
	}
	if sum.Sum32() != p.tail {
		return errNoCursor(otherSum)
	}
	return nil
}

// checkHeads returns an [errNoCursor] if a log was restored from an older copy without what the cursor has seen. The log
// of record has begun an epoch since; else it is not to be trusted, which Run reports. The log of decisions may have lost
// its end in a crash of the machine.
func (w *Writer) checkHeads(ctx context.Context) error {
	for which, log := range w.readers {
		if log == nil {
			continue
		}
		if _, err := log.CatchUp(ctx, w.at.heads[which]); !errors.Is(err, eventlog.ErrDiverged) {
			continue
		}
		newest, err := log.Back(ctx, math.MaxUint64, 1)
		if err != nil || len(newest) == 0 || which == mainLog && newest[0].Epoch <= w.at.heads[which].Epoch {
			continue
		}
		w.unchecked = mark{} // compare reads all
		w.lostEnd = which == decisionLog
		return errNoCursor(fmt.Sprintf("the log of %s has lost revisions up to %d", logName(which), w.at.heads[which].Revision))
	}
	return nil
}

// common returns the newest position that a log has in common with a reader that was at a position: the position itself,
// unless the log was restored from an older copy.
func common(ctx context.Context, log eventlog.Reader, at eventlog.Head, start eventlog.Head) (eventlog.Head, error) {
	if _, err := log.CatchUp(ctx, at); !errors.Is(err, eventlog.ErrDiverged) {
		return at, nil
	}
	for from := uint64(math.MaxUint64); ; {
		older, err := log.Back(ctx, from, 64)
		if err != nil {
			return at, err
		}
		for _, b := range older {
			if b.Last() <= at.Revision && b.Epoch <= at.Epoch {
				return b.Head(), nil
			}
			from = b.First - 1
		}
		if len(older) == 0 || from == 0 {
			return start, nil
		}
	}
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
		if err := steady.Wait(ctx, checkRest); err != nil {
			return err
		}
	}
	if sum.Sum32() != m.Sum {
		return errNoCursor(otherSum)
	}
	return nil
}

// startCheck checks in the background what restore has not, and sends the result once. endCheck ends the check; the file stays open
// until then.
func (w *Writer) startCheck(ctx context.Context) (checked <-chan error) {
	ctx, cancel := context.WithCancel(ctx)
	result, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		if err := w.check(ctx, w.unchecked); ctx.Err() == nil {
			result <- err
		}
	}()
	w.endCheck = func() { cancel(); <-done }
	return result
}

// repair compares the file with the logs, if its part before the mark was changed. err is the result of the check.
func (w *Writer) repair(ctx context.Context, err error) {
	reason := errNoCursor("")
	switch {
	case err == nil:
	case errors.As(err, &reason):
		for i := range w.done {
			w.done[i].Store(0) // nothing that is compared may be erased meanwhile
		}
		w.retry(ctx, func() error {
			if err := w.openIfLost(); err != nil {
				return err
			}
			return w.compare(ctx, w.at.begin, string(reason))
		})
	default:
		w.o.Logger.Warn("the audit log could not be read to its end; the next start checks it again", "file", w.o.File, "error", err)
	}
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
