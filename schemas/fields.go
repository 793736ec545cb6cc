package schemas

import (
	"slices"
)

// Parts returns all nodes of the list that are not nil: Items, Rest and Prefix.
func (l *List) Parts() (all []*Node) {
	for _, n := range append([]*Node{l.Items, l.Rest}, l.Prefix...) {
		if n != nil {
			all = append(all, n)
		}
	}
	return all
}

// Structs returns the struct of the node and those of the arms of its union.
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

// EveryField returns the declared fields and the fields that conditions add. A name may occur twice.
func (s *Struct) EveryField() []Field {
	fields := s.Fields[:len(s.Fields):len(s.Fields)]
	for _, condition := range s.Conditions {
		fields = append(fields, condition.Fields...)
	}
	return fields
}

// FieldNamed returns the declared field with the given name. ok is false if there is none.
func FieldNamed(s *Struct, name string) (Field, bool) {
	i := slices.IndexFunc(s.Fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return s.Fields[i], true
}

// AllFields returns the declared fields, then the fields that only conditions add. The fields of
// conditions are optional here, and admit what any of the conditions admits.
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
		all = append(all, Field{Name: name, Presence: Optional, Schema: union(added[name])})
	}
	return all
}

// union returns a node that admits at least what each of the given nodes admits. It has no default.
// nodes is not empty.
func union(nodes []*Node) *Node {
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
	free := Kinds(0) // kinds that one of the nodes does not constrain
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

// Alternatives returns the scalar rules that apply to at least one of the kinds.
func (n *Node) Alternatives(k Kinds) []*Scalar {
	var found []*Scalar
	for i := range n.Scalars {
		if s := &n.Scalars[i]; s.Kinds&k != 0 {
			found = append(found, s)
		}
	}
	return found
}
