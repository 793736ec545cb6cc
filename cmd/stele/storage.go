package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"stele.dev/stele/cmd/stele/internal/buckets"
	"stele.dev/stele/cmd/stele/internal/flags"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/etcdlog"
)

const (
	// leastQuota holds two segments of the log and the newest events, whatever they are.
	leastQuota = 256 << 20
	// leastFreeDisk holds a file of etcd's write-ahead log, and the deletes that make room.
	leastFreeDisk = 128 << 20
)

// storageOptions are the flags on the storage of the log.
type storageOptions struct {
	quota, minFree resource.QuantityValue
	segments       plane.Segments
	retention      plane.Retention
	retained       resource.QuantityValue
	etcd           flags.Etcd
	bucket         plane.Bucket
	encryption     plane.Encryption
}

func (o *storageOptions) addFlags(f *pflag.FlagSet) {
	o.quota.Quantity = *resource.NewQuantity(etcdlog.DefaultQuota, resource.BinarySI)
	o.minFree.Quantity = *resource.NewQuantity(etcdlog.DefaultMinFree, resource.BinarySI)
	o.etcd.AddFlags(f, "default: an etcd embedded in this process")
	f.StringVar(&o.bucket.Place, "bucket", "", "folder or bucket that all replicas of the log share, for older events and checkpoints: a path, file://, s3://, gs:// or azblob://, as for backups, the last two in builds that have them (default: none; then nothing leaves an etcd of --etcd-endpoints)")
	f.BoolVar(&o.bucket.Replace, "replace-lost-bucket", false, "use --bucket in place of the bucket that the log has recorded; it is filled with what this replica has")
	f.BoolVar(&o.bucket.AcceptUnrecorded, "accept-unrecorded-checkpoint", false, "start from a checkpoint, or from erased segments, of --bucket of which the log has no record, as those of former versions; whoever can write to the bucket can forge them")
	f.StringVar(&o.encryption.File, "encryption-provider-config", "", "`FILE` that says which kinds are encrypted where they are stored, and by which providers (default: pki/encryption.yaml, which encrypts Secrets by a key of its own)")
	f.BoolVar(&o.encryption.Reload, "encryption-provider-config-automatic-reload", false, "read --encryption-provider-config again when it changes")
	f.Var(&o.quota, "etcd-quota", "maximum size of the database of the newest events; when 80 % of it are in use, writes are refused (507), and at 90 % deletes too")
	f.Var(&o.minFree, "min-free-disk", "free space of the disk below which writes are refused (507), and below half of it deletes too")
	f.DurationVar(&o.segments.Window, "log-window", archive.DefaultWindow, "how long events stay in etcd once they are in a file of the data directory, too; shorter if the embedded etcd holds more than 64 MiB, or half of the quota of an etcd of --etcd-endpoints is in use")
	f.Uint64Var(&o.segments.Revisions, "segment-revisions", archive.DefaultSegmentRevisions, "number of revisions in a file of older events")
	f.Int64Var(&o.segments.Bytes, "segment-bytes", archive.DefaultSegmentBytes, "size of the events in such a file, before compression")
	usage.DurationVar(f, &o.retention.Longest, "retain", 0, "how long the past is kept at most, whatever the policy says (default: as the policy says)")
	f.Var(&o.retained, "retain-bytes", "maximum size of the files of older events; the oldest versions that are not needed any more are erased first (default: no limit)")
	f.DurationVar(&o.bucket.Every, "bucket-every", 0, "how often the bucket is looked at (default: 15 seconds)")
	f.DurationVar(&o.retention.Every, "erase-every", 0, "how often it is looked what of the past need not be kept (default: 10 minutes)")
	for _, name := range []string{"segment-revisions", "segment-bytes", "erase-every", "bucket-every"} { // for tests
		_ = f.MarkHidden(name) // it exists
	}
}

// check returns an error for limits that cannot work.
func (o *storageOptions) check() error {
	if o.segments.Window <= 0 {
		return fmt.Errorf("--log-window %v: want a positive duration", o.segments.Window)
	}
	if o.encryption.Reload && o.encryption.File == "" {
		return errors.New("--encryption-provider-config-automatic-reload needs --encryption-provider-config")
	}
	if o.retention.Every < 0 || o.bucket.Every < 0 {
		return errors.New("--erase-every and --bucket-every: want durations that are not negative")
	}
	if o.bucket.Replace && o.bucket.Place == "" {
		return errors.New("--replace-lost-bucket needs --bucket, the place of the new one")
	}
	if o.bucket.AcceptUnrecorded && o.bucket.Place == "" {
		return errors.New("--accept-unrecorded-checkpoint needs --bucket, the place of the checkpoint")
	}
	if o.retention.Longest < 0 || o.retained.Value() < 0 {
		return errors.New("--retain and --retain-bytes: want values that are not negative")
	}
	if err := o.etcd.Check(); err != nil {
		return err
	}
	o.retention.MaxBytes = o.retained.Value()
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
	dir.Etcd = o.etcd.Dial(dir.Logger)
}

// openBucket opens the bucket that replicas share, if there is one. The caller closes it.
func (o *storageOptions) openBucket(ctx context.Context) (plane.Bucket, func() error, error) {
	b := o.bucket
	if b.Place == "" {
		return b, func() error { return nil }, nil
	}
	place, err := buckets.OpenShared(ctx, b.Place)
	if err != nil {
		return b, nil, fmt.Errorf("--bucket: %w", err)
	}
	b.Store, b.Place = place, buckets.Redacted(b.Place)
	return b, place.Close, nil
}
