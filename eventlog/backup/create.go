package backup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup/stores"
)

// CreateOptions for [Create].
type CreateOptions struct {
	Source Source
	Store  stores.Store
	// By is the name and version of the program.
	By string
	// Recipients can decrypt the backup; it is not encrypted if there are none.
	Recipients []Recipient
	// Keys are files of the data directory that clients trust.
	Keys []KeyFile
	// Sign signs the manifest; nil for a backup without a signature.
	Sign func(manifest []byte) (signature []byte, err error)
	// Verify returns an error for a signature that is not by the same key. Files of earlier backups are used again only if it accepts the
	// backup; nil for all.
	Verify func(manifest, signature []byte) error
	// Patience is for the store and for the source.
	Patience stores.Patience
	// Temporary is the folder for files that are being sent, which have no name there; the system's if empty.
	Temporary string
	// BatchesBytes is the size from which on a file of batches is complete; 16 MiB if 0.
	BatchesBytes int64
	// Now is the clock; time.Now if nil.
	Now func() time.Time
	// Progress is called often, from one goroutine; nil for none.
	Progress func(Progress)
	// Warn is called with manifests in the store that cannot be used; nil for none.
	Warn func(error)
}

// KeyFile is a key in the data directory.
type KeyFile struct {
	Name    string // below the data directory, such as pki/ca.key
	Content []byte
}

// Progress is how far a long operation is.
type Progress struct {
	File           string // the file that is being read or sent
	Bytes          int64  // that were sent or read so far
	Revision, Head uint64 // how far the log was copied, and where it ends
}

// Create makes a backup of the log up to its newest batch, and returns its manifest. It sends only files that the
// store does not have. If it fails, the files that it has stored are used by the next backup.
func Create(ctx context.Context, o CreateOptions) (*Manifest, error) {
	o.BatchesBytes, o.Patience = cmp.Or(o.BatchesBytes, 16<<20), o.Patience.WithDefaults()
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Warn == nil {
		o.Warn = func(error) {}
	}
	const attempts = 4
	for attempt := 1; ; attempt++ {
		c := &creation{CreateOptions: o, store: stores.WithPatience(o.Store, o.Patience), encryption: newEncryption(slices.Clone(o.Recipients)), reuseBatches: attempt == 1}
		m, err := c.run(ctx)
		// The server may have sealed, rewritten or dropped a segment since it told its state.
		if changed := (*changedError)(nil); !errors.As(err, &changed) || attempt == attempts || ctx.Err() != nil {
			return m, err
		}
	}
}

// changedError reports that the source does not have any more what its state said.
type changedError struct{ error }

func (e *changedError) Unwrap() error { return e.error }

// creation is one attempt to make a backup.
type creation struct {
	CreateOptions
	store      *stores.Patient
	encryption encryption
	id         eventlog.ID
	state      *State
	m          *Manifest
	there      map[string]int64 // sizes of the files in the store, by name below the log's folder
	known      map[string]File  // files of earlier backups, by name and plain SHA-256
	// batches are the complete files of batches of earlier backups, by the position before them.
	batches      map[Position]Part
	reuseBatches bool
	progress     Progress
}

func (c *creation) run(ctx context.Context) (*Manifest, error) {
	if err := c.readState(ctx); err != nil {
		return nil, err
	}
	c.m = &Manifest{Format: FormatVersion, Log: c.state.Log, By: c.By, Head: c.state.Head, Floors: c.state.Floors, Recipients: c.encryption.texts, id: c.id}
	if err := c.readStore(ctx); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{c.addSegments, c.addTail, c.addCheckpoint, c.addKeys} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	c.m.HeadTime = c.m.Parts[len(c.m.Parts)-1].Last
	c.m.Created = c.Now().UTC().Truncate(time.Millisecond)
	text, err := c.m.encode()
	if err != nil {
		return nil, err
	}
	if _, err := DecodeManifest(text); err != nil { // whatever the source has said
		return nil, fmt.Errorf("the backup would be incomplete: %w", err)
	}
	if err := c.sign(ctx, text); err != nil {
		return nil, err
	}
	return c.m, c.store.Put(ctx, c.m.storedAs(), bytes.NewReader(text), int64(len(text)))
}

func (c *creation) readState(ctx context.Context) error {
	err := c.Patience.Try(ctx, "read the state of the log", func(ctx context.Context, _ func()) (err error) {
		c.state, err = c.Source.State(ctx)
		return err
	})
	if err != nil {
		return err
	}
	c.progress.Head = c.state.Head.Revision
	c.id, err = c.state.check()
	return err
}

// readStore notes what the store has of this log.
func (c *creation) readStore(ctx context.Context) error {
	entries, err := c.store.List(ctx, c.state.Log+"/")
	if err != nil {
		return err
	}
	c.there, c.known, c.batches = map[string]int64{}, map[string]File{}, map[Position]Part{}
	for _, e := range entries {
		c.there[strings.TrimPrefix(e.Name, c.state.Log+"/")] = e.Size
	}
	if len(entries) == 0 {
		return nil
	}
	found, err := list(ctx, c.store)
	if err != nil {
		return err
	}
	for _, f := range slices.Backward(found) { // the newest first
		if f.Log != c.state.Log {
			continue
		}
		if f.Err != nil {
			c.Warn(fmt.Errorf("an earlier backup is ignored: %w", f.Err))
			continue
		}
		if head := f.Manifest.Head; head.Epoch == c.state.Head.Epoch && head.Revision > c.state.Head.Revision {
			return fmt.Errorf("the log ends at revision %d, but backup %s has revision %d of the same epoch: the server has lost writes, or is an older copy. Restore that backup, or back this log up to another place",
				c.state.Head.Revision, f.Name, head.Revision)
		}
		if c.Verify != nil {
			err := checkSignature(ctx, c.store, f.Manifest, c.Verify)
			if errors.As(err, new(*SignatureError)) {
				continue // its files are sent again
			}
			if err != nil {
				return err
			}
		}
		c.noteFiles(f.Manifest)
	}
	return nil
}

// noteFiles notes the files of an earlier backup that this one can use.
func (c *creation) noteFiles(m *Manifest) {
	if !slices.Equal(m.Recipients, c.encryption.texts) {
		return
	}
	for _, f := range m.Files() {
		if size, there := c.there[f.Stored]; there && size == f.Size {
			if key := f.Name + " " + f.PlainSHA256; c.known[key].Name == "" {
				c.known[key] = f
			}
		}
	}
	for _, p := range m.Parts {
		if _, double := c.batches[p.Before]; p.Kind == BatchesPart && !double && p.Files[0].PlainSize >= c.BatchesBytes {
			if size, there := c.there[p.Files[0].Stored]; there && size == p.Files[0].Size {
				c.batches[p.Before] = p
			}
		}
	}
}

// addSegments adds the segments of the source, and the first batch if they do not begin with it.
func (c *creation) addSegments(ctx context.Context) error {
	if c.state.Oldest.Revision > 0 {
		if err := c.addBatches(ctx, eventlog.Head{Log: c.id}, 1); err != nil {
			return err
		}
	}
	for _, s := range c.state.Segments {
		part := Part{Kind: SegmentPart, Before: s.Before, After: s.After, First: s.First, Last: s.Last, ClockSets: s.ClockSets}
		for _, f := range s.Files {
			file, err := c.copyFile(ctx, f)
			if err != nil {
				return err
			}
			part.Files = append(part.Files, file)
		}
		c.m.Parts = append(c.m.Parts, part)
		c.progress.Revision = s.After.Revision
	}
	return nil
}

// addTail adds the batches that are in no segment.
func (c *creation) addTail(ctx context.Context) error {
	at := c.state.Oldest
	if n := len(c.state.Segments); n > 0 {
		at = c.state.Segments[n-1].After
	}
	for c.reuseBatches {
		part, found := c.batches[at]
		if !found || part.After.Revision > c.state.Head.Revision {
			break
		}
		c.m.Parts = append(c.m.Parts, part)
		at = part.After
	}
	if at == c.state.Head {
		return nil
	}
	return c.addBatches(ctx, at.Head(c.id), c.state.Head.Revision)
}

// addBatches adds the batches after a position up to a revision, in files of BatchesBytes.
func (c *creation) addBatches(ctx context.Context, after eventlog.Head, until uint64) error {
	for after.Revision < until {
		k, err := c.readChunk(ctx, after, until)
		if err != nil {
			return err
		}
		part, err := c.storeChunk(ctx, k)
		if err != nil {
			return err
		}
		c.m.Parts = append(c.m.Parts, part)
		after = part.After.Head(c.id)
		c.progress.Revision = after.Revision
	}
	if at := c.m.Parts[len(c.m.Parts)-1].After; until == c.state.Head.Revision && at != c.state.Head {
		return &changedError{fmt.Errorf("the log has another batch at revision %d than its state says", until)}
	}
	return nil
}

// errComplete ends the reading of a file of batches that is large enough.
var errComplete = errors.New("complete")

// readChunk reads the batches of one file.
func (c *creation) readChunk(ctx context.Context, after eventlog.Head, until uint64) (k *chunk, err error) {
	err = c.Patience.Try(ctx, fmt.Sprintf("copy the log after revision %d", after.Revision), func(ctx context.Context, moved func()) (err error) {
		if k, err = c.newChunk(after); err != nil {
			return err
		}
		if err = c.fill(ctx, k, after, until, moved); err != nil {
			k.spool.discard()
		}
		return err
	})
	return k, err
}

// fill reads batches into a chunk until it is complete or the stream ends.
func (c *creation) fill(ctx context.Context, k *chunk, after eventlog.Head, until uint64, moved func()) error {
	r, err := c.Source.Batches(ctx, after.Revision, until)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = ReadBatches(stores.Moving(r, moved), after, func(b *eventlog.Batch, value []byte) error {
		if err := k.add(b, value); err != nil {
			return stores.Final(err)
		}
		c.progress.Revision = b.Last()
		c.Progress(c.progress)
		if k.spool.size >= c.BatchesBytes {
			return errComplete
		}
		return nil
	})
	switch {
	case errors.Is(err, errComplete):
		return nil
	case errors.Is(err, eventlog.ErrDiverged):
		return stores.Final(&changedError{err})
	case eventlog.IsFatal(err):
		return stores.Final(fmt.Errorf("the log is damaged, and is not backed up: %w", err))
	case err == nil && k.spool.size == 0:
		return stores.Final(&changedError{fmt.Errorf("the server does not have the batch after revision %d any more", after.Revision)})
	}
	return err
}

// chunk is a file of batches that is being made.
type chunk struct {
	part  Part
	sets  eventlog.ClockSets
	spool *spool
}

func (c *creation) newChunk(before eventlog.Head) (*chunk, error) {
	s, err := newSpool(c.Temporary)
	if err != nil {
		return nil, err
	}
	return &chunk{part: Part{Kind: BatchesPart, Before: PositionOf(before)}, spool: s}, nil
}

func (c *chunk) add(b *eventlog.Batch, value []byte) error {
	if c.spool.size == 0 {
		c.part.First = b.Time
	}
	c.sets = c.sets.After(b)
	c.part.Last, c.part.After = b.Time, PositionOf(b.Head())
	return WriteBatch(c.spool, value)
}

func (c *creation) storeChunk(ctx context.Context, k *chunk) (Part, error) {
	defer k.spool.discard()
	name := fmt.Sprintf("batches/%020d-%020d", k.part.Before.Revision+1, k.part.After.Revision)
	file, err := c.keep(ctx, name, k.spool)
	k.part.Files, k.part.ClockSets = []File{file}, k.sets
	return k.part, err
}

// addCheckpoint adds the newest checkpoint. It saves time after a restore, so one that has gone meanwhile is left out; but
// if the beginning of the log is forgotten, nothing can be restored without it.
func (c *creation) addCheckpoint(ctx context.Context) error {
	for _, p := range slices.Backward(c.state.Checkpoints) {
		if p.Revision > c.state.Head.Revision {
			continue
		}
		file, err := c.copyFile(ctx, p.File)
		if changed := (*changedError)(nil); errors.As(err, &changed) {
			continue
		}
		if err != nil {
			return err
		}
		c.m.Checkpoints = []Checkpoint{{Revision: p.Revision, File: file}}
		return nil
	}
	if c.state.Oldest.Revision > 0 {
		return &changedError{fmt.Errorf("the server has forgotten the log up to revision %d, and has no checkpoint that can be copied; try again in a minute", c.state.Oldest.Revision)}
	}
	return nil
}

func (c *creation) addKeys(ctx context.Context) error {
	for _, k := range c.Keys {
		s, err := newSpool(c.Temporary)
		if err != nil {
			return err
		}
		_, err = s.Write(k.Content)
		if err == nil {
			var file File
			file, err = c.keep(ctx, k.Name, s)
			c.m.Keys = append(c.m.Keys, file)
		}
		s.discard()
		if err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file of the source to the store, unless the store has it.
func (c *creation) copyFile(ctx context.Context, f StateFile) (File, error) {
	if !safeName.MatchString(f.Name) {
		return File{}, fmt.Errorf("the server names a file %q", f.Name)
	}
	if file, found, err := c.find(ctx, f.Name, f.Size, f.SHA256); found || err != nil {
		return file, err
	}
	s, err := newSpool(c.Temporary)
	if err != nil {
		return File{}, err
	}
	defer s.discard()
	c.progress.File = f.Name
	err = c.Patience.Try(ctx, "copy "+f.Name, func(ctx context.Context, moved func()) error {
		r, err := c.Source.File(ctx, f.Name, s.size)
		if err != nil {
			return err
		}
		defer r.Close()
		if _, err = io.Copy(s, io.LimitReader(stores.Moving(r, moved), f.Size-s.size+1)); err == nil && s.size < f.Size {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return File{}, &changedError{err}
	case err != nil:
		return File{}, err
	case s.size != f.Size || f.SHA256 != "" && s.sum() != f.SHA256:
		return File{}, &changedError{fmt.Errorf("%s of the server has another content than its state says: it is damaged; `stele proof verify` says where", f.Name)}
	}
	return c.keep(ctx, f.Name, s)
}

// storedName returns the name in the store of a file with the plain SHA-256. If it is encrypted, it goes on with the
// sum of what is stored.
func (c *creation) storedName(name, plainSum string) string {
	name += "." + plainSum[:32]
	if c.encryption.enabled() {
		name += "." + c.encryption.id() + "."
	}
	return name
}

// find looks for a file in the store: of an earlier backup, or of an interrupted one.
func (c *creation) find(ctx context.Context, name string, size int64, plainSum string) (File, bool, error) {
	if plainSum == "" {
		return File{}, false, nil
	}
	if f, found := c.known[name+" "+plainSum]; found && f.PlainSize == size {
		return f, true, nil
	}
	begins := c.storedName(name, plainSum)
	for stored, storedSize := range c.there {
		if stored != begins && !(c.encryption.enabled() && strings.HasPrefix(stored, begins)) {
			continue
		}
		f := File{Name: name, Stored: stored, Size: storedSize, PlainSize: size, PlainSHA256: plainSum}
		var sum string
		err := c.store.Read(ctx, c.storedPath(stored), func(r io.Reader) (err error) {
			sum, err = stores.SumOf(r)
			return err
		})
		if ctx.Err() != nil {
			return File{}, false, ctx.Err()
		}
		f.SHA256 = sum
		whole := !c.encryption.enabled() && sum == plainSum || c.encryption.enabled() && err == nil && stored == begins+sum[:32]+".age"
		if err == nil && whole {
			return f, true, nil
		}
	}
	return File{}, false, nil
}

func (c *creation) storedPath(stored string) string { return path.Join(c.state.Log, stored) }

// keep stores the content of a spool, unless the store has it.
func (c *creation) keep(ctx context.Context, name string, s *spool) (File, error) {
	f, found, err := c.find(ctx, name, s.size, s.sum())
	if found || err != nil {
		return f, err
	}
	f = File{Name: name, Stored: c.storedName(name, s.sum()), PlainSize: s.size, PlainSHA256: s.sum()}
	if c.encryption.enabled() {
		sealed, err := newSpool(c.Temporary)
		if err != nil {
			return f, err
		}
		defer sealed.discard()
		if err := c.encryption.encrypt(sealed, s.reader()); err != nil {
			return f, fmt.Errorf("encrypt %s: %w", name, err)
		}
		s = sealed
		f.Stored += s.sum()[:32] + ".age"
	}
	f.Size, f.SHA256 = s.size, s.sum()
	c.progress.File = name
	c.Progress(c.progress)
	if err := c.store.Put(ctx, c.storedPath(f.Stored), s.file, s.size); err != nil {
		return f, err
	}
	c.there[f.Stored] = f.Size
	c.m.NewBytes += f.Size
	c.progress.Bytes += f.Size
	c.Progress(c.progress)
	return f, nil
}
