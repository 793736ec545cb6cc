package memory

import (
	stdbytes "bytes"
	"mime"
	"strings"
)

// values counts about how many values a body has, while it is read.
type values struct {
	encoding encoding
	n        int64
	quoted   bool // in a string of JSON
	escaped  bool // after a backslash in it
}

type encoding uint8

const (
	asText encoding = iota // YAML, and what is not known
	asJSON                 // JSON
	asCBOR
)

// encodingOf returns how bodies of a Content-Type are counted. Without one, a body is JSON.
func encodingOf(contentType string) encoding {
	mediaType, _, _ := mime.ParseMediaType(contentType)
	switch {
	case contentType == "" || strings.HasSuffix(mediaType, "json"):
		return asJSON
	case strings.HasSuffix(mediaType, "cbor"):
		return asCBOR
	}
	return asText
}

// add counts the values in the next part of the body.
func (v *values) add(part []byte) {
	switch v.encoding {
	case asJSON:
		v.addJSON(part)
	case asCBOR:
		for _, b := range part {
			if 0x80 <= b && b < 0xc0 { // an array or a map begins
				v.n++
			}
		}
	default:
		v.n += separators(part) + int64(stdbytes.Count(part, newLine)+stdbytes.Count(part, item))
	}
}

// addJSON counts outside of strings, where a body that is well-formed has a separator for each value.
func (v *values) addJSON(part []byte) {
	i := 0
	if v.escaped && len(part) > 0 {
		v.escaped, i = false, 1
	}
	for i < len(part) {
		if !v.quoted {
			for i < len(part) && part[i] != '"' {
				v.n += int64(separates[part[i]])
				i++
			}
			v.quoted = i < len(part)
			i++
			continue
		}
		for i < len(part) && part[i] != '"' && part[i] != '\\' {
			i++
		}
		switch {
		case i == len(part):
		case part[i] == '"':
			v.quoted = false
			i++
		default:
			v.escaped = i+1 == len(part)
			i += 2
		}
	}
}

// separates has 1 for the characters after which a value begins.
var separates = [256]uint8{',': 1, '{': 1, '[': 1}

func separators(part []byte) (n int64) {
	for _, b := range part {
		n += int64(separates[b])
	}
	return n
}

var newLine, item = []byte{'\n'}, []byte("- ")

// decoded returns about how many bytes a body takes while it is decoded, validated and answered: several copies of its text,
// and its values with their names in maps and sets of fields. In CBOR a byte can be a value.
func (v *values) decoded(length int64) int64 {
	if v.encoding == asCBOR {
		return 16*length + 600*v.n
	}
	return 4*length + 600*v.n
}
