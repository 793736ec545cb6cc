package schemas

import (
	"strings"
)

// Fallbacks returns the fallbacks of a form, in the order of the fields.
func (n *Node) Fallbacks() (found []FallbackAt) {
	n.Visit("", func(path string, n *Node) {
		if n.Fallback != nil {
			found = append(found, FallbackAt{path, n.Fallback, n})
		}
	})
	return found
}

// A FallbackAt is a fallback, its node, and the path to it.
type FallbackAt struct {
	Path string // spec.ports[]
	*Fallback
	Node *Node
}

// Visit calls each for the node and all nodes in it, with their paths: spec.ports[].name.
func (n *Node) Visit(path string, each func(string, *Node)) {
	if n == nil {
		return
	}
	each(path, n)
	if n.List != nil {
		n.List.Items.Visit(path+"[]", each)
		for _, item := range n.List.Prefix {
			item.Visit(path+"[]", each)
		}
		n.List.Rest.Visit(path+"[]", each)
	}
	n.Struct.Visit(path, each)
	if n.Union != nil {
		for i := range n.Union.Arms {
			n.Union.Arms[i].Struct.Visit(path, each)
		}
	}
}

// Visit calls each for all nodes in the struct.
func (s *Struct) Visit(path string, each func(string, *Node)) {
	if s == nil {
		return
	}
	below := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	for _, f := range s.Fields {
		f.Schema.Visit(below(f.Name), each)
	}
	for _, p := range s.Patterns {
		p.Value.Visit(path+"[]", each)
	}
	for _, condition := range s.Conditions {
		for _, f := range condition.Fields {
			f.Schema.Visit(below(f.Name), each)
		}
	}
}
