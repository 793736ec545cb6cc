package backup

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"stele.dev/stele/eventlog"
)

// maxBatch bounds the size of one stored batch in bytes.
const maxBatch = 64 << 20

// WriteBatch writes a stored batch as a length-delimited message: its size as a varint, then its bytes.
func WriteBatch(w io.Writer, value []byte) error {
	var size [binary.MaxVarintLen64]byte
	if _, err := w.Write(size[:binary.PutUvarint(size[:], uint64(len(value)))]); err != nil {
		return err
	}
	_, err := w.Write(value)
	return err
}

// ReadBatches calls visit with each batch that [WriteBatch] has written and its bytes, up to the end of r. It checks
// that each batch continues the one before, and the first one the position `after`. It returns the position after the
// last. The bytes are valid until visit returns.
func ReadBatches(r io.Reader, after eventlog.Head, visit func(b *eventlog.Batch, value []byte) error) (eventlog.Head, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	var value []byte
	for {
		size, err := binary.ReadUvarint(in)
		if err == io.EOF {
			return after, nil
		}
		if err != nil {
			return after, fmt.Errorf("after revision %d: %w", after.Revision, err)
		}
		if size > maxBatch {
			return after, fmt.Errorf("after revision %d: a batch of %d bytes cannot be", after.Revision, size)
		}
		if uint64(cap(value)) < size {
			value = make([]byte, size)
		}
		value = value[:size]
		if _, err := io.ReadFull(in, value); err != nil {
			return after, fmt.Errorf("after revision %d: it ends within a batch: %w", after.Revision, err)
		}
		b, err := eventlog.DecodeStored(value)
		if err != nil {
			return after, err
		}
		if err := after.Continued(b); err != nil {
			return after, err
		}
		if err := visit(b, value); err != nil {
			return after, err
		}
		after = b.Head()
	}
}
