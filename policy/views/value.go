package views

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxText is the maximum length of a text in a row. A longer one is an error.
const maxText = 4096

type valueKind uint8

const (
	null valueKind = iota
	boolean
	integer
	float
	text
	date
)

// Value is the value of a column. The zero value is null.
type Value struct {
	kind    valueKind
	integer int64 // also of booleans, and of dates in nanoseconds within the second
	float   float64
	text    string
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// dateOf returns a time as a value. Kubernetes' times are whole seconds.
func dateOf(t time.Time) Value {
	t = t.UTC().Truncate(time.Second)
	return Value{kind: date, integer: t.Unix(), text: t.Format(time.RFC3339)}
}

// appendJSON appends the value as JSON.
func (v Value) appendJSON(to []byte) []byte {
	switch v.kind {
	case boolean:
		return strconv.AppendBool(to, v.integer != 0)
	case integer:
		return strconv.AppendInt(to, v.integer, 10)
	case float:
		return appendFloat(to, v.float)
	case text, date:
		return appendText(to, v.text)
	}
	return append(to, "null"...)
}

// appendPlain appends the value as selectors compare it: like gjson, a null is "".
func (v Value) appendPlain(to []byte) []byte {
	switch v.kind {
	case null:
		return to
	case text, date:
		return append(to, v.text...)
	}
	return v.appendJSON(to)
}

// appendFloat appends a number as encoding/json does.
func appendFloat(to []byte, f float64) []byte {
	text, err := json.Marshal(f)
	if err != nil {
		return append(to, "null"...) // it is finite
	}
	return append(to, text...)
}

// appendText appends a text as JSON.
func appendText(to []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f || c == '<' || c == '>' || c == '&' {
			var b strings.Builder
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			_ = e.Encode(s) // a text always encodes
			return append(to, strings.TrimSuffix(b.String(), "\n")...)
		}
	}
	return append(append(append(to, '"'), s...), '"')
}

// appendKey appends the value so that the order of bytes is that of values of one type. null comes first.
func (v Value) appendKey(to []byte) []byte {
	switch v.kind {
	case null:
		return append(to, 0)
	case boolean, integer, date:
		return binary.BigEndian.AppendUint64(append(to, 1), uint64(v.integer)^1<<63)
	case float:
		bits := math.Float64bits(v.float + 0) // -0 is 0
		if bits>>63 != 0 {
			bits = ^bits
		} else {
			bits |= 1 << 63
		}
		return binary.BigEndian.AppendUint64(append(to, 1), bits)
	}
	to = append(to, 1)
	for i := range len(v.text) {
		if to = append(to, v.text[i]); v.text[i] == 0 {
			to = append(to, 0xff)
		}
	}
	return append(to, 0, 0)
}

// sortKeyOf returns the place of a row among the others, which the order of bytes compares.
func (v *View) sortKeyOf(values []Value) string {
	if len(v.sort) == 0 {
		return ""
	}
	var buffer [64]byte
	key := buffer[:0]
	for _, s := range v.sort {
		from := len(key)
		key = values[s.at].appendKey(key)
		if s.descending {
			for i := from; i < len(key); i++ {
				key[i] = ^key[i]
			}
		}
	}
	return string(key)
}
