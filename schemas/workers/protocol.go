package workers

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"stele.dev/stele/schemas"
)

// maxMessage is the maximum size of a question or an answer: an expression, a value, and added defaults.
const maxMessage = 8 << 20

type question struct {
	ID         uint64          `json:"id"` // counts from 1
	Expression string          `json:"expression"`
	Value      json.RawMessage `json:"value"`
	Within     time.Duration   `json:"within"` // time after which the answer is not needed
}

type answer struct {
	ID      uint64          `json:"id"`
	Verdict schemas.Verdict `json:"verdict,omitzero"`
	Heap    uint64          `json:"heap,omitempty"` // heap size of the worker in bytes
}

// write sends a message in a single write.
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

// read receives a message. It returns io.EOF if there are no more messages.
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
