package etcdlog

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	revision := int64(0) // etcd's, of the last deletion
	for end := min(upto, newest[0].First-1); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		next, err := b.client.Get(ctx, b.key(2), clientv3.WithRange(b.key(end)+"\x00"), clientv3.WithKeysOnly(), clientv3.WithLimit(trimmedAtOnce))
		if err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		if len(next.Kvs) == 0 {
			break
		}
		last := string(next.Kvs[len(next.Kvs)-1].Key)
		deleted, err := b.client.Delete(ctx, b.key(2), clientv3.WithRange(last+"\x00"))
		if err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		revision = deleted.Header.Revision
	}
	if revision == 0 || b.compact == nil {
		return nil
	}
	if err := b.compact(ctx, revision); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("etcd: compaction: %w", err)
	}
	return nil
}

// Usage implements [eventlog.Backend]. Only that of an embedded etcd is known.
func (b *Backend) Usage() eventlog.Usage { return b.usage() }
