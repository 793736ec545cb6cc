package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"stele.dev/stele/limits/durable"
	"stele.dev/stele/limits/steady"
)

// Rotation says how large a file gets, and how many of the former ones are kept. The fields are those of kube-apiserver's
// flags --audit-log-maxsize, --audit-log-maxage, --audit-log-maxbackup and --audit-log-compress.
type Rotation struct {
	// MaxBytes is the size up to which lines are appended to a file; 0 for no limit. A batch of the log is never divided, so
	// that one that is larger has a file of its own.
	MaxBytes int64
	// MaxAge is how long a renamed file is kept, and MaxBackups how many are; 0 for no limit.
	MaxAge     time.Duration
	MaxBackups int
	// Compress compresses renamed files with gzip.
	Compress bool
}

// full reports whether a file of a size gets too large by n more bytes.
func (r *Rotation) full(size int64, n int) bool {
	return r.MaxBytes > 0 && size > 0 && size+int64(n) > r.MaxBytes
}

// backupTime is the layout of the time in the name of a renamed file, as kube-apiserver has it.
const backupTime = "2006-01-02T15-04-05.000"

// names returns what the names of renamed files begin and end with, around the time.
func (w *Writer) names() (dir, prefix, suffix string) {
	dir, name := filepath.Split(w.o.File)
	suffix = filepath.Ext(name)
	return dir, strings.TrimSuffix(name, suffix) + "-", suffix
}

// backupName returns a name that no file has.
func (w *Writer) backupName() string {
	_, prefix, suffix := w.names()
	for at := time.Now().UTC(); ; at = at.Add(time.Millisecond) {
		name := prefix + at.Format(backupTime) + suffix
		if !w.hasBackup(name) {
			return name
		}
	}
}

// hasBackup reports whether there is a renamed file of a name.
func (w *Writer) hasBackup(name string) bool {
	path := filepath.Join(filepath.Dir(w.o.File), name)
	return exists(path) || exists(path+compressed)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// rotation is one that has begun: the name that the file gets, and the position at which the next one begins.
type rotation struct {
	name string
	next position
}

// rotate renames the file and begins another one at the position. If it fails, the next call goes on.
func (w *Writer) rotate() error {
	if w.rotating == nil {
		if err := w.beginRotation(); err != nil {
			return err
		}
	}
	r := w.rotating
	if err := w.finishRotation(r.name, r.next); err != nil {
		return err
	}
	w.rotating, w.at = nil, r.next
	w.note()
	select {
	case w.rotated <- struct{}{}:
	default:
	}
	return nil
}

// beginRotation makes the file durable, and records that it is to be renamed.
func (w *Writer) beginRotation() error {
	if err := w.cutTorn(); err != nil {
		return err
	}
	w.dirty = true // the cursor has to have the end of the file that is renamed
	if err := w.sync(); err != nil {
		return err
	}
	if err := w.o.step("begin"); err != nil {
		return err
	}
	if w.replaced() {
		return errReplaced // the next file would begin after lines that are gone
	}
	r := &rotation{w.backupName(), position{heads: w.at.heads, begin: w.at.heads}}
	if err := writeSealed(w.beginFile(), beginOf(r.next.begin, r.name)); err != nil {
		return err
	}
	w.rotating = r
	return nil
}

// finishRotation renames the file, opens another one, and records where it begins.
func (w *Writer) finishRotation(name string, next position) error {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"rename", func() error {
			if w.hasBackup(name) {
				return nil // it was done before
			}
			err := os.Rename(w.o.File, filepath.Join(filepath.Dir(w.o.File), name))
			if w.rotating != nil && errors.Is(err, fs.ErrNotExist) {
				return errReplaced
			}
			return err
		}},
		{"open", func() error { w.endCheck(); w.file.Close(); return w.openFile() }},
		{"sync", func() error { return durable.SyncFolder(filepath.Dir(w.o.File)) }},
		{"cursor", func() error { return next.save(w.cursorFile(), w.start) }},
		{"end", func() error { return writeSealed(w.beginFile(), beginOf(next.begin, "")) }},
	} {
		if err := w.o.step(step.name); err != nil {
			return err
		}
		if err := step.do(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rotate the audit log: %w", err)
		}
	}
	return nil
}

// readBegin returns where the file begins, and finishes a rotation that was cut off. If the file that says so is lost, the
// cursor knows it.
func (w *Writer) readBegin() (at heads, err error) {
	var b begin
	_, err = readSealed(w.beginFile(), &b)
	if err != nil && !errors.As(err, new(errNoCursor)) {
		return w.start, err
	}
	if _, ok := b.Main.head(); err != nil || !ok || b.Main.Log != w.o.Start.Log.String() {
		p, err := readCursor(w.cursorFile(), w.start)
		if err != nil || p.begin == w.start {
			return w.start, nil
		}
		return p.begin, writeSealed(w.beginFile(), beginOf(p.begin, "")) // it is needed when the cursor is lost
	}
	at = b.heads(w.start)
	if b.Renamed != "" && b.Renamed == filepath.Base(b.Renamed) {
		err = w.finishRotation(b.Renamed, position{heads: at, begin: at})
	}
	return at, err
}

// compressed ends the names of compressed files.
const compressed = ".gz"

// startTidying compresses and deletes renamed files in the background. The function that it returns ends that.
func (w *Writer) startTidying(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		failed := false
		for {
			err := w.tidy(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil && !failed {
				w.o.Logger.Warn("rotated audit logs could not be compressed or deleted; it is tried again", "error", err)
			}
			failed = err != nil
			select {
			case <-w.rotated:
			case <-time.After(time.Hour): // for their age
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// backup is a renamed file.
type backup struct {
	path string
	at   time.Time
}

// backups returns the renamed files, the newest first.
func (w *Writer) backups() (found []backup, err error) {
	dir, prefix, suffix := w.names()
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, isBackup := strings.CutPrefix(strings.TrimSuffix(e.Name(), compressed), prefix)
		if !isBackup || !e.Type().IsRegular() {
			continue
		}
		if at, err := time.Parse(backupTime, strings.TrimSuffix(name, suffix)); err == nil {
			found = append(found, backup{filepath.Join(dir, e.Name()), at})
		}
	}
	slices.SortFunc(found, func(a, b backup) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.path, b.path)) })
	return found, nil
}

// tidy deletes renamed files that are too many or too old, and compresses the others.
func (w *Writer) tidy(ctx context.Context) error {
	r := &w.o.Rotation
	found, err := w.backups()
	if err != nil {
		return err
	}
	errs := []error{os.RemoveAll(w.o.File + unfinished)}
	for i, b := range found {
		switch {
		case r.MaxBackups > 0 && i >= r.MaxBackups, r.MaxAge > 0 && time.Since(b.at) > r.MaxAge:
			errs = append(errs, os.Remove(b.path))
		case r.Compress && !strings.HasSuffix(b.path, compressed):
			errs = append(errs, w.compress(ctx, b.path))
		}
	}
	return errors.Join(errs...)
}

// unfinished ends the name of a file that is being compressed.
const unfinished = ".gz.tmp"

// compress replaces a file by a compressed one.
func (w *Writer) compress(ctx context.Context, path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	temporary := w.o.File + unfinished
	out, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(temporary)
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, steady.Reader(ctx, in))
	if err := errors.Join(err, z.Close(), out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path+compressed); err != nil {
		return err
	}
	return errors.Join(os.Remove(path), durable.SyncFolder(filepath.Dir(path)))
}
