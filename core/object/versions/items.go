package versions

import "bytes"

// Items shows objects as items of a list.
type Items struct {
	Version
	// Untyped omits apiVersion and kind, which the list has. kube-apiserver does so for its own kinds.
	Untyped bool
}

// Append appends an object, which is canonical JSON.
func (i Items) Append(to, json []byte) ([]byte, error) {
	if !i.Untyped {
		return i.Version.Append(to, json)
	}
	text, err := i.Of(json)
	if err != nil {
		return to, err
	}
	return append(append(to, '{'), content(text)...), nil
}

// Len returns the length of what Append appends.
func (i Items) Len(json []byte) int {
	if !i.Untyped {
		return i.Version.Len(json)
	}
	text, err := i.Of(json)
	if err != nil {
		return 0
	}
	return 1 + len(content(text))
}

// content returns the rest of an object after apiVersion and kind, which are first in either order.
func content(json []byte) []byte {
	json = json[1:]
	for _, field := range [...]string{`"apiVersion":"`, `"kind":"`, `"apiVersion":"`} {
		if !bytes.HasPrefix(json, []byte(field)) {
			continue
		}
		json = json[len(field):]
		json = bytes.TrimPrefix(json[bytes.IndexByte(json, '"')+1:], []byte{','})
	}
	return json
}
