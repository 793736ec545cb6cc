package eventlog

import (
	"crypto/sha256"
	"encoding/binary"
)

// First bytes of each kind of hashed input; RFC 6962 has 0x00 for leaves and 0x01 for nodes.
const (
	leafPrefix    = 0x00
	payloadPrefix = 0x02
	batchPrefix   = 0x03
)

// PayloadHash returns the hash of a payload's salt and plain content.
func PayloadHash(salt, content []byte) (sum Hash) {
	h := sha256.New()
	h.Write([]byte{payloadPrefix})
	h.Write(salt)
	h.Write(content)
	h.Sum(sum[:0])
	return sum
}

// LeafHash returns the hash of an event: a leaf of its batch's tree. It takes the metadata as it was written, and
// the hashes of all payloads in order.
func LeafHash(metadata []byte, payloads []Hash) (sum Hash) {
	h := sha256.New()
	var prefix [9]byte
	prefix[0] = leafPrefix
	binary.BigEndian.PutUint64(prefix[1:], uint64(len(metadata)))
	h.Write(prefix[:])
	h.Write(metadata)
	for i := range payloads {
		h.Write(payloads[i][:])
	}
	h.Sum(sum[:0])
	return sum
}

// BatchHash returns the hash of a batch. It takes the hash of the batch before, the header as it was written, and
// the root of the tree of the batch's leaves.
func BatchHash(previous Hash, header []byte, root Hash) (sum Hash) {
	h := sha256.New()
	h.Write([]byte{batchPrefix})
	h.Write(previous[:])
	h.Write(header)
	h.Write(root[:])
	h.Sum(sum[:0])
	return sum
}
