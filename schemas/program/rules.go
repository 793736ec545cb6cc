package program

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/wording"
)

// count checks the number of fields of a struct. At the root, apiVersion, kind and metadata count too.
func (v *inspection) count(c *check, m map[string]any, root bool) {
	n := len(m)
	if root {
		n = 3
		for key := range m {
			if !schemas.ServerOwned(key) {
				n++
			}
		}
	}
	if n < c.object.min {
		v.fail(&field.Error{
			Type: field.ErrorTypeInvalid, BadValue: n,
			Detail: withLine("must have at least "+wording.Count(c.object.min, "field"), c.node.Struct.MinFields.Source),
		})
	}
	if c.object.max >= 0 && n > c.object.max {
		v.fail(&field.Error{
			Type: field.ErrorTypeTooMany, BadValue: n,
			Detail: withLine("must have at most "+wording.Count(c.object.max, "field"), c.node.Struct.MaxFields.Source),
		})
	}
}

// set checks that items are unique. A repeated item is reported once, as in apiextensions.
func (v *inspection) set(c *check, items []any) {
	v.distinct(c, items, func(i int) any { return items[i] }, func(i int) (any, string) {
		return shortValue(items[i]), "the items of a set must differ"
	})
}

// absentKey stands for a key that an item does not have.
type absentKey struct{}

// keyed checks that the items, which are structs, have different keys.
func (v *inspection) keyed(c *check, items []any) {
	keys := c.list.keys
	for i, x := range items {
		if _, ok := x.(map[string]any); !ok && x != nil {
			if c.list.items == nil || c.list.items.kinds&schemas.KindOf(x) != 0 {
				v.push(step{index: i, kind: stepItem})
				v.fail(&field.Error{Type: field.ErrorTypeInvalid, BadValue: shortValue(x), Detail: withLine("must be an object in a list of type map", c.node.Source)})
				v.pop()
			}
			return
		}
	}
	if len(items) < 2 {
		return
	}
	of := func(i int) any {
		x, _ := items[i].(map[string]any)
		if len(keys) == 1 {
			if key, ok := x[keys[0]]; ok {
				return key
			}
			return absentKey{}
		}
		return keysOf(x, keys)
	}
	v.distinct(c, items, of, func(i int) (any, string) {
		x, _ := items[i].(map[string]any)
		return keysOf(x, keys), "the items must differ in " + strings.Join(keys, " and ")
	})
}

func keysOf(x map[string]any, keys []string) any {
	own := map[string]any{}
	for _, k := range keys {
		if key, ok := x[k]; ok {
			own[k] = key
		}
	}
	return own
}

// distinct reports each value that several items have, at the second of them.
func (v *inspection) distinct(c *check, items []any, of func(int) any, describe func(int) (any, string)) {
	const few = 16
	if len(items) <= few && scalarsDiffer(len(items), of) {
		return
	}
	seen := make(map[any]int, len(items))
	for i := range items {
		key := of(i)
		switch x := key.(type) {
		case float64:
			if n, ok := jsonvalue.Int64(x); ok {
				key = n
			}
		case map[string]any, []any:
			text, err := json.Marshal(x) // sorted keys
			if err != nil {
				continue // not decoded JSON, which is already reported
			}
			key = fmt.Sprintf("%T %s", x, text)
		case string:
			key = "string " + x
		}
		if seen[key]++; seen[key] == 2 {
			v.push(step{index: i, kind: stepItem})
			value, detail := describe(i)
			if c.node.HasSensitive() {
				value = field.OmitValueType{}
			}
			v.fail(&field.Error{Type: field.ErrorTypeDuplicate, BadValue: value, Detail: withLine(detail, c.node.Source)})
			v.pop()
		}
	}
}

// scalarsDiffer reports whether all values are scalars and different from each other. It allocates
// nothing.
func scalarsDiffer(n int, of func(int) any) bool {
	for i := range n {
		x := of(i)
		switch x.(type) {
		case map[string]any, []any:
			return false
		}
		for j := range i {
			y := of(j)
			if x == (absentKey{}) && y == (absentKey{}) || jsonvalue.SameScalar(x, y) {
				return false
			}
		}
	}
	return true
}
