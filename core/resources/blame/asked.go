package blame

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// Asked is what the body of a request set: an object, a part of an object, or JSON patch operations.
type Asked struct {
	content    any
	operations []operation
}

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// ReadAsked reads the body of a request. A body that cannot be parsed sets nothing.
func ReadAsked(mediaType string, body []byte) *Asked {
	a := &Asked{}
	if mediaType == string(types.JSONPatchType) {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(body, &a.operations) // a failure leaves no operations
		return a
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(body, &a.content) != nil {
		if body, err := yaml.YAMLToJSON(body); err == nil {
			_ = kjson.UnmarshalCaseSensitivePreserveInts(body, &a.content)
		}
	}
	return a
}

// For reports whether the request set a field. object is the object after the request.
func (a *Asked) For(p difference.Path, object map[string]any, schema *schemas.Node) bool {
	if says(a.content, p, object, schema, true) {
		return true
	}
	return slices.ContainsFunc(a.operations, func(o operation) bool {
		rest, below := restBehind(o.Path, p)
		if !below || o.Op == "remove" || o.Op == "test" {
			return false
		}
		if len(rest) == 0 || o.Op == "move" || o.Op == "copy" {
			return true
		}
		at, node := follow(object, p[:len(p)-len(rest)], schema)
		return says(o.Value, rest, at, node, len(rest) == len(p))
	})
}

// restBehind returns the rest of a path after a JSON pointer, if the pointer leads to a part of the path.
func restBehind(pointer string, p difference.Path) (difference.Path, bool) {
	if pointer == "" {
		return p, true
	}
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if len(p) == 0 {
			return nil, true // the pointer leads into a list or struct that is empty
		}
		token = jsonvalue.Unescape(token)
		if p[0].Item && token != "-" && token != strconv.Itoa(p[0].Index) || !p[0].Item && token != p[0].Field {
			return nil, false
		}
		p = p[1:]
	}
	return p, true
}

// schemaBelow returns the schema of the part that a step leads to.
func schemaBelow(n *schemas.Node, s difference.Step, top bool) *schemas.Node {
	switch {
	case s.Item:
		return difference.Items(n)
	case top:
		return difference.Top(n, s.Field)
	}
	return difference.Field(n, s.Field)
}

// follow returns the part of an object that a path leads to, and the schema of that part.
func follow(x any, p difference.Path, n *schemas.Node) (any, *schemas.Node) {
	for i, s := range p {
		n = schemaBelow(n, s, i == 0)
		if s.Item {
			list, _ := x.([]any)
			if s.Index >= len(list) {
				return nil, n
			}
			x = list[s.Index]
			continue
		}
		fields, _ := x.(map[string]any)
		x = fields[s.Field]
	}
	return x, n
}

// says reports whether the body has a value at a path. List items are matched by their keys, or by index if they have
// none.
func says(asked any, p difference.Path, object any, n *schemas.Node, top bool) bool {
	for _, s := range p {
		switch x := asked.(type) {
		case map[string]any:
			if s.Item {
				return false
			}
			asked = x[s.Field]
			fields, _ := object.(map[string]any)
			object = fields[s.Field]
		case []any:
			list, _ := object.([]any)
			if !s.Item || s.Index >= len(list) {
				return false
			}
			i := itemOf(x, list, s.Index, n)
			if i >= len(x) {
				return false
			}
			asked, object = x[i], list[s.Index]
		default:
			return false
		}
		n, top = schemaBelow(n, s, top), false
	}
	return asked != nil
}

// itemOf returns the index that an item of the object has in the list of the body.
func itemOf(asked, list []any, i int, n *schemas.Node) int {
	steps, ok1 := difference.Keyed(list, n)
	those, ok2 := difference.Keyed(asked, n)
	if !ok1 || !ok2 {
		return i
	}
	if at := slices.IndexFunc(those, func(s difference.Step) bool { return reflect.DeepEqual(s, steps[i]) }); at >= 0 {
		return at
	}
	return len(asked)
}

// Default returns the position of the default in the schema that gave a field its value. It is the innermost default
// that equals the value or contains it.
func Default(schema *schemas.Node, p difference.Path, value any) (source schemas.Position, found bool) {
	n := schema
	for i, s := range p {
		if n = schemaBelow(n, s, i == 0); n == nil {
			break
		}
		text := n.Default
		if text == nil && i == len(p)-1 && len(n.Scalars) == 1 && len(n.Scalars[0].Enum) == 1 {
			text = n.Scalars[0].Enum[0] // the only allowed value
		}
		if text == nil {
			continue
		}
		var x any
		if kjson.UnmarshalCaseSensitivePreserveInts(text, &x) != nil {
			continue
		}
		if part, _ := follow(x, p[i+1:], nil); sameJSON(part, value) {
			source, found = n.Source, true
		}
	}
	return source, found
}

func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && a != nil && string(x) == string(y)
}
