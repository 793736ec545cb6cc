package datadir

import (
	"context"
	"fmt"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
)

// EmbeddedStore opens the embedded etcd in the folder, without opening the log in it. It fails if there is none, unless it
// may create one. The folder's Close closes it. It is called once, in place of OpenLog.
func (d *Dir) EmbeddedStore(ctx context.Context, create bool) (eventlog.Values, error) {
	there, err := exists(d.Path("etcd", "member"))
	if err != nil {
		return nil, err
	}
	if !there && !create {
		return nil, fmt.Errorf("%s has no embedded etcd", d.root)
	}
	store, err := etcdlog.Embed(ctx, etcdlog.EmbedOptions{
		Dir: d.Path("etcd"), Used: there && !create, Check: d.options.CheckDatabase, Log: d.options.Logger, Quota: d.options.EtcdQuota, MinFree: d.options.MinFreeDisk,
	})
	if err != nil {
		return nil, err
	}
	d.backend = store
	return store, nil
}

// checkEmbedded returns an error if the log of the folder is in a cluster.
func (d *Dir) checkEmbedded() error {
	inCluster, err := exists(d.Path(newestFile))
	if err != nil || !inCluster {
		return err
	}
	if there, err := exists(d.Path("etcd")); err != nil || there {
		return err
	}
	return fmt.Errorf("the log of %s is in an etcd cluster: give --etcd-endpoints, or move the log with `stele store move`", d.root)
}
