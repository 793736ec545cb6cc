package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"stele.dev/stele/eventlog"
)

// CheckKeys returns an error if the keys below the prefix are not those of one log: the prefix is somebody else's, or another
// log is inside it or around it. It writes nothing.
func (b *Backend) CheckKeys(ctx context.Context) error {
	prefix := strings.TrimSuffix(b.head, "/head")
	head, err := b.get(ctx, b.head)
	if err != nil {
		return err
	}
	if _, err := eventlog.DecodeHead(head); errors.As(err, new(*eventlog.MarkedError)) {
		return err
	} else if err != nil && !foreignHead(head) {
		return fmt.Errorf("the key %s in etcd: %w", b.head, err)
	} else if err != nil {
		return fmt.Errorf("the key %s in etcd was not written by stele: choose another prefix for the log's keys", b.head)
	}
	for around := prefix; ; {
		i := strings.LastIndexByte(around, '/')
		if i <= 0 {
			break
		}
		around = around[:i]
		outer, err := b.get(ctx, around+"/head")
		if errors.Is(err, rpctypes.ErrPermissionDenied) { // the user has no access to these keys
			break
		}
		if err != nil {
			return err
		}
		if h, err := eventlog.DecodeHead(outer); err == nil && h.Revision > 0 {
			return fmt.Errorf("the prefix %s is inside that of another log, %s: choose one that is not", prefix, around)
		}
	}
	return b.noOthers(ctx, prefix, len(head) > 0)
}

// foreignHead reports whether the value of the head key cannot be one of any version of stele.
func foreignHead(value []byte) bool { return len(value) == 0 || value[0] == 0 || value[0] >= ' ' }

// get returns the value of a key, nil if it does not exist.
func (b *Backend) get(ctx context.Context, key string) ([]byte, error) {
	r, err := b.client.Get(ctx, key)
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return nil, fmt.Errorf("etcd does not allow the user %q to read %s: `etcdctl role grant-permission ROLE --prefix=true readwrite %s/` allows it: %w", b.user, key, strings.TrimSuffix(b.head, "/head"), err)
	case err != nil:
		return nil, fmt.Errorf("etcd: %w", err)
	case len(r.Kvs) == 0:
		return nil, nil
	}
	return r.Kvs[0].Value, nil
}

// noOthers returns an error if there are keys below the prefix that no log has. A log has folders of its own, and beside them
// keys without a folder.
func (b *Backend) noOthers(ctx context.Context, prefix string, exists bool) error {
	end := clientv3.GetPrefixRangeEnd(prefix + "/")
	for at := prefix + "/"; at < end; {
		r, err := b.client.Get(ctx, at, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		if len(r.Kvs) == 0 {
			return nil
		}
		key := string(r.Kvs[0].Key)
		name, _, folder := strings.Cut(strings.TrimPrefix(key, prefix+"/"), "/")
		ours := ownFolders[name]
		if !folder {
			ours = exists || name == "trimmed"
		}
		if !ours {
			return fmt.Errorf("etcd has keys below %s/ that are not of a log, such as %s: choose another prefix for the log's keys", prefix, key)
		}
		if at = key + "\x00"; folder {
			at = clientv3.GetPrefixRangeEnd(prefix + "/" + name + "/")
		}
	}
	return nil
}

// ownFolders are the folders of a log: its batches, and the writers that wait to append.
var ownFolders = map[string]bool{"log": true, "waiting": true}
