package jsonvalue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Canonical returns the canonical encoding of a JSON value: sorted keys, canonical decimal numbers, no
// white space.
func Canonical(text []byte) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("schemas: text after a JSON value: %s", text)
	}
	if err := canonicalNumbers(&v); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func canonicalNumbers(v *any) error {
	switch x := (*v).(type) {
	case json.Number:
		s, err := CanonicalDecimal(x.String())
		if err != nil {
			return err
		}
		*v = json.Number(s)
	case []any:
		for i := range x {
			if err := canonicalNumbers(&x[i]); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, e := range x {
			if err := canonicalNumbers(&e); err != nil {
				return err
			}
			x[k] = e
		}
	}
	return nil
}
