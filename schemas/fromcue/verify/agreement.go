// Package verify compares compiled schemas with CUE. It generates values and reports those for which the
// program and CUE differ.
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

// Disagreement compares the program of n with the CUE value v from which n was compiled. It tries a
// number of nearly valid values. unknown is the percentage of structs that get an unknown field. Valid
// values are also tried with an unknown field in each of their structs. It returns the first value with
// different results, and the difference, or "".
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

// differs compares a program with CUE on the value x. It returns x as text, whether it is valid, and the
// difference, or "".
func differs(c *program.Checker, v cue.Value, x any) (text string, valid bool, how string) {
	encoded, err := json.Marshal(x)
	if err != nil {
		return "", false, "" // a number that JSON does not have
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

// stays reports whether x, a part of its completion by CUE, is valid although the completion is not.
// Some defaults contradict values that they were derived from.
func stays(v cue.Value, x, whole any) bool {
	part, err1 := json.Marshal(x)
	all, err2 := json.Marshal(whole)
	return err1 == nil && err2 == nil && jsonvalue.PartOf(x, whole) && interpreter.Ask(v, part).Valid() && !interpreter.Ask(v, all).Valid()
}

// PassedForStruct reports whether all errors only say that a value is not a struct. CUE accepts any
// value for a struct that has only optional fields and conditions.
func PassedForStruct(errs field.ErrorList) bool {
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(e *field.Error) bool {
		return e.Type != field.ErrorTypeTypeInvalid || !strings.HasPrefix(e.Detail, "must be an object")
	})
}

// WithoutAttributes returns a copy of n without the rules of attributes, which CUE does not know.
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
