// Package packed holds texts compressed in memory.
package packed

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
)

// Text is a text that is large and rarely read, such as the source of a policy. It is immutable. The zero Text is empty. Texts with the same bytes
// are equal.
type Text struct{ packed string }

// Of returns a text. It keeps nothing of the data.
func Of(data []byte) Text {
	if len(data) == 0 {
		return Text{}
	}
	return Text{string(s2.EncodeBetter(nil, data))}
}

// longestLength is the most bytes that a packed text has for its length.
const longestLength = 10

// Len returns the number of bytes before compression.
func (t Text) Len() int {
	if t.packed == "" {
		return 0
	}
	n, err := s2.DecodedLen([]byte(t.packed[:min(len(t.packed), longestLength)]))
	must(err)
	return n
}

// AppendTo appends the bytes.
func (t Text) AppendTo(to []byte) []byte {
	if t.packed == "" {
		return to
	}
	n := t.Len()
	to = slices.Grow(to, n)
	data, err := s2.Decode(to[len(to):len(to)+n], []byte(t.packed))
	must(err)
	return to[:len(to)+len(data)]
}

// Bytes returns the bytes, which the caller may change; nil if there are none.
func (t Text) Bytes() []byte { return t.AppendTo(nil) }

// IsZero reports whether the text is empty.
func (t Text) IsZero() bool { return t.packed == "" }

// JSON is a JSON document. It is encoded as the document itself.
type JSON struct{ Text }

// MarshalJSON returns the document.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j.IsZero() {
		return []byte("null"), nil
	}
	return j.Bytes(), nil
}

// UnmarshalJSON keeps a document as it is written.
func (j *JSON) UnmarshalJSON(text []byte) error {
	j.Text = Of(bytes.TrimSpace(text))
	return nil
}

// must panics with an error about a text that [Of] has made.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("packed: %v", err))
	}
}
