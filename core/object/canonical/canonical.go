// Package canonical encodes objects in the single form that the log stores and clients receive: compact JSON;
// apiVersion, kind and metadata first, metadata in the order of metav1.ObjectMeta, and all other keys in byte order.
// Equal objects have equal bytes, so comparing bytes shows whether a write changes anything.
package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object encodes an object. content has all other fields; its apiVersion, kind and metadata are ignored. Values are
// those of decoded JSON (nil, bool, int64, float64, string, []any, map[string]any), or a json.RawMessage that is
// canonical.
func Object(apiVersion, kind string, meta *metav1.ObjectMeta, content map[string]any) ([]byte, error) {
	into := buffers.Get().(*[]byte)
	defer buffers.Put(into)
	text, err := appendObject((*into)[:0], apiVersion, kind, meta, content)
	if err != nil {
		return nil, err
	}
	if cap(text) <= largestBuffer {
		*into = text
	}
	return bytes.Clone(text), nil
}

// buffers are *[]byte in which objects are encoded. The text of an object may be kept for long, so it gets memory of its size.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, 4<<10)) }}

// largestBuffer is the size of a buffer that is used again.
const largestBuffer = 64 << 10

func appendObject(b []byte, apiVersion, kind string, meta *metav1.ObjectMeta, content map[string]any) ([]byte, error) {
	b = append(b, `{"apiVersion":`...)
	b = appendString(b, apiVersion)
	b = append(b, `,"kind":`...)
	b = appendString(b, kind)
	b = append(b, `,"metadata":`...)
	b, err := appendMetadata(b, meta)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	if b, err = Append(b, content); err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

// Append appends the content of an object to the text before it, see [Object]. A comma precedes each field.
func Append(b []byte, content map[string]any) ([]byte, error) {
	var err error
	for _, k := range sortedKeys(make([]string, 0, 8), content) {
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
	return b, nil
}

// appendMetadata encodes metadata as its Go type does. The fields in managedFields must be canonical JSON.
func appendMetadata(b []byte, meta *metav1.ObjectMeta) ([]byte, error) {
	f := fields{b: append(b, '{')}
	f.text("name", meta.Name)
	f.text("generateName", meta.GenerateName)
	f.text("namespace", meta.Namespace)
	f.text("selfLink", meta.SelfLink) //lint:ignore SA1019 clients may have it still
	f.text("uid", string(meta.UID))
	f.text("resourceVersion", meta.ResourceVersion)
	if meta.Generation != 0 {
		f.number("generation", meta.Generation)
	}
	if !meta.CreationTimestamp.IsZero() {
		f.time("creationTimestamp", &meta.CreationTimestamp)
	}
	if meta.DeletionTimestamp != nil {
		f.time("deletionTimestamp", meta.DeletionTimestamp)
	}
	if meta.DeletionGracePeriodSeconds != nil {
		f.number("deletionGracePeriodSeconds", *meta.DeletionGracePeriodSeconds)
	}
	f.texts("labels", meta.Labels)
	f.texts("annotations", meta.Annotations)
	if len(meta.OwnerReferences) > 0 {
		f.value("ownerReferences", meta.OwnerReferences)
	}
	if len(meta.Finalizers) > 0 {
		f.value("finalizers", meta.Finalizers)
	}
	if len(meta.ManagedFields) > 0 {
		f.name("managedFields")
		f.b = append(f.b, '[')
		for i := range meta.ManagedFields {
			if i > 0 {
				f.b = append(f.b, ',')
			}
			f.entry(&meta.ManagedFields[i])
		}
		f.b = append(f.b, ']')
	}
	return append(f.b, '}'), f.err
}

// fields writes the fields of a struct after its opening brace.
type fields struct {
	b   []byte
	err error
}

func (f *fields) name(name string) {
	if f.b[len(f.b)-1] != '{' {
		f.b = append(f.b, ',')
	}
	f.b = append(f.b, '"')
	f.b = append(f.b, name...)
	f.b = append(f.b, `":`...)
}

func (f *fields) text(name, value string) {
	if value != "" {
		f.name(name)
		f.b = appendString(f.b, value)
	}
}

func (f *fields) number(name string, value int64) {
	f.name(name)
	f.b = strconv.AppendInt(f.b, value, 10)
}

func (f *fields) time(name string, at *metav1.Time) {
	f.name(name)
	if at.IsZero() {
		f.b = append(f.b, "null"...)
		return
	}
	f.b = append(at.UTC().AppendFormat(append(f.b, '"'), time.RFC3339), '"')
}

func (f *fields) texts(name string, texts map[string]string) {
	if len(texts) == 0 {
		return
	}
	f.name(name)
	f.b = append(f.b, '{')
	for i, key := range sortedKeys(make([]string, 0, 8), texts) {
		if i > 0 {
			f.b = append(f.b, ',')
		}
		f.b = append(appendString(f.b, key), ':')
		f.b = appendString(f.b, texts[key])
	}
	f.b = append(f.b, '}')
}

func (f *fields) value(name string, value any) {
	text, err := Marshal(value)
	if err != nil {
		f.err = err
	}
	f.name(name)
	f.b = append(f.b, text...)
}

func (f *fields) entry(e *metav1.ManagedFieldsEntry) {
	f.b = append(f.b, '{')
	f.text("manager", e.Manager)
	f.text("operation", string(e.Operation))
	f.text("apiVersion", e.APIVersion)
	if e.Time != nil {
		f.time("time", e.Time)
	}
	f.text("fieldsType", e.FieldsType)
	if e.FieldsV1 != nil {
		f.name("fieldsV1")
		if raw := e.FieldsV1.GetRawBytes(); len(raw) > 0 {
			f.b = append(f.b, raw...)
		} else {
			f.b = append(f.b, "null"...)
		}
	}
	f.text("subresource", e.Subresource)
	f.b = append(f.b, '}')
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
		for i, k := range sortedKeys(make([]string, 0, 8), v) {
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

// Equal reports whether two values have the same encoding.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			if len(a) != len(b) {
				return false
			}
			for key, value := range a {
				if other, ok := b[key]; !ok || !Equal(value, other) {
					return false
				}
			}
			return true
		}
	case []any:
		if b, ok := b.([]any); ok {
			return slices.EqualFunc(a, b, Equal)
		}
	case string:
		if b, ok := b.(string); ok && a == b {
			return true
		}
	case int64:
		if b, ok := b.(int64); ok {
			return a == b
		}
	}
	x, err := Value(a)
	y, other := Value(b)
	return err == nil && other == nil && bytes.Equal(x, y)
}

// sortedKeys adds the keys of a map to an empty slice, which may be on the stack of the caller, and sorts them.
func sortedKeys[V any](keys []string, m map[string]V) []string {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Marshal encodes any value as encoding/json does, but without escapes of <, > and &, which take six bytes each.
func Marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// appendString writes a string. It leaves strings that need escaping to encoding/json.
func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			text, _ := Marshal(s) // strings always encode
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
