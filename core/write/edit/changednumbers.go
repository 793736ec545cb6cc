// This file finds numbers in a request body that would be stored with another value than the client sent.
//
// Numbers in JSON may have any number of digits. As in Kubernetes, integers of at most 64 bits are exact, and other
// numbers become 64-bit floats with 15 to 17 digits: 9007199254740993.5 becomes 9007199254740994.

package edit

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"stele.dev/stele/schemas/jsonvalue"
)

// Number is a number that would be stored with another value.
type Number struct {
	Path []any // from the root of the object: names and indexes
	Sent string
}

// Stored returns the number as it would be stored.
func (n Number) Stored() string {
	f, _ := strconv.ParseFloat(n.Sent, 64)
	text, _ := json.Marshal(f)
	return string(text)
}

// kept is how many characters a number without an exponent may have so that a 64-bit float is exact.
const kept = 15

// InJSON returns the numbers in JSON that would be stored with another value, in the order of their paths. It only
// scans the bytes, unless a number is long or has an exponent.
func InJSON(text []byte) []Number {
	if !suspicious(text) {
		return nil
	}
	x, ok := decode(text)
	if !ok {
		return nil
	}
	return collect(nil, nil, x)
}

// InPatch returns the numbers that a JSON patch sets and that would be stored with another value, at the paths of its
// operations. Steps of a path are always names, because only the object tells whether one is an index.
func InPatch(text []byte) (found []Number) {
	if !suspicious(text) {
		return nil
	}
	x, _ := decode(text)
	operations, _ := x.([]any)
	for _, o := range operations {
		operation, _ := o.(map[string]any)
		if op := operation["op"]; op != "add" && op != "replace" {
			continue
		}
		pointer, _ := operation["path"].(string)
		var path []any
		for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
			path = append(path, jsonvalue.Unescape(step))
		}
		found = collect(found, path, operation["value"])
	}
	return found
}

func decode(text []byte) (x any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return x, d.Decode(&x) == nil
}

// suspicious reports whether JSON has a number that is long or has an exponent.
func suspicious(text []byte) bool {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			if i = endOfString(text, i+1); i < 0 {
				return false
			}
		case '0' <= c && c <= '9':
			start := i
			for i < len(text) && (text[i] == '.' || '0' <= text[i] && text[i] <= '9') {
				i++
			}
			if i-start > kept || i < len(text) && text[i]|0x20 == 'e' {
				return true
			}
			i--
		}
	}
	return false
}

// endOfString returns the index of the closing quote of a string, -1 if there is none.
func endOfString(text []byte, i int) int {
	for {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		escaped := false
		for j := i - 1; text[j] == '\\'; j-- {
			escaped = !escaped
		}
		if !escaped {
			return i
		}
		i++
	}
}

// collect adds the numbers in x to found.
func collect(found []Number, path []any, x any) []Number {
	switch x := x.(type) {
	case json.Number:
		if changes(x.String()) {
			found = append(found, Number{slices.Clone(path), x.String()})
		}
	case []any:
		for i, item := range x {
			found = collect(found, append(path, i), item)
		}
	case map[string]any:
		names := make([]string, 0, len(x))
		for name := range x {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			found = collect(found, append(path, name), x[name])
		}
	}
	return found
}

// changes reports whether a decimal number is stored with another value.
func changes(sent string) bool {
	if _, err := strconv.ParseInt(sent, 10, 64); err == nil {
		return false
	}
	f, err := strconv.ParseFloat(sent, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return false // it is rejected elsewhere, or is not a number
	}
	return normal(sent) != normal(strconv.FormatFloat(f, 'e', -1, 64))
}

// decimal is the number ±0.digits × 10^exponent. The digits have no zeros at either end.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

func normal(s string) (d decimal) {
	s, d.negative = strings.CutPrefix(s, "-")
	s = strings.TrimPrefix(s, "+")
	mantissa := s
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa = s[:i]
		d.exponent, _ = strconv.Atoi(s[i+1:]) // if the number is too small for a float, the exponent does not matter
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return decimal{}
	}
	d.exponent += len(digits) - len(fraction)
	d.digits = strings.TrimRight(digits, "0")
	return d
}
