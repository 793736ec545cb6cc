package audit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Another program may move the file away or delete it while it is written: logrotate, or a person who needs room. Lines would then go
// on into a file that has another name, or none, and be lost with it. So the writer looks before each attempt to write, and each second.

// errReplaced ends an attempt to write to a file that is not the one of the name any more.
var errReplaced = errors.New("another program has moved or deleted the audit log")

// replaced reports whether the name of the file leads to another file than the one that is open, or to none. A file that a rotation
// has renamed is not replaced: the rotation goes on.
func (w *Writer) replaced() bool {
	if w.rotating != nil && w.hasBackup(w.rotating.name) {
		return false
	}
	open, err := w.file.Stat()
	if err != nil {
		return false // writing fails, too, and says why
	}
	named, err := os.Stat(w.o.File)
	return os.IsNotExist(err) || err == nil && !os.SameFile(open, named)
}

// retryHere calls do until it succeeds or the context ends. It reports false if the file is replaced: a deleted file takes up room as
// long as it is open, so that writes to it may fail for ever.
func (w *Writer) retryHere(ctx context.Context, do func() error) bool {
	for ctx.Err() == nil {
		if w.replaced() {
			return false
		}
		err := do()
		if errors.Is(err, errReplaced) {
			return false
		}
		if w.attempt(ctx, err) {
			return true
		}
	}
	return true
}

// reopen opens the file of the name. If the former one has another name in the folder, the new one begins at the position: the former
// one has the lines before. Else the lines of the former one are lost, and are written again from the logs. What the new file has
// that the logs do not is set aside.
func (w *Writer) reopen(ctx context.Context) {
	for i := range w.done {
		w.done[i].Store(0) // nothing that is written again may be erased meanwhile
	}
	w.retry(ctx, w.leave)
	w.file.Close()
	w.restored, w.torn, w.unchecked, w.rotating = false, false, mark{}, nil
	w.retry(ctx, func() error { return w.restore(ctx) })
}

// leave records where the file of the name begins, if the open one has another name.
func (w *Writer) leave() error {
	name := w.otherName()
	if name == "" {
		if w.rotating != nil && exists(w.beginFile()) { // which says where the file after that begins
			if err := writeSealed(w.beginFile(), beginOf(w.at.begin, "")); err != nil {
				return err
			}
		}
		w.o.Logger.Warn("another program has deleted the audit log or moved it elsewhere; it is written again from the log", "file", w.o.File)
		return nil
	}
	if err := errors.Join(w.cutTorn(), w.file.Sync()); err != nil {
		return err
	}
	if err := writeSealed(w.beginFile(), beginOf(w.at.heads, "")); err != nil {
		return err
	}
	w.o.Logger.Warn("another program has moved the audit log; a new one begins", "file", w.o.File, "moved", name)
	return nil
}

// openIfLost opens the file of the name if the open one is closed, or has no name in its folder any more.
func (w *Writer) openIfLost() error {
	if _, err := w.file.Stat(); err == nil && (!w.replaced() || w.otherName() != "") {
		return nil
	}
	w.file.Close()
	w.torn = false
	if err := os.MkdirAll(filepath.Dir(w.o.File), 0o700); err != nil {
		return err
	}
	return w.openFile()
}

// otherName returns another name that the open file has in its folder; "" for none.
func (w *Writer) otherName() string {
	open, err := w.file.Stat()
	if err != nil {
		return ""
	}
	dir, own := filepath.Split(w.o.File)
	entries, err := os.ReadDir(filepath.Dir(w.o.File))
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if e.Name() == own { // it may be back
			continue
		}
		if info, err := e.Info(); err == nil && os.SameFile(open, info) {
			return filepath.Join(dir, e.Name())
		}
	}
	return ""
}
