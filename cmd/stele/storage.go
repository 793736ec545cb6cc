package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"stele.dev/stele/core/plane/datadir"
	"stele.dev/stele/eventlog/etcdlog"
)

const (
	// leastQuota holds two segments of the log and the newest events, whatever they are.
	leastQuota = 256 << 20
	// leastFreeDisk holds a file of etcd's write-ahead log, and the deletes that make room.
	leastFreeDisk = 128 << 20
)

// storageOptions are the flags that limit the storage of the log.
type storageOptions struct {
	quota, minFree resource.QuantityValue
}

func (o *storageOptions) addFlags(f *pflag.FlagSet) {
	o.quota.Quantity = *resource.NewQuantity(etcdlog.DefaultQuota, resource.BinarySI)
	o.minFree.Quantity = *resource.NewQuantity(etcdlog.DefaultMinFree, resource.BinarySI)
	f.Var(&o.quota, "etcd-quota", "maximum size of the database of the newest events; when 80 % of it are in use, writes are refused (507), and at 90 % deletes too")
	f.Var(&o.minFree, "min-free-disk", "free space of the disk below which writes are refused (507), and below half of it deletes too")
}

// check returns an error for limits that cannot work.
func (o *storageOptions) check() error {
	for _, limit := range []struct {
		flag  string
		value *resource.QuantityValue
		least int64
	}{{"--etcd-quota", &o.quota, leastQuota}, {"--min-free-disk", &o.minFree, leastFreeDisk}} {
		if limit.value.Value() < limit.least {
			return fmt.Errorf("%s %s: want at least %s", limit.flag, limit.value, resource.NewQuantity(limit.least, resource.BinarySI))
		}
	}
	return nil
}

// limit sets the limits of a data directory.
func (o *storageOptions) limit(dir *datadir.Options) {
	dir.EtcdQuota, dir.MinFreeDisk = o.quota.Value(), uint64(o.minFree.Value())
}
