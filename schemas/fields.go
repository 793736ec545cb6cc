package schemas

import (
	"slices"
)

// Parts returns the nodes that speak of items: in general, and by their index.
func (l *List) Parts() (all []*Node) {
	for _, n := range append([]*Node{l.Items, l.Rest}, l.Prefix...) {
		if n != nil {
			all = append(all, n)
		}
	}
	return all
}

// Structs returns what n says of structs: in general, and in each alternative.
func (n *Node) Structs() (all []*Struct) {
	if n.Struct != nil {
		all = append(all, n.Struct)
	}
	if n.Union != nil {
		for i := range n.Union.Arms {
			all = append(all, n.Union.Arms[i].Struct)
		}
	}
	return all
}

// EveryField returns the fields of s and those that its conditions add.
func (s *Struct) EveryField() []Field {
	fields := s.Fields[:len(s.Fields):len(s.Fields)]
	for _, condition := range s.Conditions {
		fields = append(fields, condition.Fields...)
	}
	return fields
}

func FieldNamed(s *Struct, name string) (Field, bool) {
	i := slices.IndexFunc(s.Fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return s.Fields[i], true
}

// AllFields are the fields that the struct declares, and after them those that only its
// conditions add, as optional ones, which admit what any of the conditions admits.
func (s *Struct) AllFields() []Field {
	if len(s.Conditions) == 0 {
		return s.Fields
	}
	all := s.Fields[:len(s.Fields):len(s.Fields)]
	added := map[string][]*Node{}
	for _, f := range s.Fields {
		added[f.Name] = nil
	}
	var names []string
	for i := range s.Conditions {
		for _, f := range s.Conditions[i].Fields {
			nodes, known := added[f.Name]
			if known && nodes == nil {
				continue // declared
			}
			if !known {
				names = append(names, f.Name)
			}
			added[f.Name] = append(nodes, f.Schema)
		}
	}
	for _, name := range names {
		all = append(all, Field{Name: name, Presence: Optional, Schema: either(added[name])})
	}
	return all
}

// either returns a node that admits what any of the nodes admits, if not less than that.
// It has no default. There must be at least one.
func either(nodes []*Node) *Node {
	if len(nodes) == 1 {
		one := *nodes[0]
		one.Default = nil
		return &one
	}
	either := &Node{Doc: nodes[0].Doc, Source: nodes[0].Source, Format: nodes[0].Format}
	for _, n := range nodes {
		either.Kinds |= n.Kinds
		if n.Format != either.Format {
			either.Format = ""
		}
	}
	free := Kinds(0) // of which one of the nodes says nothing
	for _, n := range nodes {
		for _, k := range [...]Kinds{BoolKind, IntegerKind, NumberKind, StringKind} {
			if n.Kinds.Has(k) && len(n.Alternatives(k)) == 0 {
				free |= k
			}
		}
	}
	for _, n := range nodes {
		for _, s := range n.Scalars {
			if s.Kinds&free == 0 {
				either.Scalars = append(either.Scalars, s)
			} else {
				return &Node{Kinds: either.Kinds, Doc: either.Doc, Source: either.Source, Format: either.Format}
			}
		}
	}
	return either
}

func (n *Node) Alternatives(k Kinds) []*Scalar {
	var found []*Scalar
	for i := range n.Scalars {
		if s := &n.Scalars[i]; s.Kinds&k != 0 {
			found = append(found, s)
		}
	}
	return found
}
