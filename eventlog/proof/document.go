package proof

import (
	"bytes"
	"encoding/json"
	"fmt"

	"stele.dev/stele/eventlog"
)

// Formats of proof documents, in their field "format".
const (
	InclusionFormat   = "stele.dev/inclusion-proof/v1"
	ConsistencyFormat = "stele.dev/consistency-proof/v1"
)

// maxDocument is the maximum size of a proof in bytes: a batch's events are at most 64 MiB, here in base64.
const maxDocument = 128 << 20

// maxPath is the maximum length of a path: no tree has more levels.
const maxPath = 64

// Format returns the format of a proof document, "" if it is not a document of this kind.
func Format(document []byte) string {
	var d struct {
		Format string `json:"format"`
	}
	_ = json.Unmarshal(document, &d)
	return d.Format
}

// document is an [Inclusion] or a [Consistency].
type document interface {
	// normalize makes absent lists and bytes empty ones, as they are spelled.
	normalize()
}

// encode returns the one spelling of a document.
func encode(d document) []byte {
	d.normalize()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		panic("proof: " + err.Error()) // documents have bytes, numbers and UTF-8 only
	}
	return b.Bytes()
}

// decode decodes a document in the spelling of encode.
func decode(text []byte, into document) error {
	if len(text) > maxDocument {
		return fmt.Errorf("malformed proof: %d bytes, at most %d are read", len(text), maxDocument)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("malformed proof: %w", err)
	}
	if spelling := encode(into); !bytes.Equal(spelling, text) {
		return fmt.Errorf("malformed proof: it differs from the one spelling of its contents, first at byte %d", firstDifference(spelling, text))
	}
	return nil
}

func firstDifference(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// hashOf returns a hash of a document.
func hashOf(raw []byte) (h eventlog.Hash, err error) {
	if len(raw) != len(h) {
		return h, fmt.Errorf("malformed proof: a hash of %d bytes", len(raw))
	}
	return eventlog.Hash(raw), nil
}

// checkPath returns an error if a path cannot be one.
func checkPath(path [][]byte) error {
	if len(path) > maxPath {
		return fmt.Errorf("malformed proof: a path of %d hashes", len(path))
	}
	for _, h := range path {
		if _, err := hashOf(h); err != nil {
			return err
		}
	}
	return nil
}

// nonNil makes an absent list an empty one.
func nonNil[T any](list *[]T) {
	if *list == nil {
		*list = []T{}
	}
}
