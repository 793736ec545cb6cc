package etcdlog

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"stele.dev/stele/eventlog"
)

// trimmedAtOnce is how many batches one transaction deletes, so that it does not hold up appends for long.
const trimmedAtOnce = 256

// Trim implements [eventlog.Backend]. In an embedded etcd it also compacts, so that the next appends take the
// pages of what was deleted. Other etcds are compacted and defragmented by those who run them.
func (b *Backend) Trim(ctx context.Context, upto uint64) error {
	ctx, done := b.untilClosed(ctx)
	defer done()
	newest, err := b.ReadBack(ctx, ^uint64(0), 1)
	if err != nil || len(newest) == 0 {
		return err
	}
	deleted := false
	for end := min(upto, newest[0].First-1); ; deleted = true {
		more, err := b.removeSome(ctx, 2, end)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if b.compact == nil || !deleted && b.compacted.Load() {
		return nil
	}
	b.compacted.Store(false)
	head, err := b.client.Get(ctx, b.head)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if err := b.compact(ctx, head.Header.GetRevision()); err != nil {
		return err
	}
	b.compacted.Store(true)
	return b.shrink()
}

// removeSome deletes some of the oldest batches that begin at revisions from `begin` to `end`. It reports whether it has
// deleted any.
func (b *Backend) removeSome(ctx context.Context, begin, end uint64) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	next, err := b.client.Get(ctx, b.key(begin), clientv3.WithRange(b.key(end)+"\x00"), clientv3.WithKeysOnly(), clientv3.WithLimit(trimmedAtOnce))
	if err == nil && len(next.Kvs) > 0 {
		last := string(next.Kvs[len(next.Kvs)-1].Key)
		_, err = b.client.Delete(ctx, b.key(begin), clientv3.WithRange(last+"\x00"))
	}
	if err != nil {
		return false, fmt.Errorf("etcd: %w", err)
	}
	return len(next.Kvs) > 0, nil
}

// Usage implements [eventlog.Backend]. Only that of an embedded etcd is known.
func (b *Backend) Usage() eventlog.Usage { return b.usage() }
