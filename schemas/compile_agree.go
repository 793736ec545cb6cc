package schemas

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"

	"cuelang.org/go/cue"
)

// disagreement compares what a program makes of a node with what CUE makes of the value
// that it was compiled from, for a number of values that are near valid; of a hundred
// structs, unknown get a field that they do not know. It returns a value of which they make
// different things, and how; "" if there is none.
func disagreement(v cue.Value, n *Node, tries, unknown int) (value, how string) {
	c, err := newCheck(asCUE(n), 0)
	if err != nil {
		return "", err.Error()
	}
	g := maker{rand.New(rand.NewPCG(5, 6)), unknown, n.names(), 60}
	for range tries {
		text, err := json.Marshal(g.near(n))
		if err != nil {
			continue // a number that JSON cannot have
		}
		x, err := decode(text)
		if err != nil {
			continue
		}
		if how := c.differs(v, x, text); how != "" {
			return string(text), how
		}
	}
	return "", ""
}

// differs tells how a program and CUE disagree about a value; "" if they do not.
func (c *check) differs(v cue.Value, x any, text []byte) string {
	said := ask(v, text)
	var run inspection
	run.value(c, x)
	switch {
	case said.failed != "":
		return said.failed
	case said.valid() != (len(run.errs) == 0):
		return fmt.Sprintf("CUE says %v, the program %v", said.faults, run.errs)
	case !said.valid():
		return ""
	}
	p := preparation{fill: true}
	if prepared := p.value(c, x); len(p.unknown) > 0 || !reflect.DeepEqual(prepared, said.result) {
		return fmt.Sprintf("CUE completes it to %v, the program to %v", said.result, prepared)
	}
	return ""
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
