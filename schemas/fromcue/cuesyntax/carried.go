// This file finds and adds secrets and immutable fields in the nodes of a form.

package cuesyntax

import (
	"stele.dev/stele/schemas"
)

// CarriedMark reports whether n already has what the attribute says of the part at path, or cannot have such
// a part.
func CarriedMark(n *schemas.Node, path []Step, name, key, value string, flat bool) bool {
	if name == "stele" && key == "sensitive" && n.Sensitive || key == "immutable" && n.Immutable != nil {
		return true
	}
	if len(path) == 0 {
		return !(flat && (key == "sensitive" || key == "immutable")) && compiled(n, name, key, value)
	}
	parts, possible := partsAt(n, path[0])
	for _, part := range parts {
		if CarriedMark(part, path[1:], name, key, value, flat) {
			return true
		}
	}
	return !possible
}

// compiled reports whether the attribute is compiled into n. An attribute without an effect on the form
// counts as compiled.
func compiled(n *schemas.Node, name, key, value string) bool {
	list, object := n.List, n.Struct
	if list == nil {
		list = &schemas.List{}
	}
	if object == nil {
		object = &schemas.Struct{}
	}
	switch {
	case name == "stele" && key == "sensitive":
		return n.Sensitive
	case name == "stele" && key == "message":
		return n.Message == value
	case key == "immutable":
		return n.Immutable != nil
	case key == "format":
		return n.Format == value
	case key == "listType":
		return list.Type == value
	case key == "listMapKeys":
		return len(list.MapKeys) > 0
	case key == "mapType":
		return object.Type == value
	case key == "embeddedResource":
		return n.Embedded
	}
	return true // only documentation
}

// partsAt returns the nodes for a part of n. possible reports whether n may have such a part.
func partsAt(n *schemas.Node, s Step) (parts []*schemas.Node, possible bool) {
	if s.Kind == Item {
		if n.List != nil {
			parts = n.List.Parts()
		}
		return parts, n.Kinds.Has(schemas.ListKind)
	}
	if !n.Kinds.Has(schemas.StructKind) {
		return nil, false
	}
	possible = n.Struct == nil && n.Union == nil
	for _, in := range n.Structs() {
		found := structPartsAt(in, s)
		parts = append(parts, found...)
		possible = possible || len(found) > 0 || in.Open || len(in.Patterns) > 0
	}
	return parts, possible
}

func structPartsAt(s *schemas.Struct, of Step) (parts []*schemas.Node) {
	if of.Kind == Key {
		for i := range s.Patterns {
			parts = append(parts, s.Patterns[i].Value)
		}
		return parts
	}
	for _, f := range s.EveryField() {
		if f.Name == of.Name {
			parts = append(parts, f.Schema)
		}
	}
	return parts
}

// GiveMark marks a part of n as secret or immutable. It reports whether it could: a part that n does not
// describe can be added only if any value may have it.
func GiveMark(n *schemas.Node, path []Step, name, key string, source schemas.Position) bool {
	if len(path) == 0 {
		switch {
		case name == "stele" && key == "sensitive":
			n.Sensitive = true
		case name == "k8s" && key == "immutable":
			n.Immutable = &source
		default:
			return false
		}
		return true
	}
	parts, _ := partsAt(n, path[0])
	if len(parts) == 0 {
		part := addPart(n, path[0])
		if part == nil {
			return false
		}
		parts = append(parts, part)
	}
	given := true
	for _, part := range parts {
		given = GiveMark(part, path[1:], name, key, source) && given
	}
	return given
}

// addPart adds a node that admits anything for a part of n. It returns nil if n already describes the
// part.
func addPart(n *schemas.Node, s Step) *schemas.Node {
	part := &schemas.Node{Kinds: schemas.AnyKind}
	if s.Kind == Item {
		if n.List == nil {
			n.List = &schemas.List{}
		}
		n.List.Items = part
		return part
	}
	if n.Struct == nil {
		n.Struct = &schemas.Struct{Open: true}
	}
	switch {
	case !n.Struct.Open || len(n.Struct.Patterns) > 0 || n.Union != nil:
		return nil
	case s.Kind == Key:
		n.Struct.Patterns = append(n.Struct.Patterns, schemas.KeyPattern{Key: &schemas.Node{Kinds: schemas.StringKind}, Value: part})
	default:
		n.Struct.Fields = append(n.Struct.Fields, schemas.Field{Name: s.Name, Presence: schemas.Optional, Schema: part})
	}
	return part
}

// VisitParts calls each for the nodes of the items and all nodes in them.
func VisitParts(l *schemas.List, each func(*schemas.Node)) {
	for _, part := range l.Parts() {
		part.Visit("", func(_ string, n *schemas.Node) { each(n) })
	}
}
