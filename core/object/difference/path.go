package difference

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"stele.dev/stele/core/object/canonical"
)

// Step leads from a value to a part of it: to a field if Key is nil and Item is false, to a list item by its keys if
// Key is set, else to a list item by its index.
type Step struct {
	Field string
	Index int
	Key   []KeyValue // of an item of a list of type map
	Item  bool       // Index is used
}

// KeyValue is a key of an item, and its value, a scalar.
type KeyValue struct {
	Name  string
	Value any
}

// Path leads from an object to a part of it. As text it is written as in Kubernetes: spec.containers[0].image,
// metadata.annotations["example.com/note"], spec.ports[port=80,protocol=TCP].
type Path []Step

// Join returns the path with one more step. It shares nothing with p.
func (p Path) Join(s Step) Path { return append(p[:len(p):len(p)], s) }

const (
	// LongPath and deepPath are the length, as text and in steps, from which a value is compared as a whole.
	LongPath = 256
	deepPath = 32
)

// Whole reports whether the value at the path is compared as a whole. Otherwise, deep objects would have very many
// paths, each almost as long as the object.
func (p Path) Whole() bool {
	size := 0
	for _, s := range p {
		size += len(s.Field) + 2
		for _, k := range s.Key {
			size += len(k.Name) + 2
			if text, ok := k.Value.(string); ok {
				size += len(text)
			}
		}
	}
	return len(p) >= deepPath || size >= LongPath
}

// String returns the path as text. It is the inverse of [Parse].
func (p Path) String() string {
	var b strings.Builder
	for _, s := range p {
		s.write(&b)
	}
	return b.String()
}

func (s Step) write(b *strings.Builder) {
	switch {
	case s.Item:
		b.WriteByte('[')
		b.WriteString(strconv.Itoa(s.Index))
		b.WriteByte(']')
	case s.Key != nil:
		b.WriteByte('[')
		for i, k := range s.Key {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(plainOr(k.Name))
			b.WriteByte('=')
			if text, ok := k.Value.(string); ok {
				b.WriteString(plainOr(text))
			} else {
				b.WriteString(quote(k.Value))
			}
		}
		b.WriteByte(']')
	case needsNoQuotes(s.Field):
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.Field)
	default:
		b.WriteByte('[')
		b.WriteString(quote(s.Field))
		b.WriteByte(']')
	}
}

// needsNoQuotes reports whether a name needs no quotes: it starts with a letter, and is not a JSON keyword.
func needsNoQuotes(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != "" && name != "true" && name != "false" && name != "null"
}

func plainOr(text string) string {
	if needsNoQuotes(text) {
		return text
	}
	return quote(text)
}

// quote returns a scalar as JSON, without escapes for HTML.
func quote(scalar any) string {
	text, _ := canonical.Marshal(scalar) // scalars of decoded JSON always encode
	return string(text)
}

// Parse parses a path. An error tells where the text stops being one.
func Parse(text string) (Path, error) {
	r := &reader{text: text}
	var p Path
	for r.at < len(text) {
		var s Step
		var err error
		if text[r.at] == '[' {
			r.at++
			s, err = r.bracket()
		} else {
			if len(p) > 0 && !r.take('.') {
				err = errors.New("a dot or a bracket is missing")
			}
			if err == nil {
				s.Field, err = r.word()
			}
		}
		if err != nil {
			return nil, fmt.Errorf("path %q, at %d: %w", text, r.at, err)
		}
		p = append(p, s)
	}
	return p, nil
}

type reader struct {
	text string
	at   int
}

func (r *reader) take(c byte) bool {
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

func (r *reader) word() (string, error) {
	from := r.at
	for r.at < len(r.text) && strings.IndexByte(".[]=,\"", r.text[r.at]) < 0 {
		r.at++
	}
	if word := r.text[from:r.at]; needsNoQuotes(word) {
		return word, nil
	}
	return "", errors.New("a name is missing; what is not a word stands in brackets and quotes")
}

// bracket parses the rest of a bracket.
func (r *reader) bracket() (s Step, err error) {
	for {
		v, err := r.scalar()
		if err != nil {
			return s, err
		}
		name, isText := v.(string)
		index, isNumber := v.(int64)
		switch {
		case isText && r.take('='):
			k := KeyValue{Name: name}
			if k.Value, err = r.scalar(); err != nil {
				return s, err
			}
			s.Key = append(s.Key, k)
		case len(s.Key) == 0 && isText && r.text[r.at-1] == '"':
			s.Field = name
			return s, r.closing()
		case len(s.Key) == 0 && isNumber && index >= 0 && index < 1<<31:
			s.Item, s.Index = true, int(index)
			return s, r.closing()
		default:
			return s, errors.New("in brackets stand an index, a quoted name, or keys and their values")
		}
		if !r.take(',') {
			return s, r.closing()
		}
	}
}

func (r *reader) closing() error {
	if !r.take(']') {
		return errors.New("a closing bracket is missing")
	}
	return nil
}

// scalar parses a word, or a scalar in JSON.
func (r *reader) scalar() (any, error) {
	rest := r.text[r.at:]
	if rest == "" {
		return nil, errors.New("it ends in a bracket")
	}
	if needsNoQuotes(rest[:1]) {
		end := strings.IndexAny(rest, "=,]")
		if end < 0 {
			return nil, errors.New("a closing bracket is missing")
		}
		switch word := rest[:end]; word {
		case "true", "false", "null":
			r.at += end
			return map[string]any{"true": true, "false": false}[word], nil
		}
		return r.word()
	}
	d := json.NewDecoder(strings.NewReader(rest))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, errors.New("it is neither a word nor a scalar of JSON")
	}
	r.at += int(d.InputOffset())
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, nil
		}
		return v.Float64()
	case string:
		return v, nil
	}
	return nil, errors.New("it is neither a word nor a scalar of JSON")
}
