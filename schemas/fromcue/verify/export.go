package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"

	"cuelang.org/go/cue"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

// SameMeaning compares how two CUE values validate and complete data that is near n. Completed valid
// data is also tried with an unknown field in each of its structs. It returns an error that describes
// the first difference.
func SameMeaning(v, again cue.Value, n *schemas.Node, keys []string) error {
	g := samples.Maker{Rand: rand.New(rand.NewPCG(3, 4)), Unknown: 30, Keys: keys, Full: 85}
	var seen coverage
	for i := range exportTries {
		if g.Full = 0; i%4 < 2 {
			g.Full = 85
		}
		x := g.Near(n)
		if i%2 == 0 {
			x = g.Witness(n)
		}
		whole, ok, err := sameVerdict(v, again, x)
		if err == nil && !ok && i%3 == 0 && repair(again, x) {
			whole, ok, err = sameVerdict(v, again, x)
		}
		if err != nil {
			return err
		}
		if !ok || !seen.adds(whole) {
			continue
		}
		for _, more := range withUnknown(whole, append(slices.Clip(keys), "unknown field")) {
			if _, _, err := sameVerdict(v, again, more); err != nil {
				return err
			}
		}
	}
	return nil
}

// A coverage records which structs occurred in the valid values that were tried with an unknown field.
type coverage struct {
	tried int
	paths map[string]bool
}

// maxValid is how many valid values are tried in any case. maxCovering is how many are tried if they
// contain a new struct.
const (
	maxValid    = 4
	maxCovering = 24
)

// adds reports whether x is worth trying. If so, it counts x.
func (c *coverage) adds(x any) bool {
	before := len(c.paths)
	if c.paths == nil {
		c.paths = make(map[string]bool)
	}
	c.note(x, "")
	if c.tried >= maxCovering || c.tried >= maxValid && len(c.paths) == before {
		return false
	}
	c.tried++
	return true
}

func (c *coverage) note(x any, path string) {
	switch x := x.(type) {
	case map[string]any:
		c.paths[path] = true
		for key, y := range x {
			c.note(y, path+"\x00"+key)
		}
	case []any:
		for _, y := range x {
			c.note(y, path+"\x00")
		}
	}
}

// repair removes the parts of x that v rejects. It reports whether it removed any. Random data rarely
// satisfies rules between fields.
func repair(v cue.Value, x any) (changed bool) {
	for range program.MaxPrunings {
		value, err := json.Marshal(x)
		if err != nil {
			return changed
		}
		removed := false
		for _, f := range interpreter.Ask(v, value).Faults {
			for n := len(f.Path); n > 0 && f.Kind != schemas.Incomplete; n-- {
				if program.Remove(x, f.Path[:n]) {
					removed, changed = true, true
					break
				}
			}
		}
		if !removed {
			break
		}
	}
	return changed
}

// sameVerdict compares how two CUE values validate and complete x. It returns the completed value if x
// is valid.
func sameVerdict(v, again cue.Value, x any) (whole any, valid bool, err error) {
	value, err := json.Marshal(x)
	if err != nil {
		return nil, false, nil
	}
	was, is := interpreter.Ask(v, value), interpreter.AskExpression(again, value)
	if was.Valid() != is.Valid() || was.Valid() && !reflect.DeepEqual(was.Result, is.Result) {
		return nil, false, fmt.Errorf("written out it says something else of %s", value)
	}
	return was.Result, was.Valid(), nil
}

// withUnknown returns copies of x, each with an unknown field in one of its structs.
func withUnknown(x any, keys []string) (all []any) {
	switch x := x.(type) {
	case map[string]any:
		for _, key := range keys {
			if _, ok := x[key]; !ok && len(all) < maxUnknown {
				m := maps.Clone(x)
				m[key] = int64(1)
				all = append(all, m)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(x)) {
			for _, more := range withUnknown(x[key], keys[len(keys)-1:]) {
				m := maps.Clone(x)
				m[key] = more
				all = append(all, m)
			}
		}
	case []any:
		for i, y := range x {
			for _, more := range withUnknown(y, keys[len(keys)-1:]) {
				l := slices.Clone(x)
				l[i] = more
				all = append(all, l)
			}
		}
	}
	return all
}

// maxUnknown is the maximum number of unknown field names that are tried.
const maxUnknown = 12

// exportTries is the number of values with which an exported expression is compared with the original.
const exportTries = 150
