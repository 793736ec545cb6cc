package stores

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"stele.dev/stele/limits/durable"
	"stele.dev/stele/limits/steady"
)

// SingleFile is a store for one backup in one tar file, whose last entry is the manifest. It is only written, from the
// beginning to the end, and complete after Commit. [OpenSingleFile] reads it.
type SingleFile struct {
	file string

	mu      sync.Mutex
	pending *renameio.PendingFile
	tar     *tar.Writer
	sums    map[string]string // SHA-256 by name
	err     error             // a Put has failed
}

var _ Store = (*SingleFile)(nil)

// CreateSingleFile begins a file. The caller calls Close in the end, and Commit before it if all went well.
func CreateSingleFile(file string) (*SingleFile, error) {
	if err := durable.MakeFolder(filepath.Dir(file)); err != nil {
		return nil, err
	}
	pending, err := renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return nil, err
	}
	return &SingleFile{file: file, pending: pending, tar: tar.NewWriter(pending), sums: map[string]string{}}, nil
}

// Put implements [Store]. After an error the file cannot be completed.
func (s *SingleFile) Put(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = s.put(ctx, name, content, size)
	}
	if s.err != nil {
		return Final(s.err)
	}
	return nil
}

func (s *SingleFile) put(ctx context.Context, name string, content io.ReaderAt, size int64) (err error) {
	if s.sums[name], err = SumOf(io.NewSectionReader(content, 0, size)); err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: time.Now()}
	if err := s.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(s.tar, steady.Reader(ctx, io.NewSectionReader(content, 0, size)))
	return err
}

// Open implements [Store]. It is not supported: Commit reads the whole file back.
func (s *SingleFile) Open(context.Context, string) (io.ReadCloser, error) {
	return nil, errors.ErrUnsupported
}

// List implements [Store]. A new file has nothing of an earlier backup.
func (s *SingleFile) List(context.Context, string) ([]Entry, error) { return nil, nil }

// Commit completes the file: it syncs it, reads it back, and gives it its name.
func (s *SingleFile) Commit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if err := errors.Join(s.tar.Close(), s.pending.Sync()); err != nil {
		return err
	}
	if err := s.compare(); err != nil {
		return fmt.Errorf("reading back %s: %w", s.file, err)
	}
	if err := s.pending.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return durable.SyncFolder(filepath.Dir(s.file))
}

// compare reads back what was written.
func (s *SingleFile) compare() error {
	if _, err := s.pending.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in, found := tar.NewReader(s.pending), 0
	for {
		header, err := in.Next()
		if err == io.EOF && found == len(s.sums) {
			return nil
		}
		if err != nil {
			return err
		}
		sum, err := SumOf(in)
		if err != nil {
			return err
		}
		if sum != s.sums[header.Name] {
			return fmt.Errorf("%s has another content than was written", header.Name)
		}
		found++
	}
}

// Close removes the file unless Commit has completed it.
func (s *SingleFile) Close() error { return s.pending.Cleanup() }

// readFile is a complete single file. It is a store that cannot be written.
type readFile struct {
	file    *os.File
	entries map[string]section
}

type section struct{ offset, size int64 }

// OpenSingleFile returns the store in a file that a [SingleFile] has written. The caller closes it.
func OpenSingleFile(name string) (interface {
	Store
	io.Closer
}, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	s := &readFile{file: file, entries: map[string]section{}}
	if err := s.index(); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s is not a complete backup: %w", name, err)
	}
	return s, nil
}

// index notes where each file begins. It reads the headers only.
func (s *readFile) index() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	in := tar.NewReader(s.file)
	for {
		header, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		offset, err := s.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			return fmt.Errorf("it has an entry %q that is not a file", header.Name)
		}
		if _, double := s.entries[header.Name]; double {
			return fmt.Errorf("it has %s twice", header.Name)
		}
		if offset+header.Size > info.Size() {
			return fmt.Errorf("it ends within %s", header.Name)
		}
		s.entries[header.Name] = section{offset, header.Size}
	}
}

// Put implements [Store].
func (s *readFile) Put(context.Context, string, io.ReaderAt, int64) error {
	return errors.ErrUnsupported
}

// Open implements [Store].
func (s *readFile) Open(_ context.Context, name string) (io.ReadCloser, error) {
	e, found := s.entries[name]
	if !found {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(io.NewSectionReader(s.file, e.offset, e.size)), nil
}

// List implements [Store].
func (s *readFile) List(_ context.Context, prefix string) ([]Entry, error) {
	var entries []Entry
	for name, e := range s.entries {
		if strings.HasPrefix(name, prefix) {
			entries = append(entries, Entry{Name: name, Size: e.size})
		}
	}
	return entries, nil
}

// Close implements [io.Closer].
func (s *readFile) Close() error { return s.file.Close() }
