package history

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
	"github.com/klauspost/compress/s2"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/lru"
)

// The files in the folder. The first three are a pure function of the log; the cursor says how much of
// them is valid, and to which position of the log that corresponds.
const (
	recordsFile = "records" // blocks of records, compressed
	entriesFile = "entries" // entrySize bytes for every change in a block
	blocksFile  = "blocks"  // blockSize bytes for every block
	cursorFile  = "cursor"
)

const (
	format = 1
	// blockBytes is the size before compression at which a block is complete.
	blockBytes = 8 << 10
	blockSize  = 8 + 8 + 4 // on disk: offset, first revision, first seq
	// blockHeader is the size of a block's header: its checksum and its first seq. The records follow,
	// compressed by S2.
	blockHeader = 4 + 4
)

// blockRef is the position of a block in the file, and its first change.
type blockRef struct {
	first     seq
	low, high uint32 // of its offset
}

func (r *blockRef) offset() int64 { return int64(r.high)<<32 | int64(r.low) }

// run is a sequence of changes with consecutive revisions, from first on.
type run struct {
	first    seq
	revision uint64 // of first
}

// cursor is the content of the cursor file, in JSON with a checksum on a line of its own.
type cursor struct {
	Format int `json:"format"`
	// A position of the log, and the number of changes up to it.
	Log      string `json:"log"`
	Epoch    uint64 `json:"epoch,omitempty"`
	Revision uint64 `json:"revision"`
	Hash     string `json:"hash"`
	Changes  seq    `json:"changes"`
	// The content of the files. It may have more changes: those are of the batch with hash Partial.
	Written seq    `json:"written"`
	Partial string `json:"partial,omitempty"`
	Blocks  uint32 `json:"blocks"`
	Records int64  `json:"records"`
	// Checksums of the entries and the blocks file.
	EntriesSum uint32             `json:"entriesSum"`
	BlocksSum  uint32             `json:"blocksSum"`
	Epochs     []Epoch            `json:"epochs,omitempty"`
	ClockSets  eventlog.ClockSets `json:"clockSets,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// generation is one copy of the history: its files, and the memory that belongs to them. Starting again
// from the log makes another generation. One goroutine writes; readers hold a view.
type generation struct {
	dir    string
	prints printer
	*index
	blocks column[blockRef] // of each block in the file, and of the tail
	files  struct{ records, entries, blocks *os.File }
	cache  *lru.Cache[uint32, block]

	// Only the writer uses the fields below.
	head    eventlog.Head
	changes seq           // number of changes up to head
	last    seq           // the newest change; its batch may be incomplete
	folding eventlog.Hash // of that batch
	tail    block         // the newest records, which do not fill a block yet
	runs    []run
	epochs  []Epoch
	clocks  eventlog.ClockSets
	written cursor // describes what the files contain
	saved   cursor // the content of the cursor file
	buffer  []byte
}

// open opens the folder, and continues from its cursor. The error wraps errUnusable if the folder has
// nothing valid; the caller may then call start.
func open(dir string, start eventlog.Head) (g *generation, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c, err := readCursor(filepath.Join(dir, cursorFile))
	if err != nil {
		return nil, err
	}
	if c.Log != start.Log.String() {
		return nil, fmt.Errorf("%w: it is of log %s, this one is %s", errUnusable, c.Log, start.Log)
	}
	return openFiles(dir, start, c)
}

// start removes the files in a folder, and begins a new generation there.
func start(dir string, start eventlog.Head) (*generation, error) {
	for _, name := range []string{cursorFile, recordsFile, entriesFile, blocksFile} { // the cursor first: without it the others are invalid
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return openFiles(dir, start, cursor{Format: format, Log: start.Log.String(), Epoch: start.Epoch, Revision: start.Revision, Hash: start.Hash.String()})
}

var (
	errUnusable = errors.New("the content of the folder cannot be used")
	errEmpty    = fmt.Errorf("%w: there is none", errUnusable)
)

func readCursor(file string) (c cursor, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, errEmpty
	}
	if err != nil {
		return c, err
	}
	text, sum, _ := bytes.Cut(data, []byte("\n"))
	if string(sum) != checksum(text) || json.Unmarshal(text, &c) != nil || c.Format != format {
		return cursor{}, fmt.Errorf("%w: the cursor is damaged or of another version", errUnusable)
	}
	return c, nil
}

func checksum(b []byte) string { return fmt.Sprintf("%08x\n", crc32.Checksum(b, castagnoli)) }

func openFiles(dir string, start eventlog.Head, c cursor) (_ *generation, err error) {
	g := &generation{dir: dir, prints: printer{start.Log}, index: newIndex(), cache: lru.New[uint32, block](cacheBytes), written: c, saved: c, epochs: c.Epochs, clocks: c.ClockSets}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	g.head = eventlog.Head{Log: start.Log, Epoch: c.Epoch, Revision: c.Revision}
	if n, err := hex.Decode(g.head.Hash[:], []byte(c.Hash)); err != nil || n != len(g.head.Hash) {
		return nil, fmt.Errorf("%w: the cursor has hash %q", errUnusable, c.Hash)
	}
	for _, f := range []struct {
		file *(*os.File)
		name string
		size int64
	}{
		{&g.files.records, recordsFile, c.Records},
		{&g.files.entries, entriesFile, entrySize * int64(c.Written)},
		{&g.files.blocks, blocksFile, blockSize * int64(c.Blocks)},
	} {
		if *f.file, err = os.OpenFile(filepath.Join(dir, f.name), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return nil, err
		}
		info, err := (*f.file).Stat()
		if err != nil {
			return nil, err
		}
		if info.Size() < f.size {
			return nil, fmt.Errorf("%w: %s has %d of %d bytes", errUnusable, f.name, info.Size(), f.size)
		}
		if info.Size() > f.size { // written after the cursor was saved
			if err := (*f.file).Truncate(f.size); err != nil {
				return nil, err
			}
		}
	}
	if err := g.load(); err != nil {
		return nil, err
	}
	g.changes, g.last = c.Changes, c.Written
	g.tail = block{first: c.Written + 1}
	*g.blocks.place(c.Blocks) = refOf(g.tail.first, c.Records)
	return g, nil
}

// load reads the entries and blocks files into memory.
func (g *generation) load() error {
	c := g.written
	data, err := readSummed(g.files.blocks, blockSize*int(c.Blocks), c.BlocksSum)
	if err != nil {
		return err
	}
	for i := range c.Blocks {
		b := data[blockSize*i:]
		first := binary.LittleEndian.Uint32(b[16:])
		*g.blocks.place(i) = refOf(first, int64(binary.LittleEndian.Uint64(b)))
		g.runs = follow(g.runs, first, binary.LittleEndian.Uint64(b[8:]))
	}
	if data, err = readSummed(g.files.entries, entrySize*int(c.Written), c.EntriesSum); err != nil {
		return err
	}
	for s := seq(1); s <= c.Written; s++ {
		e := decodeEntry(data[entrySize*(s-1):])
		if e.prev >= s || !g.index.add(s, e) {
			return fmt.Errorf("%w: the previous version of change %d is missing", errUnusable, s)
		}
	}
	return nil
}

func readSummed(f *os.File, size int, sum uint32) ([]byte, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, int64(size)), data); err != nil {
		return nil, err
	}
	if crc32.Checksum(data, castagnoli) != sum {
		return nil, fmt.Errorf("%w: %s has another checksum", errUnusable, filepath.Base(f.Name()))
	}
	return data, nil
}

func refOf(first seq, offset int64) blockRef {
	return blockRef{first, uint32(offset), uint32(offset >> 32)}
}

// follow appends a run for change s if its revision does not continue the last run.
func follow(runs []run, s seq, revision uint64) []run {
	if n := len(runs); n > 0 && runs[n-1].revision+uint64(s-runs[n-1].first) == revision {
		return runs
	}
	return append(runs, run{s, revision})
}

// continues reports whether a revision directly follows that of the newest change.
func (g *generation) continues(revision uint64) bool {
	return len(follow(g.runs, g.last+1, revision)) == len(g.runs)
}

// flush writes the tail as a block, and begins another tail. It may be retried after an error: it writes
// the same bytes to the same places.
func (g *generation) flush() error {
	packed := slices.Grow(g.buffer[:0], blockHeader+s2.MaxEncodedLen(len(g.tail.data)))[:blockHeader]
	records := s2.Encode(packed[blockHeader:cap(packed)], g.tail.data)
	packed = packed[:blockHeader+len(records)]
	binary.LittleEndian.PutUint32(packed[4:], g.tail.first)
	binary.LittleEndian.PutUint32(packed, crc32.Checksum(packed[4:], castagnoli))
	if len(packed) <= 4*blockBytes {
		g.buffer = packed
	}
	c := g.written
	if _, err := g.files.records.WriteAt(packed, c.Records); err != nil {
		return err
	}
	entries := make([]byte, 0, entrySize*len(g.tail.starts))
	for s := g.tail.first; s < g.tail.after(); s++ {
		entries = g.index.get(s).append(entries)
	}
	if _, err := g.files.entries.WriteAt(entries, entrySize*int64(c.Written)); err != nil {
		return err
	}
	ref := binary.LittleEndian.AppendUint64(make([]byte, 0, blockSize), uint64(c.Records))
	ref = binary.LittleEndian.AppendUint64(ref, revisionOf(g.runs, g.tail.first))
	ref = binary.LittleEndian.AppendUint32(ref, g.tail.first)
	if _, err := g.files.blocks.WriteAt(ref, blockSize*int64(c.Blocks)); err != nil {
		return err
	}
	g.written = cursor{
		Format: format, Log: g.head.Log.String(), Epoch: g.head.Epoch, Revision: g.head.Revision, Hash: g.head.Hash.String(), Changes: g.changes,
		Written: g.last, Partial: g.partial(), Blocks: c.Blocks + 1, Records: c.Records + int64(len(packed)), Epochs: g.epochs, ClockSets: g.clocks,
		EntriesSum: crc32.Update(c.EntriesSum, castagnoli, entries), BlocksSum: crc32.Update(c.BlocksSum, castagnoli, ref),
	}
	g.tail = newBlock(g.last + 1)
	*g.blocks.place(g.written.Blocks) = refOf(g.tail.first, g.written.Records)
	return nil
}

// partial returns the hash of the newest batch if some of its changes are missing, else "".
func (g *generation) partial() string {
	if g.last == g.changes {
		return ""
	}
	return g.folding.String()
}

// continuedBy reports whether b may be the batch after head: if some of its changes have been written
// already, their hash must be that of b.
func (g *generation) continuedBy(b *eventlog.Batch) bool {
	return g.last == g.changes || b.Hash.String() == g.written.Partial
}

// unsaved returns how many bytes have been written since the cursor was saved.
func (g *generation) unsaved() int64 { return g.written.Records - g.saved.Records }

// save makes the files durable, and then the cursor.
func (g *generation) save() error {
	if g.unsaved() == 0 {
		return nil
	}
	if err := errors.Join(g.files.records.Sync(), g.files.entries.Sync(), g.files.blocks.Sync()); err != nil {
		return err
	}
	text, err := json.Marshal(g.written)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(g.dir, cursorFile), append(append(text, '\n'), checksum(text)...), 0o600); err != nil {
		return err
	}
	g.saved = g.written
	return nil
}

func (g *generation) close() error {
	var errs []error
	for _, f := range []*os.File{g.files.records, g.files.entries, g.files.blocks} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// readBlock reads and decompresses block i.
func (g *generation) readBlock(i uint32) (block, error) {
	ref, next := g.blocks.get(i), g.blocks.get(i+1)
	packed := make([]byte, next.offset()-ref.offset())
	if _, err := g.files.records.ReadAt(packed, ref.offset()); err != nil {
		return block{}, err
	}
	if len(packed) < blockHeader || binary.LittleEndian.Uint32(packed) != crc32.Checksum(packed[4:], castagnoli) || binary.LittleEndian.Uint32(packed[4:]) != ref.first {
		return block{}, errors.New("its checksum is wrong")
	}
	data, err := s2.Decode(nil, packed[blockHeader:])
	if err != nil {
		return block{}, err
	}
	b, err := parseBlock(ref.first, data)
	if err == nil && b.after() != next.first {
		err = errRecord
	}
	return b, err
}
