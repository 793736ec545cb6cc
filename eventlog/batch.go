package eventlog

import (
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog/logpb"
)

// maxEventsSize is the maximum decompressed size of a batch's events, whatever size the batch declares.
const maxEventsSize = 64 << 20

// Batch is what one append put into the log.
type Batch struct {
	Log       ID
	Epoch     uint64
	Format    uint32 // the format level in which it is written
	First     uint64 // revision of the first event
	Revisions uint64 // number of revisions that the events take together
	Previous  Hash
	Hash      Hash
	Writer    ID
	Nonce     ID
	Time      time.Time // log time: never before the previous batch's
	Clock     time.Time // the writer's own clock
	Events    []*Event
	// Size is the number of encoded bytes in the backend. Of a batch from elsewhere it is the number before compression.
	Size int

	plain int // bytes before compression: about what the events take in memory
	// sealed are the contents that are not opened; nil for none, so that it takes little of the batches that have none.
	sealed *[]sealedContent
}

// Last returns the last revision of the batch.
func (b *Batch) Last() uint64 { return b.First + b.Revisions - 1 }

// Head returns the position after the batch.
func (b *Batch) Head() Head {
	return Head{Log: b.Log, Epoch: b.Epoch, Revision: b.Last(), Hash: b.Hash}
}

// Draft is a group of entries for one batch. They are compressed and hashed; the batch's position in
// the log is still open.
type Draft struct {
	entries   []*Entry
	events    []byte // encoded logpb.Events, compressed
	size      int    // before compression
	held      int    // as Entry.held
	root      Hash
	revisions uint64
	frees     bool   // all entries do
	level     uint32 // in which it is written; 0 for the first
}

// NewDraft makes a draft of entries, in this order. There MUST be at least one.
func NewDraft(entries []*Entry) *Draft {
	d := &Draft{entries: entries, frees: true}
	size := 0
	for _, e := range entries {
		size += protowire.SizeTag(1) + protowire.SizeBytes(len(e.bytes))
		d.revisions += e.event.Span()
		d.frees = d.frees && e.Frees
		d.held += e.held
	}
	plain := make([]byte, 0, size)
	leaves := merkle.NewEmptyRange(0)
	for _, e := range entries {
		plain = protowire.AppendTag(plain, 1, protowire.BytesType) // Events.entries
		plain = protowire.AppendBytes(plain, e.bytes)
		must(leaves.Append(e.leaf[:], nil))
	}
	d.size, d.root = len(plain), rootOf(leaves)
	d.events = encoder.EncodeAll(plain, make([]byte, 0, len(plain)/2))
	return d
}

// place encodes the draft as the batch after position `after`.
func (d *Draft) place(after Head, writer, nonce ID, logTime, clock time.Time) (*Batch, []byte) {
	b := &Batch{
		Log: after.Log, Epoch: after.Epoch, Format: max(firstLevel, d.level), First: after.Revision + 1, Revisions: d.revisions,
		Previous: after.Hash, Writer: writer, Nonce: nonce, Time: logTime, Clock: clock,
	}
	header, err := proto.Marshal(&logpb.Header{
		LogId: b.Log[:], Epoch: b.Epoch, Format: b.Format,
		FirstRevision: b.First, Revisions: b.Revisions, Events: uint32(len(d.entries)),
		Previous: b.Previous[:], Writer: writer[:], Nonce: nonce[:],
		TimeUnixNano: logTime.UnixNano(), ClockUnixNano: clock.UnixNano(),
	})
	must(err)
	b.Hash = BatchHash(b.Previous, header, d.root)
	value, err := proto.Marshal(&logpb.Batch{
		Format: b.Format, Header: header,
		Compression: logpb.Compression_COMPRESSION_ZSTD, EventsSize: uint64(d.size), Events: d.events,
	})
	must(err)
	b.Size, b.plain = len(value), d.size+d.held
	return b, value
}

// won completes a batch that was appended: it sets the revisions and the time of its events.
func (d *Draft) won(b *Batch) *Batch {
	b.Events = make([]*Event, len(d.entries))
	revision := b.First
	for i, e := range d.entries {
		e.event.Revision, e.event.Time = revision, b.Time
		revision += e.event.Span()
		b.Events[i] = e.event
	}
	return b
}

// DecodeBatch decodes the batch whose first revision is `first`. It checks that the batch is
// consistent, and computes its hash. It does not check that the batch continues the log. Errors are
// [*CorruptError] or [*UnsupportedError].
func DecodeBatch(first uint64, value []byte) (*Batch, error) {
	p, err := Split(first, value)
	if err != nil {
		return nil, err
	}
	b, err := p.Decode()
	if err != nil {
		return nil, err
	}
	b.Size = len(value)
	return b, nil
}

func decompress(pb *logpb.Batch) ([]byte, error) {
	size := pb.GetEventsSize()
	if size > maxEventsSize {
		return nil, fmt.Errorf("events of %d bytes, at most %d are read", size, maxEventsSize)
	}
	switch pb.GetCompression() {
	case logpb.Compression_COMPRESSION_NONE:
		if uint64(len(pb.GetEvents())) != size {
			return nil, fmt.Errorf("events have %d bytes, not %d", len(pb.GetEvents()), size)
		}
		return pb.GetEvents(), nil
	case logpb.Compression_COMPRESSION_ZSTD:
		// A frame that declares its size must agree; the decoder's limit stops any other.
		var frame zstd.Header
		if err := frame.Decode(pb.GetEvents()); err != nil {
			return nil, err
		}
		if frame.HasFCS && frame.FrameContentSize != size {
			return nil, fmt.Errorf("compressed events have %d bytes, not %d", frame.FrameContentSize, size)
		}
		plain, err := decoder.DecodeAll(pb.GetEvents(), make([]byte, 0, min(size, 1<<20)))
		if err != nil {
			return nil, err
		}
		if uint64(len(plain)) != size {
			return nil, fmt.Errorf("events have %d bytes, not %d", len(plain), size)
		}
		return plain, nil
	default:
		return nil, fmt.Errorf("compression %d", pb.GetCompression())
	}
}

// encoder and decoder are safe for concurrent use by EncodeAll and DecodeAll. They are made at package
// initialization, because a testing/synctest bubble that made them would own their channels.
var encoder, decoder = newEncoder(), newDecoder()

// window is how far back the encoder looks. The encoder keeps a buffer for it, for as long as the program runs.
const window = 512 << 10

func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	must(err)
	e.EncodeAll(nil, nil)
	return e
}

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxEventsSize), zstd.WithDecoderLowmem(true))
	must(err)
	return d
}

var merkle = &compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

func rootOf(leaves *compact.Range) Hash {
	root, err := leaves.GetRootHash(nil)
	must(err)
	return Hash(root)
}

// must panics on errors that only a bug in this package can cause.
func must(err error) {
	if err != nil {
		panic("eventlog: " + err.Error())
	}
}
