package schemas

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// disagreement compares what a program makes of a node with what CUE makes of the value
// that it was compiled from, for a number of values that are near valid; of a hundred
// structs, unknown get a field that they do not know. What is valid is tried once more with a
// field too many in each of its structs. It returns a value of which they make different
// things, and how; "" if there is none.
func disagreement(v cue.Value, n *Node, tries, unknown int) (value, how string) {
	c, err := NewChecker(asCUE(n))
	if err != nil {
		return "", err.Error()
	}
	names := n.names()
	g := maker{rand.New(rand.NewPCG(5, 6)), unknown, names, 60}
	var seen coverage
	for i := range tries {
		x := g.near(n)
		if i%2 == 0 {
			x = g.witness(n)
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
func differs(c *Checker, v cue.Value, x any) (text string, valid bool, how string) {
	encoded, err := json.Marshal(x)
	if err != nil {
		return "", false, "" // a number that JSON cannot have
	}
	if x, err = decode(encoded); err != nil {
		return "", false, ""
	}
	said := ask(v, encoded)
	errs := c.Validate(x)
	if said.valid() && passedForStruct(errs) {
		return "", true, ""
	}
	switch {
	case said.failed != "":
		return string(encoded), false, said.failed
	case said.valid() != (len(errs) == 0):
		return string(encoded), false, fmt.Sprintf("CUE says %v, the program %v", said.faults, errs)
	case !said.valid():
		return "", false, ""
	}
	if prepared, unknown := c.Prepare(x); len(unknown) > 0 || !reflect.DeepEqual(prepared, said.result) && !stays(v, prepared, said.result) {
		return string(encoded), true, fmt.Sprintf("CUE completes it to %v, the program to %v", said.result, prepared)
	}
	return "", true, ""
}

// stays reports whether x, a part of what CUE makes of it, is valid, and the whole is not: some
// defaults contradict what they are not defaults of.
func stays(v cue.Value, x, whole any) bool {
	part, err1 := json.Marshal(x)
	all, err2 := json.Marshal(whole)
	return err1 == nil && err2 == nil && partOf(x, whole) && ask(v, part).valid() && !ask(v, all).valid()
}

// passedForStruct reports whether nothing is wrong but that a struct is none. CUE lets
// anything pass for a struct of nothing but optional fields and conditions.
func passedForStruct(errs field.ErrorList) bool {
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(e *field.Error) bool {
		return e.Type != field.ErrorTypeTypeInvalid || !strings.HasPrefix(e.Detail, "must be an object")
	})
}

// asCUE returns n without what its attributes say, of which CUE knows nothing.
func asCUE(n *Node) *Node {
	text, err := json.Marshal(n)
	if err != nil {
		return n
	}
	var plain Node
	if err := json.Unmarshal(text, &plain); err != nil {
		return n
	}
	plain.visit("", func(_ string, n *Node) {
		n.Format, n.Immutable, n.Embedded = "", nil, false
		if n.List != nil {
			n.List.Type, n.List.MapKeys = "", nil
		}
	})
	return &plain
}

// names returns the names of all fields in n.
func (n *Node) names() (names []string) {
	n.visit("", func(_ string, n *Node) {
		if n.Struct != nil {
			for _, f := range n.Struct.Fields {
				names = append(names, f.Name)
			}
		}
	})
	return names
}

// agree compares the whole of a schema with what CUE makes of it. If they disagree because a
// part that CUE is to evaluate means something else by itself, the part around it is left to
// CUE; else that is refused.
func (c *Compiler) agree(v cue.Value, n *Node, at *place) {
	tries, unknown := 8, 0
	if n.evaluated() {
		tries, unknown = 150, 20
	}
	value, how := disagreement(v, n, tries, unknown)
	if how == "" {
		return
	}
	widened := false
	n.visit("", func(path string, n *Node) {
		related := n.Struct != nil && (len(n.Struct.Conditions)+len(n.Struct.Comparisons) > 0 ||
			slices.ContainsFunc(n.Struct.Fields, func(f Field) bool { return f.Schema.From != nil }))
		if n.Fallback == nil && n.Union == nil && !related || path == "" {
			return
		}
		around := path
		if !related {
			around = parentPath(path)
		}
		if _, ok := c.forced[around]; !ok {
			reason := reason{message: "what means something else by itself", source: n.Source}
			if n.Fallback != nil {
				reason.message = n.Fallback.Reason
			}
			c.forced[around], widened = reason, true
		}
	})
	if !widened {
		c.refuse(at, nil, fmt.Sprintf("the compiled schema and CUE make different things of %.200s: %.400s", value, how),
			"write it in a simpler way")
	}
}

// parentPath returns the path of what a path leads into a part of.
func parentPath(path string) string {
	if p, ok := strings.CutSuffix(path, "[]"); ok {
		return p
	}
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}
