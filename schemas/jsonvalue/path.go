package jsonvalue

import (
	"strconv"
	"strings"
)

// At returns the value at a path of field names and indexes in decoded JSON, and false if there is none.
func At(x any, steps ...string) (any, bool) {
	for _, step := range steps {
		switch at := x.(type) {
		case map[string]any:
			next, ok := at[step]
			if !ok {
				return nil, false
			}
			x = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			x = at[i]
		default:
			return nil, false
		}
	}
	return x, true
}

// Set sets the value at a path of at least one step, and returns false if its parent or its item of a list does not exist.
func Set(x any, steps []string, value any) bool {
	if len(steps) == 0 {
		return false
	}
	last := steps[len(steps)-1]
	parent, _ := At(x, steps[:len(steps)-1]...)
	switch at := parent.(type) {
	case map[string]any:
		at[last] = value
		return true
	case []any:
		i, err := strconv.Atoi(last)
		if err != nil || i < 0 || i >= len(at) {
			return false
		}
		at[i] = value
		return true
	}
	return false
}

var (
	escaper   = strings.NewReplacer("~", "~0", "/", "~1")
	unescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// Escape returns a name as a step of a JSON pointer (RFC 6901).
func Escape(name string) string { return escaper.Replace(name) }

// Unescape returns the name of a step of a JSON pointer.
func Unescape(step string) string {
	if !strings.Contains(step, "~") {
		return step
	}
	return unescaper.Replace(step)
}

// PointerSteps returns the names and indexes of a JSON pointer; none and false for "", which is the whole, and for what is no
// pointer.
func PointerSteps(pointer string) ([]string, bool) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, false
	}
	list := strings.Split(pointer[1:], "/")
	for i, s := range list {
		list[i] = Unescape(s)
	}
	return list, true
}

// FieldSteps returns the steps of the path of an error: spec.ports[3].name is spec, ports, 3, name.
func FieldSteps(path string) (steps []string) {
	for path != "" {
		if rest, in := strings.CutPrefix(path, "["); in {
			step, after, _ := strings.Cut(rest, "]")
			if quoted, is := strings.CutPrefix(rest, `"`); is {
				step, after, _ = strings.Cut(quoted, `"]`)
			}
			steps, path = append(steps, step), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(steps, path)
		}
		if end > 0 {
			steps = append(steps, path[:end])
		}
		path = strings.TrimPrefix(path[end:], ".")
	}
	return steps
}
