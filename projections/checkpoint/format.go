package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"
)

// magic begins every file. Its last byte is the version of the format.
const magic = "stele checkpoint\n\x01"

// The kinds of blocks.
const (
	blockSection = 1 + iota
	blockRecords
	blockFooter
	blockSealed
)

// A block's header is its kind (1 byte), the number of its records, the sizes of its content before and after
// compression, and the CRC-32C of these and of the compressed content (4 bytes each, big-endian).
const headerSize = 1 + 4*4

const (
	// blockSize is how many bytes of records a block has, unless its only record is larger.
	blockSize = 256 << 10
	// maxBlock bounds what a reader allocates for a block, whatever its header says. A record is an object or a chunk of
	// a policy; objects have at most a few MiB.
	maxBlock = 64 << 20
)

// ErrDamaged reports a file that does not have what was written to it, or that was never finished.
var ErrDamaged = errors.New("the checkpoint is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Hash identifies the content of a checkpoint: two with the same sections and records have the same hash.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Info is what the footer of a file says about it.
type Info struct {
	Sections, Records uint64
	// Bytes is the size of all records.
	Bytes uint64
	// Fold is the hash of the sections and records.
	Fold Hash
}

func (i *Info) encode() []byte {
	b := protowire.AppendVarint(nil, i.Sections)
	b = protowire.AppendVarint(b, i.Records)
	b = protowire.AppendVarint(b, i.Bytes)
	return append(b, i.Fold[:]...)
}

// fold computes an [Info] from sections and records in their order:
//
//	fold = H(section₁ ‖ … ‖ sectionₙ)
//	section = 0x00 ‖ len(name) ‖ name ‖ version ‖ H(record₁) ‖ … ‖ H(recordₘ) ‖ m
//
// with numbers as 8 bytes, big-endian. H is SHA-256. The hashes of records can be computed in parallel.
type fold struct {
	info   Info
	sum    hash.Hash
	opened bool
	inPart uint64 // records of the open section
}

func newFold() *fold { return &fold{sum: sha256.New()} }

func (f *fold) begin(name string, version uint32) {
	f.end()
	f.opened = true
	f.info.Sections++
	b := binary.BigEndian.AppendUint64([]byte{0}, uint64(len(name)))
	b = append(b, name...)
	f.sum.Write(binary.BigEndian.AppendUint64(b, uint64(version)))
}

func (f *fold) record(sum Hash, size int) {
	f.inPart++
	f.info.Records++
	f.info.Bytes += uint64(size)
	f.sum.Write(sum[:])
}

func (f *fold) end() {
	if f.opened {
		f.sum.Write(binary.BigEndian.AppendUint64(nil, f.inPart))
		f.inPart, f.opened = 0, false
	}
}

// finish ends the last section and returns the result.
func (f *fold) finish() Info {
	f.end()
	f.sum.Sum(f.info.Fold[:0])
	return f.info
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the header of a block.
type header struct {
	kind              byte
	records           uint32
	plain, compressed uint32
}

func (h header) encode(compressed []byte) []byte {
	b := append(make([]byte, 0, headerSize), h.kind)
	b = binary.BigEndian.AppendUint32(b, h.records)
	b = binary.BigEndian.AppendUint32(b, h.plain)
	b = binary.BigEndian.AppendUint32(b, h.compressed)
	return binary.BigEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, compressed))
}

func decodeHeader(b []byte) header {
	return header{kind: b[0], records: binary.BigEndian.Uint32(b[1:]), plain: binary.BigEndian.Uint32(b[5:]), compressed: binary.BigEndian.Uint32(b[9:])}
}

// encoder and decoder are safe for concurrent use by EncodeAll and DecodeAll. They are made at package
// initialization, because a testing/synctest bubble that made them would own their channels.
var encoder, decoder = newEncoder(), newDecoder()

// window is how far back the encoder looks: more than a usual block. The encoder keeps a buffer of twice that, for as long as
// the program runs.
const window = 512 << 10

func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithEncoderCRC(false))
	if err != nil {
		panic("checkpoint: " + err.Error()) // the options are constants
	}
	e.EncodeAll(nil, nil)
	return e
}

func newDecoder() *zstd.Decoder {
	// As many as read at once; there are no goroutines behind DecodeAll.
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxBlock))
	if err != nil {
		panic("checkpoint: " + err.Error())
	}
	return d
}
