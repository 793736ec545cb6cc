package history

import (
	"encoding/binary"
	"errors"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// record is a change as it is stored on disk. It is a pure function of the event, so that an unreadable one
// can be made again from the log.
//
//	length (4 bytes) ‖ log time (8) ‖ back ‖ metadata ‖ payload ‖ request ‖ kept
//
// The changes of a bulk share their metadata: back, an uvarint, is how many records before this one is the
// record that has it, and metadata is present only if back is 0. kept is present only if the event has
// one. Before metadata, payload, request and kept stands an uvarint with the length and the kind.
type record struct {
	time     time.Time
	back     seq
	metadata []byte
	content
	request []byte
	kept    []byte
}

// content is the content of an object.
type content struct {
	payload []byte
	// inherited is set if the payload is that of the previous version.
	inherited bool
}

// Values of the uvarint before a content.
const (
	isNil = iota
	isInherited
	hasLength // this and larger values: the length plus hasLength
)

var errRecord = errors.New("not a record")

// changesOf returns the number of changes in an event.
func changesOf(e *eventlog.Event) int {
	if bulk := e.Meta.GetBulk(); bulk != nil {
		return len(bulk.GetObjects())
	}
	return 1
}

// about returns the object of an event's change i, and the revision of its previous version.
func about(m *logpb.Metadata, i int) (object *logpb.Object, previous uint64) {
	if bulk := m.GetBulk(); bulk != nil {
		return bulk.GetObjects()[i].GetObject(), bulk.GetObjects()[i].GetPreviousRevision()
	}
	return m.GetObject(), m.GetPreviousRevision()
}

func deletes(m *logpb.Metadata) bool {
	return m.GetBulk() != nil || m.GetType() == logpb.Type_TYPE_DELETED
}

// appendRecord encodes change i of an event.
func appendRecord(b []byte, e *eventlog.Event, i int) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Time.UnixNano()))
	b = binary.AppendUvarint(b, uint64(i))
	if i == 0 {
		marshal := proto.MarshalOptions{Deterministic: true}
		b = binary.AppendUvarint(b, hasLength+uint64(marshal.Size(e.Meta)))
		var err error
		if b, err = marshal.MarshalAppend(b, e.Meta); err != nil {
			return nil, err
		}
	}
	if e.Meta.GetBulk() != nil {
		b = append(b, isInherited, isNil)
	} else {
		b = appendBytes(b, e.Content(logpb.Role_ROLE_OBJECT))
		b = appendBytes(b, e.Content(logpb.Role_ROLE_REQUEST))
		if kept := e.Content(logpb.Role_ROLE_KEPT); kept != nil {
			b = appendBytes(b, kept)
		}
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start))
	return b, nil
}

func appendBytes(b, s []byte) []byte {
	if s == nil {
		return append(b, isNil)
	}
	return append(binary.AppendUvarint(b, hasLength+uint64(len(s))), s...)
}

// block is a sequence of records, before compression.
type block struct {
	first  seq
	data   []byte
	starts []uint32 // of each record in data
}

// cacheBytes limits the blocks that are kept in memory for reading.
const cacheBytes = 8 << 20

// size returns about how much memory the block takes.
func (b *block) size() int { return cap(b.data) + 4*cap(b.starts) + 256 }

// newBlock returns an empty block, with capacity for a typical one.
func newBlock(first seq) block {
	return block{first: first, data: make([]byte, 0, blockBytes+blockBytes/4), starts: make([]uint32, 0, 32)}
}

// parseBlock finds the records in data.
func parseBlock(first seq, data []byte) (block, error) {
	b := block{first: first, data: data}
	for at := 0; at < len(data); {
		if len(data)-at < 4 {
			return block{}, errRecord
		}
		length := binary.LittleEndian.Uint32(data[at:])
		if length < 4 || uint64(length) > uint64(len(data)-at) {
			return block{}, errRecord
		}
		b.starts = append(b.starts, uint32(at))
		at += int(length)
	}
	return b, nil
}

// add appends the record of change i of an event. Readers may still use the former block.
func (b *block) add(e *eventlog.Event, i int) error {
	data, err := appendRecord(b.data, e, i)
	if err != nil {
		return err
	}
	b.starts = append(b.starts, uint32(len(b.data)))
	b.data = data
	return nil
}

// after returns the seq of the first record after the block.
func (b *block) after() seq { return b.first + seq(len(b.starts)) }

func (b *block) has(s seq) bool { return b.first <= s && s < b.after() }

// record decodes the record of s, which is in the block. The result aliases the block.
func (b *block) record(s seq) (r record, err error) {
	start := b.starts[s-b.first]
	data := b.data[start:]
	if i := s - b.first + 1; int(i) < len(b.starts) {
		data = data[:b.starts[i]-start]
	}
	if len(data) < 12 {
		return record{}, errRecord
	}
	r.time = time.Unix(0, int64(binary.LittleEndian.Uint64(data[4:]))).UTC()
	back, n := binary.Uvarint(data[12:])
	if n <= 0 || back >= uint64(s) {
		return record{}, errRecord
	}
	r.back = seq(back)
	data = data[12+n:]
	if back == 0 {
		var metadata content
		if metadata, data, err = decodeBytes(data); err != nil {
			return record{}, err
		}
		r.metadata = metadata.payload
	}
	if r.content, data, err = decodeBytes(data); err != nil {
		return record{}, err
	}
	var request, kept content
	if request, data, err = decodeBytes(data); err == nil && len(data) > 0 {
		kept, _, err = decodeBytes(data)
	}
	r.request, r.kept = request.payload, kept.payload
	return r, err
}

func decodeBytes(b []byte) (c content, rest []byte, err error) {
	length, n := binary.Uvarint(b)
	if n <= 0 {
		return content{}, nil, errRecord
	}
	b = b[n:]
	switch length {
	case isNil:
		return content{}, b, nil
	case isInherited:
		return content{inherited: true}, b, nil
	}
	if length -= hasLength; length > uint64(len(b)) {
		return content{}, nil, errRecord
	}
	return content{payload: b[:length:length]}, b[length:], nil
}

// eachChange yields each change of events: its event, and its index within that.
func eachChange(events []*eventlog.Event) iter.Seq2[*eventlog.Event, int] {
	return func(yield func(*eventlog.Event, int) bool) {
		for _, e := range events {
			for i := range changesOf(e) {
				if !yield(e, i) {
					return
				}
			}
		}
	}
}
