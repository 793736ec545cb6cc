package policies

import (
	"crypto/sha256"
	"slices"

	"stele.dev/stele/limits/packed"
)

// ChunkSize is the maximum size of a chunk: well below the limit of a batch.
const ChunkSize = 256 << 10

// Chunks cuts a file into the chunks that the log stores.
func Chunks(data []byte) [][]byte { return slices.Collect(slices.Chunk(data, ChunkSize)) }

// Content is the bytes of a file. It holds them compressed, because a policy is large and its text is rarely read: when it is
// loaded, and when somebody asks for it. It is immutable. The zero Content is empty.
type Content struct {
	size   int
	chunks []*chunk
}

// Pack returns content with the bytes of a file, of which it keeps nothing.
func Pack(data []byte) (c Content) {
	for _, part := range Chunks(data) {
		c.add(newChunk(part))
	}
	return c
}

// add adds a chunk at the end.
func (c *Content) add(next *chunk) { c.size, c.chunks = c.size+next.size, append(c.chunks, next) }

// Size returns the number of bytes.
func (c Content) Size() int { return c.size }

// Bytes returns the bytes of the file, which the caller may change.
func (c Content) Bytes() []byte {
	data := make([]byte, 0, c.size)
	for _, part := range c.chunks {
		data = part.append(data)
	}
	return data
}

// Digest returns the digest of the file.
func (c Content) Digest() (d Digest) {
	sum := sha256.New()
	var data []byte
	for _, part := range c.chunks {
		data = part.append(data[:0])
		sum.Write(data)
	}
	sum.Sum(d[:0])
	return d
}

// chunk is a part of a file, as the log has it. It is immutable, so that files and states share it.
type chunk struct {
	digest Digest
	size   int
	text   packed.Text
}

// newChunk makes a chunk of its bytes, of which it keeps nothing.
func newChunk(data []byte) *chunk {
	return &chunk{DigestOf(data), len(data), packed.Of(data)}
}

// append appends the bytes of the chunk.
func (c *chunk) append(to []byte) []byte { return c.text.AppendTo(to) }
