// Package disk is a file system for Pebble on which writes do not fail.
package disk

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// retryAfter is the time before a write that failed is tried again.
const retryAfter = time.Second

// Disk is a file system on which writes do not fail: they are tried again until they succeed. Pebble treats
// a failed write as fatal, but a full disk is no reason to stop, nor to stop answering. The methods that
// are not overridden read.
type Disk struct {
	vfs.FS
	// changed is called with the error when writes begin to fail, and with nil when none fails any more.
	changed func(error)

	mu      sync.Mutex
	failing int           // writes that are being tried again
	works   chan struct{} // closed when failing is 0
	ended   chan struct{} // closed by End
}

// New returns a Disk over a file system. changed is called with the error when writes begin to fail, and with nil when
// none fails any more.
func New(files vfs.FS, changed func(error)) *Disk {
	works := make(chan struct{})
	close(works)
	return &Disk{FS: files, changed: changed, works: works, ended: make(chan struct{})}
}

// End lets writes that fail return their errors.
func (d *Disk) End() { close(d.ended) }

// Working returns a channel that is closed while no write is failing.
func (d *Disk) Working() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.works
}

// retry calls write until it succeeds, or until End is called.
func (d *Disk) retry(write func() error) error {
	err := write()
	if err == nil {
		return nil
	}
	d.fails(1, err)
	defer d.fails(-1, nil)
	for {
		select {
		case <-time.After(retryAfter):
		case <-d.ended:
			return err
		}
		if err = write(); err == nil {
			return nil
		}
	}
}

func (d *Disk) fails(n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.failing
	switch d.failing += n; {
	case before == 0:
		d.works = make(chan struct{})
	case d.failing == 0:
		close(d.works)
	default:
		return
	}
	select {
	case <-d.ended:
	default:
		d.changed(err)
	}
}

func (d *Disk) file(open func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	err := d.retry(func() (err error) {
		f, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &file{File: f, disk: d}, nil
}

// Create creates a file for the owner alone.
func (d *Disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.file(func() (vfs.File, error) {
		f, err := d.FS.Create(name, category)
		if err != nil {
			return nil, err
		}
		if fd := f.Fd(); fd != vfs.InvalidFd { // it is a real file
			err = unix.Fchmod(int(fd), 0o600)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	})
}

// Lock creates and locks a file for the owner alone.
func (d *Disk) Lock(name string) (io.Closer, error) {
	held, err := d.FS.Lock(name)
	if err == nil && d.FS == vfs.Default {
		err = os.Chmod(name, 0o600)
	}
	if err != nil && held != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, err
}

// ReuseForWrite implements [vfs.FS].
func (d *Disk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.file(func() (vfs.File, error) { return d.FS.ReuseForWrite(from, to, category) })
}

// OpenDir implements [vfs.FS]; a folder is opened to sync it.
func (d *Disk) OpenDir(name string) (vfs.File, error) {
	return d.file(func() (vfs.File, error) { return d.FS.OpenDir(name) })
}

// Link implements [vfs.FS].
func (d *Disk) Link(from, to string) error {
	return d.retry(func() error { return d.FS.Link(from, to) })
}

// Rename implements [vfs.FS].
func (d *Disk) Rename(from, to string) error {
	return d.retry(func() error { return d.FS.Rename(from, to) })
}

// file is a file on a disk that is written or synced.
type file struct {
	vfs.File
	disk *Disk
}

func (f *file) Write(p []byte) (written int, err error) {
	err = f.disk.retry(func() error {
		n, err := f.File.Write(p[written:])
		written += n
		return err
	})
	return written, err
}

func (f *file) Sync() error     { return f.disk.retry(f.File.Sync) }
func (f *file) SyncData() error { return f.disk.retry(f.File.SyncData) }

func (f *file) SyncTo(length int64) (full bool, err error) {
	err = f.disk.retry(func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Preallocate only makes writing faster.
func (f *file) Preallocate(offset, length int64) error {
	_ = f.File.Preallocate(offset, length)
	return nil
}
