// Package filelog is a backend of the log on a folder of local files. It is for logs that belong to one process and one
// machine, such as a replica's log of decisions.
//
// # Files
//
// A file is named for the revision of its first batch, and has records: one batch each, with its length, a checksum and
// the head that it led to. Files are only appended to. Every record is synced before its append is acknowledged, and
// before the next one is written, so that a crash can damage only the last one: [Open] cuts it off. Damage anywhere else
// is a [*DamagedError]. The first batch has a file of its own, which stays when older files are removed ([Log.Retain]).
// The file "trimmed" has the revision up to which batches are removed.
package filelog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/durable"
)

// ErrClosed is the error of calls on a closed backend.
var ErrClosed = errors.New("filelog: closed")

// ErrReadOnly is the error of writes to a backend that was opened for reading.
var ErrReadOnly = errors.New("filelog: opened for reading")

// DamagedError reports a record that is not as it was written, and that no crash explains.
type DamagedError struct {
	File   string
	Offset int64
	Reason string
}

// Error names the file and the offset.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("filelog: %s is damaged at byte %d: %s", e.File, e.Offset, e.Reason)
}

// Options for [Open].
type Options struct {
	// FileBytes is the size from which on a new file is begun; 8 MiB if 0.
	FileBytes int64
	// MaxValue is the maximum size of a batch in bytes; 8 MiB if 0.
	MaxValue int
	// ReadOnly opens the folder without changing it. Another process may write to it.
	ReadOnly bool
	// OpenFile opens the file that batches are appended to, and creates it; nil for the file system of the machine. Tests
	// inject faults by it.
	OpenFile func(name string) (File, error)
}

// File is a file that batches are appended to.
type File interface {
	WriteAt(b []byte, offset int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Backend implements [eventlog.Backend] on a folder. It is exclusive: nobody else may write to the folder.
type Backend struct {
	dir string
	o   Options

	appending sync.Mutex // held by the one append or trim that runs, also while it writes
	active    File       // the newest file, opened for writing; nil if it is not open
	full      bool       // the next batch begins a new file
	cut       bool       // the newest file may be longer than its records, because a failed append could not be undone

	mu      sync.Mutex // guards what follows, and is not held while files are read or written
	closed  chan struct{}
	files   []*file // ascending
	head    []byte
	newest  uint64 // first revision of the newest batch
	mark    uint64 // batches with 1 < First <= mark are removed, see Trim
	freed   int64  // bytes of removed batches in files that are not removed
	refused uint64
	opening bool          // see view
	grown   chan struct{} // closed when the log grows
	line    line
}

var _ eventlog.Backend = (*Backend)(nil)

// file is one file of the folder. Its fields are guarded by the backend's mu.
type file struct {
	name    string
	first   uint64   // revision of its first batch
	size    int64    // of its good records
	records []record // nil if they have not been read
}

// record says where a batch is.
type record struct {
	first  uint64
	offset int64 // of the record
	size   int64 // of the record
}

const extension = ".log"

// Open opens the log in a folder, and creates the folder. It cuts off a last record that is not complete. The error is a
// [*DamagedError] if the newest file has damage that no crash explains; older files are checked when they are read, see
// also [Log.Check].
func Open(dir string, o Options) (*Backend, error) {
	o.FileBytes = cmp.Or(o.FileBytes, 8<<20)
	o.MaxValue = cmp.Or(o.MaxValue, 8<<20)
	if o.OpenFile == nil {
		o.OpenFile = func(name string) (File, error) { return os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600) }
	}
	b := &Backend{dir: dir, o: o, closed: make(chan struct{}), grown: make(chan struct{})}
	b.line.changed = make(chan struct{})
	if !o.ReadOnly {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := b.load(); err != nil {
		return nil, err
	}
	return b, nil
}

// Dir returns the folder.
func (b *Backend) Dir() string { return b.dir }

// load lists the files, and reads the newest.
func (b *Backend) load() error {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), extension)
		first, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil || len(digits) != 20 {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		b.files = append(b.files, &file{name: filepath.Join(b.dir, e.Name()), first: first, size: info.Size()})
	}
	slices.SortFunc(b.files, func(x, y *file) int { return strings.Compare(x.name, y.name) })
	for n := len(b.files); n > 0; n = len(b.files) {
		f := b.files[n-1]
		s, err := scan(f.name)
		if err != nil {
			return err
		}
		if s.damage != nil {
			return s.damage
		}
		if s.end < f.size && !b.o.ReadOnly {
			if err := b.cutOff(f.name, s.end); err != nil {
				return err
			}
		}
		if len(s.records) > 0 {
			f.records, f.size = s.records, s.end
			b.head, b.newest = s.head, s.records[len(s.records)-1].first
			break
		}
		b.files = b.files[:n-1] // a crash came before its first record
		if !b.o.ReadOnly {
			if err := errors.Join(os.Remove(f.name), durable.SyncFolder(b.dir)); err != nil {
				return err
			}
		}
	}
	if b.mark, err = readMark(b.dir); err != nil {
		return err
	}
	b.mark = min(b.mark, max(b.newest, 1)-1)
	if err := b.removeTrimmed(); err != nil {
		return err
	}
	b.countFreed()
	return nil
}

func (b *Backend) cutOff(name string, end int64) error {
	f, err := b.o.OpenFile(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(end), f.Sync(), f.Close())
}

// Append implements [eventlog.Backend]. An append that fails is undone, so that all errors are refusals. If the process
// ends before it could be undone, the batch may be in the log all the same.
func (b *Backend) Append(_ context.Context, p eventlog.Proposal) (eventlog.Answer, error) {
	if len(p.Value) > b.o.MaxValue {
		return eventlog.Answer{}, fmt.Errorf("%w: %d bytes, limit is %d", eventlog.ErrTooLarge, len(p.Value), b.o.MaxValue)
	}
	if b.o.ReadOnly {
		return eventlog.Answer{}, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, ErrReadOnly)
	}
	b.appending.Lock()
	defer b.appending.Unlock()
	if err := b.open(); err != nil {
		return eventlog.Answer{}, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	b.mu.Lock()
	fits := bytes.Equal(b.head, p.From) && p.At > b.newest
	if !fits {
		b.line.lose(p)
	}
	b.mu.Unlock()
	if !fits {
		return b.read(p.At)
	}
	r, f, err := b.write(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.refused++
		return eventlog.Answer{}, refusal(err)
	}
	if f != nil {
		b.files = append(b.files, f)
	}
	last := b.files[len(b.files)-1]
	last.records, last.size = append(last.records, r), r.offset+r.size
	b.head, b.newest = bytes.Clone(p.To), p.At
	close(b.grown)
	b.grown = make(chan struct{})
	b.line.win(p)
	return eventlog.Answer{Applied: true}, nil
}

// refusal returns the error of an append that was not applied.
func refusal(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", eventlog.ErrFull, err)
	}
	return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
}

// write writes a record at the end of the newest file, or of a new one, which it returns. After an error nothing is
// written. The caller holds appending.
func (b *Backend) write(p eventlog.Proposal) (r record, begun *file, err error) {
	b.mu.Lock()
	var last *file
	if n := len(b.files); n > 1 {
		last = b.files[n-1]
	}
	b.mu.Unlock()
	encoded := encode(p.At, p.To, p.Value)
	if last == nil || b.full || last.size > 0 && last.size+int64(len(encoded)) > b.o.FileBytes { // the first batch has a file of its own
		return b.begin(p.At, encoded)
	}
	if b.active == nil {
		if b.active, err = b.o.OpenFile(last.name); err != nil {
			return r, nil, err
		}
	}
	if b.cut {
		if err := b.active.Truncate(last.size); err != nil {
			return r, nil, err
		}
		b.cut = false
	}
	r = record{p.At, last.size, int64(len(encoded))}
	if _, err = b.active.WriteAt(encoded, r.offset); err == nil {
		err = b.active.Sync()
	}
	if err != nil {
		b.cut = b.active.Truncate(last.size) != nil
		if !b.cut {
			b.cut = b.active.Sync() != nil
		}
	}
	return r, nil, err
}

// begin begins a new file with a record.
func (b *Backend) begin(at uint64, encoded []byte) (r record, begun *file, err error) {
	begun = &file{name: filepath.Join(b.dir, fmt.Sprintf("%020d", at)+extension), first: at}
	f, err := b.o.OpenFile(begun.name)
	if err != nil {
		return r, nil, err
	}
	if err = f.Truncate(0); err == nil { // a failed attempt may have left something
		_, err = f.WriteAt(encoded, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = durable.SyncFolder(b.dir)
	}
	if err != nil {
		return r, nil, errors.Join(err, f.Close(), os.Remove(begun.name))
	}
	if b.active != nil {
		_ = b.active.Close() // all of it is synced
	}
	b.active, b.cut, b.full = f, false, false
	return record{at, 0, int64(len(encoded))}, begun, nil
}

// open returns an error if the backend is closed.
func (b *Backend) open() error {
	select {
	case <-b.closed:
		return ErrClosed
	default:
		return nil
	}
}

// Wait implements [eventlog.Backend].
func (b *Backend) Wait(ctx context.Context, from uint64) error {
	for {
		b.mu.Lock()
		there, grown := b.newest >= from, b.grown
		b.mu.Unlock()
		if err := b.open(); err != nil || there {
			return err
		}
		select {
		case <-grown:
		case <-b.closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Usage implements [eventlog.Backend]. Space is allocated until all batches of a file are removed.
func (b *Backend) Usage() eventlog.Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := eventlog.Usage{Refused: b.refused}
	for _, f := range b.files {
		u.Allocated += f.size
	}
	u.Used = u.Allocated - b.freed
	return u
}

// Limits implements [eventlog.Backend].
func (b *Backend) Limits() eventlog.Limits {
	return eventlog.Limits{Value: b.o.MaxValue, Exclusive: true}
}

// Close implements [eventlog.Backend].
func (b *Backend) Close() error {
	b.mu.Lock()
	select {
	case <-b.closed:
	default:
		close(b.closed)
	}
	b.mu.Unlock()
	b.appending.Lock()
	defer b.appending.Unlock()
	if b.active == nil {
		return nil
	}
	err := b.active.Close()
	b.active = nil
	return err
}

// fileAfter returns the index of the first file that begins after a revision.
func fileAfter(files []*file, revision uint64) int {
	return sort.Search(len(files), func(i int) bool { return files[i].first > revision })
}
