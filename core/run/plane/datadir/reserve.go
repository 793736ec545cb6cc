package datadir

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/limits/durable"
	"stele.dev/stele/limits/steady"
)

const (
	// reserveFile takes a part of the disk that nobody uses. A start without room gives it back: the history writes a little when it is
	// opened, and without that not even reads would be served. Etcd, which is opened before, needs none, and would take all of it
	// for its write-ahead log.
	reserveFile  = "reserve"
	reserveBytes = 16 << 20
	// reserveEvery is how often the reserve is made again, if there is room.
	reserveEvery = time.Minute
)

// giveReserve gives the reserve back if the disk has less room. A start goes on if it cannot.
func (d *Dir) giveReserve() {
	if free, err := d.freeBytes(); err != nil || free >= reserveBytes {
		return
	}
	if err := os.Remove(d.Path(reserveFile)); !errors.Is(err, fs.ErrNotExist) {
		d.options.Logger.Warn("the disk is full: the reserve for starts is given back", "folder", d.root, "error", err)
	}
}

// keepReserve makes the reserve when the disk has room for it and for what the log needs, until the context ends. A reserve that is
// there may have no blocks: it is a copy.
func (d *Dir) keepReserve(ctx context.Context) {
	for range steady.AtOnceAndEvery(ctx, reserveEvery) {
		if free, err := d.freeBytes(); err != nil || free < reserveBytes+2*cmp.Or(d.options.MinFreeDisk, etcdlog.DefaultMinFree) {
			continue
		}
		if err := durable.Reserve(d.Path(reserveFile), reserveBytes); err != nil {
			_ = os.Remove(d.Path(reserveFile)) // tried again, or not supported here
		}
	}
}

// freeBytes returns the free space of the disk.
func (d *Dir) freeBytes() (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.root, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}
