package eventlog

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog/logpb"
)

const saltSize = 16

// Event is one change. Its metadata tells what happened, to what, by whom and why;
// its contents are the bytes that Meta.Payloads describes.
type Event struct {
	// Revision of the event, the first of several if it spans more. 0 until it is
	// in the log.
	Revision uint64
	// Time is the log time of its batch.
	Time time.Time
	Meta *logpb.Metadata
	// Contents[i] is the plain content of Meta.Payloads[i]; nil once it is gone.
	Contents [][]byte
}

// Content returns the content of the payload with that role, nil if there is none
// or it is gone.
func (e *Event) Content(role logpb.Role) []byte {
	for i, p := range e.Meta.GetPayloads() {
		if p.GetRole() == role {
			return e.Contents[i]
		}
	}
	return nil
}

// AddContent appends a payload; its size is filled in.
func (e *Event) AddContent(p *logpb.Payload, content []byte) {
	p.Size = uint64(len(content))
	e.Meta.Payloads = append(e.Meta.Payloads, p)
	e.Contents = append(e.Contents, content)
}

// Span is the number of revisions that the event takes, at least 1.
func (e *Event) Span() uint64 { return span(e.Meta) }

// Last is the last revision of the event.
func (e *Event) Last() uint64 { return e.Revision + e.Span() - 1 }

func span(m *logpb.Metadata) uint64 { return max(1, uint64(m.GetSpan())) }

// Entry is an event made ready for the log. It does not depend on the revision at
// which it will stand.
type Entry struct {
	event *Event
	bytes []byte // encoded logpb.Entry
	leaf  []byte
}

// Event is the event that was encoded.
func (e *Entry) Event() *Event { return e.event }

// Size is the number of encoded bytes, before compression.
func (e *Entry) Size() int { return len(e.bytes) }

// Encode draws the salts of the event's payloads, encodes and hashes it. The event
// MUST NOT be changed afterwards.
func Encode(e *Event) (*Entry, error) {
	if len(e.Contents) != len(e.Meta.GetPayloads()) {
		return nil, fmt.Errorf("eventlog: event has %d contents for %d payloads", len(e.Contents), len(e.Meta.GetPayloads()))
	}
	metadata, err := proto.Marshal(e.Meta)
	if err != nil {
		return nil, fmt.Errorf("eventlog: encode metadata: %w", err)
	}
	salts := make([]byte, saltSize*len(e.Contents))
	rand.Read(salts) // never fails
	pb := &logpb.Entry{Metadata: metadata, Blobs: make([]*logpb.Blob, len(e.Contents))}
	hashes := make([]Hash, len(e.Contents))
	for i, content := range e.Contents {
		salt := salts[i*saltSize : (i+1)*saltSize]
		pb.Blobs[i] = &logpb.Blob{Salt: salt, Content: content}
		hashes[i] = hashPayload(salt, content)
	}
	encoded, err := proto.Marshal(pb)
	if err != nil {
		return nil, fmt.Errorf("eventlog: encode event: %w", err)
	}
	return &Entry{event: e, bytes: encoded, leaf: hashLeaf(metadata, hashes)}, nil
}

// decodeEntry also returns the event's leaf hash. Contents alias pb.
func decodeEntry(pb *logpb.Entry) (*Event, []byte, error) {
	e := &Event{Meta: new(logpb.Metadata)}
	if err := proto.Unmarshal(pb.GetMetadata(), e.Meta); err != nil {
		return nil, nil, fmt.Errorf("metadata: %w", err)
	}
	if len(pb.GetBlobs()) != len(e.Meta.GetPayloads()) {
		return nil, nil, fmt.Errorf("%d blobs for %d payloads", len(pb.GetBlobs()), len(e.Meta.GetPayloads()))
	}
	e.Contents = make([][]byte, len(pb.GetBlobs()))
	hashes := make([]Hash, len(pb.GetBlobs()))
	for i, blob := range pb.GetBlobs() {
		switch {
		case blob.GetGone() || blob.GetKeyId() != "":
			if len(blob.GetHash()) != len(Hash{}) {
				return nil, nil, fmt.Errorf("payload %d has neither plain content nor a hash", i)
			}
			hashes[i] = Hash(blob.GetHash())
		case len(blob.GetSalt()) != saltSize:
			return nil, nil, fmt.Errorf("payload %d has a salt of %d bytes", i, len(blob.GetSalt()))
		case uint64(len(blob.GetContent())) != e.Meta.GetPayloads()[i].GetSize():
			return nil, nil, fmt.Errorf("payload %d has %d bytes, its metadata says %d", i, len(blob.GetContent()), e.Meta.GetPayloads()[i].GetSize())
		default:
			if e.Contents[i] = blob.GetContent(); e.Contents[i] == nil {
				e.Contents[i] = []byte{} // empty is not gone
			}
			hashes[i] = hashPayload(blob.GetSalt(), blob.GetContent())
		}
	}
	return e, hashLeaf(pb.GetMetadata(), hashes), nil
}

// First bytes of what is hashed; RFC 6962 has 0x00 for leaves and 0x01 for nodes.
const (
	leafPrefix    = 0x00
	payloadPrefix = 0x02
	batchPrefix   = 0x03
)

func hashPayload(salt, content []byte) (sum Hash) {
	h := sha256.New()
	h.Write([]byte{payloadPrefix})
	h.Write(salt)
	h.Write(content)
	h.Sum(sum[:0])
	return sum
}

func hashLeaf(metadata []byte, payloads []Hash) []byte {
	h := sha256.New()
	var prefix [9]byte
	prefix[0] = leafPrefix
	binary.BigEndian.PutUint64(prefix[1:], uint64(len(metadata)))
	h.Write(prefix[:])
	h.Write(metadata)
	for i := range payloads {
		h.Write(payloads[i][:])
	}
	return h.Sum(nil)
}
