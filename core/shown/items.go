package shown

import "bytes"

// Items shows objects as items of a list.
type Items struct {
	Version
	// Untyped: without apiVersion and kind, which the list says for all. So kube-apiserver
	// has those of its own kinds.
	Untyped bool
}

// Append appends the object, given as canonical JSON.
func (i Items) Append(to, json []byte) []byte {
	if !i.Untyped {
		return i.Version.Append(to, json)
	}
	return append(append(to, '{'), content(i.Of(json))...)
}

// Len is the length of what Append appends.
func (i Items) Len(json []byte) int {
	if !i.Untyped {
		return i.Version.Len(json)
	}
	return 1 + len(content(i.Of(json)))
}

// content is what follows apiVersion and kind, which come first, in whatever order.
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
