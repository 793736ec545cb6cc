// Package jsonvalue is the handling of decoded JSON: decoding, comparing, copying, values at paths, the canonical spelling.
package jsonvalue

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// PlainNumbers converts floats without a fraction to int64, in place, and returns x. CUE distinguishes
// 1.0 from 1; JSON does not.
func PlainNumbers(x any) any {
	switch x := x.(type) {
	case float64:
		if n, ok := Int64(x); ok {
			return n
		}
	case []any:
		for i := range x {
			x[i] = PlainNumbers(x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = PlainNumbers(x[k])
		}
	}
	return x
}

// Clone returns a deep copy of decoded JSON.
func Clone(x any) any {
	switch x := x.(type) {
	case map[string]any:
		m := make(map[string]any, len(x))
		for k, v := range x {
			m[k] = Clone(v)
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, v := range x {
			l[i] = Clone(v)
		}
		return l
	}
	return x
}

// Decode decodes JSON as objects are decoded: integers become int64.
func Decode(text []byte) (any, error) {
	var v any
	strict, err := kjson.UnmarshalStrict(text, &v)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("schemas: %s: %w", strings.TrimSpace(string(text)), err)
	}
	return v, nil
}

// DecodeAll decodes several JSON texts as [Decode] does.
func DecodeAll[T ~[]byte](texts []T) ([]any, error) {
	var values []any
	for _, text := range texts {
		v, err := Decode(text)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// SameScalar reports whether x and y are equal scalars. Numbers are compared by value.
func SameScalar(x, y any) bool {
	switch x := x.(type) {
	case string:
		y, ok := y.(string)
		return ok && x == y
	case bool:
		y, ok := y.(bool)
		return ok && x == y
	case nil:
		return y == nil
	case int64:
		switch y := y.(type) {
		case int64:
			return x == y
		case float64:
			n, ok := Int64(y)
			return ok && n == x
		}
	case float64:
		switch y := y.(type) {
		case float64:
			return x == y
		case int64:
			n, ok := Int64(x)
			return ok && n == y
		}
	}
	return false
}

// Equal reports whether two values are the same. An integer never equals a float.
func Equal(x, y any) bool { return EqualFunc(x, y, func(x, y any) bool { return x == y }) }

// EqualFunc reports whether two values are the same if scalars are compared by a function.
func EqualFunc(x, y any, same func(x, y any) bool) bool {
	switch x := x.(type) {
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for name, value := range x {
			if other, ok := y[name]; !ok || !EqualFunc(value, other, same) {
				return false
			}
		}
		return true
	case []any:
		y, ok := y.([]any)
		return ok && slices.EqualFunc(x, y, func(x, y any) bool { return EqualFunc(x, y, same) })
	}
	switch y.(type) {
	case map[string]any, []any: // they cannot be compared with ==
		return false
	}
	return same(x, y)
}

// PartOf reports whether whole contains part, so that part can be completed to whole.
func PartOf(part, whole any) bool {
	switch p := part.(type) {
	case map[string]any:
		w, ok := whole.(map[string]any)
		if !ok || len(p) > len(w) {
			return false
		}
		for k, x := range p {
			y, ok := w[k]
			if !ok || !PartOf(x, y) {
				return false
			}
		}
		return true
	case []any:
		w, ok := whole.([]any)
		if !ok || len(p) != len(w) {
			return false
		}
		for i := range p {
			if !PartOf(p[i], w[i]) {
				return false
			}
		}
		return true
	}
	return SameScalar(part, whole)
}
