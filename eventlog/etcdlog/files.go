package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"stele.dev/stele/limits/durable"
)

const (
	// reserveAhead is how much of the disk is taken for etcd's database beyond its size: more than is written while the disk
	// becomes full.
	reserveAhead = 64 << 20
	// lookEvery is how often the files of etcd are looked at.
	lookEvery = 250 * time.Millisecond
)

// files are those of an embedded etcd, while it runs. Etcd does not notice when they are deleted or replaced: it writes on to files
// that no start will find.
type files struct {
	database, wal string
	opened        map[string]fs.FileInfo // folders, which etcd never replaces
	log           *slog.Logger
	lost          atomic.Pointer[string]
	reserved      fs.FileInfo // the database when blocks were last reserved; nil before that
	unreserved    bool        // blocks could not be reserved
}

// openFiles returns the files of the etcd that runs in a folder.
func openFiles(dir string, log *slog.Logger) (*files, error) {
	member := filepath.Join(dir, "member")
	f := &files{database: filepath.Join(member, "snap", "db"), wal: filepath.Join(member, "wal"), opened: map[string]fs.FileInfo{}, log: log}
	for _, folder := range []string{dir, member, f.wal, filepath.Dir(f.database)} {
		info, err := os.Stat(folder)
		if err != nil {
			return nil, err
		}
		f.opened[folder] = info
	}
	return f, nil
}

// watch looks at the files until the context ends.
func (f *files) watch(ctx context.Context) {
	for {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return
		}
		f.look()
		f.reserve()
	}
}

// look notes whether the files are still those that etcd has opened.
func (f *files) look() {
	err := f.check()
	before := f.lost.Load()
	if err == nil {
		f.lost.Store(nil)
	} else {
		why := err.Error()
		f.lost.Store(&why)
	}
	switch {
	case err != nil && before == nil:
		f.log.Error("the files of the log were deleted or replaced while the server runs: writes are refused, reads go on from memory. Save what you need, then restore the data directory", "reason", err)
	case err == nil && before != nil:
		f.log.Warn("the files of the log are there again; writes are accepted")
	}
}

func (f *files) check() error {
	for folder, opened := range f.opened {
		now, err := os.Stat(folder)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s was deleted or moved", folder)
		case err == nil && !os.SameFile(opened, now):
			return fmt.Errorf("%s was replaced by another folder", folder)
		}
	}
	if _, err := os.Stat(f.database); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s was deleted or moved", f.database)
	}
	if found, err := filepath.Glob(filepath.Join(f.wal, "*.wal")); err == nil && len(found) == 0 {
		return fmt.Errorf("the write-ahead log in %s was deleted or moved", f.wal)
	}
	return nil
}

// why says why the files are not those that etcd has opened; "" if they are.
func (f *files) why() string {
	if f == nil {
		return ""
	}
	if why := f.lost.Load(); why != nil {
		return *why
	}
	return ""
}

// reserve keeps blocks of the disk for the database. The file has holes, and grows: without blocks for them, etcd ends the process
// when another program takes the last of the disk.
func (f *files) reserve() {
	now, err := os.Stat(f.database)
	if err != nil || f.reserved != nil && os.SameFile(now, f.reserved) && now.Size() == f.reserved.Size() {
		return
	}
	if free, err := freeBytes(filepath.Dir(f.database)); err != nil || free < 2*reserveAhead {
		return // a reservation that fails may leave some blocks taken, which others need now
	}
	switch err := durable.Reserve(f.database, now.Size()+reserveAhead); {
	case err == nil, errors.Is(err, errors.ErrUnsupported):
		f.reserved, f.unreserved = now, false
	case !f.unreserved:
		f.unreserved = true
		f.log.Warn("no space of the disk could be reserved for etcd's database; it is tried again", "file", f.database, "error", err)
	}
}
