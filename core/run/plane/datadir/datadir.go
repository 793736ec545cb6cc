// Package datadir manages the data directory of a control plane: the folder that holds its log,
// its keys and everything derived from the log.
//
// Two servers on one data directory would each believe that they are alone, so [Open] locks it.
// [Dir.OpenLog] opens the log in it, in an embedded etcd.
package datadir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
)

// Options for [Open].
type Options struct {
	// Software is the name and version of the program, which a new log records.
	Software string
	// Level is the format level of a new log; 0 for the first one.
	Level uint32
	// CheckDatabase looks for damage in etcd's database before etcd opens it, see
	// [etcdlog.EmbedOptions.Check]; nil to skip the check.
	CheckDatabase func(ctx context.Context, file string) error
	// Restoring opens a folder in which a restore is unfinished; see [Unfinished].
	Restoring bool
	// EtcdQuota is the maximum size of etcd's database, and MinFreeDisk how much of the disk must stay free, in
	// bytes. 0 is for the defaults of [etcdlog.EmbedOptions].
	EtcdQuota   int64
	MinFreeDisk uint64
	// Etcd is the cluster with the log; nil for an etcd embedded in this process, with its data in the folder.
	Etcd *etcdlog.DialOptions
	// PKIDir is the folder of the certificate authority and of the key that signs tokens, which replicas share; "" for
	// pki in the folder.
	PKIDir string
	// Logger gets etcd's errors and warnings about keys; nil for none.
	Logger *slog.Logger
}

// Dir is a locked data directory. Its methods are for one goroutine, except Path and
// the collectors of Metrics.
type Dir struct {
	options Options
	root    string // absolute
	// The lock is on the folder itself, which cannot be deleted while it is locked, and on a
	// file, for file systems that cannot lock folders.
	folder, lock *os.File
	backend      eventlog.Backend // nil before OpenLog
	log          atomic.Pointer[eventlog.Log]
	store        atomic.Pointer[etcdlog.Backend]
	running      sync.WaitGroup
	stop         []func() // end what runs in the background
}

// Open creates the folder, for its owner alone, and locks it. Close unlocks it.
func Open(path string, o Options) (*Dir, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	root, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	d := &Dir{options: o, root: root}
	if err := cmp.Or(d.acquire(), d.checkFinished()); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// inBackground runs a function until Close.
func (d *Dir) inBackground(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = append(d.stop, cancel)
	d.running.Go(func() { run(ctx) })
}

// InUseError reports that another process has locked a data directory.
type InUseError struct{ Dir, By string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s is in use by %s; stop that, or give this one another --data-dir", e.Dir, e.By)
}

const (
	// Unfinished is the file that marks a data directory into which a backup has not been restored completely.
	Unfinished = "restoring.json"
	// Lock is the file that is locked. Its content means nothing.
	Lock = "lock"
)

// checkFinished returns an error if a restore into the folder was interrupted.
func (d *Dir) checkFinished() error {
	unfinished, err := exists(d.Path(Unfinished))
	if unfinished && !d.options.Restoring {
		return fmt.Errorf("a backup has not been restored completely into %s: repeat the same `stele backup restore`, which continues, or delete the folder and restore again", d.root)
	}
	return err
}

func (d *Dir) acquire() (err error) {
	if d.folder, err = os.Open(d.root); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if d.lock, err = os.OpenFile(d.Path(Lock), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	folder, file := unix.Flock(int(d.folder.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(folder, unix.EWOULDBLOCK) || errors.Is(file, unix.EWOULDBLOCK) {
		by := "another process"
		if holder, _ := os.ReadFile(d.lock.Name()); len(holder) > 0 {
			by = "process " + strings.TrimSpace(string(holder))
		}
		return &InUseError{d.root, by}
	}
	if file != nil {
		return fmt.Errorf("lock %s: %w", d.lock.Name(), file)
	}
	if err := d.lock.Truncate(0); err == nil {
		_, _ = d.lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0) // only for the message above
	}
	return nil
}

// Path returns the absolute path of a file or folder in the data directory, or of the directory itself.
func (d *Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{d.root}, elem...)...)
}

// Close closes the log and unlocks the folder.
func (d *Dir) Close() error {
	var errs []error
	for _, stop := range d.stop {
		stop()
	}
	d.running.Wait()
	if d.backend != nil {
		errs = append(errs, d.backend.Close())
	}
	for _, f := range []*os.File{d.folder, d.lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// logIDFile holds the id of the log in this folder. It is written when the log has been created,
// before any other write is acknowledged.
const logIDFile = "log.id"

// OpenLog opens the log, or creates it: in the cluster of the options, or else in an embedded etcd, which it starts in the
// folder. It fails if the folder belongs to another log. It is called once.
func (d *Dir) OpenLog(ctx context.Context) (*eventlog.Log, error) {
	used, err := exists(d.Path(logIDFile))
	if err != nil {
		return nil, err
	}
	if err := d.openBackend(ctx, used); err != nil {
		return nil, err
	}
	d.giveReserve()
	log, err := eventlog.Open(ctx, d.backend, eventlog.Options{Software: d.options.Software, Level: d.options.Level})
	if err != nil {
		return nil, err
	}
	d.log.Store(log)
	if err := d.claim(log.ID()); err != nil {
		return log, err
	}
	d.inBackground(d.keepReserve)
	if d.options.Etcd == nil {
		return log, nil
	}
	if err := d.checkSeen(ctx, d.backend); err != nil {
		return nil, err
	}
	return log, d.keepNoting(log)
}

// openBackend opens the store of the log. used says that there must be a log in it.
func (d *Dir) openBackend(ctx context.Context, used bool) error {
	var backend *etcdlog.Backend
	var err error
	if d.options.Etcd != nil {
		backend, err = etcdlog.Dial(ctx, *d.options.Etcd)
	} else {
		if err := d.checkEmbedded(); err != nil {
			return err
		}
		backend, err = etcdlog.Embed(ctx, etcdlog.EmbedOptions{
			Dir: d.Path("etcd"), Used: used, Check: d.options.CheckDatabase, Log: d.options.Logger, Quota: d.options.EtcdQuota, MinFree: d.options.MinFreeDisk,
		})
	}
	if err != nil {
		return err
	}
	d.backend = backend
	d.store.Store(backend)
	if d.options.Etcd == nil {
		return nil
	}
	if err := backend.CheckKeys(ctx); err != nil || !used {
		return err
	}
	answer, err := backend.Read(ctx, 1)
	if err != nil {
		return err
	}
	if len(answer.Head) == 0 {
		return fmt.Errorf("there is no log in %s below the prefix %s, but this data directory belongs to one: check the endpoints and the prefix; if etcd has lost its data, restore it from a snapshot, or the log from a backup",
			d.storeName(), cmp.Or(d.options.Etcd.Prefix, etcdlog.DefaultPrefix))
	}
	return nil
}

// NewLogStore deletes the log in the folder, and opens an empty store for a log that is restored. The caller closes it,
// and then calls Claim.
func (d *Dir) NewLogStore(ctx context.Context) (eventlog.Backend, error) {
	if err := os.RemoveAll(d.Path("etcd")); err != nil {
		return nil, err
	}
	return etcdlog.Embed(ctx, etcdlog.EmbedOptions{Dir: d.Path("etcd"), Log: d.options.Logger})
}

// HasLog reports whether a log was ever opened in the folder.
func HasLog(path string) (bool, error) { return exists(filepath.Join(path, logIDFile)) }

// Claim records the id of the log that was restored into the folder. Other folders are claimed by OpenLog.
func (d *Dir) Claim(log eventlog.ID) error { return d.claim(log) }

// claim records the log's id in the folder, or compares it with the recorded one.
func (d *Dir) claim(log eventlog.ID) error {
	file := d.Path(logIDFile)
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := pki.WritePrivate(file, []byte(log.String()+"\n")); err != nil {
			return err
		}
		return d.folder.Sync()
	case err != nil:
		return err
	case strings.TrimSpace(string(text)) != log.String():
		return fmt.Errorf("%s names log %q, but the one in %s is %s: restore what belongs together, or delete %s if that is the log to go on with",
			file, strings.TrimSpace(string(text)), d.storeName(), log, file)
	}
	return nil
}

// storeName says where the log is.
func (d *Dir) storeName() string {
	if o := d.options.Etcd; o != nil {
		return strings.Join(o.Endpoints, ",")
	}
	return d.Path("etcd")
}

// exists reports whether there is a file or folder of this name.
func exists(name string) (bool, error) {
	_, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
