package jsonvalue

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
)

// UnmarshalObject decodes the JSON of an object, which may be in several parts, exactly as
// sigs.k8s.io/json.UnmarshalCaseSensitivePreserveInts does, with its errors. It is nil for null. Strings of the result may be parts of one
// text: a string that outlives the object must be cloned.
func UnmarshalObject(parts ...[]byte) (map[string]any, error) {
	if object, ok := readObject(parts...); ok {
		return object, nil
	}
	text := parts[0]
	if len(parts) > 1 {
		text = slices.Concat(parts...)
	}
	var object map[string]any
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &object)
	return object, err
}

// UnmarshalObjectStrict is [UnmarshalObject], and returns the duplicate fields as sigs.k8s.io/json.UnmarshalStrict does.
func UnmarshalObjectStrict(text []byte) (object map[string]any, duplicates []error, err error) {
	if object, ok := readObject(text); ok {
		return object, nil, nil
	}
	duplicates, err = kjson.UnmarshalStrict(text, &object)
	return object, duplicates, err
}

// largestText is the size of a text up to which strings are parts of it. Budgets of memory count what is decoded from a large body, and
// not a copy of the body with its white space.
const largestText = 64 << 10

// readObject decodes the JSON of an object. ok is false if that is left to sigs.k8s.io/json: a text that is large, is not valid, has a
// duplicate field, is deep, or is no object.
func readObject(parts ...[]byte) (object map[string]any, ok bool) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if size > largestText {
		return nil, false
	}
	var text strings.Builder
	text.Grow(size)
	for _, part := range parts {
		text.Write(part)
	}
	r := reader{text: text.String()}
	r.space()
	if r.peek() != '{' {
		return nil, false
	}
	object, ok = r.object()
	r.space()
	return object, ok && r.at == len(r.text)
}

// deepest is the nesting of objects and lists that a reader takes.
const deepest = 200

// reader reads valid JSON. Its methods begin at the first byte of a value, and return false for what it does not read.
type reader struct {
	text  string
	at    int // the next byte
	depth int
}

// space skips white space.
func (r *reader) space() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end.
func (r *reader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

// next skips white space, and reports whether the byte behind it is c, which it skips as well.
func (r *reader) next(c byte) bool {
	r.space()
	if r.peek() != c {
		return false
	}
	r.at++
	return true
}

func (r *reader) value() (any, bool) {
	r.space()
	switch r.peek() {
	case '"':
		return boxed(r.string())
	case '{':
		return boxed(r.object())
	case '[':
		return boxed(r.list())
	case 't':
		return true, r.literal("true")
	case 'f':
		return false, r.literal("false")
	case 'n':
		return nil, r.literal("null")
	}
	return r.number()
}

func boxed[T any](value T, ok bool) (any, bool) { return value, ok }

func (r *reader) literal(text string) bool {
	if !strings.HasPrefix(r.text[r.at:], text) {
		return false
	}
	r.at += len(text)
	return true
}

func (r *reader) object() (map[string]any, bool) {
	r.at++
	object := map[string]any{}
	if r.next('}') {
		return object, true
	}
	if r.depth++; r.depth > deepest {
		return nil, false
	}
	for {
		if r.space(); r.peek() != '"' {
			return nil, false
		}
		name, ok := r.string()
		if !ok || !r.next(':') {
			return nil, false
		}
		value, ok := r.value()
		if !ok {
			return nil, false
		}
		before := len(object)
		if object[name] = value; len(object) == before {
			return nil, false // a duplicate
		}
		if r.next(',') {
			continue
		}
		r.depth--
		return object, r.next('}')
	}
}

func (r *reader) list() ([]any, bool) {
	r.at++
	list := []any{}
	if r.next(']') {
		return list, true
	}
	if r.depth++; r.depth > deepest {
		return nil, false
	}
	for {
		value, ok := r.value()
		if !ok {
			return nil, false
		}
		list = append(list, value)
		if r.next(',') {
			continue
		}
		r.depth--
		return list, r.next(']')
	}
}

// string reads a string. One without escapes is a part of the text.
func (r *reader) string() (string, bool) {
	from, plain, ascii := r.at, true, true
	for i := r.at + 1; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			r.at = i + 1
			inside := r.text[from+1 : i]
			if !plain {
				return unquote(r.text[from : i+1])
			}
			return inside, ascii || utf8.ValidString(inside)
		case c == '\\':
			plain = false
			i++
		case c < ' ':
			return "", false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return "", false
}

// unquote decodes a string with escapes.
func unquote(text string) (s string, ok bool) {
	err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &s)
	return s, err == nil
}

// number reads a number: an int64 if it is an integer that fits.
func (r *reader) number() (any, bool) {
	from, whole := r.at, true
	if r.peek() == '-' {
		r.at++
	}
	if r.peek() == '0' {
		r.at++ // a digit behind it is not valid, and nobody takes it
	} else if !r.digits() {
		return nil, false
	}
	if r.peek() == '.' {
		if r.at, whole = r.at+1, false; !r.digits() {
			return nil, false
		}
	}
	if c := r.peek(); c == 'e' || c == 'E' {
		r.at, whole = r.at+1, false
		if c := r.peek(); c == '+' || c == '-' {
			r.at++
		}
		if !r.digits() {
			return nil, false
		}
	}
	text := r.text[from:r.at]
	if whole {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, true
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

// digits skips digits, and reports whether there is one.
func (r *reader) digits() bool {
	from := r.at
	for c := r.peek(); '0' <= c && c <= '9'; c = r.peek() {
		r.at++
	}
	return r.at > from
}
