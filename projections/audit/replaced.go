package audit

import (
	"context"
	"os"
	"path/filepath"
)

// Another program may move the file away or delete it while it is written: logrotate, or a person who needs room. Lines would then go
// on into a file that has another name, or none, and be lost with it. So the writer looks before it writes, and each second.

// replaced reports whether the name of the file leads to another file than the one that is open, or to none.
func (w *Writer) replaced() bool {
	open, err := w.file.Stat()
	if err != nil {
		return false // writing fails, too, and says why
	}
	named, err := os.Stat(w.o.File)
	return os.IsNotExist(err) || err == nil && !os.SameFile(open, named)
}

// reopen opens the file of the name. If the former one has another name in the folder, the new one begins at the position: the former
// one has the lines before. Else the lines of the former one are lost, and are written again from the logs. What the new file has
// that the logs do not is set aside.
func (w *Writer) reopen(ctx context.Context) {
	var begin *begin
	name := w.otherName()
	if name != "" {
		begin = beginOf(w.at.heads, "")
		w.o.Logger.Warn("another program has moved the audit log; a new one begins", "file", w.o.File, "moved", name)
	} else {
		w.o.Logger.Warn("another program has deleted the audit log or moved it elsewhere; it is written again from the log", "file", w.o.File)
	}
	w.retry(ctx, func() error {
		if begin == nil {
			return nil
		}
		if err := w.file.Sync(); err != nil {
			return err
		}
		return writeSealed(w.beginFile(), begin)
	})
	w.file.Close()
	w.retry(ctx, func() error {
		if err := os.MkdirAll(filepath.Dir(w.o.File), 0o700); err != nil {
			return err
		}
		return w.openFile()
	})
	w.restored, w.torn, w.unchecked = false, false, mark{}
	for i := range w.done {
		w.done[i].Store(0) // nothing that is written again may be erased meanwhile
	}
	w.retry(ctx, func() error { return w.restore(ctx) })
}

// otherName returns another name that the open file has in its folder; "" for none.
func (w *Writer) otherName() string {
	open, err := w.file.Stat()
	if err != nil {
		return ""
	}
	dir := filepath.Dir(w.o.File)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && os.SameFile(open, info) {
			return filepath.Join(dir, e.Name())
		}
	}
	return ""
}
