// Package durable writes files so that they outlast a crash.
package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile writes a file for its owner alone: wholly or not at all, and durably once it returns nil. Its folder must
// exist.
func WriteFile(file string, write func(io.Writer) error) error {
	pending, err := renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = pending.Cleanup() }()
	if err := write(pending); err != nil {
		return err
	}
	if err := pending.CloseAtomicallyReplace(); err != nil { // it syncs the file
		return err
	}
	return SyncFolder(filepath.Dir(file))
}

// MakeFolder creates a folder and its parents, for their owner alone, and syncs the folders that have a new entry.
func MakeFolder(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MakeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncFolder(parent)
}

// SyncFolder makes new and removed names in a folder durable.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
