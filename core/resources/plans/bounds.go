package plans

import (
	"math"
	"slices"
	"strconv"

	"stele.dev/stele/schemas"
)

// schemaBounds finds the bounds of numbers in a schema. It is safe for concurrent use.
type schemaBounds struct{ root *schemas.Node }

// nearest returns the bound next to a number that is outside of the bounds at a path, and how far away it is. bound is
// nil if no value is known to be at the bound.
func (b *schemaBounds) nearest(steps []string, value any) (bound any, over float64, outside bool) {
	var number float64
	integer := false
	switch x := value.(type) {
	case int64:
		number, integer = float64(x), true
	case float64:
		number = x
	default:
		return nil, 0, false
	}
	over = math.Inf(1)
	for _, n := range nodesAt(b.root, steps) {
		for i := range n.Scalars {
			s := &n.Scalars[i]
			for _, end := range []struct {
				*schemas.Bound
				sign float64
			}{{s.Maximum, 1}, {s.Minimum, -1}} {
				if end.Bound == nil {
					continue
				}
				limit, err := strconv.ParseFloat(end.Value, 64)
				if err != nil {
					continue
				}
				if by := (number - limit) * end.sign; by > 0 && by < over || by == 0 && end.Exclusive {
					over, outside, bound = by, true, boundary(limit, end.sign, end.Exclusive, integer)
				}
			}
		}
	}
	return bound, over, outside
}

// boundary returns the admitted value next to a limit; nil if there is no nearest one.
func boundary(limit, sign float64, exclusive, integer bool) any {
	if integer {
		whole := math.Floor(limit*sign) * sign
		if exclusive && whole == limit {
			whole -= sign
		}
		return int64(whole)
	}
	if exclusive {
		return nil
	}
	return limit
}

// nodesAt returns the nodes of a schema at a path of an object.
func nodesAt(root *schemas.Node, steps []string) []*schemas.Node {
	nodes := []*schemas.Node{root}
	for _, step := range steps {
		items := itemsOf(nodes)
		fields, _ := fieldsOf(nodes, step)
		nodes = append(items, fields...)
	}
	return nodes
}

// itemsOf returns the nodes of the items of lists.
func itemsOf(nodes []*schemas.Node) (items []*schemas.Node) {
	for _, n := range nodes {
		if n.List != nil {
			items = append(items, n.List.Each()...)
		}
	}
	return slices.DeleteFunc(items, func(n *schemas.Node) bool { return n == nil })
}

// fieldsOf returns the nodes of a field of structs, or of the values of maps. declared reports whether a struct has such a
// field.
func fieldsOf(nodes []*schemas.Node, name string) (fields []*schemas.Node, declared bool) {
	for _, n := range nodes {
		for _, s := range n.Structs() {
			known := false
			for _, f := range s.EveryField() {
				if f.Name == name {
					fields, known = append(fields, f.Schema), true
				}
			}
			if declared = declared || known; known {
				continue
			}
			for _, p := range s.Patterns {
				fields = append(fields, p.Value)
			}
		}
	}
	return slices.DeleteFunc(fields, func(n *schemas.Node) bool { return n == nil }), declared
}
