package history

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// disk is a file system on which writes do not fail: they are tried again until they succeed. Pebble treats
// a failed write as fatal, but a full disk is no reason to stop, nor to stop answering. The methods that
// are not overridden read.
type disk struct {
	vfs.FS
	// changed is called with the error when writes begin to fail, and with nil when none fails any more.
	changed func(error)

	mu      sync.Mutex
	failing int           // writes that are being tried again
	works   chan struct{} // closed when failing is 0
	ended   chan struct{} // closed by end
}

func newDisk(files vfs.FS, changed func(error)) *disk {
	works := make(chan struct{})
	close(works)
	return &disk{FS: files, changed: changed, works: works, ended: make(chan struct{})}
}

// end lets writes that fail return their errors.
func (d *disk) end() { close(d.ended) }

// working returns a channel that is closed while no write is failing.
func (d *disk) working() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.works
}

// again calls write until it succeeds, or until end is called.
func (d *disk) again(write func() error) error {
	err := write()
	if err == nil {
		return nil
	}
	d.fails(1, err)
	defer d.fails(-1, nil)
	for {
		select {
		case <-time.After(pause):
		case <-d.ended:
			return err
		}
		if err = write(); err == nil {
			return nil
		}
	}
}

func (d *disk) fails(n int, err error) {
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

func (d *disk) file(open func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	err := d.again(func() (err error) {
		f, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &file{File: f, disk: d}, nil
}

// Create creates a file for the owner alone.
func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
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
func (d *disk) Lock(name string) (io.Closer, error) {
	held, err := d.FS.Lock(name)
	if err == nil && d.FS == vfs.Default {
		err = os.Chmod(name, 0o600)
	}
	if err != nil && held != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, err
}

func (d *disk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.file(func() (vfs.File, error) { return d.FS.ReuseForWrite(from, to, category) })
}

func (d *disk) OpenDir(name string) (vfs.File, error) { // to sync it
	return d.file(func() (vfs.File, error) { return d.FS.OpenDir(name) })
}

func (d *disk) Link(from, to string) error {
	return d.again(func() error { return d.FS.Link(from, to) })
}

func (d *disk) Rename(from, to string) error {
	return d.again(func() error { return d.FS.Rename(from, to) })
}

// file is a file on a disk that is written or synced.
type file struct {
	vfs.File
	disk *disk
}

func (f *file) Write(p []byte) (written int, err error) {
	err = f.disk.again(func() error {
		n, err := f.File.Write(p[written:])
		written += n
		return err
	})
	return written, err
}

func (f *file) Sync() error     { return f.disk.again(f.File.Sync) }
func (f *file) SyncData() error { return f.disk.again(f.File.SyncData) }

func (f *file) SyncTo(length int64) (full bool, err error) {
	err = f.disk.again(func() (err error) {
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

var errDamaged = errors.New("a key or a value is not one that this version writes")
