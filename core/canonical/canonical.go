// Package canonical encodes objects in the one form in which the log holds them and
// clients get them: compact JSON; apiVersion, kind and metadata first, metadata in
// the order of metav1.ObjectMeta, all other keys in byte order. Equal objects have
// equal bytes, so that a write that changes nothing can be told by comparing.
package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object encodes an object whose content holds everything but apiVersion, kind and
// metadata; what it has under these keys is not looked at. Values are those of
// decoded JSON (nil, bool, int64, float64, string, []any, map[string]any), or a
// json.RawMessage that is canonical already.
func Object(apiVersion, kind string, meta *metav1.ObjectMeta, content map[string]any) ([]byte, error) {
	b := make([]byte, 0, 2048)
	b = append(b, `{"apiVersion":`...)
	b = appendString(b, apiVersion)
	b = append(b, `,"kind":`...)
	b = appendString(b, kind)
	b = append(b, `,"metadata":`...)
	b, err := appendMetadata(b, meta)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	for _, k := range sortedKeys(content) {
		if k == "apiVersion" || k == "kind" || k == "metadata" {
			continue
		}
		b = append(b, ',')
		b = appendString(b, k)
		b = append(b, ':')
		if b, err = appendValue(b, content[k]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendMetadata leaves managedFields to itself: they are most of the metadata, and what
// they hold is canonical JSON.
func appendMetadata(b []byte, meta *metav1.ObjectMeta) ([]byte, error) {
	rest := *meta
	rest.ManagedFields = nil
	text, err := marshal(&rest)
	if err != nil || len(meta.ManagedFields) == 0 {
		return append(b, text...), err
	}
	b = append(b, text[:len(text)-1]...)
	if len(text) > len("{}") {
		b = append(b, ',')
	}
	b = append(b, `"managedFields":[`...)
	for i := range meta.ManagedFields {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendEntry(b, &meta.ManagedFields[i]); err != nil {
			return nil, err
		}
	}
	return append(b, "]}"...), nil
}

// appendEntry writes an entry as its type is encoded.
func appendEntry(b []byte, e *metav1.ManagedFieldsEntry) ([]byte, error) {
	b = append(b, '{')
	text := func(name, value string) {
		if value == "" {
			return
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
		b = appendString(b, value)
	}
	text("manager", e.Manager)
	text("operation", string(e.Operation))
	text("apiVersion", e.APIVersion)
	if e.Time != nil {
		at, err := e.Time.MarshalJSON()
		if err != nil {
			return nil, err
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(b, `"time":`...), at...)
	}
	text("fieldsType", e.FieldsType)
	if e.FieldsV1 != nil {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(b, `"fieldsV1":`...)
		if raw := e.FieldsV1.GetRawBytes(); len(raw) > 0 {
			b = append(b, raw...)
		} else {
			b = append(b, "null"...)
		}
	}
	text("subresource", e.Subresource)
	return append(b, '}'), nil
}

// Value encodes one value.
func Value(v any) ([]byte, error) { return appendValue(nil, v) }

func appendValue(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		return appendString(b, v), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case map[string]any:
		b = append(b, '{')
		for i, k := range sortedKeys(v) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, k)
			b = append(b, ':')
			if b, err = appendValue(b, v[k]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []any:
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendValue(b, x); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case json.RawMessage:
		return append(b, v...), nil
	case float64:
		text, err := json.Marshal(v)
		return append(b, text...), err
	default:
		return nil, fmt.Errorf("encode: unexpected %T", v)
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// marshal leaves <, > and & as they are: escaped, they would take six bytes each.
func marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// appendString writes plain strings as they are, and leaves all others to
// encoding/json.
func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			text, _ := marshal(s) // strings always encode
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
