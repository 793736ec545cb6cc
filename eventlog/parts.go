package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog/logpb"
)

// Parts is a batch taken apart: the bytes that are hashed, verbatim, and the blobs. It is what has to be kept to make
// the same batch again. Its hash has been computed from these bytes, but the metadata has only been scanned, not
// decoded: see [Parts.Decode]. The slices may share memory with what Parts was made of, and MUST NOT be changed.
type Parts struct {
	// Batch has the fields of the header, and the hash. It has no events, and no size.
	Batch
	// Header is the encoded logpb.Header.
	Header []byte
	// Entries are the events, in order.
	Entries []Part
	// Plain is the size of the events before compression, as the log encodes them.
	Plain int
}

// Part is one event of [Parts].
type Part struct {
	Revision uint64 // the first one
	Span     uint64 // number of revisions
	// Group and Resource are those of the object; empty if the event is about none.
	Group, Resource string
	// Metadata is the encoded logpb.Metadata.
	Metadata []byte
	Blobs    []Blob

	sizes   []uint64 // of the payloads, by the metadata
	started bool     // the event starts an epoch
}

// Blob is a logpb.Blob without a message around it.
type Blob struct {
	Salt, Content []byte
	KeyID         string
	Hash          []byte
	Gone          bool
}

// PayloadHash returns the hash that stands for the payload in the event's hash, whether its content is there or not.
func (b *Blob) PayloadHash() (Hash, error) {
	if b.Gone || b.KeyID != "" {
		if len(b.Hash) != len(Hash{}) {
			return Hash{}, errors.New("neither plain content nor a hash")
		}
		return Hash(b.Hash), nil
	}
	if len(b.Salt) != saltSize {
		return Hash{}, fmt.Errorf("a salt of %d bytes", len(b.Salt))
	}
	return PayloadHash(b.Salt, b.Content), nil
}

// Erased returns the blob without its content: only the hash is left.
func (b *Blob) Erased() (Blob, error) {
	hash, err := b.PayloadHash()
	return Blob{Hash: hash[:], Gone: true}, err
}

// Split takes the stored batch apart whose first revision is `first`. It makes all checks of [DecodeBatch] except those
// that need decoded metadata. Errors are [*CorruptError] or [*UnsupportedError].
func Split(first uint64, value []byte) (*Parts, error) {
	corrupt := func(format string, args ...any) (*Parts, error) {
		return nil, &CorruptError{Revision: first, Reason: fmt.Sprintf(format, args...)}
	}
	var pb logpb.Batch
	if err := proto.Unmarshal(value, &pb); err != nil {
		return corrupt("%v", err)
	}
	if pb.GetFormat() > readable() {
		return nil, &UnsupportedError{Revision: first, What: fmt.Sprintf("format level %d", pb.GetFormat())}
	}
	h, err := decodeHeader(first, pb.GetHeader())
	if err != nil {
		return nil, err
	}
	if h.GetFormat() != pb.GetFormat() {
		return corrupt("format level %d in the header, %d outside", h.GetFormat(), pb.GetFormat())
	}
	plain, err := decompress(&pb)
	if err != nil {
		return corrupt("%v", err)
	}
	entries, err := splitEvents(plain, int(min(h.GetEvents(), uint32(len(plain)))))
	if err != nil {
		return corrupt("events: %v", err)
	}
	p, err := join(h, pb.GetHeader(), entries)
	if err != nil {
		return nil, err
	}
	p.Plain = len(plain)
	return p, nil
}

// Join makes the Parts of a batch from its header and its entries, of which only Metadata and Blobs are used. The
// entries belong to the Parts afterwards. It makes
// the same checks as [Split].
func Join(first uint64, header []byte, entries []Part) (*Parts, error) {
	h, err := decodeHeader(first, header)
	if err != nil {
		return nil, err
	}
	p, err := join(h, header, entries)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		n := entries[i].size()
		p.Plain += protowire.SizeTag(1) + protowire.SizeBytes(n)
	}
	return p, nil
}

// join fills in what a header and the metadata say, checks it, and computes the hash.
func join(h *logpb.Header, header []byte, entries []Part) (*Parts, error) {
	p := &Parts{Batch: headerFields(h), Header: header, Entries: entries}
	corrupt := func(format string, args ...any) (*Parts, error) {
		return nil, &CorruptError{Revision: p.First, Reason: fmt.Sprintf(format, args...)}
	}
	if len(entries) != int(h.GetEvents()) {
		return corrupt("%d events, its header says %d", len(entries), h.GetEvents())
	}
	leaves := merkle.NewEmptyRange(0)
	revision := p.First
	var hashes []Hash
	for i := range entries {
		e := &entries[i]
		if err := e.Scan(e.Metadata); err != nil {
			return corrupt("event %d: %v", i, err)
		}
		var err error
		if hashes, err = e.hashes(hashes[:0]); err != nil {
			return corrupt("event %d: %v", i, err)
		}
		leaf := LeafHash(e.Metadata, hashes)
		must(leaves.Append(leaf[:], nil))
		e.Revision = revision
		revision += e.Span
	}
	if revision-p.First != p.Revisions {
		return corrupt("events take %d revisions, its header says %d", revision-p.First, p.Revisions)
	}
	p.Hash = BatchHash(p.Previous, header, rootOf(leaves))
	return p, nil
}

// decodeHeader decodes the header of the batch at a revision, and checks it.
func decodeHeader(first uint64, header []byte) (*logpb.Header, error) {
	corrupt := func(format string, args ...any) (*logpb.Header, error) {
		return nil, &CorruptError{Revision: first, Reason: fmt.Sprintf(format, args...)}
	}
	h := new(logpb.Header)
	if err := proto.Unmarshal(header, h); err != nil {
		return corrupt("header: %v", err)
	}
	switch {
	case h.GetFormat() > readable():
		return nil, &UnsupportedError{Revision: first, What: fmt.Sprintf("format level %d", h.GetFormat())}
	case h.GetFormat() == 0:
		return corrupt("no format level in the header")
	case h.GetFirstRevision() != first:
		return corrupt("its header says revision %d", h.GetFirstRevision())
	case len(h.GetLogId()) != len(ID{}), len(h.GetWriter()) != len(ID{}), len(h.GetNonce()) != len(ID{}), len(h.GetPrevious()) != len(Hash{}):
		return corrupt("an id or hash in the header has the wrong length")
	case h.GetEvents() == 0:
		return corrupt("no events")
	}
	return h, nil
}

// headerFields returns a batch with the fields that a header has.
func headerFields(h *logpb.Header) Batch {
	return Batch{
		Log: ID(h.GetLogId()), Epoch: h.GetEpoch(), Format: h.GetFormat(), First: h.GetFirstRevision(), Revisions: h.GetRevisions(),
		Previous: Hash(h.GetPrevious()), Writer: ID(h.GetWriter()), Nonce: ID(h.GetNonce()),
		Time:  time.Unix(0, h.GetTimeUnixNano()).UTC(),
		Clock: time.Unix(0, h.GetClockUnixNano()).UTC(),
	}
}

// Decode decodes the events. Contents are copies; those that are sealed are nil until the Log opens them. Errors are [*CorruptError] or [*UnsupportedError].
func (p *Parts) Decode() (*Batch, error) {
	b := p.Batch
	b.Size, b.plain = p.Plain, p.Plain
	b.Events = make([]*Event, len(p.Entries))
	for i := range p.Entries {
		part := &p.Entries[i]
		e, err := part.decode(&b)
		if err != nil {
			return nil, err
		}
		if len(part.Blobs) != len(e.Meta.GetPayloads()) || e.Span() != part.Span {
			return nil, &CorruptError{Revision: part.Revision, Reason: "its metadata has two encodings of one field"}
		}
		for j := range part.Blobs {
			switch blob := &part.Blobs[j]; {
			case blob.Gone:
			case blob.KeyID != "":
				b.addSealed(i, j, blob)
			default:
				e.Contents[j] = append([]byte{}, blob.Content...) // not nil, which would mean that it has been erased
			}
		}
		b.Events[i] = e
	}
	return &b, nil
}

// DecodeMetadata decodes a batch without the contents of its events: they are nil, as if all had been erased. It is
// for readers that have the hash of the batch from elsewhere, such as the header of the next batch; it cannot be
// computed. Errors are [*CorruptError] or [*UnsupportedError].
func DecodeMetadata(first uint64, header []byte, metadata [][]byte, hash Hash) (*Batch, error) {
	h, err := decodeHeader(first, header)
	if err != nil {
		return nil, err
	}
	b := headerFields(h)
	b.Hash = hash
	b.Events = make([]*Event, len(metadata))
	revision := first
	for i, encoded := range metadata {
		part := Part{Revision: revision, Metadata: encoded}
		if b.Events[i], err = part.decode(&b); err != nil {
			return nil, err
		}
		b.plain += len(encoded)
		revision += b.Events[i].Span()
	}
	if len(metadata) != int(h.GetEvents()) || revision-first != b.Revisions {
		return nil, &CorruptError{Revision: first, Reason: "its events are not those that its header counts"}
	}
	b.Size = b.plain
	return &b, nil
}

// decode decodes the metadata of an event of batch b; its contents are nil.
func (e *Part) decode(b *Batch) (*Event, error) {
	event := &Event{Revision: e.Revision, Time: b.Time, Meta: new(logpb.Metadata)}
	if err := proto.Unmarshal(e.Metadata, event.Meta); err != nil {
		return nil, &CorruptError{Revision: e.Revision, Reason: fmt.Sprintf("metadata: %v", err)}
	}
	if _, known := logpb.Type_name[int32(event.Meta.GetType())]; !known && !event.Meta.GetSkippable() {
		return nil, &UnsupportedError{Revision: e.Revision, What: fmt.Sprintf("event type %d", event.Meta.GetType())}
	}
	event.Contents = make([][]byte, len(event.Meta.GetPayloads()))
	return event, nil
}

// Encode returns the batch as a backend stores it. The bytes may differ from those that were split, but they are the
// same batch with the same hash.
func (p *Parts) Encode() Stored {
	events := &logpb.Events{Entries: make([]*logpb.Entry, len(p.Entries))}
	for i := range p.Entries {
		e := &p.Entries[i]
		entry := &logpb.Entry{Metadata: e.Metadata, Blobs: make([]*logpb.Blob, len(e.Blobs))}
		for j := range e.Blobs {
			b := &e.Blobs[j]
			entry.Blobs[j] = &logpb.Blob{Salt: b.Salt, Content: b.Content, KeyId: b.KeyID, Hash: b.Hash, Gone: b.Gone}
		}
		events.Entries[i] = entry
	}
	plain, err := proto.Marshal(events)
	must(err)
	value, err := proto.Marshal(&logpb.Batch{
		Format: p.Format, Header: p.Header,
		Compression: logpb.Compression_COMPRESSION_ZSTD, EventsSize: uint64(len(plain)), Events: encoder.EncodeAll(plain, nil),
	})
	must(err)
	return Stored{First: p.First, Value: value}
}

// Follows returns an error if the batch cannot be the one directly after a position: [ErrDiverged] or a
// [*CorruptError].
func (p *Parts) Follows(after Head) error {
	var started *logpb.EpochStarted
	if first := &p.Entries[0]; first.started {
		e, err := first.decode(&p.Batch)
		if err != nil {
			return err
		}
		started = e.Meta.GetEpochStarted()
	}
	return followsAs(after, &p.Batch, started)
}

// Verbatim returns batches that follow position `after`, as they are stored in the backend, without waiting. If it
// returns none, `after` was the tip. It is for those who copy the log, and does not read from an archive: the error is
// a [*MissingError] if what follows has been removed from the backend. Other errors are those of [Log.CatchUp].
//
// Batches that this process has just appended come from memory.
func (l *Log) Verbatim(ctx context.Context, after Head) ([]*Parts, error) {
	if appended := l.appended.takeAfter(after); len(appended) > 0 {
		return takeApart(appended)
	}
	answer, err := l.backend.Read(ctx, after.Revision+1)
	if err != nil {
		return nil, err
	}
	batches := make([]*Parts, len(answer.Batches))
	for i, s := range answer.Batches {
		p, err := Split(s.First, s.Value)
		if err != nil {
			return nil, err
		}
		if p.First > after.Revision+1 && p.Previous != after.Hash {
			return nil, &MissingError{From: after.Revision + 1, To: p.First - 1}
		}
		if err := p.Follows(after); err != nil {
			return nil, err
		}
		batches[i], after = p, p.Head()
	}
	return batches, nil
}

// appended is a batch that this process has appended, with its bytes.
type appended struct {
	batch   *Batch
	value   []byte // encoded logpb.Batch
	entries []*Entry
}

// newest holds the newest batches that this process has appended. Each continues the one before.
type newest struct {
	mu      sync.Mutex
	batches []appended
	bytes   int // before compression
}

// add keeps a batch that was appended, and drops the oldest ones beyond a number of bytes.
func (n *newest) add(b *Batch, value []byte, d *Draft, most int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := len(n.batches) - 1; last >= 0 && n.batches[last].batch.Hash != b.Previous {
		n.batches, n.bytes = nil, 0
	}
	n.batches = append(n.batches, appended{b, value, d.entries})
	n.bytes += b.plain
	drop := 0
	for n.bytes > most && drop < len(n.batches) {
		n.bytes -= n.batches[drop].batch.plain
		n.batches[drop] = appended{}
		drop++
	}
	n.batches = n.batches[drop:]
}

// takeAfter returns the batches that follow a position; none if they are not there. They are not returned again: they are
// copied once.
func (n *newest) takeAfter(at Head) (found []appended) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.batches, func(a appended) bool { return a.batch.Previous == at.Hash })
	if i < 0 {
		return nil
	}
	found = n.batches[i:]
	n.batches, n.bytes = nil, 0
	return found
}

// takeApart makes parts of batches whose hashes are known, because this process has computed them.
func takeApart(batches []appended) ([]*Parts, error) {
	parts := make([]*Parts, len(batches))
	for i, a := range batches {
		p := &Parts{Batch: *a.batch, Entries: make([]Part, len(a.entries)), Plain: a.batch.plain}
		p.Events, p.Size = nil, 0
		err := fields(a.value, func(n protowire.Number, value []byte, _ uint64) error {
			if n == 2 && value != nil { // Batch.header
				p.Header = value
			}
			return nil
		})
		revision := p.First
		for j := 0; j < len(p.Entries) && err == nil; j++ {
			e := &p.Entries[j]
			if err = e.split(a.entries[j].bytes); err == nil {
				err = e.Scan(e.Metadata)
			}
			e.Revision = revision
			revision += e.Span
		}
		if err != nil {
			return nil, &CorruptError{Revision: p.First, Reason: err.Error()}
		}
		parts[i] = p
	}
	return parts, nil
}

// hashes appends the hashes of the payloads.
func (e *Part) hashes(to []Hash) ([]Hash, error) {
	if len(e.Blobs) != len(e.sizes) {
		return nil, fmt.Errorf("%d blobs for %d payloads", len(e.Blobs), len(e.sizes))
	}
	for i := range e.Blobs {
		b := &e.Blobs[i]
		if !b.Gone && b.KeyID == "" && uint64(len(b.Content)) != e.sizes[i] {
			return nil, fmt.Errorf("payload %d has %d bytes, its metadata says %d", i, len(b.Content), e.sizes[i])
		}
		hash, err := b.PayloadHash()
		if err != nil {
			return nil, fmt.Errorf("payload %d has %w", i, err)
		}
		to = append(to, hash)
	}
	return to, nil
}

// size returns the number of bytes of the event, encoded as a logpb.Entry.
func (e *Part) size() int {
	n := 0
	field := func(size int) {
		if size > 0 {
			n += 1 + protowire.SizeBytes(size)
		}
	}
	field(len(e.Metadata))
	for i := range e.Blobs {
		n += 1 + protowire.SizeBytes(e.Blobs[i].size())
	}
	return n
}

// size returns the number of bytes of the blob, encoded as a logpb.Blob.
func (b *Blob) size() int {
	n := 0
	for _, size := range [...]int{len(b.Salt), len(b.Content), len(b.KeyID), len(b.Hash)} {
		if size > 0 {
			n += 1 + protowire.SizeBytes(size)
		}
	}
	if b.Gone {
		n += 2
	}
	return n
}

// splitEvents splits encoded logpb.Events into parts that share its memory. want is the expected number.
func splitEvents(plain []byte, want int) ([]Part, error) {
	entries := make([]Part, 0, min(want, 1<<16))
	err := fields(plain, func(n protowire.Number, value []byte, _ uint64) (err error) {
		if n != 1 || value == nil { // Events.entries
			return nil
		}
		entries = append(entries, Part{})
		return entries[len(entries)-1].split(value)
	})
	return entries, err
}

// split reads an encoded logpb.Entry.
func (e *Part) split(entry []byte) error {
	return fields(entry, func(n protowire.Number, value []byte, _ uint64) error {
		switch {
		case value == nil:
		case n == 1: // Entry.metadata
			e.Metadata = value
		case n == 2: // Entry.blobs
			e.Blobs = append(e.Blobs, Blob{})
			return e.Blobs[len(e.Blobs)-1].split(value)
		}
		return nil
	})
}

// split reads an encoded logpb.Blob.
func (b *Blob) split(blob []byte) error {
	return fields(blob, func(n protowire.Number, value []byte, number uint64) error {
		switch {
		case n == 5 && value == nil:
			b.Gone = number != 0
		case value == nil:
		case n == 1:
			b.Salt = value
		case n == 2:
			b.Content = value
		case n == 3:
			if !utf8.Valid(value) {
				return errors.New("a key id is not UTF-8")
			}
			b.KeyID = string(value)
		case n == 4:
			b.Hash = value
		}
		return nil
	})
}

// Scan sets the metadata, and what can be known of it without decoding it in full: Span, Group and Resource.
func (e *Part) Scan(metadata []byte) error {
	if e.Span > 0 && len(e.Metadata) == len(metadata) && (len(metadata) == 0 || &e.Metadata[0] == &metadata[0]) {
		return nil // it is done
	}
	e.Metadata, e.Span, e.Group, e.Resource, e.sizes, e.started = metadata, 1, "", "", nil, false
	return fields(e.Metadata, func(n protowire.Number, value []byte, number uint64) error {
		switch {
		case n == 3 && value == nil: // Metadata.span
			e.Span = max(1, uint64(uint32(number)))
		case value == nil:
		case n == 4: // Metadata.object
			return fields(value, func(n protowire.Number, value []byte, _ uint64) error {
				if n == 1 && value != nil {
					e.Group = string(value)
				} else if n == 2 && value != nil {
					e.Resource = string(value)
				}
				return nil
			})
		case n == 11: // Metadata.payloads
			size := uint64(0)
			err := fields(value, func(n protowire.Number, value []byte, number uint64) error {
				if n == 3 && value == nil { // Payload.size
					size = number
				}
				return nil
			})
			e.sizes = append(e.sizes, size)
			return err
		case n == 65: // Metadata.epoch_started
			e.started = true
		}
		return nil
	})
}

// fields calls f for every field of an encoded message that is a varint or has a length. value is nil for a varint,
// and shares the memory of the message.
func fields(message []byte, f func(n protowire.Number, value []byte, number uint64) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var value []byte
		var v uint64
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			if value, n = protowire.ConsumeBytes(message); value == nil {
				value = []byte{}
			}
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if kind == protowire.VarintType || kind == protowire.BytesType {
			if err := f(number, value, v); err != nil {
				return err
			}
		}
		message = message[n:]
	}
	return nil
}
