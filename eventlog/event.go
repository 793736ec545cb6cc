package eventlog

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog/logpb"
)

const saltSize = 16

// Event is one change. Its metadata says what happened, to what, by whom and why; its contents are the
// bytes that Meta.Payloads describes.
type Event struct {
	// Revision is the event's first revision; 0 until it is in the log.
	Revision uint64
	// Time is the log time of its batch.
	Time time.Time
	Meta *logpb.Metadata
	// Contents[i] is the plain content of Meta.Payloads[i]; nil if it has been erased.
	Contents [][]byte
}

// Content returns the content of the payload with a role; nil if there is none or it has been erased.
func (e *Event) Content(role logpb.Role) []byte {
	for i, p := range e.Meta.GetPayloads() {
		if p.GetRole() == role {
			return e.Contents[i]
		}
	}
	return nil
}

// AddContent appends a payload and its content, and sets the payload's size.
func (e *Event) AddContent(p *logpb.Payload, content []byte) {
	p.Size = uint64(len(content))
	e.Meta.Payloads = append(e.Meta.Payloads, p)
	e.Contents = append(e.Contents, content)
}

// Span returns the number of revisions that the event takes, at least 1.
func (e *Event) Span() uint64 { return max(1, uint64(e.Meta.GetSpan())) }

// Last returns the last revision of the event.
func (e *Event) Last() uint64 { return e.Revision + e.Span() - 1 }

// Entry is an encoded event. It does not depend on the revision that the event will get.
type Entry struct {
	// Frees is set if the event makes room, or is needed to make room: it deletes objects, or it is how an
	// operator repairs or configures the log. Encode sets it by the event's type; a caller who knows more may
	// set it too. A log that is full accepts such events up to a higher limit.
	Frees bool

	event *Event
	bytes []byte // encoded logpb.Entry
	held  int    // how many more bytes the event takes in memory, because what is sealed was compressed
	leaf  Hash
}

// Event returns the event that was encoded.
func (e *Entry) Event() *Event { return e.event }

// Size returns the number of encoded bytes, before compression.
func (e *Entry) Size() int { return len(e.bytes) }

// Encode encodes and hashes an event, with random salts for its payloads. Nothing is sealed, see [Log.Encode]. The event MUST NOT be changed
// afterwards.
func Encode(e *Event) (*Entry, error) { return encode(context.Background(), e, nil) }

func encode(ctx context.Context, e *Event, keys Keys) (*Entry, error) {
	if len(e.Contents) != len(e.Meta.GetPayloads()) {
		return nil, fmt.Errorf("eventlog: event has %d contents for %d payloads", len(e.Contents), len(e.Meta.GetPayloads()))
	}
	metadata, err := proto.Marshal(e.Meta)
	if err != nil {
		return nil, fmt.Errorf("eventlog: encode metadata: %w", err)
	}
	salts := salt(len(e.Contents))
	pb := &logpb.Entry{Metadata: metadata, Blobs: make([]*logpb.Blob, len(e.Contents))}
	hashes := make([]Hash, len(e.Contents))
	held := 0
	for i, content := range e.Contents {
		salt := salts[i*saltSize : (i+1)*saltSize]
		pb.Blobs[i] = &logpb.Blob{Salt: salt, Content: content}
		hashes[i] = PayloadHash(salt, content)
		if keys == nil {
			continue
		}
		if of := kindOf(e.Meta, e.Meta.GetPayloads()[i]); keys.Seals(of) {
			if err := seal(ctx, keys, of, pb.Blobs[i], hashes[i]); err != nil {
				return nil, err
			}
			held += max(0, len(content)-len(pb.Blobs[i].Content))
		}
	}
	encoded, err := proto.Marshal(pb)
	if err != nil {
		return nil, fmt.Errorf("eventlog: encode event: %w", err)
	}
	return &Entry{Frees: frees(e.Meta.GetType()), event: e, bytes: encoded, held: held, leaf: LeafHash(metadata, hashes)}, nil
}

// frees reports whether events of a type are accepted by a log that is full, see [Entry.Frees].
func frees(t logpb.Type) bool {
	switch t {
	case logpb.Type_TYPE_DELETED, logpb.Type_TYPE_BULK_DELETED, logpb.Type_TYPE_EPOCH_STARTED, logpb.Type_TYPE_CLOCK_SET, logpb.Type_TYPE_PAST_ERASED,
		logpb.Type_TYPE_POLICY_CHUNK, logpb.Type_TYPE_POLICY_PROPOSED, logpb.Type_TYPE_POLICY_ACTIVATED: // a policy says how long the log keeps what
		return true
	}
	return false
}

// draftOf makes a draft of one event without payloads.
func draftOf(m *logpb.Metadata) (*Draft, error) {
	entry, err := Encode(&Event{Meta: m})
	if err != nil {
		return nil, err
	}
	return NewDraft([]*Entry{entry}), nil
}
