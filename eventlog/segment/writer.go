package segment

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/transparency-dev/merkle/compact"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/segment/segmentpb"
)

// Writer writes the two files of a segment. It is not safe for concurrent use.
type Writer struct {
	info     Info
	tree     *compact.Range
	groups   map[kind]*Group
	log      *logWriter
	payloads *payloadWriter
}

// kind names the objects whose payloads are in the same blocks.
type kind struct{ group, resource string }

// NewWriter begins a segment at a position of the log, before which there are ordinal batches. The writers get its .log
// file and its .payloads file.
func NewWriter(log, payloads io.Writer, before eventlog.Head, ordinal uint64) *Writer {
	return &Writer{
		info:   Info{Log: before.Log, Before: before, After: before, Kept: before, Ordinal: ordinal},
		tree:   ranges.NewEmptyRange(ordinal),
		groups: map[kind]*Group{},
		log:    newLogWriter(log), payloads: newPayloadWriter(payloads),
	}
}

// Revisions returns the number of revisions of the batches so far.
func (w *Writer) Revisions() uint64 { return w.info.Revisions }

// Plain returns the number of bytes of the events so far, before compression.
func (w *Writer) Plain() int64 { return w.info.Plain }

// After returns the position after the last batch.
func (w *Writer) After() eventlog.Head { return w.info.After }

// Add appends the batch that follows. The error is of a batch that does not follow, or of the files.
func (w *Writer) Add(p *eventlog.Parts) error {
	if err := p.Follows(w.info.After); err != nil {
		return err
	}
	i := &w.info
	if i.Batches == 0 {
		i.First, i.FirstTime = p.First, p.Time
	}
	if err := w.noteDetails(p); err != nil {
		return err
	}
	must(w.tree.Append(LeafHash(p.Hash), nil))
	i.After, i.LastTime = p.Head(), p.Time
	i.Batches++
	i.Events += uint64(len(p.Entries))
	i.Revisions += p.Revisions
	i.Plain += int64(p.Plain)
	w.log.batch(p.First-i.First, p, p.Hash)
	for j := range p.Entries {
		if err := w.addPayloads(&p.Entries[j]); err != nil {
			return err
		}
	}
	return cmp.Or(w.log.err, w.payloads.err)
}

// noteDetails records epochs and clock sets, which are about no object and begin their batch.
func (w *Writer) noteDetails(p *eventlog.Parts) error {
	if p.Entries[0].Resource != "" {
		return nil
	}
	b, err := p.Decode()
	if err != nil {
		return err
	}
	if started := b.Events[0].Meta.GetEpochStarted(); started != nil {
		w.info.Epochs = append(w.info.Epochs, Epoch{started.GetLostFrom(), started.GetNext()})
	}
	w.info.ClockSets = w.info.ClockSets.After(b)
	return nil
}

// addPayloads adds the payloads of an event that are there.
func (w *Writer) addPayloads(e *eventlog.Part) error {
	k := kind{e.Group, e.Resource}
	g := w.groups[k]
	if g == nil {
		g = &Group{Group: e.Group, Resource: e.Resource}
		w.groups[k] = g
	}
	g.Events++
	g.Metadata += int64(len(e.Metadata))
	for i := range e.Blobs {
		b := &e.Blobs[i]
		if b.Gone {
			continue
		}
		key, err := keyOf(e.Revision-w.info.First, i)
		if err != nil {
			return err
		}
		g.Payloads++
		g.Plain += int64(len(b.Content))
		w.payloads.add(k, payload{key, b.Salt, b.Content})
	}
	return nil
}

// Finish completes the files and describes them.
func (w *Writer) Finish() (*Info, error) {
	i := &w.info
	if i.Batches == 0 {
		return nil, fmt.Errorf("segment: there is no batch after %v", i.Before)
	}
	i.Tree = w.tree.Hashes()
	i.KeptBatches, i.KeptEvents = i.Batches, i.Events
	for _, g := range w.groups {
		i.Groups = append(i.Groups, *g)
	}
	return i, finish(i, w.log, w.payloads)
}

// finish writes the footers and completes an info with the files and what is stored of each group.
func finish(i *Info, log *logWriter, payloads *payloadWriter) (err error) {
	i.Epoch, i.Last = i.After.Epoch, i.After.Revision
	slices.SortFunc(i.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	if i.Files[1], err = payloads.finish(); err != nil {
		return err
	}
	for j := range i.Groups {
		i.Groups[j].Stored = payloads.stored[kind{i.Groups[j].Group, i.Groups[j].Resource}]
	}
	i.Files[0], err = log.finish(i.encode())
	name := Name(i.First, i.Last, i.Generation)
	i.Files[0].Name, i.Files[1].Name = name+LogFile, name+PayloadsFile
	return err
}

// Kinds of records in the .log file.
const (
	batchRecord = 0
	gapRecord   = 1
)

// logWriter writes the .log file.
type logWriter struct {
	*frameWriter
	index   segmentpb.LogIndex
	pending []byte // the block that is not complete
	first   uint64 // of the block's first record, less the segment's first
	batches uint64 // in the block
	total   uint64 // batches in all blocks
	after   eventlog.Hash
	last    uint64 // what first was in the block before
}

func newLogWriter(w io.Writer) *logWriter {
	return &logWriter{frameWriter: newFrameWriter(w, logMagic)}
}

// batch appends the record of a batch whose hash is given: p may lack payloads, so that its own cannot be known.
func (l *logWriter) batch(revision uint64, p *eventlog.Parts, hash eventlog.Hash) {
	l.begin(revision)
	l.pending = binary.AppendUvarint(l.pending, batchRecord)
	l.pending = appendBytes(l.pending, p.Header)
	l.pending = binary.AppendUvarint(l.pending, uint64(len(p.Entries)))
	for i := range p.Entries {
		e := &p.Entries[i]
		l.pending = appendBytes(l.pending, e.Metadata)
		l.pending = binary.AppendUvarint(l.pending, uint64(len(e.Blobs)))
		for j := range e.Blobs {
			l.pending = appendDescription(l.pending, &e.Blobs[j])
		}
	}
	l.end(1, hash)
}

// record appends the record of a batch as it is in another segment.
func (l *logWriter) record(revision uint64, header []byte, entries []entry, hash eventlog.Hash) {
	l.begin(revision)
	l.pending = binary.AppendUvarint(l.pending, batchRecord)
	l.pending = appendBytes(l.pending, header)
	l.pending = binary.AppendUvarint(l.pending, uint64(len(entries)))
	for i := range entries {
		l.pending = appendBytes(l.pending, entries[i].metadata)
		l.pending = binary.AppendUvarint(l.pending, uint64(len(entries[i].blobs)))
		for _, description := range entries[i].blobs {
			l.pending = appendBytes(l.pending, description)
		}
	}
	l.end(1, hash)
}

// gap appends the record of a gap.
func (l *logWriter) gap(revision uint64, g *Gap) {
	l.begin(revision)
	l.pending = binary.AppendUvarint(l.pending, gapRecord)
	l.pending = appendBytes(l.pending, g.encode())
	l.end(g.Batches, g.After.Hash)
}

func (l *logWriter) begin(revision uint64) {
	if len(l.pending) == 0 {
		l.first = revision
	}
	l.pending = binary.AppendUvarint(l.pending, revision)
}

func (l *logWriter) end(batches uint64, after eventlog.Hash) {
	l.batches += batches
	l.total += batches
	if l.after = after; len(l.pending) >= blockBytes {
		l.flush()
	}
}

func (l *logWriter) flush() {
	if len(l.pending) == 0 {
		return
	}
	length, crc := l.block(l.pending)
	x := &l.index
	x.First, x.Length, x.Plain = append(x.First, l.first-l.last), append(x.Length, length), append(x.Plain, uint32(len(l.pending)))
	x.Crc, x.Batches, x.After = append(x.Crc, crc), append(x.Batches, l.batches), append(x.After, l.after[:]...)
	l.last, l.batches, l.pending = l.first, 0, l.pending[:0]
}

func (l *logWriter) finish(info []byte) (File, error) {
	l.flush()
	return l.frameWriter.finish(marshal(&l.index), info)
}

// appendDescription appends a blob without salt and content.
func appendDescription(to []byte, b *eventlog.Blob) []byte {
	if !b.Gone && b.KeyID == "" {
		return binary.AppendUvarint(to, 0)
	}
	return appendBytes(to, appendBlob(nil, b))
}

// appendBlob appends an encoded logpb.Blob without salt and content.
func appendBlob(to []byte, b *eventlog.Blob) []byte {
	return append(to, marshal(&logpb.Blob{KeyId: b.KeyID, Hash: b.Hash, Gone: b.Gone})...)
}

func appendBytes(to, b []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

func marshal(m proto.Message) []byte {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	must(err)
	return encoded
}

// payload is what the .payloads file has of one payload.
type payload struct {
	key           uint64
	salt, content []byte
}

const keyBits = 16 // for the index of the payload in the event

func keyOf(revision uint64, index int) (uint64, error) {
	if revision>>(64-keyBits) > 0 || index>>keyBits > 0 {
		return 0, fmt.Errorf("segment: payload %d of the event %d revisions after the first cannot be numbered", index, revision)
	}
	return revision<<keyBits | uint64(index), nil
}

// payloadWriter writes the .payloads file.
type payloadWriter struct {
	*frameWriter
	index   segmentpb.PayloadIndex
	numbers map[kind]uint32
	pending map[kind]*pendingBlock
	order   []kind // of pending: the order in which the log names them
	stored  map[kind]int64
	plain   []byte
}

// pendingBlock is a block that is not complete. Its bytes are copies.
type pendingBlock struct {
	count                      uint64
	first, last                uint64 // keys
	directory, salts, contents []byte
}

func newPayloadWriter(w io.Writer) *payloadWriter {
	return &payloadWriter{
		frameWriter: newFrameWriter(w, payloadsMagic),
		numbers:     map[kind]uint32{}, pending: map[kind]*pendingBlock{}, stored: map[kind]int64{},
	}
}

// add appends a payload to those of its kind. Its key is the largest so far.
func (w *payloadWriter) add(k kind, p payload) {
	b := w.pending[k]
	if b == nil {
		b = new(pendingBlock)
		w.pending[k] = b
		w.order = append(w.order, k)
	}
	if b.count == 0 {
		b.first, b.last = p.key, 0
	}
	b.directory = binary.AppendUvarint(b.directory, p.key-b.last)
	b.directory = binary.AppendUvarint(b.directory, uint64(len(p.salt)))
	b.directory = binary.AppendUvarint(b.directory, uint64(len(p.content)))
	b.salts = append(b.salts, p.salt...)
	b.contents = append(b.contents, p.content...)
	b.last = p.key
	if b.count++; len(b.directory)+len(b.salts)+len(b.contents) >= blockBytes {
		w.flush(k)
	}
}

// flush writes the block of a kind, if it has payloads.
func (w *payloadWriter) flush(k kind) {
	b := w.pending[k]
	if b == nil || b.count == 0 {
		return
	}
	w.plain = binary.AppendUvarint(w.plain[:0], b.count)
	w.plain = append(append(append(w.plain, b.directory...), b.salts...), b.contents...)
	length, crc := w.block(w.plain)
	w.indexed(k, b.first, b.last, blockAt{length: length, plain: uint32(len(w.plain)), crc: crc})
	*b = pendingBlock{directory: b.directory[:0], salts: b.salts[:0], contents: b.contents[:0]}
	if cap(b.contents) > 8*blockBytes { // of a large content
		b.contents = nil
	}
}

// copy appends a block of another file as it is.
func (w *payloadWriter) copy(k kind, first, last uint64, at blockAt, compressed []byte) {
	w.flush(k)
	w.write(compressed)
	w.indexed(k, first, last, at)
}

func (w *payloadWriter) indexed(k kind, first, last uint64, at blockAt) {
	x := &w.index
	number, known := w.numbers[k]
	if !known {
		number = uint32(len(x.Kinds))
		w.numbers[k] = number
		x.Kinds = append(x.Kinds, &segmentpb.Kind{Group: k.group, Resource: k.resource})
	}
	x.Kind, x.First, x.Last = append(x.Kind, number), append(x.First, first), append(x.Last, last)
	x.Length, x.Plain, x.Crc = append(x.Length, at.length), append(x.Plain, at.plain), append(x.Crc, at.crc)
	w.stored[k] += int64(at.length)
}

func (w *payloadWriter) finish() (File, error) {
	for _, k := range w.order {
		w.flush(k)
	}
	return w.frameWriter.finish(marshal(&w.index), nil)
}
