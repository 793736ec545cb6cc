package schemas

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// What follows are rules that OpenAPI has and CUE says in other words, or not at all.

// formatOf returns the test of a node's format, or nil if its name is for readers only.
func formatOf(n *Node) func(string) bool {
	switch {
	case n.Format == "":
		return nil
	case n.Format == FormatByte && !n.Plain:
		return isBase64
	case n.Format == FormatDateTime && !n.Plain:
		return isDateTime
	case n.Format == FormatQuantity:
		return isQuantity
	case !strfmt.Default.ContainsName(n.Format):
		return nil
	}
	return func(s string) bool { return strfmt.Default.Validates(n.Format, s) }
}

func isQuantity(s string) bool {
	_, err := resource.ParseQuantity(s)
	return err == nil
}

// A multiple is a number of which others must be multiples. It compares decimals: 0.3 is a
// multiple of 0.1.
type multiple struct {
	of  *big.Rat
	int int64 // of, if it is an integer that fits, or else 0
}

func newMultiple(b *Bound) (*multiple, error) {
	r, err := parseDecimal(b.Value)
	if err != nil {
		return nil, err
	}
	if r.Sign() <= 0 {
		return nil, errors.New("schemas: a multiple of what is not above 0")
	}
	m := &multiple{of: r}
	if r.IsInt() && r.Num().IsInt64() {
		m.int = r.Num().Int64()
	}
	return m, nil
}

func (m *multiple) has(x any) bool {
	switch x := x.(type) {
	case int64:
		return m.hasInt(x)
	case float64:
		return m.hasFloat(x)
	}
	return false
}

func (m *multiple) hasInt(x int64) bool {
	if m.int != 0 {
		return x%m.int == 0
	}
	r := new(big.Rat).SetInt64(x)
	return r.Quo(r, m.of).IsInt()
}

func (m *multiple) hasFloat(x float64) bool {
	r, err := parseDecimal(strconv.FormatFloat(x, 'g', -1, 64))
	return err == nil && r.Quo(r, m.of).IsInt()
}

// count checks how many fields a struct has. Every object has the three that are the
// server's.
func (v *inspection) count(c *check, m map[string]any, root bool) {
	n := len(m)
	if root {
		n = 3
		for key := range m {
			if !serverOwned(key) {
				n++
			}
		}
	}
	if n < c.object.min {
		v.fail(&field.Error{
			Type: field.ErrorTypeInvalid, BadValue: n,
			Detail: at("must have at least "+counted(c.object.min, "field"), c.node.Struct.MinFields.Source),
		})
	}
	if c.object.max >= 0 && n > c.object.max {
		v.fail(&field.Error{
			Type: field.ErrorTypeTooMany, BadValue: n,
			Detail: at("must have at most "+counted(c.object.max, "field"), c.node.Struct.MaxFields.Source),
		})
	}
}

// set checks that no item is there twice. What is there several times is said once, as
// apiextensions says it.
func (v *inspection) set(c *check, items []any) {
	v.distinct(c, items, func(i int) any { return items[i] }, func(i int) (any, string) {
		return shown(items[i]), "the items of a set must differ"
	})
}

// absentKey stands for a key that an item does not have.
type absentKey struct{}

// keyed checks that the items, which are structs, differ in their keys.
func (v *inspection) keyed(c *check, items []any) {
	keys := c.list.keys
	for i, x := range items {
		if _, ok := x.(map[string]any); !ok && x != nil {
			if c.list.items == nil || c.list.items.kinds&kindOf(x) != 0 {
				v.push(step{index: i, kind: stepItem})
				v.fail(&field.Error{Type: field.ErrorTypeInvalid, BadValue: shown(x), Detail: at("must be an object in a list of type map", c.node.Source)})
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

// distinct fails for each value that several items have, at the second of them.
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
			if n, ok := exactInt64(x); ok {
				key = n
			}
		case map[string]any, []any:
			text, err := json.Marshal(x) // with the keys sorted
			if err != nil {
				continue // it is not decoded JSON, which has been said
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
			v.fail(&field.Error{Type: field.ErrorTypeDuplicate, BadValue: value, Detail: at(detail, c.node.Source)})
			v.pop()
		}
	}
}

// scalarsDiffer reports whether values are scalars, none of them equal to another. It
// allocates nothing.
func scalarsDiffer(n int, of func(int) any) bool {
	for i := range n {
		x := of(i)
		switch x.(type) {
		case map[string]any, []any:
			return false
		}
		for j := range i {
			y := of(j)
			if x == (absentKey{}) && y == (absentKey{}) || sameScalar(x, y) {
				return false
			}
		}
	}
	return true
}
