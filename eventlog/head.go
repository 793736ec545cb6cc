package eventlog

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// headFormat is the encoding of positions. It does not depend on the level in force.
const headFormat = 1

// Hash is a SHA-256 digest.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ID is 16 random bytes that identify a log, a writer, or one attempt to append.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Head is a position in a log: directly after the batch that ends at Revision and has the hash Hash. The
// zero Head is the position before the first batch of any log.
type Head struct {
	Log      ID
	Epoch    uint64
	Revision uint64
	Hash     Hash
}

const headSize = 1 + 16 + 8 + 8 + sha256.Size

// Encode returns the value of the head key, which backends compare: its own format (1 byte), log id (16),
// epoch (8), revision (8), hash (32), integers big-endian. For the zero Head, of a log that does not
// exist, it returns nil.
func (h Head) Encode() []byte {
	if h == (Head{}) {
		return nil
	}
	b := make([]byte, 0, headSize)
	b = append(b, headFormat)
	b = append(b, h.Log[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Epoch)
	b = binary.BigEndian.AppendUint64(b, h.Revision)
	return append(b, h.Hash[:]...)
}

// DecodeHead decodes what [Head.Encode] returns. The error is a [*MarkedError] if the value is a [Mark].
func DecodeHead(b []byte) (Head, error) {
	if len(b) == 0 {
		return Head{}, nil
	}
	if mark, ok := DecodeMark(b); ok {
		return Head{}, &MarkedError{mark}
	}
	if b[0] > headFormat {
		return Head{}, &UnsupportedError{What: fmt.Sprintf("a position of format %d", b[0])}
	}
	if len(b) != headSize || b[0] == 0 {
		return Head{}, &CorruptError{Reason: fmt.Sprintf("head has %d bytes, want %d", len(b), headSize)}
	}
	var h Head
	b = b[1:]
	b = b[copy(h.Log[:], b):]
	h.Epoch, b = binary.BigEndian.Uint64(b), b[8:]
	h.Revision, b = binary.BigEndian.Uint64(b), b[8:]
	copy(h.Hash[:], b)
	return h, nil
}

func (h Head) String() string {
	return fmt.Sprintf("revision %d of log %s (epoch %d, hash %.8s)", h.Revision, h.Log, h.Epoch, h.Hash)
}
