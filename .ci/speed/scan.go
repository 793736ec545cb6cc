package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// What follows walks through JSON once and builds no values, so that the clients take little of the machine.

var errJSON = errors.New("malformed JSON")

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at b[i].
func skipString(b []byte, i int) (int, error) {
	i++
	for {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return 0, errJSON
		}
		i += j
		k := i
		for b[k-1] == '\\' {
			k--
		}
		i++
		if (i-1-k)%2 == 0 {
			return i, nil
		}
	}
}

// skipValue returns the index after the value that begins at b[i].
func skipValue(b []byte, i int) (int, error) {
	start, depth := i, 0
	for i < len(b) {
		switch b[i] {
		case '"':
			end, err := skipString(b, i)
			if err != nil || depth == 0 {
				return end, err
			}
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
			if depth < 0 && i > start {
				return i, nil // after a number or a word
			}
			if depth < 0 {
				return 0, errJSON
			}
		case ',':
			if depth == 0 && i > start {
				return i, nil
			}
			if depth == 0 {
				return 0, errJSON
			}
		}
		i++
	}
	return 0, errJSON
}

// fields calls a function with each field of an object.
func fields(b []byte, each func(key string, value []byte) error) error {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return errJSON
	}
	for i++; ; {
		switch i = skipSpace(b, i); {
		case i >= len(b):
			return errJSON
		case b[i] == '}':
			return nil
		case b[i] == ',':
			i++
			continue
		case b[i] != '"':
			return errJSON
		}
		end, err := skipString(b, i)
		if err != nil {
			return err
		}
		key := string(b[i+1 : end-1])
		if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
			return errJSON
		}
		i = skipSpace(b, i+1)
		if end, err = skipValue(b, i); err != nil {
			return err
		}
		if err := each(key, b[i:end]); err != nil {
			return err
		}
		i = end
	}
}

// scanList calls a function with each item of a list, and returns the list's version and its continue token.
func scanList(b []byte, each func(item []byte) error) (version, next string, err error) {
	found := false
	err = fields(b, func(key string, value []byte) error {
		switch key {
		case "metadata":
			var m struct{ ResourceVersion, Continue string }
			if err := json.Unmarshal(value, &m); err != nil {
				return err
			}
			version, next = m.ResourceVersion, m.Continue
		case "items":
			if found = value[0] == '['; !found {
				return errJSON
			}
			for i := 1; ; {
				switch i = skipSpace(value, i); value[i] {
				case ']':
					return nil
				case ',':
					i++
				default:
					end, err := skipValue(value, i)
					if err != nil {
						return err
					}
					if err := each(value[i:end]); err != nil {
						return err
					}
					i = end
				}
			}
		}
		return nil
	})
	if err == nil && !found {
		err = errors.New("a list without items")
	}
	return version, next, err
}

var (
	versionKey = []byte(`"resourceVersion":"`)
	nameKey    = []byte(`"name":"` + namePrefix)
)

// numberAfter returns the number that stands behind a text.
func numberAfter(b, key []byte) (uint64, error) {
	i := bytes.Index(b, key)
	if i < 0 {
		return 0, fmt.Errorf("no %s in %.200q", key, b)
	}
	var v uint64
	start := i + len(key)
	for i = start; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		v = v*10 + uint64(b[i]-'0')
	}
	if i == start {
		return 0, fmt.Errorf("no number behind %s in %.200q", key, b)
	}
	return v, nil
}

// versionOf returns the resourceVersion of one of our objects, which have that text nowhere else.
func versionOf(object []byte) (uint64, error) { return numberAfter(object, versionKey) }

// indexOf returns the number in the name of one of our objects.
func indexOf(object []byte) (int, error) {
	i, err := numberAfter(object, nameKey)
	return int(i), err
}

// splitEvent returns the type and the object of a line of a watch.
func splitEvent(line []byte) (kind string, object []byte, err error) {
	err = fields(line, func(key string, value []byte) error {
		switch key {
		case "type":
			kind = string(bytes.Trim(value, `"`))
		case "object":
			object = value
		}
		return nil
	})
	if err == nil && (kind == "" || object == nil) {
		err = errJSON
	}
	return kind, object, err
}
