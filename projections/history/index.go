package history

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/history/disk"
)

// Memory of the index. It does not depend on how much there is.
const (
	blockCacheBytes = 8 << 20
	fileCacheFiles  = 128
)

// memtableBytes is how many bytes of keys gather in memory before they are written to a file. Up to
// memtables of them wait to be written. atOnceBytes is about how many are added at once. Tests have less.
var (
	memtableBytes uint64 = 4 << 20
	atOnceBytes          = 1 << 20
)

const memtables = 3

// index is one copy of the index on disk, and what the fold knows of it. Making it again from the log makes
// another index. One goroutine writes; readers hold a view.
type index struct {
	db   *pebble.DB
	lock *pebble.Lock
	disk *disk.Disk

	// damaged is canceled with the reason when the files turn out to be damaged.
	damaged context.Context
	damage  context.CancelCauseFunc

	using  sync.RWMutex // held for reading while an iterator is open
	closed bool
	ending sync.Once

	view     atomic.Pointer[view] // the newest state that is in the index
	updating sync.Mutex           // held while view is replaced
	learned  atomic.Bool          // the oldest revision of the view is not in the index, see [Store.learn]
}

// view is what there is one of in a state of the index. It is immutable.
type view struct {
	*index
	head      eventlog.Head
	oldest    uint64 // the oldest revision that is kept
	epochs    []Epoch
	clocks    eventlog.ClockSets
	resources map[schema.GroupResource]resource
}

// resource is the number of a resource in the keys, and its floors.
type resource struct {
	number uint64
	floors Floors
}

// errUnusable reports that the files cannot be used, and that others should be made from the log.
var errUnusable = errors.New("the content of the folder cannot be used")

// errGone reports that the index is being made again.
var errGone = fmt.Errorf("%w: its files are being made again from the log; try again", ErrBehind)

// open opens the index in a folder, or makes an empty one that begins at a position. The error wraps
// errUnusable if what is there cannot be used; the caller may then call removeAll, and open again. Other errors
// are those of the file system.
func open(d *disk.Disk, dir string, begin eventlog.Head, logger *slog.Logger) (_ *index, err error) {
	if err := d.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	x := &index{disk: d}
	x.damaged, x.damage = context.WithCancelCause(context.Background())
	if x.lock, err = pebble.LockDirectory(dir, d); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
		}
	}()
	for _, old := range []string{"cursor", "records"} { // of the first format, which was not Pebble's
		if _, err := d.Stat(d.PathJoin(dir, old)); err == nil {
			return nil, fmt.Errorf("%w: it is of another version", errUnusable)
		}
	}
	if x.db, err = pebble.Open(dir, x.options(logger)); err != nil {
		if errno := syscall.Errno(0); errors.As(err, &errno) && errno != syscall.ENOENT {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	if err := x.load(begin); err != nil {
		if errors.Is(err, errGone) { // which is for readers
			err = context.Cause(x.damaged)
		}
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	return x, nil
}

// options returns Pebble's. There is no write-ahead log: the log of events is one. After a crash the index
// has a prefix of what was written, and its cursor says which.
func (x *index) options(logger *slog.Logger) *pebble.Options {
	o := &pebble.Options{
		FS: x.disk, Lock: x.lock,
		DisableWAL:                  true,
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		CacheSize:                   blockCacheBytes,
		MaxOpenFiles:                fileCacheFiles,
		MemTableSize:                memtableBytes,
		MemTableStopWritesThreshold: memtables,
		L0CompactionThreshold:       8,    // a third less rewriting than with the default, for a few more files to look into
		L0StopWritesThreshold:       1000, // the fold stops by itself when writes fail, see [disk]
		MaxManifestFileSize:         4 << 20,
		DisableTableStats:           true,
		Logger:                      quiet{logger, x.damage},
		EventListener: &pebble.EventListener{
			BackgroundError: x.damage, // writes are tried again by the disk, so it is a read that failed
			DataCorruption:  func(info pebble.DataCorruptionInfo) { x.damage(info.Details) },
		},
	}
	o.Experimental.FileCacheShards = 1
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.UniformDBCompressionSettings(block.FastestCompression)
	})
	return o
}

// quiet is Pebble's logger. Pebble expects that Fatalf ends the process; here it returns, Pebble returns an error,
// and the index is made again.
type quiet struct {
	*slog.Logger
	damage context.CancelCauseFunc
}

func (q quiet) Infof(format string, args ...any)  { q.Debug("pebble: " + fmt.Sprintf(format, args...)) }
func (q quiet) Errorf(format string, args ...any) { q.Debug("pebble: " + fmt.Sprintf(format, args...)) }
func (q quiet) Fatalf(format string, args ...any) { q.damage(fmt.Errorf(format, args...)) }

// load reads the view, or writes that of an empty index.
func (x *index) load(begin eventlog.Head) error {
	found, err := x.get(formatName)
	if err != nil {
		return err
	}
	if found == nil {
		empty := x.db.NewBatch()
		v := &view{index: x, head: begin, oldest: begin.Revision + 1, resources: map[schema.GroupResource]resource{}}
		err := errors.Join(empty.Set(formatName, []byte{format}, nil), empty.Set(cursorName, v.head.Encode(), nil), empty.Set(oldestName, appendRevision(nil, v.oldest), nil))
		x.view.Store(v)
		return errors.Join(err, x.db.Apply(empty, pebble.NoSync))
	}
	if len(found) != 1 || found[0] != format {
		return errors.New("it is of another version")
	}
	v := &view{index: x, resources: map[schema.GroupResource]resource{}}
	x.view.Store(v)
	cursor, err := x.get(cursorName)
	if err != nil {
		return err
	}
	if v.head, err = eventlog.DecodeHead(cursor); err != nil {
		return err
	}
	if v.head.Log != begin.Log {
		return fmt.Errorf("it is of log %s, this one is %s", v.head.Log, begin.Log)
	}
	oldest, err := x.get(oldestName)
	if err != nil || len(oldest) != 8 {
		return errors.Join(errDamaged, err)
	}
	v.oldest = binary.BigEndian.Uint64(oldest)
	for name, to := range map[*[]byte]any{&epochsName: &v.epochs, &clocksName: &v.clocks} {
		if text, err := x.get(*name); err != nil {
			return err
		} else if text != nil && json.Unmarshal(text, to) != nil {
			return errDamaged
		}
	}
	return x.loadResources(v)
}

func (x *index) loadResources(v *view) error {
	return x.read(prefixOptions([]byte{resourceKey}), func(it *pebble.Iterator) error {
		for it.First(); it.Valid(); it.Next() {
			r, err := parseResource(it.Key())
			if err != nil {
				return err
			}
			number, size := binary.Uvarint(it.Value())
			if size <= 0 {
				return errDamaged
			}
			info := resource{number: number}
			saved, err := x.get(keyOfFloor(number))
			if err != nil || saved != nil && len(saved) != 16 {
				return errors.Join(errDamaged, err)
			}
			if saved != nil {
				info.floors = Floors{binary.BigEndian.Uint64(saved), binary.BigEndian.Uint64(saved[8:])}
			}
			v.resources[r] = info
		}
		return nil
	})
}

// get returns a copy of a value; nil if there is none.
func (x *index) get(key []byte) ([]byte, error) {
	value, closer, err := x.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return append([]byte{}, value...), nil
}

// read calls do with an iterator, which sees one state of the index. If that cannot be read, the index
// is damaged: Run makes it again, and the caller gets errGone.
func (x *index) read(o *pebble.IterOptions, do func(*pebble.Iterator) error) error {
	x.using.RLock()
	defer x.using.RUnlock()
	if x.closed {
		return errGone
	}
	it, err := x.db.NewIter(o)
	if err != nil {
		return x.bad(err)
	}
	err = do(it)
	if read := errors.Join(it.Error(), it.Close()); read != nil || errors.Is(err, errDamaged) {
		return x.bad(errors.Join(read, err))
	}
	return err
}

// bad notes that the index is damaged.
func (x *index) bad(reason error) error {
	x.damage(reason)
	return errGone
}

// update replaces the view by a copy that change has changed.
func (x *index) update(change func(*view)) {
	x.updating.Lock()
	defer x.updating.Unlock()
	v := *x.view.Load()
	change(&v)
	x.view.Store(&v)
}

// set sets what is known of a resource. The view must be a copy.
func (v *view) set(r schema.GroupResource, info resource) {
	v.resources = maps.Clone(v.resources)
	v.resources[r] = info
}

// flush makes durable what has been written so far. It waits for a full disk.
func (x *index) flush(ctx context.Context) error {
	x.using.RLock()
	defer x.using.RUnlock()
	if x.closed {
		return errGone
	}
	flushed, err := x.db.AsyncFlush()
	if err != nil {
		return x.bad(err)
	}
	select {
	case <-flushed:
		return nil
	case <-x.damaged.Done():
		return errGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// save begins to make durable what has been written, unless writes are failing.
func (x *index) save() {
	x.using.RLock()
	defer x.using.RUnlock()
	select {
	case <-x.disk.Working():
		if !x.closed {
			_, _ = x.db.AsyncFlush() // if it fails, BackgroundError is told
		}
	default:
	}
}

// settle makes durable what has been written, unless writes are failing.
func (x *index) settle() error {
	x.using.RLock()
	defer x.using.RUnlock()
	if x.closed {
		return nil
	}
	flushed, err := x.db.AsyncFlush()
	if err != nil {
		return err
	}
	for {
		select {
		case <-flushed:
			return nil
		case <-x.damaged.Done():
			return context.Cause(x.damaged)
		case <-time.After(pause):
		}
		select {
		case <-x.disk.Working():
		default:
			return errors.New("the disk cannot be written to")
		}
	}
}

// close closes the index when no reader uses it. What has not been flushed is lost.
func (x *index) close() (err error) {
	x.ending.Do(x.disk.End)
	x.using.Lock()
	defer x.using.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	if x.db != nil {
		err = x.db.Close()
	}
	if x.lock != nil {
		err = errors.Join(err, x.lock.Close())
	}
	return err
}

// removeAll removes the files of an index that is closed.
func removeAll(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if err := files.RemoveAll(files.PathJoin(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
