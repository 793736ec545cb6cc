// Package verify compares compiled schemas with CUE: it generates values and reports those of which
// the program and CUE make different things.
package verify

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

// Disagreement compares what a program makes of a node with what CUE makes of the value
// that it was compiled from, for a number of values that are near valid; of a hundred
// structs, unknown get a field that they do not know. What is valid is tried once more with a
// field too many in each of its structs. It returns a value of which they make different
// things, and how; "" if there is none.
func Disagreement(v cue.Value, n *schemas.Node, tries, unknown int) (value, how string) {
	c, err := program.NewChecker(WithoutAttributes(n))
	if err != nil {
		return "", err.Error()
	}
	names := Names(n)
	g := samples.Maker{Rand: rand.New(rand.NewPCG(5, 6)), Unknown: unknown, Keys: names, Full: 60}
	var seen coverage
	for i := range tries {
		x := g.Near(n)
		if i%2 == 0 {
			x = g.Witness(n)
		}
		text, ok, how := differs(c, v, x)
		if how != "" {
			return text, how
		}
		if !ok || unknown == 0 || !seen.adds(x) {
			continue
		}
		for _, more := range withUnknown(x, append(slices.Clip(names), "unknown field")) {
			if text, _, how := differs(c, v, more); how != "" {
				return text, how
			}
		}
	}
	return "", ""
}

// differs tells whether a value is valid, and how a program and CUE disagree about it.
func differs(c *program.Checker, v cue.Value, x any) (text string, valid bool, how string) {
	encoded, err := json.Marshal(x)
	if err != nil {
		return "", false, "" // a number that JSON cannot have
	}
	if x, err = jsonvalue.Decode(encoded); err != nil {
		return "", false, ""
	}
	said := interpreter.Ask(v, encoded)
	errs := c.Validate(x)
	if said.Valid() && PassedForStruct(errs) {
		return "", true, ""
	}
	switch {
	case said.Failed != "":
		return string(encoded), false, said.Failed
	case said.Valid() != (len(errs) == 0):
		return string(encoded), false, fmt.Sprintf("CUE says %v, the program %v", said.Faults, errs)
	case !said.Valid():
		return "", false, ""
	}
	if prepared, unknown := c.Prepare(x); len(unknown) > 0 || !reflect.DeepEqual(prepared, said.Result) && !stays(v, prepared, said.Result) {
		return string(encoded), true, fmt.Sprintf("CUE completes it to %v, the program to %v", said.Result, prepared)
	}
	return "", true, ""
}

// stays reports whether x, a part of what CUE makes of it, is valid, and the whole is not: some
// defaults contradict what they are not defaults of.
func stays(v cue.Value, x, whole any) bool {
	part, err1 := json.Marshal(x)
	all, err2 := json.Marshal(whole)
	return err1 == nil && err2 == nil && jsonvalue.PartOf(x, whole) && interpreter.Ask(v, part).Valid() && !interpreter.Ask(v, all).Valid()
}

// PassedForStruct reports whether nothing is wrong but that a struct is none. CUE lets
// anything pass for a struct of nothing but optional fields and conditions.
func PassedForStruct(errs field.ErrorList) bool {
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(e *field.Error) bool {
		return e.Type != field.ErrorTypeTypeInvalid || !strings.HasPrefix(e.Detail, "must be an object")
	})
}

// WithoutAttributes returns n without what its attributes say, of which CUE knows nothing.
func WithoutAttributes(n *schemas.Node) *schemas.Node {
	text, err := json.Marshal(n)
	if err != nil {
		return n
	}
	var plain schemas.Node
	if err := json.Unmarshal(text, &plain); err != nil {
		return n
	}
	plain.Visit("", func(_ string, n *schemas.Node) {
		n.Format, n.Immutable, n.Embedded = "", nil, false
		if n.List != nil {
			n.List.Type, n.List.MapKeys = "", nil
		}
	})
	return &plain
}

// Names returns the names of all fields in n.
func Names(n *schemas.Node) (names []string) {
	n.Visit("", func(_ string, n *schemas.Node) {
		if n.Struct != nil {
			for _, f := range n.Struct.Fields {
				names = append(names, f.Name)
			}
		}
	})
	return names
}
