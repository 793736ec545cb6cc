package celtype

import (
	"encoding/base64"
	"fmt"
	"math"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Native returns a CEL value as decoded JSON. A timestamp, a duration and bytes become the strings that schemas have
// for them. The result may share lists and maps with the object that the value was read from: the caller must copy
// what it changes. Values that JSON does not have, such as quantities, are errors.
func Native(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if v > math.MaxInt64 {
			return nil, fmt.Errorf("the number %d is too large", v)
		}
		return int64(v), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, fmt.Errorf("the number %v has no form in JSON", float64(v))
		}
		return float64(v), nil
	case types.String:
		return string(v), nil
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), nil
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return v.Duration.String(), nil
	case *types.Optional:
		if !v.HasValue() {
			return nil, nil
		}
		return Native(v.GetValue())
	case *messageValue:
		return v.fields, nil
	case *objectValue:
		return nativeMap(v.asMap())
	case *sortedMap:
		if v.json != nil {
			return v.json, nil
		}
		return nativeMap(v)
	case traits.Lister:
		return nativeList(v)
	case traits.Mapper:
		return nativeMap(v)
	case *types.Err:
		return nil, v
	}
	return nil, fmt.Errorf("a %s has no form in JSON; write string(…)", v.Type().TypeName())
}

func nativeList(l traits.Lister) ([]any, error) {
	list := []any{}
	for i := l.Iterator(); i.HasNext() == types.True; {
		x, err := Native(i.Next())
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return list, nil
}

func nativeMap(m traits.Mapper) (map[string]any, error) {
	fields := map[string]any{}
	if literal, ok := m.Value().(map[ref.Val]ref.Val); ok { // its iterator uses reflection
		for key, value := range literal {
			if err := nativeEntry(fields, key, value); err != nil {
				return nil, err
			}
		}
		return fields, nil
	}
	for i := m.Iterator(); i.HasNext() == types.True; {
		key := i.Next()
		if err := nativeEntry(fields, key, m.Get(key)); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

func nativeEntry(fields map[string]any, key, value ref.Val) (err error) {
	name, ok := key.(types.String)
	if !ok {
		return fmt.Errorf("a map has the key %v, which is a %s and not a string", key.Value(), key.Type().TypeName())
	}
	fields[string(name)], err = Native(value)
	return err
}
