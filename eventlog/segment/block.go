package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

var errShort = errors.New("a block ends within a record")

// cut reads varints and byte strings from the front of a block. After the first error it returns zeros.
type cut struct {
	b   []byte
	err error
}

func (c *cut) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.b, c.err = nil, errShort
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cut) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.b, c.err = nil, errShort
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

// count reads the number of things that take at least one byte each.
func (c *cut) count() int {
	n := c.uvarint()
	if n > uint64(len(c.b)) {
		c.b, c.err = nil, errShort
		return 0
	}
	return int(n)
}

// logBlock is a decompressed block of the .log file. Invariant: it has at least one record.
type logBlock struct {
	records []record
	after   eventlog.Hash // hash of the last batch
	ordinal uint64        // of the first batch
}

type record struct {
	revision  uint64 // less the segment's first
	gap       *Gap   // then the other fields are empty
	revisions uint64
	header    []byte
	entries   []entry
}

type entry struct {
	metadata []byte
	blobs    [][]byte // encoded logpb.Blob without salt and content
}

// hash returns the hash of a batch: the one that the next record continues.
func (b *logBlock) hash(i int) eventlog.Hash {
	if i+1 == len(b.records) {
		return b.after
	}
	next := &b.records[i+1]
	if next.gap != nil {
		return next.gap.Before.Hash
	}
	return previousOf(next.header)
}

// The fields of logpb.Header that are read without decoding it.
const (
	revisionsField = 5
	previousField  = 7
)

// previousOf returns the hash of the previous batch from an encoded logpb.Header; zeros if there is none.
func previousOf(header []byte) (previous eventlog.Hash) {
	if _, value := headerField(header, previousField); len(value) == len(previous) {
		previous = eventlog.Hash(value)
	}
	return previous
}

// headerField returns the last value of a field of a header, as a number or as bytes.
func headerField(header []byte, field protowire.Number) (number uint64, value []byte) {
	for len(header) > 0 {
		at, kind, n := protowire.ConsumeTag(header)
		if n < 0 {
			return number, value
		}
		header = header[n:]
		n = protowire.ConsumeFieldValue(at, kind, header)
		if n < 0 {
			return number, value
		}
		if at == field && kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(header)
		} else if at == field && kind == protowire.VarintType {
			number, _ = protowire.ConsumeVarint(header)
		}
		header = header[n:]
	}
	return number, value
}

// logBlock returns a block of the .log file.
func (s *Segment) logBlock(x *logIndex, i int) (*logBlock, error) {
	return cached(s.cache, s.log, i, func() (*logBlock, int, error) {
		b, err := withFile(s.log, func(r io.ReaderAt) (*logBlock, error) {
			plain, err := x.blocks[i].read(r)
			if err != nil {
				return nil, err
			}
			b, err := parseLogBlock(s.info.Log, plain, x.first[i], x.after[i])
			if err == nil {
				b.ordinal = s.info.Ordinal + x.before[i]
			}
			return b, err
		})
		if err != nil {
			return nil, 0, err
		}
		cost := int(x.blocks[i].plain)
		for j := range b.records {
			cost += 96 + 72*len(b.records[j].entries)
		}
		return b, cost, nil
	})
}

// parseLogBlock parses a block whose first record is at a revision and whose last batch has a hash.
func parseLogBlock(log eventlog.ID, plain []byte, first uint64, after eventlog.Hash) (*logBlock, error) {
	b := &logBlock{after: after}
	c := &cut{b: plain}
	for len(c.b) > 0 {
		r := record{revision: c.uvarint()}
		switch c.uvarint() {
		case batchRecord:
			c.batch(&r)
		case gapRecord:
			gap, err := decodeGap(log, c.bytes(c.uvarint()))
			if err != nil && c.err == nil {
				c.err = err
			}
			r.gap = gap
		default:
			return nil, errors.New("a block has an unknown kind of record")
		}
		if c.err != nil {
			return nil, c.err
		}
		if n := len(b.records); n == 0 && r.revision != first || n > 0 && r.revision <= b.records[n-1].revision {
			return nil, errors.New("the records of a block do not ascend")
		}
		b.records = append(b.records, r)
	}
	if len(b.records) == 0 {
		return nil, errors.New("a block is empty")
	}
	return b, nil
}

// batch reads the record of a batch after its kind.
func (c *cut) batch(r *record) {
	r.header = c.bytes(c.uvarint())
	r.revisions, _ = headerField(r.header, revisionsField)
	r.entries = make([]entry, c.count())
	for i := range r.entries {
		e := &r.entries[i]
		e.metadata = c.bytes(c.uvarint())
		if n := c.count(); n > 0 {
			e.blobs = make([][]byte, n)
		}
		for j := range e.blobs {
			e.blobs[j] = c.bytes(c.uvarint())
		}
	}
}

// parts makes a batch from its record and its payloads, and checks that its hash is the one that the next batch
// continues.
func (s *Segment) parts(f *fetcher, b *logBlock, i int) (*eventlog.Parts, error) {
	r := &b.records[i]
	entries := make([]eventlog.Part, len(r.entries))
	revision := r.revision
	for j := range r.entries {
		e := &r.entries[j]
		part := &entries[j]
		if err := part.Scan(e.metadata); err != nil {
			return nil, s.damagedLog(err)
		}
		of := kind{part.Group, part.Resource}
		if len(e.blobs) > 0 {
			part.Blobs = make([]eventlog.Blob, len(e.blobs))
		}
		for k := range e.blobs {
			if err := f.blob(&part.Blobs[k], e.blobs[k], of, revision, k); err != nil {
				return nil, err
			}
		}
		revision += part.Span
	}
	p, err := eventlog.Join(s.info.First+r.revision, r.header, entries)
	if err == nil {
		switch {
		case p.Log != s.info.Log:
			err = fmt.Errorf("the batch at revision %d is of log %v", p.First, p.Log)
		case p.Hash != b.hash(i):
			err = fmt.Errorf("the batch at revision %d has another hash than the log", p.First)
		}
	}
	return p, s.damagedLog(err)
}

// fetcher gets payloads, mostly in ascending order. It is not safe for concurrent use.
type fetcher struct {
	s     *Segment
	index *payloadIndex
	last  map[kind]*payloadBlock
	// blocks and payloads count what was loaded.
	blocks, payloads int
}

func (s *Segment) fetcher() *fetcher {
	return &fetcher{s: s, last: map[kind]*payloadBlock{}}
}

// blob makes payload i of an event about an object of a kind, from its description and from the .payloads file.
func (f *fetcher) blob(b *eventlog.Blob, description []byte, k kind, revision uint64, i int) error {
	if len(description) > 0 {
		pb := new(logpb.Blob)
		if err := proto.Unmarshal(description, pb); err != nil {
			return f.s.damagedLog(err)
		}
		b.KeyID, b.Hash, b.Gone = pb.GetKeyId(), pb.GetHash(), pb.GetGone()
	}
	if b.Gone {
		return nil
	}
	key, err := keyOf(revision, i)
	if err != nil {
		return f.s.damagedLog(err)
	}
	p, err := f.find(k, key)
	b.Salt, b.Content = p.salt, p.content
	return err
}

// find returns the payload with a key.
func (f *fetcher) find(k kind, key uint64) (payload, error) {
	block := f.last[k]
	if block == nil || key < block.keys[0] || key > block.keys[len(block.keys)-1] {
		var err error
		if block, err = f.load(k, key); err != nil {
			return payload{}, err
		}
		f.last[k] = block
		f.blocks++
		f.payloads += len(block.keys)
	}
	if i, found := slices.BinarySearch(block.keys, key); found {
		return block.payload(i), nil
	}
	return payload{}, f.missing(k, key)
}

func (f *fetcher) missing(k kind, key uint64) error {
	return &DamagedError{f.s.paid, fmt.Sprintf("payload %d of the event at revision %d is not among those of %q", key&(1<<keyBits-1), f.s.info.First+key>>keyBits, k.resource)}
}

// load returns the block of a kind in which a key is.
func (f *fetcher) load(k kind, key uint64) (*payloadBlock, error) {
	if f.index == nil {
		x, err := f.s.payloadIndex()
		if err != nil {
			return nil, err
		}
		f.index = x
	}
	rows := f.index.of[k]
	i := sort.Search(len(rows), func(i int) bool { return f.index.rows[rows[i]].last >= key })
	if i == len(rows) || f.index.rows[rows[i]].first > key {
		return nil, f.missing(k, key)
	}
	return f.s.payloadBlock(&f.index.rows[rows[i]], rows[i])
}

// payloadBlock is a decompressed block of the .payloads file. Invariant: keys ascend, and there is at least one.
type payloadBlock struct {
	keys     []uint64
	salts    []uint32 // salts[i]:salts[i+1] are the bounds of the salt in plain
	contents []uint32
	plain    []byte
}

func (b *payloadBlock) payload(i int) payload {
	return payload{b.keys[i], b.plain[b.salts[i]:b.salts[i+1]:b.salts[i+1]], b.plain[b.contents[i]:b.contents[i+1]:b.contents[i+1]]}
}

// payloadBlock returns the block of a row of the index.
func (s *Segment) payloadBlock(row *payloadRow, number int) (*payloadBlock, error) {
	return cached(s.cache, s.paid, number, func() (*payloadBlock, int, error) {
		b, err := withFile(s.paid, func(r io.ReaderAt) (*payloadBlock, error) {
			plain, err := row.read(r)
			if err != nil {
				return nil, err
			}
			b, err := parsePayloadBlock(plain)
			if err == nil && (b.keys[0] != row.first || b.keys[len(b.keys)-1] != row.last) {
				err = fmt.Errorf("the block at byte %d has other keys than the index", row.offset)
			}
			return b, err
		})
		if err != nil {
			return nil, 0, err
		}
		return b, int(row.plain) + 16*len(b.keys) + 100, nil
	})
}

func parsePayloadBlock(plain []byte) (*payloadBlock, error) {
	c := &cut{b: plain}
	n := c.count()
	if n == 0 {
		return nil, errors.New("a block is empty")
	}
	b := &payloadBlock{keys: make([]uint64, n), salts: make([]uint32, n+1), contents: make([]uint32, n+1), plain: plain}
	key, salts, contents := uint64(0), uint64(0), uint64(0)
	for i := range n {
		delta := c.uvarint()
		if key += delta; i > 0 && (delta == 0 || key < delta) {
			return nil, errors.New("the keys of a block do not ascend")
		}
		b.keys[i] = key
		salts += c.uvarint()
		contents += c.uvarint()
		if salts > maxBlock || contents > maxBlock {
			return nil, errShort
		}
		b.salts[i+1], b.contents[i+1] = uint32(salts), uint32(contents)
	}
	if c.err != nil || salts+contents != uint64(len(c.b)) {
		return nil, errShort
	}
	at := uint32(len(plain) - len(c.b))
	for i := range b.salts {
		b.salts[i] += at
		b.contents[i] += at + uint32(salts)
	}
	return b, nil
}
