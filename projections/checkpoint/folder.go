package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"stele.dev/stele/eventlog"
)

const (
	suffix    = ".ckpt"
	temporary = ".tmp"
	// kept is how many checkpoints a folder keeps.
	kept = 2
	// syncEvery is how many bytes are written between two syncs, so that no sync holds up other users of the disk for
	// long.
	syncEvery = 8 << 20
)

// Folder is a folder of checkpoints, each named by its revision. Its methods are safe for concurrent use. Only one
// Folder may use a folder at a time.
type Folder struct {
	dir   string
	files Files
	keys  eventlog.Keys // nil for none

	writing sync.Mutex
	mu      sync.Mutex
	// good are the checkpoints that were read to their end by this process, the newest first.
	good []Checkpoint
}

// Checkpoint is a checkpoint in a folder.
type Checkpoint struct {
	Revision uint64
	File     string
	Info     Info
	// Size is the size of the file in bytes.
	Size int64
	// Recorded is set once the log is known to have recorded the hash of this fold, see [Folder.Record].
	Recorded bool
}

// Open opens a folder, or makes it, and removes what an interrupted [Folder.Write] left. files is the file system; nil
// for the machine's. keys seal records of some kinds, and open them; nil for none.
func Open(dir string, files Files, keys eventlog.Keys) (*Folder, error) {
	if files == nil {
		files = Disk{}
	}
	f := &Folder{dir: dir, files: files, keys: keys}
	err := files.MakeFolder(dir)
	var names []string
	if err == nil {
		names, err = files.Names(dir)
	}
	for _, name := range names {
		if err == nil && strings.HasSuffix(name, suffix+temporary) {
			err = files.Remove(filepath.Join(dir, name))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the folder of checkpoints: %w", err)
	}
	return f, nil
}

// Path returns the path of the file of a revision's checkpoint.
func (f *Folder) Path(revision uint64) string {
	return filepath.Join(f.dir, fmt.Sprintf("%020d%s", revision, suffix))
}

// Revisions returns the revisions of all checkpoints in the folder, good or not, the newest first.
func (f *Folder) Revisions() ([]uint64, error) {
	names, err := f.files.Names(f.dir)
	if err != nil {
		return nil, fmt.Errorf("the folder of checkpoints: %w", err)
	}
	var revisions []uint64
	for _, name := range names {
		digits, is := strings.CutSuffix(name, suffix)
		if revision, err := strconv.ParseUint(digits, 10, 64); is && err == nil && len(digits) == 20 {
			revisions = append(revisions, revision)
		}
	}
	slices.SortFunc(revisions, func(a, b uint64) int { return cmp.Compare(b, a) })
	return revisions, nil
}

// Good returns the checkpoints that this process has written, or has read to their end: at most two, the newest first.
func (f *Folder) Good() []Checkpoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.good)
}

// Covered returns the revision of the older of two good checkpoints, 0 if there are fewer: if the newer one turns out to
// be damaged, a start still needs nothing of the log up to there.
func (f *Folder) Covered() uint64 {
	if good := f.Good(); len(good) == kept {
		return good[kept-1].Revision
	}
	return 0
}

// Read reads the checkpoint of a revision by use, which reads all sections. If use and the footer agree that it is
// good, it is one of [Folder.Good].
func (f *Folder) Read(revision uint64, use func(*Reader) error) error {
	file, err := f.files.Open(f.Path(revision))
	if err != nil {
		return err
	}
	counted := &counter{ReadCloser: file}
	r, err := newReader(counted, f.keys)
	if err != nil {
		return err
	}
	err = use(r)
	info, infoErr := Info{}, error(nil)
	if err == nil {
		info, infoErr = r.Info()
	}
	if closeErr := r.Close(); err == nil && infoErr == nil {
		err = closeErr
	}
	if err = errors.Join(err, infoErr); err != nil {
		return err
	}
	f.believe(Checkpoint{Revision: revision, File: f.Path(revision), Info: info, Size: counted.n})
	return nil
}

// counter counts the bytes that are read.
type counter struct {
	io.ReadCloser
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n += int64(n)
	return n, err
}

// Record notes that the log has recorded the fold of one of the good checkpoints: those who get a copy of its file can
// believe it.
func (f *Folder) Record(revision uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.good {
		if f.good[i].Revision == revision {
			f.good[i].Recorded = true
		}
	}
}

// Recorded returns those of [Folder.Good] that the log has recorded.
func (f *Folder) Recorded() []Checkpoint {
	return slices.DeleteFunc(f.Good(), func(c Checkpoint) bool { return !c.Recorded })
}

func (f *Folder) believe(c Checkpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.good = slices.DeleteFunc(f.good, func(g Checkpoint) bool {
		c.Recorded = c.Recorded || g.Revision == c.Revision && g.Recorded && g.Info.Fold == c.Info.Fold
		return g.Revision == c.Revision
	})
	f.good = append(f.good, c)
	slices.SortFunc(f.good, func(a, b Checkpoint) int { return cmp.Compare(b.Revision, a.Revision) })
	f.good = f.good[:min(len(f.good), kept)]
}

// Write writes the checkpoint of a revision, whose sections and records save puts, and reads it back. Then it removes
// all others but the newest good one of them, before [Folder.Covered] moves on. pace bounds how much of a processor it takes. After an error nothing has
// changed, except that the checkpoint may be there.
func (f *Folder) Write(ctx context.Context, revision uint64, pace Pace, save func(Sink) error) (Checkpoint, error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	c, err := f.write(ctx, revision, pace, save)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint of revision %d: %w", revision, err)
	}
	err = f.prune(c.Revision)
	f.believe(c)
	return c, err
}

func (f *Folder) write(ctx context.Context, revision uint64, pace Pace, save func(Sink) error) (Checkpoint, error) {
	c := Checkpoint{Revision: revision, File: f.Path(revision)}
	stopwatch := pace.start(ctx)
	err := f.create(c.File+temporary, &c, stopwatch, save)
	if err == nil {
		err = f.files.Rename(c.File+temporary, c.File)
	}
	if err != nil {
		return c, errors.Join(err, f.files.Remove(c.File+temporary))
	}
	if err := f.files.SyncFolder(f.dir); err != nil {
		return c, err
	}
	if err := f.readBack(ctx, c, stopwatch); err != nil {
		return c, errors.Join(fmt.Errorf("what was written cannot be read back: %w", err), f.files.Remove(c.File))
	}
	return c, nil
}

// create writes a file and syncs it.
func (f *Folder) create(name string, c *Checkpoint, s *stopwatch, save func(Sink) error) (err error) {
	file, err := f.files.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := &synced{file: file}
	w := newWriter(out, f.keys, func() error {
		if err := out.sync(); err != nil {
			return err
		}
		return s.pause()
	})
	if err := save(w); err != nil {
		return err
	}
	if c.Info, err = w.finish(); err != nil {
		return err
	}
	c.Size = out.size
	return file.Sync()
}

// synced syncs a file from time to time.
type synced struct {
	file     File
	size     int64
	unsynced int
}

func (s *synced) Write(b []byte) (int, error) {
	n, err := s.file.Write(b)
	s.size, s.unsynced = s.size+int64(n), s.unsynced+n
	return n, err
}

func (s *synced) sync() error {
	if s.unsynced < syncEvery {
		return nil
	}
	s.unsynced = 0
	return s.file.Sync()
}

// readBack reads a file and compares it with what was written.
func (f *Folder) readBack(ctx context.Context, c Checkpoint, s *stopwatch) error {
	file, err := f.files.Open(c.File)
	if err != nil {
		return err
	}
	r, err := newReader(file, f.keys)
	if err != nil {
		return err
	}
	info, err := r.verify(ctx, s.pause)
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	if err == nil && info != c.Info {
		err = damaged("it has other content")
	}
	return err
}

// prune removes all checkpoints but that of a revision and the newest good one.
func (f *Folder) prune(next uint64) error {
	keep := []uint64{next}
	for _, c := range f.Good() {
		if c.Revision != next && len(keep) < kept {
			keep = append(keep, c.Revision)
		}
	}
	return f.remove(func(revision uint64) bool { return !slices.Contains(keep, revision) })
}

// RemoveOlder removes the checkpoints of revisions before another one, which a crash during [Folder.Write] may have left.
func (f *Folder) RemoveOlder(than uint64) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	return f.remove(func(revision uint64) bool { return revision < than })
}

func (f *Folder) remove(which func(revision uint64) bool) error {
	revisions, err := f.Revisions()
	for _, revision := range revisions {
		if which(revision) {
			err = errors.Join(err, f.files.Remove(f.Path(revision)))
		}
	}
	if err != nil {
		return fmt.Errorf("old checkpoints: %w", err)
	}
	return nil
}

// Verify reads the checkpoint of a revision from its beginning to its end, and returns what its footer says. If it is
// good, and check returns no error, it is one of [Folder.Good]; check may be nil. pace bounds how much of a processor that
// takes.
func (f *Folder) Verify(ctx context.Context, revision uint64, pace Pace, check func(Info) error) (info Info, err error) {
	err = f.Read(revision, func(r *Reader) error {
		if info, err = r.verify(ctx, pace.Rests(ctx)); err == nil && check != nil {
			err = check(info)
		}
		return err
	})
	return info, err
}

// InfoOf reads a checkpoint that is in no folder, and returns what its footer says. It closes the file. keys open
// what is sealed in it.
func InfoOf(ctx context.Context, file io.ReadCloser, keys eventlog.Keys) (Info, error) {
	r, err := newReader(file, keys)
	if err != nil {
		return Info{}, err
	}
	info, err := r.verify(ctx, nil)
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return info, err
}
