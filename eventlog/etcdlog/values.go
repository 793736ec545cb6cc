package etcdlog

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"stele.dev/stele/eventlog"
)

var _ eventlog.Values = (*Backend)(nil)

// valueKey returns the key of a value beside the batches.
func (b *Backend) valueKey(name string) string { return strings.TrimSuffix(b.head, "head") + name }

// Value implements [eventlog.Values].
func (b *Backend) Value(ctx context.Context, name string) ([]byte, error) {
	ctx, done := b.untilClosed(ctx)
	defer done()
	resp, err := b.client.Get(ctx, b.valueKey(name))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return nil, nil
	}
	return resp.Kvs[0].Value, nil
}

// Swap implements [eventlog.Values].
func (b *Backend) Swap(ctx context.Context, name string, from, to []byte) (bool, error) {
	ctx, done := b.untilClosed(ctx)
	defer done()
	key := b.valueKey(name)
	held := clientv3.Compare(clientv3.Value(key), "=", string(from))
	if len(from) == 0 {
		held = clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	}
	set := clientv3.OpPut(key, string(to))
	if len(to) == 0 {
		set = clientv3.OpDelete(key)
	}
	resp, err := b.client.Txn(ctx).If(held).Then(set).Commit()
	if err != nil {
		return false, fmt.Errorf("etcd: %w", err)
	}
	return resp.Succeeded, nil
}

// Clear implements [eventlog.Values].
func (b *Backend) Clear(ctx context.Context) error {
	ctx, done := b.untilClosed(ctx)
	defer done()
	for {
		if more, err := b.removeSome(ctx, 1, ^uint64(0)); err != nil || !more {
			return err
		}
	}
}
