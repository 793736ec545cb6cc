package archive

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

const (
	// temporary is the suffix of files that are being written. Open removes them.
	temporary = ".tmp"
	// sumsFile lists the SHA-256 of all files as sha256sum prints and checks it.
	sumsFile = "SHA256SUMS"
)

// folder makes durable changes to the files of an archive.
type folder struct {
	path string
	// before is called before every operation that changes something on the disk, for tests. Its error is the
	// operation's. It may be nil.
	before func(op, name string) error
}

func (f *folder) allow(op, name string) error {
	if f.before == nil {
		return nil
	}
	return f.before(op, name)
}

func (f *folder) join(name string) string { return filepath.Join(f.path, name) }

// file is a file that is being written under a temporary name.
type file struct {
	f    *folder
	name string // without the suffix
	file *os.File
	buf  []byte
}

// create begins a file, which replaces a temporary one of the same name.
func (f *folder) create(name string) (*file, error) {
	if err := f.allow("create", name); err != nil {
		return nil, err
	}
	created, err := os.OpenFile(f.join(name+temporary), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &file{f: f, name: name, file: created}, nil
}

// writeBytes is how many bytes are written to a file at once.
const writeBytes = 256 << 10

// Write implements [io.Writer]. What is written is on the disk after sync.
func (w *file) Write(b []byte) (int, error) {
	w.buf = append(w.buf, b...)
	if len(w.buf) < writeBytes {
		return len(b), nil
	}
	return len(b), w.flush()
}

func (w *file) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if err := w.f.allow("write", w.name); err != nil {
		return err
	}
	_, err := w.file.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

// sync makes the content durable, and closes the file. The system forgets the content, so that the next read is one of
// the disk.
func (w *file) sync() error {
	err := w.flush()
	if err == nil {
		err = w.f.allow("sync", w.name)
	}
	if err == nil {
		err = w.file.Sync()
	}
	if err == nil {
		forget(w.file)
	}
	return errors.Join(err, w.file.Close())
}

// publish gives the file its name, or another one.
func (w *file) publish(name string) error {
	if err := w.f.allow("rename", name); err != nil {
		return err
	}
	return os.Rename(w.f.join(w.name+temporary), w.f.join(name))
}

// abandon closes and removes the file. Open does it after a crash.
func (w *file) abandon() {
	w.file.Close()
	os.Remove(w.f.join(w.name + temporary))
}

// sync makes new and removed names durable.
func (f *folder) sync() error {
	if err := f.allow("sync folder", ""); err != nil {
		return err
	}
	d, err := os.Open(f.path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove removes a file, which may be absent.
func (f *folder) remove(name string) error {
	if err := f.allow("remove", name); err != nil {
		return err
	}
	if err := os.Remove(f.join(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sums are the SHA-256 of files, by name.
type sums map[string][32]byte

// readSums reads the list. A damaged or missing list is empty, or has fewer lines: the hashes are then computed again.
func (f *folder) readSums() (sums, error) {
	list := sums{}
	text, err := os.ReadFile(f.join(sumsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		decoded, err := hex.DecodeString(sum)
		if ok && err == nil && len(decoded) == 32 && filepath.IsLocal(name) {
			list[name] = [32]byte(decoded)
		}
	}
	return list, err
}

// writeSums replaces the list.
func (f *folder) writeSums(list sums) error {
	if err := f.allow("write", sumsFile); err != nil {
		return err
	}
	names := make([]string, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "%x  %s\n", list[name], name)
	}
	return renameio.WriteFile(f.join(sumsFile), []byte(text.String()), 0o600)
}

var _ io.Writer = (*file)(nil)
