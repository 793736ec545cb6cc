package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"stele.dev/stele/core/pki"
	"stele.dev/stele/eventlog"
)

// dataDir is the folder of a control plane, held by a lock: two servers on one log
// of this machine would each believe that they are alone.
type dataDir struct {
	root string // absolute
	// The lock is on the folder itself, which cannot be deleted under a server, and on a file,
	// for file systems that lock no folders.
	folder, lock *os.File
}

// lockDataDir makes the folder, for its owner alone, and locks it.
func lockDataDir(path string) (*dataDir, error) {
	root, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	d := &dataDir{root: root}
	if err := d.acquire(); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

func (d *dataDir) acquire() (err error) {
	if d.folder, err = os.Open(d.root); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if d.lock, err = os.OpenFile(d.path("lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	folder, file := unix.Flock(int(d.folder.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(folder, unix.EWOULDBLOCK) || errors.Is(file, unix.EWOULDBLOCK) {
		by := "another process"
		if holder, _ := os.ReadFile(d.lock.Name()); len(holder) > 0 {
			by = "process " + strings.TrimSpace(string(holder))
		}
		return fmt.Errorf("%s is in use by %s; stop that, or give this one another --data-dir", d.root, by)
	}
	if file != nil {
		return fmt.Errorf("lock %s: %w", d.lock.Name(), file)
	}
	if err := d.lock.Truncate(0); err == nil {
		_, _ = d.lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0) // only for the message above
	}
	return nil
}

func (d *dataDir) path(elem ...string) string {
	return filepath.Join(append([]string{d.root}, elem...)...)
}

// Close gives the folder free.
func (d *dataDir) Close() error {
	var errs []error
	for _, f := range []*os.File{d.folder, d.lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// logIDFile has the id of the log that is kept in the folder. It is written once the log is
// there, and before any other write is acknowledged.
const logIDFile = "log.id"

// used reports whether writes were acknowledged from this folder.
func (d *dataDir) used() (bool, error) {
	switch _, err := os.Lstat(d.path(logIDFile)); {
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	return false, nil
}

// inUse reports whether a start came as far as etcd, which is after it has made all keys.
func (d *dataDir) inUse() (bool, error) {
	if used, err := d.used(); used || err != nil {
		return used, err
	}
	_, err := os.Lstat(d.path("etcd", "member"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// claim makes the log that of this folder. It is an error if the folder has had another one.
func (d *dataDir) claim(log eventlog.ID) error {
	file := d.path(logIDFile)
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := pki.WritePrivate(file, []byte(log.String()+"\n")); err != nil {
			return err
		}
		return d.folder.Sync()
	case err != nil:
		return err
	case strings.TrimSpace(string(text)) != log.String():
		return fmt.Errorf("%s names log %q, but the one in %s is %s: restore what belongs together, or delete %s if that is the log to go on with",
			file, strings.TrimSpace(string(text)), d.path("etcd"), log, file)
	}
	return nil
}
