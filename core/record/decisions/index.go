package decisions

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"

	"stele.dev/stele/eventlog"
)

// indexFolder is where the index is, in the folder of the log.
const indexFolder = "index"

// perFile is how many audit IDs a file of the index has.
const perFile = 64 << 10

// place says in which batch an audit ID may be: many IDs have the same hash.
type place struct{ hash, revision uint64 }

const placeSize = 16

// index finds the batches with an audit ID, and those that may have a user or a rule (see block). The newest IDs are in memory. Older ones are in files, each with the sorted
// places of a span of revisions and a checksum; a file that is damaged or missing is made again from the log. It is safe
// for concurrent use.
type index struct {
	dir string

	mu     sync.Mutex
	files  []indexFile // ascending
	from   uint64      // first revision of what is in memory
	to     uint64      // last revision that is indexed
	recent []place
	blocks []block // ascending, of revisions up to open
	open   block   // of the newest revisions
}

// indexFile has the places of the revisions from..to.
type indexFile struct {
	from, to uint64
	name     string
}

// openIndex reads the index, and completes it from the log up to its tip.
func openIndex(ctx context.Context, dir string, log eventlog.Reader, tip eventlog.Head) (*index, error) {
	x := &index{dir: dir, from: 1}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries { // in order of their names
		f := indexFile{name: filepath.Join(dir, e.Name())}
		if n, err := fmt.Sscanf(e.Name(), "%020d-%020d.ids", &f.from, &f.to); n != 2 || err != nil {
			continue
		}
		if f.to > tip.Revision || f.from > x.from && len(x.files) > 0 || f.from < x.from {
			_ = os.Remove(f.name) // it is of another log, or was replaced
			_ = os.Remove(blocksFile(f.name))
			continue
		}
		x.files, x.from, x.to = append(x.files, f), f.to+1, f.to
		x.loadBlocks(f)
	}
	if n := len(x.files); n > 0 { // go on with the last one if it is not full
		last := x.files[n-1]
		places, err := readPlaces(last.name)
		if err != nil || len(places) < perFile {
			x.files, x.from, x.recent = x.files[:n-1], last.from, places
			if err != nil {
				x.to = last.from - 1
				x.blocks = slices.DeleteFunc(x.blocks, func(b block) bool { return b.to > x.to })
			}
		}
	}
	return x, x.complete(ctx, log, tip)
}

// complete adds what the log has and the index has not, backwards, so that the log need not be read from its start.
func (x *index) complete(ctx context.Context, log eventlog.Reader, tip eventlog.Head) error {
	var missing []*eventlog.Batch
	for at := tip.Revision; at > x.to; {
		batches, err := log.Back(ctx, at, 64)
		if errors.As(err, new(*eventlog.ForgottenError)) || err == nil && len(batches) == 0 {
			break
		}
		if err != nil {
			return err
		}
		for _, b := range batches {
			if b.Last() <= x.to {
				at = 0
				break
			}
			if len(b.Events) > 0 {
				missing = append(missing, b)
			}
			at = b.First - 1
		}
		if len(missing) > 4*perFile {
			break
		}
	}
	for _, b := range slices.Backward(missing) {
		x.add(b)
	}
	return nil
}

func hashOf(auditID string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(auditID))
	return h.Sum64()
}

// add indexes the events of a batch.
func (x *index) add(b *eventlog.Batch) {
	x.mu.Lock()
	if len(x.recent) == 0 && x.to == 0 {
		x.from = min(x.from, b.First)
	}
	for _, e := range b.Events {
		if id := e.Meta.GetRequest().GetAuditId(); id != "" {
			x.recent = append(x.recent, place{hashOf(id), b.First})
		}
	}
	x.addBlock(b)
	x.to = b.Last()
	full := len(x.recent) >= perFile
	x.mu.Unlock()
	if full {
		_ = x.save() // what is not saved is made again by the next start
	}
}

// save writes what is in memory to a file, and keeps it in memory if that fails or if the file is not full.
func (x *index) save() error {
	x.mu.Lock()
	f := indexFile{from: x.from, to: x.to}
	places := slices.Clone(x.recent)
	x.mu.Unlock()
	if f.to < f.from || len(places) == 0 {
		return nil
	}
	f.name = filepath.Join(x.dir, fmt.Sprintf("%020d-%020d.ids", f.from, f.to))
	if err := errors.Join(writePlaces(f.name, places), x.saveBlocks(f)); err != nil {
		return err
	}
	x.removeOthers(f)
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(places) >= perFile {
		x.files, x.recent, x.from = append(x.files, f), slices.Clone(x.recent[len(places):]), f.to+1
	}
	return nil
}

// removeOthers removes the files that a new one replaces.
func (x *index) removeOthers(f indexFile) {
	entries, err := os.ReadDir(x.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if name := filepath.Join(x.dir, e.Name()); f.replaces(name) {
			_ = os.Remove(name)
		}
	}
}

// forget removes the files of batches that are not kept any more.
func (x *index) forget(oldest uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for n < len(x.files) && x.files[n].to <= oldest {
		n++
	}
	x.forgetBlocks(oldest)
	gone := x.files[:n]
	x.files = x.files[n:]
	for _, f := range gone {
		for _, name := range []string{f.name, blocksFile(f.name)} {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// find returns the first revisions of batches that may have an audit ID, the newest first.
func (x *index) find(auditID string) (revisions []uint64) {
	hash := hashOf(auditID)
	x.mu.Lock()
	for _, p := range slices.Backward(x.recent) {
		if p.hash == hash {
			revisions = append(revisions, p.revision)
		}
	}
	files := slices.Clone(x.files)
	x.mu.Unlock()
	for _, f := range slices.Backward(files) {
		found, _ := searchPlaces(f.name, hash) // a file that is gone or damaged finds nothing
		slices.Reverse(found)
		revisions = append(revisions, found...)
	}
	return slices.Compact(revisions)
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.revision, b.revision))
}

// writePlaces writes a file: the sorted places, integers big-endian, and a CRC-32C.
func writePlaces(name string, places []place) error {
	slices.SortFunc(places, comparePlaces)
	text := make([]byte, 0, len(places)*placeSize+4)
	for _, p := range places {
		text = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(text, p.hash), p.revision)
	}
	text = binary.BigEndian.AppendUint32(text, crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return errors.Join(err, os.Remove(name+".new"))
	}
	return os.Rename(name+".new", name)
}

func readPlaces(name string) ([]place, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	n := (len(text) - 4) / placeSize
	if len(text) < 4 || len(text) != n*placeSize+4 || crc32.Checksum(text[:n*placeSize], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(text[n*placeSize:]) {
		return nil, fmt.Errorf("%s is damaged", name)
	}
	places := make([]place, n)
	for i := range places {
		places[i] = placeAt(text[i*placeSize:])
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.revision, b.revision) })
	return places, nil
}

func placeAt(text []byte) place {
	return place{binary.BigEndian.Uint64(text), binary.BigEndian.Uint64(text[8:])}
}

// searchPlaces returns the revisions of a hash in a file, ascending. It reads a few places only.
func searchPlaces(name string, hash uint64) (revisions []uint64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	n := int((info.Size() - 4) / placeSize)
	at := func(i int) place {
		var text [placeSize]byte
		if _, readErr := f.ReadAt(text[:], int64(i)*placeSize); readErr != nil {
			err = readErr
		}
		return placeAt(text[:])
	}
	for i := sort.Search(n, func(i int) bool { return at(i).hash >= hash }); i < n && err == nil; i++ {
		p := at(i)
		if p.hash != hash {
			break
		}
		revisions = append(revisions, p.revision)
	}
	return revisions, err
}
