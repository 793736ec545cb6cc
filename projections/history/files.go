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

// The files in the folder. What is in the first three is a pure function of the log; the
// cursor says how much of them counts, and which position of the log that is.
const (
	recordsFile = "records" // blocks of records, compressed
	entriesFile = "entries" // entrySize bytes for every change in a block
	blocksFile  = "blocks"  // blockSize bytes for every block
	cursorFile  = "cursor"
)

const (
	format = 1
	// blockBytes is the size before compression from which on a block is complete.
	blockBytes = 8 << 10
	blockSize  = 8 + 8 + 4 // on disk: offset, first revision, first seq
	// A block in the file: its checksum, its first seq, and the records compressed by S2.
	blockHeader = 4 + 4
)

// blockRef is where a block begins.
type blockRef struct {
	first     seq
	low, high uint32 // of its offset
}

func (r *blockRef) offset() int64 { return int64(r.high)<<32 | int64(r.low) }

// run says that changes from first on have consecutive revisions.
type run struct {
	first    seq
	revision uint64
}

// cursor is what the cursor file holds, in JSON with a checksum on a line of its own.
type cursor struct {
	Format int `json:"format"`
	// A position of the log, and how many changes there are up to it.
	Log      string `json:"log"`
	Epoch    uint64 `json:"epoch,omitempty"`
	Revision uint64 `json:"revision"`
	Hash     string `json:"hash"`
	Changes  seq    `json:"changes"`
	// What is in the files, which may be more than that: then it is of the batch with hash Partial.
	Written seq    `json:"written"`
	Partial string `json:"partial,omitempty"`
	Blocks  uint32 `json:"blocks"`
	Records int64  `json:"records"`
	// Checksums of the other two files.
	EntriesSum uint32  `json:"entriesSum"`
	BlocksSum  uint32  `json:"blocksSum"`
	Epochs     []Epoch `json:"epochs,omitempty"`
	// ClockSets up to there.
	ClockSets eventlog.ClockSets `json:"clockSets,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// kept is one history of a log: the files, and the memory that belongs to them. One
// goroutine writes; readers hold a view of it.
type kept struct {
	dir    string
	prints printer
	*index
	blocks column[blockRef] // of each block, and of the one that is not complete
	files  struct{ records, entries, blocks *os.File }
	cache  *lru.Cache[uint32, block]

	// What follows is the writer's.
	head    eventlog.Head
	changes seq           // up to head
	last    seq           // the newest change, of a batch that may not have been seen to its end
	folding eventlog.Hash // of that batch
	tail    block
	runs    []run
	epochs  []Epoch
	clocks  eventlog.ClockSets
	written cursor // what the files hold
	saved   cursor // what the cursor file says
	buffer  []byte
}

// open opens the folder, and finds what is in it that can be relied on. The error wraps
// errUnusable if that is nothing; then start may be called.
func open(dir string, start eventlog.Head) (k *kept, err error) {
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

// start begins anew in a folder.
func start(dir string, start eventlog.Head) (*kept, error) {
	for _, name := range []string{cursorFile, recordsFile, entriesFile, blocksFile} { // the cursor first, as the others are nothing without it
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return openFiles(dir, start, cursor{Format: format, Log: start.Log.String(), Epoch: start.Epoch, Revision: start.Revision, Hash: start.Hash.String()})
}

var (
	errUnusable = errors.New("what is in the folder cannot be used")
	errEmpty    = fmt.Errorf("%w: there is nothing", errUnusable)
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
		return cursor{}, fmt.Errorf("%w: the cursor is not one of this version", errUnusable)
	}
	return c, nil
}

func checksum(b []byte) string { return fmt.Sprintf("%08x\n", crc32.Checksum(b, castagnoli)) }

func openFiles(dir string, start eventlog.Head, c cursor) (_ *kept, err error) {
	k := &kept{dir: dir, prints: printer{start.Log}, index: newIndex(), cache: lru.New[uint32, block](cacheBytes), written: c, saved: c, epochs: c.Epochs, clocks: c.ClockSets}
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	k.head = eventlog.Head{Log: start.Log, Epoch: c.Epoch, Revision: c.Revision}
	if n, err := hex.Decode(k.head.Hash[:], []byte(c.Hash)); err != nil || n != len(k.head.Hash) {
		return nil, fmt.Errorf("%w: the cursor has hash %q", errUnusable, c.Hash)
	}
	for _, f := range []struct {
		file *(*os.File)
		name string
		size int64
	}{
		{&k.files.records, recordsFile, c.Records},
		{&k.files.entries, entriesFile, entrySize * int64(c.Written)},
		{&k.files.blocks, blocksFile, blockSize * int64(c.Blocks)},
	} {
		if *f.file, err = os.OpenFile(filepath.Join(dir, f.name), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return nil, err
		}
		info, err := (*f.file).Stat()
		if err != nil {
			return nil, err
		}
		if info.Size() < f.size {
			return nil, fmt.Errorf("%w: %s has %d bytes of %d", errUnusable, f.name, info.Size(), f.size)
		}
		if info.Size() > f.size { // what was written after the cursor
			if err := (*f.file).Truncate(f.size); err != nil {
				return nil, err
			}
		}
	}
	if err := k.load(); err != nil {
		return nil, err
	}
	k.changes, k.last = c.Changes, c.Written
	k.tail = block{first: c.Written + 1}
	*k.blocks.place(c.Blocks) = refOf(k.tail.first, c.Records)
	return k, nil
}

// load fills the memory from the files of entries and blocks.
func (k *kept) load() error {
	c := k.written
	data, err := readSummed(k.files.blocks, blockSize*int(c.Blocks), c.BlocksSum)
	if err != nil {
		return err
	}
	for i := range c.Blocks {
		b := data[blockSize*i:]
		first := binary.LittleEndian.Uint32(b[16:])
		*k.blocks.place(i) = refOf(first, int64(binary.LittleEndian.Uint64(b)))
		k.runs = follow(k.runs, first, binary.LittleEndian.Uint64(b[8:]))
	}
	if data, err = readSummed(k.files.entries, entrySize*int(c.Written), c.EntriesSum); err != nil {
		return err
	}
	for s := seq(1); s <= c.Written; s++ {
		e := decodeEntry(data[entrySize*(s-1):])
		if e.prev >= s || !k.index.add(s, e) {
			return fmt.Errorf("%w: change %d follows none of its name", errUnusable, s)
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

// follow appends a run if a revision does not continue the last one.
func follow(runs []run, s seq, revision uint64) []run {
	if n := len(runs); n > 0 && runs[n-1].revision+uint64(s-runs[n-1].first) == revision {
		return runs
	}
	return append(runs, run{s, revision})
}

// continues tells whether a revision is the one after that of the newest change.
func (k *kept) continues(revision uint64) bool {
	return len(follow(k.runs, k.last+1, revision)) == len(k.runs)
}

// flush writes the tail as a block if it is complete, or has to be. What fails may be tried
// again: the same bytes go to the same places.
func (k *kept) flush() error {
	packed := slices.Grow(k.buffer[:0], blockHeader+s2.MaxEncodedLen(len(k.tail.data)))[:blockHeader]
	records := s2.Encode(packed[blockHeader:cap(packed)], k.tail.data)
	packed = packed[:blockHeader+len(records)]
	binary.LittleEndian.PutUint32(packed[4:], k.tail.first)
	binary.LittleEndian.PutUint32(packed, crc32.Checksum(packed[4:], castagnoli))
	if len(packed) <= 4*blockBytes {
		k.buffer = packed
	}
	c := k.written
	if _, err := k.files.records.WriteAt(packed, c.Records); err != nil {
		return err
	}
	entries := make([]byte, 0, entrySize*len(k.tail.starts))
	for s := k.tail.first; s < k.tail.after(); s++ {
		entries = k.index.at(s).append(entries)
	}
	if _, err := k.files.entries.WriteAt(entries, entrySize*int64(c.Written)); err != nil {
		return err
	}
	ref := binary.LittleEndian.AppendUint64(make([]byte, 0, blockSize), uint64(c.Records))
	ref = binary.LittleEndian.AppendUint64(ref, revisionOf(k.runs, k.tail.first))
	ref = binary.LittleEndian.AppendUint32(ref, k.tail.first)
	if _, err := k.files.blocks.WriteAt(ref, blockSize*int64(c.Blocks)); err != nil {
		return err
	}
	k.written = cursor{
		Format: format, Log: k.head.Log.String(), Epoch: k.head.Epoch, Revision: k.head.Revision, Hash: k.head.Hash.String(), Changes: k.changes,
		Written: k.last, Partial: k.partial(), Blocks: c.Blocks + 1, Records: c.Records + int64(len(packed)), Epochs: k.epochs, ClockSets: k.clocks,
		EntriesSum: crc32.Update(c.EntriesSum, castagnoli, entries), BlocksSum: crc32.Update(c.BlocksSum, castagnoli, ref),
	}
	k.tail = newBlock(k.last + 1)
	*k.blocks.place(k.written.Blocks) = refOf(k.tail.first, k.written.Records)
	return nil
}

// partial is the hash of a batch of which there is only the beginning.
func (k *kept) partial() string {
	if k.last == k.changes {
		return ""
	}
	return k.folding.String()
}

// continuedBy tells whether a batch, which follows head, may be what has been written of it.
func (k *kept) continuedBy(b *eventlog.Batch) bool {
	return k.last == k.changes || b.Hash.String() == k.written.Partial
}

// unsaved is how much has been written since the cursor was.
func (k *kept) unsaved() int64 { return k.written.Records - k.saved.Records }

// save makes the files durable, and then the cursor that says so.
func (k *kept) save() error {
	if k.unsaved() == 0 {
		return nil
	}
	for _, f := range []*os.File{k.files.records, k.files.entries, k.files.blocks} {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	text, err := json.Marshal(k.written)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(k.dir, cursorFile), append(append(text, '\n'), checksum(text)...), 0o600); err != nil {
		return err
	}
	k.saved = k.written
	return nil
}

func (k *kept) close() error {
	var errs []error
	for _, f := range []*os.File{k.files.records, k.files.entries, k.files.blocks} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// readBlock reads and unpacks block i.
func (k *kept) readBlock(i uint32) (block, error) {
	ref, next := k.blocks.at(i), k.blocks.at(i+1)
	packed := make([]byte, next.offset()-ref.offset())
	if _, err := k.files.records.ReadAt(packed, ref.offset()); err != nil {
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
