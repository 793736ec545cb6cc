package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/google/renameio/v2"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/limits/durable"
)

// DefaultGap is how many revisions are left out between the newest revision that a store knows and the first one after
// a restore, for those that the old server may have issued after its newest backup.
const DefaultGap = 1_000_000

// RestoreOptions for [Restore].
type RestoreOptions struct {
	Store    stores.Store
	Manifest *Manifest
	// Identities decrypt the backup.
	Identities []age.Identity
	// FoldOf reads checkpoints, to compare them with what the log has recorded.
	FoldOf FoldOf
	// AcceptUnrecorded restores a checkpoint of which the log has no record, which else is left out, and batches before a gap of
	// which it has none, which else are refused.
	AcceptUnrecorded bool
	Patience         stores.Patience
	// To is the moment to restore; the end of the backup if zero. A revision must be the last one of a batch.
	To Target
	// Next is the first revision of the new epoch. It MUST be above every revision that was ever issued. If it is 0, it
	// is DefaultGap above Issued.
	Next uint64
	// Issued is the newest revision that is known to have been issued: of the newest backup of this log.
	Issued uint64
	// Dir is the data directory, which the caller has locked. It is empty, or has an unfinished restore of the same
	// backup.
	Dir string
	// Floors is the path of the file for the manifest's floors; "" to leave them out.
	Floors string
	// Marker is the path of the file that marks Dir as unfinished. A server refuses to start while it is there.
	Marker string
	// Ignored are names of files in Dir that do not count: of the lock.
	Ignored []string
	// OpenStore opens the store of the log in Dir, as a new one.
	OpenStore func(ctx context.Context) (eventlog.Backend, error)
	// Complete does what is left to do before the marker is removed; nil for nothing. It may be called again after a
	// crash.
	Complete func(*Restored) error
	// Software is the name and version of the program.
	Software string
	Progress func(Progress) // nil for none
}

// Restored is the result of a restore.
type Restored struct {
	Log eventlog.ID
	// At is where the restored log ends, and Time the log time there.
	At   eventlog.Head
	Time time.Time
	// Next is the first revision of the new epoch. Those between At and Next are lost.
	Next uint64
	// Level is the format level at the end.
	Level uint32
	// Keys is set if the keys are in the backup.
	Keys bool
	// LeftOut is the revision of a checkpoint that was left out because the log has no record of it; 0 for none.
	LeftOut uint64
	// Erased are the kinds, as plural.group, of which retention had erased versions that At shows: objects are missing.
	Erased []string
}

// unfinished is the content of the marker.
type unfinished struct {
	Backup string `json:"backup"`
	Log    string `json:"log"`
	Sum    string `json:"sum"` // of the manifest
	To     string `json:"to"`
}

// staging is the folder, in the data directory, of files of which only the content is needed.
const staging = "restoring"

// Restore makes a data directory of a backup. It checks everything: sizes and checksums of files, and the hash chain.
// It opens a new epoch, so that no revision means two things. If it fails or is interrupted, calling it again with the
// same backup and target continues.
func Restore(ctx context.Context, o RestoreOptions) (*Restored, error) {
	r := &restoration{RestoreOptions: o, fetcher: fetcher{store: stores.WithPatience(o.Store, o.Patience), manifest: o.Manifest, identities: o.Identities}}
	r.progress.Head = o.Manifest.Head.Revision
	r.fetcher.done = func(f File) {
		r.progress.Bytes, r.progress.File = r.progress.Bytes+f.Size, f.Name
		r.report()
	}
	whole, piece, err := o.Manifest.cut(o.To)
	if err != nil {
		return nil, err
	}
	known := max(o.Issued, o.Manifest.Head.Revision)
	if r.Next = cmp.Or(o.Next, known+1+DefaultGap); r.Next <= known {
		return nil, fmt.Errorf("the new epoch cannot begin at revision %d: revision %d has been issued", r.Next, known)
	}
	if err := r.begin(); err != nil {
		return nil, err
	}
	if piece && o.To.Revision > 0 {
		if err := r.checkTarget(ctx, o.Manifest.Parts[whole]); err != nil {
			return nil, err
		}
	}
	if err := r.fetchParts(ctx, whole, piece); err != nil {
		return nil, err
	}
	if err := r.seed(ctx); err != nil {
		return nil, err
	}
	if err := r.fetchOthers(ctx); err != nil {
		return nil, err
	}
	if err := r.writeFloors(); err != nil {
		return nil, err
	}
	return r.restored, r.finish()
}

// checkTarget returns an error if the log cannot end at the revision of the target, which is in a part: its changes were
// written together with others, and the hash of their batch covers all of them. The folder is then as it was.
func (r *restoration) checkTarget(ctx context.Context, part Part) error {
	to, before := r.To.Revision, part.Before.Revision
	var after *eventlog.Batch
	c := &chain{head: part.Before.Head(r.Manifest.LogID()), visit: func(b *eventlog.Batch, _ func() []byte) error {
		if b.Last() <= to {
			before = b.Last()
		} else if after == nil {
			after = b
		}
		return nil
	}}
	temporary := filepath.Join(r.Dir, staging)
	if err := durable.MakeFolder(temporary); err != nil {
		return err
	}
	reading := r.fetcher
	reading.done = nil
	if err := c.follow(ctx, &reading, part, temporary); err != nil || before == to || after == nil {
		return err
	}
	why := fmt.Sprintf("the log cannot end at revision %d: the revisions %d to %d were written together, and stay together", to, after.First, after.Last())
	if after.First > to {
		why = fmt.Sprintf("the log has no revision %d: one before it was restored, and what followed was lost", to)
	}
	return errors.Join(fmt.Errorf("%s; choose --to %d or --to %d", why, before, after.Last()), os.RemoveAll(temporary), os.Remove(r.Marker))
}

type restoration struct {
	RestoreOptions
	fetcher  fetcher
	progress Progress
	restored *Restored
	first    eventlog.Stored // the log's first batch
	tail     []string        // paths of files of batches that go into the log's store, in order
	before   eventlog.Head   // position before the tail; where the log ends if there is none
	end      eventlog.Head   // where the restored log ends
	// checkpoint is the one to restore; nil for none. leftOut says why none is.
	checkpoint *Checkpoint
	leftOut    *UnrecordedError
	time       time.Time // log time at the end
	level      uint32    // format level at the end
	floors     map[string]uint64
}

func (r *restoration) report() {
	if r.Progress != nil {
		r.Progress(r.progress)
	}
}

// begin checks that the folder is empty, or that this restore was interrupted in it, and marks it.
func (r *restoration) begin() error {
	mark := unfinished{Backup: r.Manifest.Name(), Log: r.Manifest.Log, Sum: r.Manifest.Sum, To: r.To.String()}
	text, err := os.ReadFile(r.Marker)
	switch {
	case err == nil:
		var found unfinished
		if err := json.Unmarshal(text, &found); err != nil || found != mark {
			return fmt.Errorf("%s has an unfinished restore of backup %s to %s: finish that one, or delete the folder", r.Dir, found.Backup, found.To)
		}
		return removeTemporary(r.Dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := r.CheckFolder(); err != nil {
		return err
	}
	if text, err = json.Marshal(mark); err != nil {
		return err
	}
	if err := durable.WriteFile(r.Marker, func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
		return err
	}
	return removeTemporary(r.Dir)
}

// CheckFolder returns an error if Dir has files that are not of an unfinished restore. It changes nothing, so that it can be
// called before Dir is locked, and Dir need not exist.
func (o *RestoreOptions) CheckFolder() error {
	entries, err := os.ReadDir(o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	marker := filepath.Base(o.Marker)
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == marker }) {
		return nil
	}
	for _, e := range entries {
		if !slices.Contains(o.Ignored, e.Name()) && !strings.HasPrefix(e.Name(), "."+marker) { // a marker that was not complete
			return fmt.Errorf("%s is not empty: it has %s. A backup is restored into an empty folder only; give another one with --data-dir", o.Dir, e.Name())
		}
	}
	return nil
}

// removeTemporary removes the temporary files of a restore that was killed. Their names begin with a dot.
func removeTemporary(dir string) error {
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasPrefix(d.Name(), ".") {
			return os.Remove(file)
		}
		return err
	})
}

// fetchParts fetches the log, and follows its chain.
func (r *restoration) fetchParts(ctx context.Context, whole int, piece bool) error {
	m := r.Manifest
	c := m.newChain()
	c.visit = func(b *eventlog.Batch, value func() []byte) error {
		if b.First == 1 {
			r.first = eventlog.Stored{First: 1, Value: slices.Clone(value())}
		}
		r.progress.Revision, r.level = b.Last(), max(r.level, b.Level())
		return nil
	}
	for _, part := range m.Parts[:whole] {
		if err := r.fetchPart(ctx, c, part); err != nil {
			return err
		}
		r.time = part.Last
		r.report()
	}
	r.end = c.head
	if piece {
		if err := r.fetchPiece(ctx, c, m.Parts[whole]); err != nil {
			return err
		}
	}
	if r.first.Value == nil {
		return errors.New("the backup does not have the log's first batch")
	}
	if len(r.tail) == 0 {
		r.before = r.end
	}
	rest := m.Parts[whole:]
	if piece {
		rest = rest[1:]
	}
	c.visit = nil
	chosen := r.candidate()
	if chosen != nil || c.past.erased || len(m.Floors) > 0 { // what the log has recorded may be behind
		if err := r.followRest(ctx, c, rest); err != nil {
			return err
		}
	}
	if err := r.takePast(c); err != nil {
		return err
	}
	if chosen != nil {
		if err := r.chooseCheckpoint(ctx, c, chosen); err != nil {
			return err
		}
	}
	return r.checkComplete()
}

// checkComplete returns an error if the state at the end cannot be made of what the backup has. If the server had
// forgotten the beginning of the log, it takes a checkpoint.
func (r *restoration) checkComplete() error {
	oldest := r.Manifest.Oldest().Revision
	if oldest == 0 || r.checkpoint != nil {
		return nil
	}
	if r.leftOut != nil {
		return fmt.Errorf("the log up to revision %d was forgotten, and %w: choose another backup; if a former version of this program made it, and nobody else can write to the place, accept it with --accept-unrecorded-checkpoint", oldest, r.leftOut)
	}
	if n := len(r.Manifest.Checkpoints); n > 0 {
		return fmt.Errorf("the log up to revision %d was forgotten, and the backup's checkpoint is of revision %d: choose a --to from there on, or an earlier backup", oldest, r.Manifest.Checkpoints[n-1].Revision)
	}
	return fmt.Errorf("the log up to revision %d was forgotten, and the backup has no checkpoint: choose another backup", oldest)
}

// followRest follows the parts that are not restored.
func (r *restoration) followRest(ctx context.Context, c *chain, rest []Part) error {
	temporary := filepath.Join(r.Dir, staging)
	if err := durable.MakeFolder(temporary); err != nil {
		return err
	}
	for _, part := range rest {
		if err := c.follow(ctx, &r.fetcher, part, temporary); err != nil {
			return err
		}
	}
	return nil
}

// candidate returns the newest checkpoint that is not newer than what is restored; nil if there is none.
func (r *restoration) candidate() *Checkpoint {
	for i := range slices.Backward(r.Manifest.Checkpoints) {
		if c := &r.Manifest.Checkpoints[i]; c.Revision <= r.end.Revision {
			return c
		}
	}
	return nil
}

// chooseCheckpoint fetches a checkpoint, and compares it with what the log has recorded, also in the rest of the backup. One without
// a record is left out: the start then reads the whole log.
func (r *restoration) chooseCheckpoint(ctx context.Context, at *chain, c *Checkpoint) error {
	if err := r.fetchFile(ctx, c.File, r.staged(c)); err != nil {
		return err
	}
	s, err := openSpool(r.staged(c))
	if err != nil {
		return err
	}
	defer s.discard()
	err = c.compare(ctx, s, at.records, r.FoldOf)
	if errors.As(err, &r.leftOut) && !r.AcceptUnrecorded {
		return nil
	}
	if sealed := (*SealedError)(nil); errors.As(err, &sealed) {
		// The server compares it with the record, if the restored log has that.
		if sealed.recorded > r.end.Revision && !r.AcceptUnrecorded {
			r.leftOut = &UnrecordedError{c.Revision}
			return nil
		}
		err = nil
	}
	if err != nil && r.leftOut == nil {
		return err
	}
	r.leftOut, r.checkpoint = nil, c
	return nil
}

// staged returns the path at which the file of a checkpoint is before it is known to be right.
func (r *restoration) staged(c *Checkpoint) string {
	return filepath.Join(r.Dir, staging, filepath.Base(c.File.Name))
}

// erased returns the kinds of which retention had erased versions that the end of the restored log shows. A checkpoint
// has them.
func (r *restoration) erased() (kinds []string) {
	if r.checkpoint != nil {
		return nil
	}
	for kind, floor := range r.floors {
		if floor > r.end.Revision {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// writeFloors writes the floors for the server, as far as the restored log goes.
func (r *restoration) writeFloors() error {
	if len(r.floors) == 0 || r.Floors == "" {
		return nil
	}
	floors := maps.Clone(r.floors)
	for kind, floor := range floors {
		floors[kind] = min(floor, r.end.Revision)
	}
	text, err := json.Marshal(floors)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.Floors), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(r.Floors, append(text, '\n'), 0o600)
}

// fetchPart fetches a part that is restored as a whole.
func (r *restoration) fetchPart(ctx context.Context, c *chain, part Part) error {
	if part.Kind == SegmentPart {
		return r.fetchSegment(ctx, c, part)
	}
	c.begin(part)
	file := filepath.Join(r.Dir, staging, filepath.Base(part.Files[0].Name))
	if err := r.fetchFile(ctx, part.Files[0], file); err != nil {
		return err
	}
	s, err := openSpool(file)
	if err != nil {
		return err
	}
	defer s.discard()
	if err := c.followBatches(part, s); err != nil {
		return err
	}
	c.head = part.After.Head(c.head.Log)
	if part.After.Revision > 1 {
		r.addTail(part.Before.Head(c.head.Log), file)
	}
	return nil
}

func (r *restoration) addTail(before eventlog.Head, file string) {
	if len(r.tail) == 0 {
		r.before = before
	}
	r.tail = append(r.tail, file)
}

// fetchPiece fetches the part in which the target is. Its batches up to the target go into the log's store.
func (r *restoration) fetchPiece(ctx context.Context, c *chain, part Part) error {
	sets := r.Manifest.clockSets()
	file := filepath.Join(r.Dir, staging, fmt.Sprintf("piece-%020d", part.Before.Revision+1))
	if err := durable.MakeFolder(filepath.Dir(file)); err != nil {
		return err
	}
	visit, over := c.visit, false
	err := durable.WriteFile(file, func(w io.Writer) error {
		c.visit = func(b *eventlog.Batch, value func() []byte) error {
			if over = over || !r.To.includes(sets, b.Last(), b.Time); over {
				return nil
			}
			r.end, r.time = b.Head(), b.Time
			if err := WriteBatch(w, value()); err != nil {
				return err
			}
			return visit(b, value)
		}
		return c.follow(ctx, &r.fetcher, part, filepath.Dir(file))
	})
	if r.end.Revision > part.Before.Revision {
		r.addTail(part.Before.Head(c.head.Log), file)
	}
	return err
}

// fetchFile fetches a file to a path, unless it is there from an interrupted restore.
func (r *restoration) fetchFile(ctx context.Context, f File, to string) error {
	if err := durable.MakeFolder(filepath.Dir(to)); err != nil {
		return err
	}
	if s, err := openSpool(to); err == nil {
		sum, err := stores.SumOf(s.reader())
		s.discard()
		if err == nil && sum == f.PlainSHA256 {
			r.fetcher.done(f)
			return nil
		}
	}
	return r.fetcher.fetch(ctx, f, func(write func(io.Writer) error) error { return durable.WriteFile(to, write) })
}

// seed makes the log's store: the first batch, the tail, and the new epoch. The head that is stored with the first batch
// is the position before the tail, because what is between them is in segments.
func (r *restoration) seed(ctx context.Context) (err error) {
	backend, err := r.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	first, err := eventlog.DecodeStored(r.first.Value)
	if err != nil {
		return err
	}
	at := r.before
	if at.Revision == 0 {
		at = first.Head()
	}
	if err := put(ctx, backend, eventlog.Head{}, at, r.first); err != nil {
		return err
	}
	from := r.before
	for _, file := range r.tail {
		if from, err = r.seedFile(ctx, backend, file, from); err != nil {
			return err
		}
	}
	if from != r.end && r.end != at {
		return fmt.Errorf("the restored log ends at %v, not at %v", from, r.end)
	}
	log, err := eventlog.Open(ctx, backend, eventlog.Options{Software: r.Software})
	if err != nil {
		return err
	}
	log.SetKeys(eventlog.LeaveSealed)
	log.KnowLevel(r.level)    // the newest batches may be in segments
	log.Resume(r.end, r.time) // so that log time does not go back
	started, newer, err := log.StartEpoch(ctx, r.end, r.end.Revision+1, r.Next)
	if err != nil {
		return fmt.Errorf("begin a new epoch: %w", err)
	}
	if started == nil {
		return fmt.Errorf("begin a new epoch: another process has written to the log, %d batches", len(newer))
	}
	r.restored = &Restored{Level: r.level, LeftOut: r.leftOut.revision(), Log: r.end.Log, At: r.end, Time: r.time, Next: r.Next, Keys: len(r.Manifest.Keys) > 0, Erased: r.erased()}
	return nil
}

// seedFile appends the batches of a file behind a position, and returns the position after them.
func (r *restoration) seedFile(ctx context.Context, backend eventlog.Backend, file string, from eventlog.Head) (eventlog.Head, error) {
	in, err := os.Open(file)
	if err != nil {
		return from, err
	}
	defer in.Close()
	return ReadBatches(in, from, func(b *eventlog.Batch, value []byte) error {
		if b.First > 1 { // the first one is there already
			if err := put(ctx, backend, from, b.Head(), eventlog.Stored{First: b.First, Value: value}); err != nil {
				return err
			}
		}
		from = b.Head()
		r.progress.Revision = b.Last()
		r.report()
		return nil
	})
}

// put appends a batch and sets the head. The backend compares heads, and not whether batches continue each other.
func put(ctx context.Context, backend eventlog.Backend, from, to eventlog.Head, s eventlog.Stored) error {
	p := eventlog.Proposal{To: to.Encode(), At: s.First, Value: s.Value}
	if from.Revision > 0 {
		p.From = from.Encode()
	}
	answer, err := backend.Append(ctx, p)
	if err != nil {
		return fmt.Errorf("write revision %d: %w", s.First, err)
	}
	if !answer.Applied {
		return fmt.Errorf("write revision %d: the store is not new", s.First)
	}
	return nil
}

// fetchOthers fetches keys, and puts the checkpoint in its place.
func (r *restoration) fetchOthers(ctx context.Context) error {
	if c := r.checkpoint; c != nil {
		file := filepath.Join(r.Dir, filepath.FromSlash(c.File.Name))
		if err := durable.MakeFolder(filepath.Dir(file)); err != nil {
			return err
		}
		if err := os.Rename(r.staged(c), file); err != nil {
			return err
		}
	}
	for _, k := range r.Manifest.Keys {
		if err := r.fetchFile(ctx, k, filepath.Join(r.Dir, filepath.FromSlash(k.Name))); err != nil {
			return err
		}
	}
	return nil
}

// finish removes what marks the folder as unfinished.
func (r *restoration) finish() error {
	if r.Complete != nil {
		if err := r.Complete(r.restored); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(r.Dir, staging)); err != nil {
		return err
	}
	if err := syncFolders(r.Dir); err != nil { // all is there before the marker goes
		return err
	}
	if err := os.Remove(r.Marker); err != nil {
		return err
	}
	return durable.SyncFolder(r.Dir)
}

// syncFolders makes the names of all files in a folder durable. Whoever wrote them has synced their contents.
func syncFolders(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = durable.SyncFolder(path)
		}
		return err
	})
}
