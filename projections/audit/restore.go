package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"
)

// restore makes the file what it was when the cursor was saved: what came after that is cut
// off, as the log has it. If there is no cursor, or the file has other bytes than the cursor
// vouches for, the file is compared with the log from its beginning.
func (w *Writer) restore(ctx context.Context) error {
	if w.restored {
		return nil
	}
	if err := w.resume(); err != nil {
		reason := errNoCursor("")
		if !errors.As(err, &reason) {
			return err
		}
		if err := w.compare(ctx, string(reason)); err != nil {
			return err
		}
	}
	w.restored = true
	w.done.Store(w.at.head.Revision)
	return nil
}

// resume goes on from the cursor. The error is an [errNoCursor] if it cannot be relied on.
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
		return errNoCursor(fmt.Sprintf("the file has %d bytes of %d", info.Size(), p.size))
	}
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, io.NewSectionReader(w.file, 0, p.size)); err != nil {
		return err
	}
	if sum.Sum32() != p.sum {
		return errNoCursor("the file has another checksum")
	}
	if err := w.file.Truncate(p.size); err != nil {
		return err
	}
	w.at = p
	return nil
}

// compare reads the log from its beginning, and leaves of the file what it has of the lines.
// From the first line that differs on, the file is written anew; what it had there is set
// aside, unless it is the beginning of what is written.
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
		if len(batches) == 0 {
			if same {
				err = w.replace(nil)
			}
			if err != nil {
				return err
			}
			break
		}
		lines, err := render(batches)
		if err != nil {
			return err
		}
		if same {
			kept, err := w.matching(lines)
			if err != nil {
				return err
			}
			w.at.add(lines[:kept])
			if same = kept == len(lines); !same {
				err = w.replace(lines[kept:])
			}
			if err != nil {
				return err
			}
			lines = lines[kept:]
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

// matching returns how many bytes of lines, up to the end of one of them, the file has at the
// position.
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

// replace cuts the file off at the position, where lines are to be written. What it has there
// and is not their beginning is kept in a file of its own, for whoever has changed it.
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
	w.o.Logger.Warn("the audit log has lines that the log does not have; they are written anew", "file", w.o.File, "at", w.at.size, "replaced", name)
	return nil
}
