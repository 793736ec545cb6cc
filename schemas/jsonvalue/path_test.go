package jsonvalue_test

import (
	"reflect"
	"testing"

	"stele.dev/stele/schemas/jsonvalue"
)

func TestAValueIsReadAndSetAtItsPath(t *testing.T) {
	object := func() any { return map[string]any{"a": []any{int64(1), map[string]any{"b": "x", "c": nil}}} }
	for _, c := range []struct {
		path  []string
		value any
		found bool
		set   bool
	}{
		{nil, object(), true, false},
		{[]string{"a", "0"}, int64(1), true, true},
		{[]string{"a", "1", "b"}, "x", true, true},
		{[]string{"a", "1", "c"}, nil, true, true},
		{[]string{"a", "1", "new"}, nil, false, true},
		{[]string{"a", "2"}, nil, false, false},
		{[]string{"a", "-1"}, nil, false, false},
		{[]string{"a", "b"}, nil, false, false},
		{[]string{"a", "0", "b"}, nil, false, false},
		{[]string{"none", "b"}, nil, false, false},
	} {
		x := object()
		if value, found := jsonvalue.At(x, c.path...); found != c.found || !reflect.DeepEqual(value, c.value) {
			t.Errorf("At %q: %v, %t, want %v, %t", c.path, value, found, c.value, c.found)
		}
		if set := jsonvalue.Set(x, c.path, "new"); set != c.set {
			t.Errorf("Set %q: %t, want %t", c.path, set, c.set)
		}
		if value, _ := jsonvalue.At(x, c.path...); c.set && value != "new" {
			t.Errorf("after Set %q the value is %v", c.path, value)
		}
	}
}

func TestTheStepsOfPaths(t *testing.T) {
	for pointer, want := range map[string][]string{"/a/0/b": {"a", "0", "b"}, "/a~1b/m~0n/~01": {"a/b", "m~n", "~1"}, "/": {""}, "": nil, "a/b": nil} {
		if steps, ok := jsonvalue.PointerSteps(pointer); ok != (want != nil) || !reflect.DeepEqual(steps, want) {
			t.Errorf("pointer %q: %q, %t, want %q", pointer, steps, ok, want)
		}
	}
	for path, want := range map[string][]string{
		"spec.ports[3].name": {"spec", "ports", "3", "name"}, ".spec[a/b].c": {"spec", "a/b", "c"}, `labels["a]b"].x`: {"labels", "a]b", "x"}, "": nil,
	} {
		if steps := jsonvalue.FieldSteps(path); !reflect.DeepEqual(steps, want) {
			t.Errorf("path %q: %q, want %q", path, steps, want)
		}
	}
	for _, name := range []string{"plain", "a/b", "m~n", "~1"} {
		if again := jsonvalue.Unescape(jsonvalue.Escape(name)); again != name {
			t.Errorf("%q is %q after it was escaped and read again", name, again)
		}
	}
}

func TestEqualTellsIntegersFromFloatsOnlyIfAsked(t *testing.T) {
	with := func(n any) any { return map[string]any{"a": []any{"x", n, nil, map[string]any{}}} }
	for _, c := range []struct {
		a, b                any
		strictly, byNumbers bool
	}{
		{with(int64(1)), with(int64(1)), true, true},
		{with(int64(1)), with(1.0), false, true},
		{with(int64(1)), with(int64(2)), false, false},
		{with(nil), map[string]any{"a": []any{"x", nil}}, false, false},
		{map[string]any{"a": nil}, map[string]any{"b": nil}, false, false},
		{map[string]any{"a": nil}, map[string]any{"a": nil, "b": nil}, false, false},
		{[]any{}, map[string]any{}, false, false},
		{"a", []any{"a"}, false, false},
	} {
		if is := jsonvalue.Equal(c.a, c.b); is != c.strictly {
			t.Errorf("Equal(%v, %v) is %t", c.a, c.b, is)
		}
		if is := jsonvalue.EqualFunc(c.a, c.b, jsonvalue.SameScalar); is != c.byNumbers {
			t.Errorf("EqualFunc(%v, %v, SameScalar) is %t", c.a, c.b, is)
		}
	}
}
