package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dataDir is the folder of a control plane, held by a lock: two servers on one log
// of this machine would each believe that they are alone.
type dataDir struct {
	root string // absolute
	lock *os.File
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
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(lock.Name())
		lock.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		return nil, fmt.Errorf("%s is in use by process %s; stop that, or give this one another --data-dir", root, strings.TrimSpace(string(holder)))
	}
	if err := lock.Truncate(0); err == nil {
		_, _ = lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0) // only for the message above
	}
	return &dataDir{root: root, lock: lock}, nil
}

func (d *dataDir) path(elem ...string) string {
	return filepath.Join(append([]string{d.root}, elem...)...)
}

// Close gives the folder free.
func (d *dataDir) Close() error { return d.lock.Close() }
