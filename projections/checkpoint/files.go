package checkpoint

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"stele.dev/stele/limits/durable"
)

// Files is the file system of a [Folder]. Tests use one that fails.
type Files interface {
	// MakeFolder makes a folder, for its owner alone, if it does not exist.
	MakeFolder(name string) error
	// Names returns the names of a folder's files.
	Names(folder string) ([]string, error)
	Open(name string) (io.ReadCloser, error)
	// Create creates a file, for its owner alone, and empties it if it exists.
	Create(name string) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	// SyncFolder makes the names of a folder durable.
	SyncFolder(name string) error
}

// File is a file that is being written.
type File interface {
	io.WriteCloser
	Sync() error
}

// Disk is the file system of the machine.
type Disk struct{}

// MakeFolder implements [Files].
func (Disk) MakeFolder(name string) error { return os.MkdirAll(name, 0o700) }

// Names implements [Files].
func (Disk) Names(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// Open implements [Files].
func (Disk) Open(name string) (io.ReadCloser, error) { return os.Open(name) }

// Create implements [Files].
func (Disk) Create(name string) (File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// Rename implements [Files].
func (Disk) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements [Files].
func (Disk) Remove(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SyncFolder implements [Files].
func (Disk) SyncFolder(name string) error { return durable.SyncFolder(name) }
