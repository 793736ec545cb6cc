// Package buckets opens the places for backups that a command line names: folders, single files, and buckets by the
// drivers of gocloud.dev/blob. No other package links these drivers. Those of gs:// and azblob:// need a build with [Tag].
package buckets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"stele.dev/stele/eventlog/backup/stores"
)

// Place is a place for backups. The caller closes it.
type Place struct {
	stores.Store
	close  func() error
	commit func() error
}

// Commit completes a single file that was created; for all other places it does nothing.
func (p *Place) Commit() error {
	if p.commit == nil {
		return nil
	}
	return p.commit()
}

// Remove implements [stores.Remover]. Single files do not support it.
func (p *Place) Remove(ctx context.Context, name string) error {
	remover, ok := p.Store.(stores.Remover)
	if !ok {
		return errors.ErrUnsupported
	}
	return remover.Remove(ctx, name)
}

// Close frees what the place uses. It removes a single file that was created and not committed.
func (p *Place) Close() error {
	if p.close == nil {
		return nil
	}
	return p.close()
}

// Help describes how places are named.
const Help = `A place for backups is a folder, a single file whose name ends with .tar, or a bucket:

  /var/backups/stele                          a folder, also as file:///var/backups/stele
  ./before-upgrade.tar                        a single file with one backup
  s3://bucket/folder?region=eu-central-1      credentials as for the AWS command line
  gs://bucket/folder                          Application Default Credentials of Google Cloud
  azblob://container/folder                   AZURE_STORAGE_ACCOUNT, and _KEY, _SAS_TOKEN or a login

The parameters of a bucket are those of gocloud.dev/blob: endpoint=…, s3ForcePathStyle=true and
others reach servers with the same protocol, such as MinIO. gs:// and azblob:// are in released
builds, and in those with: go build -tags ` + Tag + ` ./cmd/stele`

// Create opens a place to write a backup to.
func Create(ctx context.Context, place string) (*Place, error) {
	path, bucket, err := parse(place)
	switch {
	case err != nil:
		return nil, err
	case bucket != nil:
		return open(ctx, bucket)
	case !isSingleFile(path):
		return &Place{Store: stores.NewFolder(path)}, nil
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s exists; a single file is one backup, so choose another name", path)
	}
	file, err := stores.CreateSingleFile(path)
	if err != nil {
		return nil, err
	}
	return &Place{Store: file, close: file.Close, commit: file.Commit}, nil
}

// Open opens a place to read backups from.
func Open(ctx context.Context, place string) (*Place, error) {
	path, bucket, err := parse(place)
	if err != nil {
		return nil, err
	}
	if bucket != nil {
		return open(ctx, bucket)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no folder or file %s", path)
	case err != nil:
		return nil, err
	case info.IsDir():
		return &Place{Store: stores.NewFolder(path)}, nil
	}
	file, err := stores.OpenSingleFile(path)
	if err != nil {
		return nil, err
	}
	return &Place{Store: file, close: file.Close}, nil
}

// OpenShared opens a place that all replicas of a log share: a folder, which is created when it is first written to, or
// a bucket. A single file is refused.
func OpenShared(ctx context.Context, place string) (*Place, error) {
	path, bucket, err := parse(place)
	switch {
	case err != nil:
		return nil, err
	case bucket == nil && isSingleFile(path):
		return nil, fmt.Errorf("%s is a single file; give a folder or a bucket", place)
	case bucket == nil:
		return &Place{Store: stores.NewFolder(path)}, nil
	}
	return open(ctx, bucket)
}

// Redacted returns the name of a place without a password in it.
func Redacted(place string) string {
	if _, bucket, err := parse(place); err == nil && bucket != nil {
		return bucket.Redacted()
	}
	return place
}

// parse returns the path of a folder or file, or the URL of a bucket.
func parse(place string) (path string, bucket *url.URL, err error) {
	if !strings.Contains(place, "://") {
		return filepath.Clean(place), nil, nil
	}
	u, err := url.Parse(place)
	switch {
	case err != nil:
		return "", nil, err
	case u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") && u.Path != "":
		return filepath.Clean(filepath.FromSlash(u.Path)), nil, nil
	case u.Scheme == "file":
		return "", nil, fmt.Errorf("%s: a file URL has three slashes and an absolute path, as file:///var/backups/stele", place)
	case u.Host == "" && u.Scheme != "mem":
		return "", nil, fmt.Errorf("%s does not name a bucket; for example %s://bucket/folder", place, u.Scheme)
	case slices.Contains(tagged, u.Scheme) && !blob.DefaultURLMux().ValidBucketScheme(u.Scheme):
		return "", nil, fmt.Errorf("%s: this build of stele has no %s://; use a released build, or build it with: go build -tags %s ./cmd/stele", u.Redacted(), u.Scheme, Tag)
	case !blob.DefaultURLMux().ValidBucketScheme(u.Scheme):
		return "", nil, fmt.Errorf("%s: places begin with file://, s3://, gs:// or azblob://, or are paths", place)
	}
	return "", u, nil
}

func isSingleFile(path string) bool { return strings.HasSuffix(path, ".tar") }

// open opens a bucket, whose URL may have a folder in it.
func open(ctx context.Context, u *url.URL) (*Place, error) {
	folder := strings.Trim(u.Path, "/")
	alone := *u
	alone.Path, alone.RawPath = "", ""
	opened, err := blob.DefaultURLMux().OpenBucketURL(ctx, &alone)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	if folder != "" {
		opened = blob.PrefixedBucket(opened, folder+"/")
	}
	return &Place{Store: store{opened}, close: opened.Close}, nil
}

// store keeps the files of backups in a bucket, where writes are atomic.
type store struct{ bucket *blob.Bucket }

// Put implements [stores.Store].
func (s store) Put(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before Close it aborts the write
	w, err := s.bucket.NewWriter(ctx, name, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return readable(err)
	}
	if _, err := io.Copy(w, io.NewSectionReader(content, 0, size)); err != nil {
		cancel()
		_ = w.Close()
		return readable(err)
	}
	return readable(w.Close())
}

// Open implements [stores.Store].
func (s store) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.bucket.NewReader(ctx, name, nil)
	if err != nil {
		return nil, readable(err)
	}
	return r, nil
}

// Remove implements [stores.Remover].
func (s store) Remove(ctx context.Context, name string) error {
	if err := s.bucket.Delete(ctx, name); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return readable(err)
	}
	return nil
}

// List implements [stores.Store].
func (s store) List(ctx context.Context, prefix string) ([]stores.Entry, error) {
	var entries []stores.Entry
	objects := s.bucket.List(&blob.ListOptions{Prefix: prefix})
	for {
		o, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, readable(err)
		}
		entries = append(entries, stores.Entry{Name: o.Key, Size: o.Size})
	}
}

// readable makes errors of the drivers those of package fs, where backups distinguish them.
func readable(err error) error {
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case gcerrors.PermissionDenied:
		return fmt.Errorf("%w: %w", fs.ErrPermission, err)
	}
	return err
}
