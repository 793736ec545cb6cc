package stores

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"stele.dev/stele/limits/durable"
	"stele.dev/stele/limits/steady"
)

// Folder is a store in a folder of a file system. A file is written under a temporary name, synced, and renamed; then
// its folder is synced.
type Folder struct{ root string }

var _ Remover = (*Folder)(nil)

// NewFolder returns a store in a folder, which Put creates.
func NewFolder(root string) *Folder { return &Folder{root} }

// Put implements [Store].
func (f *Folder) Put(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	file := filepath.Join(f.root, filepath.FromSlash(name))
	if err := durable.MakeFolder(filepath.Dir(file)); err != nil {
		return err
	}
	return durable.WriteFile(file, func(w io.Writer) error {
		_, err := io.Copy(w, steady.Reader(ctx, io.NewSectionReader(content, 0, size)))
		return err
	})
}

// Open implements [Store].
func (f *Folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(f.root, filepath.FromSlash(name)))
}

// Remove implements [Remover].
func (f *Folder) Remove(_ context.Context, name string) error {
	file := filepath.Join(f.root, filepath.FromSlash(name))
	if err := os.Remove(file); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return durable.SyncFolder(filepath.Dir(file))
}

// List implements [Store]. Temporary files of an interrupted Put are not listed.
func (f *Folder) List(ctx context.Context, prefix string) ([]Entry, error) {
	var entries []Entry
	err := filepath.WalkDir(f.root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && file == f.root:
			return fs.SkipAll
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case strings.HasPrefix(d.Name(), ".") && file != f.root && d.IsDir():
			return fs.SkipDir
		case !d.Type().IsRegular() || strings.HasPrefix(d.Name(), "."):
			return nil
		}
		relative, err := filepath.Rel(f.root, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(relative)
		if !strings.HasPrefix(name, prefix) {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			entries = append(entries, Entry{Name: name, Size: info.Size()})
		}
		return err
	})
	return entries, err
}
