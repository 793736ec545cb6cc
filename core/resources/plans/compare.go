package plans

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// compareValues returns where two values differ, by the paths that findings have: a key of a map is [*], an item of a list [].
// nodes are the schemas of both.
func compareValues(nodes []*schemas.Node, was, is any) map[string]*firstDifference {
	at := contrast{}
	at.compare(spot{nodes: nodes}, was, is)
	return at
}

// firstDifference is the first place of a path at which two values differ.
type firstDifference struct {
	steps []string
	leaf  bool // some value there is no struct and no list
}

type contrast map[string]*firstDifference

// A spot is a place in an object, and what the schemas say of it.
type spot struct {
	path  string
	steps []string
	nodes []*schemas.Node
}

// field returns the spot of a field, or of a key of a map.
func (s spot) field(name string) spot {
	nodes, declared := fieldsOf(s.nodes, name)
	path := s.path + "[*]"
	if declared {
		path = joinPath(s.path, name)
	}
	return spot{path, append(slices.Clip(s.steps), name), nodes}
}

// item returns the spot of an item of a list.
func (s spot) item(i int) spot {
	return spot{s.path + "[]", append(slices.Clip(s.steps), strconv.Itoa(i)), itemsOf(s.nodes)}
}

// spotOf returns the spot at a path in a value.
func spotOf(nodes []*schemas.Node, value any, steps []string) spot {
	s := spot{nodes: nodes}
	for i, step := range steps {
		at, _ := jsonvalue.At(value, steps[:i]...)
		if n, err := strconv.Atoi(step); err == nil {
			if _, list := at.([]any); list {
				s = s.item(n)
				continue
			}
		}
		s = s.field(step)
	}
	return s
}

// compare adds the paths at which two values differ. A value that only one side has differs with all that is in it.
func (c contrast) compare(at spot, was, is any) {
	if reflect.DeepEqual(was, is) {
		return
	}
	a, wasMap := was.(map[string]any)
	b, isMap := is.(map[string]any)
	x, wasList := was.([]any)
	y, isList := is.([]any)
	switch {
	case wasMap && (isMap || is == nil) || isMap && was == nil:
		if at.path != "" && (!wasMap || !isMap) {
			c.add(at, len(a)+len(b) == 0)
		}
		for _, name := range slices.Sorted(maps.Keys(a)) {
			c.compare(at.field(name), a[name], b[name])
		}
		for _, name := range slices.Sorted(maps.Keys(b)) {
			if _, had := a[name]; !had {
				c.compare(at.field(name), nil, b[name])
			}
		}
	case wasList && (isList || is == nil) || isList && was == nil:
		if !wasList || !isList {
			c.add(at, len(x)+len(y) == 0)
		}
		for i := range max(len(x), len(y)) {
			var one, other any
			if i < len(x) {
				one = x[i]
			}
			if i < len(y) {
				other = y[i]
			}
			c.compare(at.item(i), one, other)
		}
	default:
		c.add(at, true)
	}
}

func (c contrast) add(at spot, leaf bool) {
	if c[at.path] == nil {
		c[at.path] = &firstDifference{steps: at.steps}
	}
	c[at.path].leaf = c[at.path].leaf || leaf
}

// joinPath returns the path of a field.
func joinPath(path, name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, `.[]*"\ `):
		quoted, _ := json.Marshal(name) // a string always encodes
		return path + "[" + string(quoted) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}
