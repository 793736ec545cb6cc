package schemas

import (
	"encoding/json"

	"stele.dev/stele/schemas/jsonvalue"
)

// KindOfJSON returns the kind of a value that is encoded as JSON. The text must be valid JSON.
func KindOfJSON(text json.RawMessage) Kinds {
	switch text[0] {
	case 'n':
		return NullKind
	case 't', 'f':
		return BoolKind
	case '"':
		return StringKind
	case '[':
		return ListKind
	case '{':
		return StructKind
	}
	if r, err := jsonvalue.ParseDecimal(string(text)); err == nil && r.IsInt() {
		return IntegerKind
	}
	return NumberKind | IntegerKind
}

// KindOf returns the kind of a decoded JSON value, or 0 for any other Go value.
func KindOf(x any) Kinds {
	switch x := x.(type) {
	case nil:
		return NullKind
	case bool:
		return BoolKind
	case int64:
		return IntegerKind
	case float64:
		if _, ok := jsonvalue.Int64(x); ok {
			return IntegerKind
		}
		return NumberKind
	case string:
		return StringKind
	case []any:
		return ListKind
	case map[string]any:
		return StructKind
	}
	return 0
}
