package workers

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"stele.dev/stele/schemas"
)

// maxMessage bounds a question and an answer: an expression, a value, and what defaults add
// to it.
const maxMessage = 8 << 20

type question struct {
	ID         uint64          `json:"id"` // from 1
	Expression string          `json:"expression"`
	Value      json.RawMessage `json:"value"`
	Within     time.Duration   `json:"within"` // after that nobody waits for the answer
}

type answer struct {
	ID      uint64          `json:"id"`
	Verdict schemas.Verdict `json:"verdict,omitzero"`
	Heap    uint64          `json:"heap,omitempty"` // of the worker, in bytes
}

// write sends a message in one piece.
func write(to io.Writer, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > maxMessage {
		return fmt.Errorf("workers: a message of %d bytes", len(text))
	}
	_, err = to.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text))), text...))
	return err
}

// read receives a message. Its error is io.EOF if there is none more.
func read(from io.Reader, message any) error {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxMessage {
		return fmt.Errorf("workers: a message of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(from, text); err != nil {
		return err
	}
	return json.Unmarshal(text, message)
}
