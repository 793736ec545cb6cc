package packed_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"stele.dev/stele/limits/packed"
)

func TestTexts(t *testing.T) {
	for _, text := range []string{"", "a", "no two letters are the sm", strings.Repeat("a widget has a size. ", 10_000)} {
		p := packed.Of([]byte(text))
		if p.Len() != len(text) || string(p.Bytes()) != text || p.IsZero() != (text == "") || p != packed.Of([]byte(text)) {
			t.Errorf("%.40q is held as %d bytes", text, p.Len())
		}
		if got := string(p.AppendTo([]byte("before "))); got != "before "+text {
			t.Errorf("%.40q", got)
		}
	}
}

// A document in a field is encoded as it was decoded, and left out if there is none.
func TestDocuments(t *testing.T) {
	type kind struct {
		Definition packed.JSON `json:"definition,omitzero"`
	}
	for _, text := range []string{`{}`, `{"definition":{"spec":{"a":[1,"<\u0026>"]}}}`} {
		var k kind
		if err := json.Unmarshal([]byte(text), &k); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		var plain struct {
			Definition json.RawMessage `json:"definition,omitempty"`
		}
		if err := json.Unmarshal([]byte(text), &plain); err != nil {
			t.Fatal(err)
		}
		if want, _ := json.Marshal(plain); !bytes.Equal(again, want) {
			t.Errorf("%s is %s, as a raw message %s", text, again, want)
		}
	}
}
