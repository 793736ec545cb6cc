package wire

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/call/negotiate"
)

// Frame is what is around the items of a list, so that a list can be written item by item. Protocol Buffers have none,
// because they begin with the length of all items: see [List].
type Frame struct {
	Head, Between, Tail []byte
	// Item converts an item from JSON, which it may return as it is.
	Item func([]byte) ([]byte, error)
}

// NewFrame returns the frame of a list with n items, which are more than none. empty is the list without them, in JSON:
// their field is its last one, and has the given name.
func NewFrame(mediaType string, pretty bool, empty []byte, field string, n int) (*Frame, error) {
	switch {
	case pretty:
		return prettyFrame(empty)
	case mediaType == negotiate.JSON:
		return &Frame{bytes.TrimSuffix(empty, []byte("]}")), []byte(","), []byte("]}\n"), func(item []byte) ([]byte, error) { return item, nil }}, nil
	case mediaType == negotiate.YAML:
		text, err := yaml.JSONToYAML(empty)
		if err != nil {
			return nil, err
		}
		return newFrame(text, "\n"+field+": []\n", "\n"+field+":\n", yamlItem)
	case mediaType == negotiate.CBOR:
		text, err := Encode(mediaType, empty)
		if err != nil {
			return nil, err
		}
		name, err := direct.Marshal(field)
		if err != nil {
			return nil, err
		}
		return newFrame(text, string(name)+"\x80", string(appendArray(name, n)), cborItem)
	}
	return nil, fmt.Errorf("wire: no list of %s is written item by item", mediaType)
}

// newFrame returns the frame of a text that is split at the only occurrence of none.
func newFrame(text []byte, none, begin string, item func([]byte) ([]byte, error)) (*Frame, error) {
	before, after, found := bytes.Cut(text, []byte(none))
	if !found {
		return nil, fmt.Errorf("wire: no items in %q", text)
	}
	return &Frame{Head: append(bytes.Clone(before), begin...), Tail: after, Item: item}, nil
}

func prettyFrame(empty []byte) (*Frame, error) {
	var text bytes.Buffer
	if err := json.Indent(&text, empty, "", "  "); err != nil {
		return nil, err
	}
	head := bytes.TrimSuffix(text.Bytes(), []byte("]\n}"))
	return &Frame{append(head, "\n    "...), []byte(",\n    "), []byte("\n  ]\n}"), func(item []byte) ([]byte, error) {
		var text bytes.Buffer
		err := json.Indent(&text, item, "    ", "  ")
		return text.Bytes(), err
	}}, nil
}

func yamlItem(item []byte) ([]byte, error) {
	return yaml.JSONToYAML(append(append([]byte{'['}, item...), ']'))
}

func cborItem(item []byte) ([]byte, error) {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(item, &content); err != nil {
		return nil, err
	}
	return direct.Marshal(content)
}

// appendArray appends the head of an array of CBOR (RFC 8949, 3).
func appendArray(to []byte, n int) []byte {
	const array = 4 << 5
	switch {
	case n < 24:
		return append(to, array|byte(n))
	case n < 1<<8:
		return append(to, array|24, byte(n))
	case n < 1<<16:
		return append(to, array|25, byte(n>>8), byte(n))
	}
	return append(to, array|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}
