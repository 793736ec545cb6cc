package schemas

import (
	"fmt"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
)

// carry makes sure that no attribute is lost of a value that is left to CUE, which forgets
// them: n, what is known of the value v besides, gets the secrets and the immutable fields
// that it does not have; other attributes that it does not have are refused.
func (c *Compiler) carry(n *Node, v cue.Value, at *place, why string) {
	marks, ok := marksOf(v, c.packages, c.rootIsFile)
	if !ok {
		c.refuse(at, nil, "a part that only CUE can check and that is too large to be searched for attributes", "split the kind")
		return
	}
	for _, m := range marks {
		c.carryMark(n, m, at, fmt.Sprintf("only CUE itself can check this part of the schema (%s)", why))
	}
}

// holdMarks makes sure of the same for a whole schema. An attribute in an alternative or in a
// comprehension may be of what cannot be there: where that is compiled, its attributes are.
func (c *Compiler) holdMarks(n *Node, v cue.Value, at *place) {
	marks, ok := marksOf(v, c.packages, c.rootIsFile)
	if !ok {
		c.refuse(at, nil, "a schema that is too large to be searched for attributes", "split the kind")
		return
	}
	for _, m := range marks {
		if !m.loose && !m.flat && !m.copied {
			c.carryMark(n, m, at, "the compiled schema has no place for it")
		}
	}
	c.checkImmutable(n, at)
}

// carryMark gives n what a mark says of a part of it, if it does not have that.
func (c *Compiler) carryMark(n *Node, m mark, at *place, why string) {
	attribute, ok := c.parsed(m.attribute)
	if !ok {
		return // CUE has refused it
	}
	for i := range attribute.NumArgs() {
		key, value := attribute.Arg(i)
		if m.copied && key != "sensitive" || carried(n, m.path, attribute.Name(), key, value, m.flat) {
			continue
		}
		if m.flat && key == "immutable" || !n.give(m.path, attribute.Name(), key, c.position(m.attribute, at)) {
			c.refuse(at, m.attribute, fmt.Sprintf("the attribute @%s(%s) would be lost: %s", attribute.Name(), attribute.Contents(), why),
				"take the field out of that part, or write the part in a simpler way")
			return
		}
	}
}

// parsed returns an attribute as CUE reads it.
func (c *Compiler) parsed(a *ast.Attribute) (cue.Attribute, bool) {
	of := c.scratch.CompileString("x: _ " + a.Text).LookupPath(cue.ParsePath("x")).Attributes(cue.FieldAttr)
	if len(of) == 0 {
		return cue.Attribute{}, false
	}
	return of[0], true
}

// carried reports whether n says of a part what an attribute does, or can have no such part.
func carried(n *Node, path []markStep, name, key, value string, flat bool) bool {
	if name == "stele" && key == "sensitive" && n.Sensitive || key == "immutable" && n.Immutable != nil {
		return true
	}
	if len(path) == 0 {
		return !(flat && (key == "sensitive" || key == "immutable")) && n.compiled(name, key, value)
	}
	parts, possible := n.partsAt(path[0])
	for _, part := range parts {
		if carried(part, path[1:], name, key, value, flat) {
			return true
		}
	}
	return !possible
}

// compiled reports whether an attribute has been compiled into n, if there is anything to compile.
func (n *Node) compiled(name, key, value string) bool {
	list, object := n.List, n.Struct
	if list == nil {
		list = &List{}
	}
	if object == nil {
		object = &Struct{}
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
	return true // it tells readers what the schema says
}

// partsAt returns the nodes that speak of a part, and whether there can be such a part.
func (n *Node) partsAt(s markStep) (parts []*Node, possible bool) {
	if s.kind == markItem {
		if n.List != nil {
			parts = n.List.parts()
		}
		return parts, n.Kinds.Has(ListKind)
	}
	if !n.Kinds.Has(StructKind) {
		return nil, false
	}
	possible = n.Struct == nil && n.Union == nil
	for _, in := range n.structs() {
		found := in.partsAt(s)
		parts = append(parts, found...)
		possible = possible || len(found) > 0 || in.Open || len(in.Patterns) > 0
	}
	return parts, possible
}

func (s *Struct) partsAt(of markStep) (parts []*Node) {
	if of.kind == markKey {
		for i := range s.Patterns {
			parts = append(parts, s.Patterns[i].Value)
		}
		return parts
	}
	for _, f := range s.everyField() {
		if f.Name == of.name {
			parts = append(parts, f.Schema)
		}
	}
	return parts
}

// give has a part of n be a secret or immutable, which a node says of any value. It reports
// whether that could be done.
func (n *Node) give(path []markStep, name, key string, source Position) bool {
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
	parts, _ := n.partsAt(path[0])
	if len(parts) == 0 {
		part := n.addPart(path[0])
		if part == nil {
			return false
		}
		parts = append(parts, part)
	}
	given := true
	for _, part := range parts {
		given = part.give(path[1:], name, key, source) && given
	}
	return given
}

// addPart adds a part that may be anything; nil if n says something of it already.
func (n *Node) addPart(s markStep) *Node {
	part := &Node{Kinds: AnyKind}
	if s.kind == markItem {
		if n.List == nil {
			n.List = &List{}
		}
		n.List.Items = part
		return part
	}
	if n.Struct == nil {
		n.Struct = &Struct{Open: true}
	}
	switch {
	case !n.Struct.Open || len(n.Struct.Patterns) > 0 || n.Union != nil:
		return nil
	case s.kind == markKey:
		n.Struct.Patterns = append(n.Struct.Patterns, KeyPattern{Key: &Node{Kinds: StringKind}, Value: part})
	default:
		n.Struct.Fields = append(n.Struct.Fields, Field{Name: s.name, Presence: Optional, Schema: part})
	}
	return part
}

// checkImmutable refuses what is immutable in the items of a list, unless they have keys: it
// cannot be told which item is which.
func (c *Compiler) checkImmutable(n *Node, at *place) {
	if n == nil || n.Immutable != nil {
		return
	}
	if l := n.List; l != nil && l.Type != ListMap {
		l.visitParts(func(item *Node) {
			if item.Immutable != nil {
				c.diags = append(c.diags, Diagnostic{Pos: *item.Immutable, Path: at.path,
					Message: "the attribute @k8s(immutable) in the items of a list of which it cannot be told which item is which",
					Hint:    "give the list keys, @k8s(listType=map,listMapKeys=...), or write the attribute on the whole list"})
			}
		})
		return
	}
	if n.List != nil {
		c.checkImmutable(n.List.Items, at)
	}
	for _, s := range n.structs() {
		for _, f := range s.everyField() {
			c.checkImmutable(f.Schema, at)
		}
		for _, p := range s.Patterns {
			c.checkImmutable(p.Value, at)
		}
	}
}

// parts returns the nodes that speak of items: in general, and by their index.
func (l *List) parts() (all []*Node) {
	for _, n := range append([]*Node{l.Items, l.Rest}, l.Prefix...) {
		if n != nil {
			all = append(all, n)
		}
	}
	return all
}

// visitParts calls each for the items and everything below them.
func (l *List) visitParts(each func(*Node)) {
	for _, part := range l.parts() {
		part.visit("", func(_ string, n *Node) { each(n) })
	}
}

// structs returns what n says of structs: in general, and in each alternative.
func (n *Node) structs() (all []*Struct) {
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

// everyField returns the fields of s and those that its conditions add.
func (s *Struct) everyField() []Field {
	fields := s.Fields[:len(s.Fields):len(s.Fields)]
	for _, condition := range s.Conditions {
		fields = append(fields, condition.Fields...)
	}
	return fields
}
