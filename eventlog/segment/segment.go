package segment

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"sort"

	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment/segmentpb"
	"stele.dev/stele/limits/lru"
)

// Segment reads one segment. It holds no open files; its methods are safe for concurrent use. If the files are removed
// meanwhile, as after a rewrite, methods return an error that is fs.ErrNotExist.
type Segment struct {
	info  Info
	log   string // paths
	paid  string
	cache *Cache
}

// Cache keeps the last used blocks and indexes of any number of segments in memory.
type Cache struct {
	values *lru.Cache[cacheKey, any]
}

type cacheKey struct {
	file  string
	block int // indexBlock for the index
}

const indexBlock = -1

// NewCache returns a cache of at most the given number of bytes.
func NewCache(bytes int) *Cache {
	return &Cache{values: lru.New[cacheKey, any](bytes)}
}

// cached returns a value of the cache, or makes it. A nil cache keeps nothing.
func cached[T any](c *Cache, file string, block int, load func() (T, int, error)) (T, error) {
	key := cacheKey{file, block}
	if c != nil {
		if v, ok := c.values.Get(key); ok {
			return v.(T), nil
		}
	}
	v, cost, err := load()
	if err == nil && c != nil {
		c.values.Add(key, v, cost)
	}
	return v, err
}

// Open opens the segment whose .log file is at a path, and reads its info. It checks the frames of both files, not their
// blocks. A file that is not as it was written is a [*DamagedError]. The cache may be nil.
//
// The Info lacks the hash of the .log file, which is not in the file itself: see [Sum].
func Open(path string, cache *Cache) (*Segment, error) {
	name := NameOf(path)
	s := &Segment{log: path, paid: filepath.Join(filepath.Dir(path), name+PayloadsFile), cache: cache}
	info, err := withFile(path, func(r io.ReaderAt) (*Info, error) {
		size := fileSize(r)
		f, err := readFooter(r, size, logMagic)
		if err != nil {
			return nil, err
		}
		encoded, err := f.readInfo(r)
		if err != nil {
			return nil, err
		}
		info, err := decodeInfo(encoded)
		if err == nil {
			info.Files[0].Size = size
		}
		return info, err
	})
	if err != nil {
		return nil, err
	}
	if want := Name(info.First, info.Last, info.Generation); want != name {
		return nil, &DamagedError{path, fmt.Sprintf("it is the segment %s", want)}
	}
	info.Files[0].Name, info.Files[1].Name = name+LogFile, name+PayloadsFile
	s.info = *info
	_, err = withFile(s.paid, func(r io.ReaderAt) (footer, error) {
		if size := fileSize(r); size != info.Files[1].Size {
			return footer{}, fmt.Errorf("it has %d bytes, not %d", size, info.Files[1].Size)
		}
		return readFooter(r, info.Files[1].Size, payloadsMagic)
	})
	return s, err
}

func fileSize(r io.ReaderAt) int64 {
	if stat, err := r.(*os.File).Stat(); err == nil {
		return stat.Size()
	}
	return 0
}

// Info says what the segment holds.
func (s *Segment) Info() Info { return s.info }

// SetSum sets the hash of the .log file that [Segment.Info] returns. It is called before the segment is shared.
func (s *Segment) SetSum(sum [32]byte) { s.info.Files[0].SHA256 = sum }

// Paths returns the paths of the .log file and the .payloads file.
func (s *Segment) Paths() [2]string { return [2]string{s.log, s.paid} }

// Sum returns the SHA-256 of a file.
func Sum(path string) (sum [32]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	return [32]byte(h.Sum(nil)), nil
}

// logIndex is the decoded index of the .log file. Invariant: len(first) == len(blocks) > 0, and first ascends.
type logIndex struct {
	blocks []blockAt
	first  []uint64 // revision of the first record, less the segment's first
	after  []eventlog.Hash
	before []uint64 // number of batches before the block, from the segment's first on
}

func (s *Segment) logIndex() (*logIndex, error) {
	return cached(s.cache, s.log, indexBlock, func() (*logIndex, int, error) {
		x, err := withFile(s.log, func(r io.ReaderAt) (*logIndex, error) {
			pb := new(segmentpb.LogIndex)
			end, err := readIndex(r, s.info.Files[0].Size, logMagic, pb)
			if err != nil {
				return nil, err
			}
			return decodeLogIndex(pb, end)
		})
		if err != nil {
			return nil, 0, err
		}
		return x, 72*len(x.blocks) + 200, nil
	})
}

// readIndex reads the index of a file and returns where the blocks end.
func readIndex(r io.ReaderAt, size int64, magic string, pb proto.Message) (end int64, err error) {
	f, err := readFooter(r, size, magic)
	if err != nil {
		return 0, err
	}
	encoded, err := f.readIndex(r)
	if err != nil {
		return 0, err
	}
	return f.blocks, proto.Unmarshal(encoded, pb)
}

func decodeLogIndex(pb *segmentpb.LogIndex, end int64) (*logIndex, error) {
	blocks, err := blocksAt(pb.GetLength(), pb.GetPlain(), pb.GetCrc(), end)
	if err != nil {
		return nil, err
	}
	n := len(blocks)
	if n == 0 || len(pb.GetFirst()) != n || len(pb.GetBatches()) != n || len(pb.GetAfter()) != n*len(eventlog.Hash{}) {
		return nil, errors.New("the index has columns of different lengths")
	}
	x := &logIndex{blocks: blocks, first: pb.GetFirst(), after: make([]eventlog.Hash, n), before: make([]uint64, n)}
	for i := range n {
		x.after[i] = eventlog.Hash(pb.GetAfter()[i*len(eventlog.Hash{}):])
		if i > 0 {
			if x.first[i] == 0 || x.first[i-1]+x.first[i] < x.first[i-1] {
				return nil, errors.New("the blocks of the index do not ascend")
			}
			x.first[i] += x.first[i-1]
			x.before[i] = x.before[i-1] + pb.GetBatches()[i-1]
		}
	}
	if x.first[0] != 0 {
		return nil, errors.New("the first block of the index does not begin the segment")
	}
	return x, nil
}

// find returns the last block that begins at the revision or before it.
func (x *logIndex) find(revision uint64) int {
	return max(0, sort.Search(len(x.first), func(i int) bool { return x.first[i] > revision })-1)
}

// payloadIndex is the decoded index of the .payloads file.
type payloadIndex struct {
	kinds []kind
	rows  []payloadRow
	of    map[kind][]int // rows of a kind; their keys ascend
}

type payloadRow struct {
	blockAt
	kind        uint32
	first, last uint64
}

func (s *Segment) payloadIndex() (*payloadIndex, error) {
	return cached(s.cache, s.paid, indexBlock, func() (*payloadIndex, int, error) {
		x, err := withFile(s.paid, func(r io.ReaderAt) (*payloadIndex, error) {
			pb := new(segmentpb.PayloadIndex)
			end, err := readIndex(r, s.info.Files[1].Size, payloadsMagic, pb)
			if err != nil {
				return nil, err
			}
			return decodePayloadIndex(pb, end)
		})
		if err != nil {
			return nil, 0, err
		}
		return x, 64*len(x.rows) + 100*len(x.kinds) + 200, nil
	})
}

func decodePayloadIndex(pb *segmentpb.PayloadIndex, end int64) (*payloadIndex, error) {
	blocks, err := blocksAt(pb.GetLength(), pb.GetPlain(), pb.GetCrc(), end)
	if err != nil {
		return nil, err
	}
	n := len(blocks)
	if len(pb.GetKind()) != n || len(pb.GetFirst()) != n || len(pb.GetLast()) != n {
		return nil, errors.New("the index has columns of different lengths")
	}
	x := &payloadIndex{of: map[kind][]int{}, rows: make([]payloadRow, n)}
	for _, k := range pb.GetKinds() {
		x.kinds = append(x.kinds, kind{k.GetGroup(), k.GetResource()})
	}
	for i, b := range blocks {
		r := payloadRow{b, pb.GetKind()[i], pb.GetFirst()[i], pb.GetLast()[i]}
		if int(r.kind) >= len(x.kinds) || r.first > r.last {
			return nil, fmt.Errorf("block %d of the index contradicts itself", i)
		}
		k := x.kinds[r.kind]
		if rows := x.of[k]; len(rows) > 0 && x.rows[rows[len(rows)-1]].last >= r.first {
			return nil, errors.New("the blocks of a kind do not ascend")
		}
		x.rows[i] = r
		x.of[k] = append(x.of[k], i)
	}
	return x, nil
}

// Item is one step of a segment: a batch, or a gap in their place.
type Item struct {
	Batch *eventlog.Batch // nil for a gap
	Gap   *Gap
	// Ordinal is the number of batches before it in the log.
	Ordinal uint64
}

// Metadata returns all batches that end behind revision `after`, in order, and the gaps between them. Contents are nil,
// as if all had been erased: the .payloads file is not read, and so the hashes are not computed again. The iteration
// ends after an error.
func (s *Segment) Metadata(ctx context.Context, after uint64) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for block, err := range s.logBlocks(ctx, after) {
			if err != nil {
				yield(Item{}, err)
				return
			}
			ordinal := block.ordinal
			for j := range block.records {
				item := Item{Gap: block.records[j].gap, Ordinal: ordinal}
				if item.Gap != nil {
					ordinal += item.Gap.Batches
				} else {
					ordinal++
				}
				if s.lastRevision(block, j) <= after {
					continue
				}
				if item.Gap == nil {
					item.Batch, err = s.metadata(block, j)
				}
				if !yield(item, err) || err != nil {
					return
				}
			}
		}
	}
}

// metadata decodes a record without its payloads.
func (s *Segment) metadata(b *logBlock, i int) (*eventlog.Batch, error) {
	r := &b.records[i]
	metadata := make([][]byte, len(r.entries))
	for j := range metadata {
		metadata[j] = r.entries[j].metadata
	}
	batch, err := eventlog.DecodeMetadata(s.info.First+r.revision, r.header, metadata, b.hash(i))
	if err == nil && batch.Log != s.info.Log {
		err = fmt.Errorf("the batch at revision %d is of log %v", batch.First, batch.Log)
	}
	return batch, s.damagedLog(err)
}

// lastRevision returns the last revision of a record, as far as the next one says it.
func (s *Segment) lastRevision(b *logBlock, i int) uint64 {
	r := &b.records[i]
	if r.gap != nil {
		return r.gap.After.Revision
	}
	return s.info.First + r.revision + r.revisions - 1
}

// After returns batches that end behind a revision, in order: those of one block of the .log file. If there are none in
// the segment, it returns none. gap is the gap directly before the first one, if it ends behind the revision.
func (s *Segment) After(ctx context.Context, revision uint64) (batches []*eventlog.Batch, gap *Gap, err error) {
	for step, err := range s.Verbatim(ctx, revision) {
		switch {
		case err != nil:
			return nil, nil, err
		case step.Gap != nil && len(batches) == 0:
			gap = step.Gap
		case step.Parts != nil:
			b, err := step.Parts.Decode()
			if err != nil {
				return nil, nil, s.damagedLog(err)
			}
			batches = append(batches, b)
		}
		if step.Block && len(batches) > 0 {
			break
		}
	}
	return batches, gap, nil
}

// Step is one step of [Segment.Verbatim]: a batch, or a gap in the place of some.
type Step struct {
	Parts *eventlog.Parts // nil for a gap
	Gap   *Gap
	Block bool // it is the last one of its block of the .log file
}

// Verbatim returns the batches that end behind a revision, in order, with their checked bytes, and the gaps between
// them. The iteration ends after an error.
func (s *Segment) Verbatim(ctx context.Context, after uint64) iter.Seq2[Step, error] {
	return s.verbatim(ctx, after, s.fetcher())
}

func (s *Segment) verbatim(ctx context.Context, after uint64, f *fetcher) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		for block, err := range s.logBlocks(ctx, after) {
			if err != nil {
				yield(Step{}, err)
				return
			}
			for j := range block.records {
				if s.lastRevision(block, j) <= after {
					continue
				}
				step := Step{Gap: block.records[j].gap, Block: j == len(block.records)-1}
				if step.Gap == nil {
					step.Parts, err = s.parts(f, block, j)
				}
				if !yield(step, err) || err != nil {
					return
				}
			}
		}
	}
}

// logBlocks returns the blocks of the .log file with records that end behind a revision, and perhaps one more before
// them. The iteration ends after an error.
func (s *Segment) logBlocks(ctx context.Context, after uint64) iter.Seq2[*logBlock, error] {
	return func(yield func(*logBlock, error) bool) {
		x, err := s.logIndex()
		if err != nil {
			yield(nil, err)
			return
		}
		for i := x.find(s.offset(after + 1)); i < len(x.blocks); i++ {
			block, err := s.logBlock(x, i)
			if err == nil {
				err = ctx.Err()
			}
			if !yield(block, err) || err != nil {
				return
			}
		}
	}
}

// Back returns up to max batches that begin at a revision or before it, the newest first. It passes over gaps.
func (s *Segment) Back(ctx context.Context, from uint64, max int) ([]*eventlog.Batch, error) {
	if from < s.info.First || max <= 0 {
		return nil, nil
	}
	x, err := s.logIndex()
	if err != nil {
		return nil, err
	}
	f := s.fetcher()
	var batches []*eventlog.Batch
	for i := x.find(from - s.info.First); i >= 0; i-- {
		block, err := s.logBlock(x, i)
		if err != nil {
			return nil, err
		}
		for j := len(block.records) - 1; j >= 0; j-- {
			if r := &block.records[j]; r.gap != nil || s.info.First+r.revision > from {
				continue
			}
			p, err := s.parts(f, block, j)
			if err != nil {
				return nil, err
			}
			b, err := p.Decode()
			if err != nil {
				return nil, s.damagedLog(err)
			}
			if batches = append(batches, b); len(batches) == max {
				return batches, nil
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return batches, nil
}

// offset returns a revision as the index has it.
func (s *Segment) offset(revision uint64) uint64 {
	return max(revision, s.info.First) - s.info.First
}

// damagedLog makes an error about the .log file of one that has no file. Other errors stay.
func (s *Segment) damagedLog(err error) error {
	var unsupported *eventlog.UnsupportedError
	if errors.As(err, &unsupported) {
		return err
	}
	return damaged(s.log, err)
}

// Of returns a segment that has been written: its info is as [Writer.Finish] returned it, and its files are at the given
// paths, the .log file first. The cache may be nil.
func Of(info Info, paths [2]string, cache *Cache) *Segment {
	return &Segment{info: info, log: paths[0], paid: paths[1], cache: cache}
}
