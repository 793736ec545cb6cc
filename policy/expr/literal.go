package expr

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Literal returns JSON as an expression of CEL. For Kubernetes' checker the values of a list or of a map have one type, so that they
// become dyn(…) if their types differ.
func Literal(raw json.RawMessage) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return string(raw)
	}
	text, _ := literal(v)
	return text
}

// literal returns a value as an expression, and its type.
func literal(v any) (text, is string) {
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		values := make([]any, len(keys))
		for i, key := range keys {
			values[i] = v[key]
		}
		texts, of := ofOneType(values)
		for i, key := range keys {
			texts[i] = quoted(key) + ":" + texts[i]
		}
		return "{" + strings.Join(texts, ",") + "}", "map(" + of + ")"
	case []any:
		texts, of := ofOneType(v)
		return "[" + strings.Join(texts, ",") + "]", "list(" + of + ")"
	case string:
		return quoted(v), "string"
	case bool:
		return map[bool]string{true: "true", false: "false"}[v], "bool"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return v.String(), "double"
		}
		return v.String(), "int"
	}
	return "null", "null"
}

// ofOneType returns values as expressions of one type, and the type.
func ofOneType(values []any) (texts []string, of string) {
	differ := false
	for i, x := range values {
		text, is := literal(x)
		texts = append(texts, text)
		differ = differ || i > 0 && is != of
		of = is
	}
	if !differ {
		return texts, of
	}
	for i := range texts {
		texts[i] = "dyn(" + texts[i] + ")"
	}
	return texts, "dyn"
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return `""` // strings always encode
	}
	return string(text)
}
