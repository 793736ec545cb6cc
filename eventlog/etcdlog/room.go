package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"stele.dev/stele/eventlog"
)

const (
	// Of the quota, appends may use limitPercent, and those that free space freeingPercent. The rest is for
	// pages that are free and scattered: the file is always larger than its content.
	limitPercent, freeingPercent = 80, 90
	// leastReserve is what the limit leaves of the quota at least, in bytes: a compaction writes pages anew before it
	// frees them.
	leastReserve = 4 << 20
	// diskForFreeing is how much of the disk must be free for appends that free space: a segment of the
	// write-ahead log, which etcd allocates in advance, and some more. Without it etcd ends the process.
	diskForFreeing = 96 << 20
	// waitForRoom is how long a write waits when the log becomes full, and lookForRoom how often it looks.
	waitForRoom, lookForRoom = 2 * time.Second, 10 * time.Millisecond
	// diskEvery is how often the free space of the disk is read. Another program can take hundreds of megabytes in a tenth of a
	// second.
	diskEvery = 10 * time.Millisecond
)

// sizes are those of etcd's database, in bytes.
type sizes interface {
	Size() int64      // of the file
	SizeInUse() int64 // of its pages that are not free
}

// room decides whether there is space for an append, for an embedded etcd.
type room struct {
	dir     string
	quota   int64
	minFree uint64
	log     *slog.Logger
	store   sizes
	files   *files // nil while etcd starts

	looked atomic.Int64  // when the free space of the disk was read, in time since opened
	disk   atomic.Uint64 // free space of the disk; 0 if unknown
	opened time.Time

	mu      sync.Mutex
	used    int64 // SizeInUse at the last append: etcd updates it when it commits to its file
	pending int64 // bytes that were appended since it changed
	refused uint64
	full    bool // the last append that needed space was refused
}

// usage returns what is used now.
func (r *room) usage() eventlog.Usage {
	r.readDisk()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usageLocked()
}

// readDisk reads the free space of the disk, unless it was read a moment ago. One caller at a time reads it; the others go on with
// what was read before.
func (r *room) readDisk() {
	now, last := time.Since(r.opened), r.looked.Load()
	if time.Duration(last) > 0 && now-time.Duration(last) < diskEvery || !r.looked.CompareAndSwap(last, int64(max(now, 1))) {
		return
	}
	free := uint64(0)
	if n, err := freeBytes(r.dir); err == nil {
		free = max(1, n)
	}
	r.disk.Store(free)
}

func (r *room) usageLocked() eventlog.Usage {
	if used := r.store.SizeInUse(); used != r.used {
		r.used, r.pending = used, 0
	}
	return eventlog.Usage{
		Used: r.used + r.pending, Allocated: r.store.Size(), Limit: min(r.quota/100*limitPercent, r.quota-leastReserve), FreeingLimit: min(r.quota/100*freeingPercent, r.quota-leastReserve/2),
		Lost: r.files.why(), DiskFree: r.disk.Load(), DiskLimit: r.minFree, DiskFreeingLimit: min(r.minFree, max(r.minFree/2, diskForFreeing)), Refused: r.refused,
	}
}

// take returns an error if there is no space for a proposal, and else counts its bytes. When the log becomes full,
// it waits once for a trim to make room: a burst of writes may be faster than sealing.
func (r *room) take(ctx context.Context, p eventlog.Proposal) error {
	for until := time.Now().Add(waitForRoom); ; {
		wait, err := r.tryTake(p, time.Now().Before(until))
		if !wait {
			return err
		}
		select {
		case <-time.After(lookForRoom):
		case <-ctx.Done():
			until = time.Time{}
		}
	}
}

// tryTake implements take. If it may wait, it reports whether the caller has to try again.
func (r *room) tryTake(p eventlog.Proposal, mayWait bool) (wait bool, err error) {
	r.readDisk()
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.usageLocked()
	switch {
	case u.Lost != "" && p.Again: // what became of the first attempt is not known
		return false, errors.New(u.Lost)
	case u.Lost != "":
		return false, fmt.Errorf("%w: %s", eventlog.ErrLost, u.Lost)
	}
	size := int64(len(p.Value))
	u.Used += size // the limit is not to be crossed by it
	err = u.Full()
	full := err != nil
	switch {
	case p.Frees:
		err = u.FullForFreeing()
	case full && !r.full && mayWait && !p.Again:
		return true, nil
	case full && !r.full:
		r.full = true
		r.log.Error("the log is full; writes are refused, deletes are not", "folder", r.dir, "reason", err)
	}
	if !full && r.full {
		r.full = false
		r.log.Warn("the log has room again; writes are accepted", "folder", r.dir)
	}
	if err != nil && !p.Again {
		r.refused++
		return false, err
	}
	r.pending += size
	return false, nil
}

// makeRoom brings a database back under its quota when etcd starts: it frees the space of old values and of
// deleted batches, shrinks the file, and ends the alarm with which etcd refuses all writes. An etcd that
// earlier versions filled has that alarm.
func (b *Backend) makeRoom(ctx context.Context, etcd *embed.Etcd, o EmbedOptions) error {
	var alarms []*etcdserverpb.AlarmMember
	for _, alarm := range etcd.Server.Alarms() {
		if alarm.GetAlarm() == etcdserverpb.AlarmType_NOSPACE {
			alarms = append(alarms, alarm)
		}
	}
	store := etcd.Server.Backend()
	if len(alarms) == 0 && store.SizeInUse() < o.Quota/100*limitPercent && !worthShrinking(store, o.Quota) {
		return nil
	}
	o.Log.Warn("etcd's database is as large as it may be; it is compacted", "folder", o.Dir, "bytes", store.Size(), "quota", o.Quota, "alarm", len(alarms) > 0)
	newest, err := b.client.Get(ctx, b.head)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if err := compactEmbedded(ctx, b.client, newest.Header.GetRevision()); err != nil {
		return err
	}
	if err := b.shrink(); err != nil {
		o.Log.Error("etcd's database could not be made smaller", "folder", o.Dir, "error", err)
	}
	for _, alarm := range alarms {
		_, err := etcd.Server.Alarm(ctx, &etcdserverpb.AlarmRequest{
			Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: alarm.GetMemberID(), Alarm: alarm.GetAlarm(),
		})
		if err != nil {
			return fmt.Errorf("etcd: end the alarm that its database is full: %w", err)
		}
	}
	if err := countFree(ctx, b.client, o.Prefix+"/trimmed", etcd); err != nil {
		return err
	}
	o.Log.Warn("etcd's database was compacted", "folder", o.Dir, "bytes", store.Size(), "used", store.SizeInUse())
	return nil
}

// compactEmbedded frees the pages of what was deleted or replaced up to an etcd revision.
func compactEmbedded(ctx context.Context, client *clientv3.Client, revision int64) error {
	_, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("etcd: compaction: %w", err)
	}
	return nil
}

// countFree makes etcd count the pages that a compaction has freed as free. The database counts them only when it
// has committed once more, which it does not while all appends are refused. So this overwrites a key of its own.
func countFree(ctx context.Context, client *clientv3.Client, key string, etcd *embed.Etcd) error {
	for range 3 { // a reader may have held them back
		if _, err := client.Put(ctx, key, ""); err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		etcd.Server.Backend().ForceCommit()
	}
	return nil
}

// worthShrinking reports whether a database is near its quota and at most half of it is used.
func worthShrinking(store sizes, quota int64) bool {
	return store.Size() >= quota/100*freeingPercent && store.SizeInUse() <= store.Size()/2
}

// shrinkEmbedded copies the database into a smaller file, if that is worth it. Nothing can be written or read meanwhile: it takes about a second for 500 MiB in use.
func shrinkEmbedded(etcd *embed.Etcd, o EmbedOptions) error {
	store := etcd.Server.Backend()
	size, used := store.Size(), store.SizeInUse()
	if !worthShrinking(store, o.Quota) {
		return nil
	}
	if free, err := freeBytes(o.Dir); err == nil && free < uint64(used)+o.MinFree {
		return fmt.Errorf("a smaller copy needs %d MiB of disk, and %d MiB are free", (uint64(used)+o.MinFree)>>20, free>>20)
	}
	begun := time.Now()
	// The client's Defragment needs a server with listeners.
	if err := store.Defrag(); err != nil {
		return fmt.Errorf("etcd: defragmentation: %w", err)
	}
	o.Log.Warn("etcd's database was made smaller", "folder", o.Dir, "before", size, "now", store.Size(), "took", time.Since(begun).Round(time.Millisecond))
	folder, err := os.Open(filepath.Join(o.Dir, "member", "snap"))
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync() // the copy has replaced the file
}
