package proof

import (
	"errors"
	"fmt"
	"time"

	merkleproof "github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Inclusion proves that one event is in a log: it leads from the event's bytes to the root of a tree head.
type Inclusion struct {
	Format string `json:"format"`
	// Revision is the first revision of the event.
	Revision uint64 `json:"revision"`
	Event    Event  `json:"event"`
	// Before are the events before it in the batch, if some event of the batch takes several revisions: then only
	// they tell the event's revision.
	Before []Event `json:"before,omitempty"`
	Batch  Batch   `json:"batch"`
	// Head is the tree head to which the proof leads, signed or not.
	Head string `json:"head"`
}

// Event is an event of a proof, with its place in its batch.
type Event struct {
	Index    uint64    `json:"index"`    // in the batch, from 0
	Metadata []byte    `json:"metadata"` // encoded logpb.Metadata, as it was written
	Payloads []Payload `json:"payloads"` // one for each payload of the metadata, in order
	Path     [][]byte  `json:"path"`     // from the event's hash to the root of the batch
}

// Payload is the hash of a payload, or the salt and the content from which it is computed.
type Payload struct {
	Hash    []byte `json:"hash,omitempty"`
	Salt    []byte `json:"salt,omitempty"`
	Content []byte `json:"content,omitempty"`
}

// Batch is the event's batch, with its place in the tree.
type Batch struct {
	Index    uint64   `json:"index"`    // in the log, from 0
	Previous []byte   `json:"previous"` // hash of the batch before
	Header   []byte   `json:"header"`   // encoded logpb.Header, as it was written
	Path     [][]byte `json:"path"`     // from the batch's hash to the root of the tree
}

// Proven is what a valid proof says.
type Proven struct {
	Head            TreeHead
	Revision, Last  uint64 // first and last revision of the event
	Epoch           uint64
	Time, Clock     time.Time // log time, and the writer's own clock
	Meta            *logpb.Metadata
	Contents        [][]byte // of the payloads; nil for those of which the proof has only the hash
	Batch           eventlog.Hash
	BatchIndex      uint64
	Writer          eventlog.ID
	Previous        eventlog.Hash // hash of the batch before
	EventsInBatch   uint64
	PositionInBatch uint64
}

// ErrInvalid reports a proof that is well formed and does not prove what it says: the event, the proof or
// the head was changed, or they do not belong together.
var ErrInvalid = errors.New("the proof is not valid")

// Encode returns the proof as a document.
func (p *Inclusion) Encode() []byte { return encode(p) }

// normalize implements document.
func (p *Inclusion) normalize() {
	p.Event.normalize()
	for i := range p.Before {
		p.Before[i].normalize()
	}
	nonNil(&p.Batch.Previous)
	nonNil(&p.Batch.Header)
	nonNil(&p.Batch.Path)
}

func (e *Event) normalize() {
	nonNil(&e.Metadata)
	nonNil(&e.Payloads)
	nonNil(&e.Path)
}

// DecodeInclusion decodes a document of [Inclusion.Encode], in exactly that spelling. It verifies nothing.
func DecodeInclusion(document []byte) (*Inclusion, error) {
	p := new(Inclusion)
	if err := decode(document, p); err != nil {
		return nil, err
	}
	if p.Format != InclusionFormat {
		return nil, fmt.Errorf("malformed proof: its format is %q, not %s", p.Format, InclusionFormat)
	}
	return p, nil
}

// Verify checks that the proof leads to a tree head, which the caller trusts, and returns what it proves. Errors
// are [ErrInvalid], or say what is malformed.
func (p *Inclusion) Verify(head TreeHead) (*Proven, error) {
	own, err := ParseHead(Body(p.Head))
	if err != nil {
		return nil, err
	}
	if own != head {
		return nil, fmt.Errorf("%w: it is for the head of size %d with root %v, not for that of size %d with root %v", ErrInvalid, own.Size, own.Root, head.Size, head.Root)
	}
	previous, err := hashOf(p.Batch.Previous)
	if err != nil {
		return nil, err
	}
	header := new(logpb.Header)
	if err := proto.Unmarshal(p.Batch.Header, header); err != nil {
		return nil, fmt.Errorf("malformed proof: header: %w", err)
	}
	root, meta, err := p.Event.rootOf(header)
	if err != nil {
		return nil, err
	}
	batch := eventlog.BatchHash(previous, p.Batch.Header, root)
	if err := p.Batch.leadsTo(batch, head); err != nil {
		return nil, err
	}
	// From here on header and metadata are those of the log, so that what is in them was written by a writer.
	if eventlog.ID(header.GetLogId()) != head.Log || eventlog.Hash(header.GetPrevious()) != previous {
		return nil, fmt.Errorf("%w: the batch's header is of another log or place", ErrInvalid)
	}
	revision, err := p.revision(header, root)
	if err != nil {
		return nil, err
	}
	event := &eventlog.Event{Revision: revision, Meta: meta}
	last := header.GetFirstRevision() + header.GetRevisions() - 1
	if event.Last() > last || event.Span() > 1 && header.GetRevisions() == uint64(header.GetEvents()) {
		return nil, fmt.Errorf("%w: the event takes more revisions than its batch has for it", ErrInvalid)
	}
	if p.Revision != revision {
		return nil, fmt.Errorf("%w: the event has revision %d, not %d", ErrInvalid, revision, p.Revision)
	}
	if head.Revision > 0 && p.Batch.Index == head.Size-1 && (head.Revision != last || head.Batch != batch) {
		return nil, fmt.Errorf("%w: the head names revision %d and batch %v as the newest, which are %d and %v", ErrInvalid, head.Revision, head.Batch, last, batch)
	}
	proven := &Proven{
		Head: head, Revision: revision, Last: event.Last(), Epoch: header.GetEpoch(),
		Time: time.Unix(0, header.GetTimeUnixNano()).UTC(), Clock: time.Unix(0, header.GetClockUnixNano()).UTC(),
		Meta: meta, Contents: make([][]byte, len(p.Event.Payloads)),
		Batch: batch, BatchIndex: p.Batch.Index, Writer: eventlog.ID(header.GetWriter()), Previous: previous,
		EventsInBatch: uint64(header.GetEvents()), PositionInBatch: p.Event.Index,
	}
	for i, payload := range p.Event.Payloads {
		if len(payload.Salt) > 0 {
			proven.Contents[i] = append([]byte{}, payload.Content...)
		}
	}
	return proven, nil
}

// leadsTo checks that the batch's path leads from its hash to the root of a head.
func (b *Batch) leadsTo(hash eventlog.Hash, head TreeHead) error {
	if err := checkPath(b.Path); err != nil {
		return err
	}
	if b.Index >= head.Size {
		return fmt.Errorf("%w: batch %d is not below a head of size %d", ErrInvalid, b.Index, head.Size)
	}
	leaf := rfc6962.DefaultHasher.HashLeaf(hash[:])
	if err := merkleproof.VerifyInclusion(rfc6962.DefaultHasher, b.Index, head.Size, leaf, b.Path, head.Root[:]); err != nil {
		return fmt.Errorf("%w: it does not lead from the event to the root of the head", ErrInvalid)
	}
	return nil
}

// rootOf computes the root of a batch's tree from an event of it, and decodes the event's metadata. The header
// need not be verified.
func (e *Event) rootOf(header *logpb.Header) (root eventlog.Hash, meta *logpb.Metadata, err error) {
	if len(header.GetLogId()) != len(eventlog.ID{}) || len(header.GetWriter()) != len(eventlog.ID{}) || len(header.GetPrevious()) != len(eventlog.Hash{}) {
		return root, nil, errors.New("malformed proof: an id or hash in the batch's header has the wrong length")
	}
	if err := checkPath(e.Path); err != nil {
		return root, nil, err
	}
	meta = new(logpb.Metadata)
	if err := proto.Unmarshal(e.Metadata, meta); err != nil {
		return root, nil, fmt.Errorf("malformed proof: metadata: %w", err)
	}
	if len(e.Payloads) != len(meta.GetPayloads()) {
		return root, nil, fmt.Errorf("malformed proof: %d payloads, the metadata has %d", len(e.Payloads), len(meta.GetPayloads()))
	}
	hashes := make([]eventlog.Hash, len(e.Payloads))
	for i, p := range e.Payloads {
		if hashes[i], err = p.hash(meta.GetPayloads()[i].GetSize()); err != nil {
			return root, nil, err
		}
	}
	if e.Index >= uint64(header.GetEvents()) {
		return root, nil, fmt.Errorf("%w: event %d is not in a batch of %d", ErrInvalid, e.Index, header.GetEvents())
	}
	leaf := eventlog.LeafHash(e.Metadata, hashes)
	raw, err := merkleproof.RootFromInclusionProof(rfc6962.DefaultHasher, e.Index, uint64(header.GetEvents()), leaf[:], e.Path)
	if err != nil {
		return root, nil, fmt.Errorf("%w: the event's path: %v", ErrInvalid, err)
	}
	return eventlog.Hash(raw), meta, nil
}

// saltSize is the size of the salts that the log writes.
const saltSize = 16

// hash returns the hash of a payload whose content has the given size.
func (p *Payload) hash(size uint64) (eventlog.Hash, error) {
	switch {
	case len(p.Hash) > 0 && len(p.Salt) == 0 && len(p.Content) == 0:
		return hashOf(p.Hash)
	case len(p.Hash) > 0 || len(p.Salt) != saltSize:
		return eventlog.Hash{}, errors.New("malformed proof: a payload has neither only a hash, nor a salt and a content")
	case uint64(len(p.Content)) != size:
		return eventlog.Hash{}, fmt.Errorf("%w: a content has %d bytes, the metadata says %d", ErrInvalid, len(p.Content), size)
	}
	return eventlog.PayloadHash(p.Salt, p.Content), nil
}

// revision computes the event's revision. The header is verified, and root is that of its batch.
func (p *Inclusion) revision(header *logpb.Header, root eventlog.Hash) (uint64, error) {
	if header.GetRevisions() == uint64(header.GetEvents()) { // one each
		if len(p.Before) > 0 {
			return 0, errors.New("malformed proof: it has events that it does not need")
		}
		return header.GetFirstRevision() + p.Event.Index, nil
	}
	if uint64(len(p.Before)) != p.Event.Index {
		return 0, fmt.Errorf("malformed proof: %d events before event %d", len(p.Before), p.Event.Index)
	}
	revision := header.GetFirstRevision()
	for i := range p.Before {
		e := &p.Before[i]
		got, meta, err := e.rootOf(header)
		if err != nil {
			return 0, err
		}
		if e.Index != uint64(i) || got != root {
			return 0, fmt.Errorf("%w: event %d before it is not in the batch", ErrInvalid, i)
		}
		revision += (&eventlog.Event{Meta: meta}).Span()
	}
	return revision, nil
}
