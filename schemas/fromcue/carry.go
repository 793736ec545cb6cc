package fromcue

import (
	"fmt"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
)

// carry makes sure that no attribute is lost of a value that is left to CUE, which forgets
// them: n, what is known of the value v besides, gets the secrets and the immutable fields
// that it does not have; other attributes that it does not have are refused.
func (c *Compiler) carry(n *schemas.Node, v cue.Value, at *place, why string) {
	marks, ok := cuesyntax.MarksOf(v, c.packages, c.rootIsFile)
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
func (c *Compiler) holdMarks(n *schemas.Node, v cue.Value, at *place) {
	marks, ok := cuesyntax.MarksOf(v, c.packages, c.rootIsFile)
	if !ok {
		c.refuse(at, nil, "a schema that is too large to be searched for attributes", "split the kind")
		return
	}
	for _, m := range marks {
		if !m.Loose && !m.Flat && !m.Copied {
			c.carryMark(n, m, at, "the compiled schema has no place for it")
		}
	}
	c.checkImmutable(n, at)
}

// carryMark gives n what a mark says of a part of it, if it does not have that.
func (c *Compiler) carryMark(n *schemas.Node, m cuesyntax.Mark, at *place, why string) {
	attribute, ok := c.parsed(m.Attribute)
	if !ok {
		return // CUE has refused it
	}
	for i := range attribute.NumArgs() {
		key, value := attribute.Arg(i)
		if m.Copied && key != "sensitive" || carried(n, m.Path, attribute.Name(), key, value, m.Flat) {
			continue
		}
		if m.Flat && key == "immutable" || !give(n, m.Path, attribute.Name(), key, c.position(m.Attribute, at)) {
			c.refuse(at, m.Attribute, fmt.Sprintf("the attribute @%s(%s) would be lost: %s", attribute.Name(), attribute.Contents(), why),
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
func carried(n *schemas.Node, path []cuesyntax.Step, name, key, value string, flat bool) bool {
	if name == "stele" && key == "sensitive" && n.Sensitive || key == "immutable" && n.Immutable != nil {
		return true
	}
	if len(path) == 0 {
		return !(flat && (key == "sensitive" || key == "immutable")) && compiled(n, name, key, value)
	}
	parts, possible := partsAt(n, path[0])
	for _, part := range parts {
		if carried(part, path[1:], name, key, value, flat) {
			return true
		}
	}
	return !possible
}

// compiled reports whether an attribute has been compiled into n, if there is anything to compile.
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
	return true // it tells readers what the schema says
}

// partsAt returns the nodes that speak of a part, and whether there can be such a part.
func partsAt(n *schemas.Node, s cuesyntax.Step) (parts []*schemas.Node, possible bool) {
	if s.Kind == cuesyntax.Item {
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

func structPartsAt(s *schemas.Struct, of cuesyntax.Step) (parts []*schemas.Node) {
	if of.Kind == cuesyntax.Key {
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

// give has a part of n be a secret or immutable, which a node says of any value. It reports
// whether that could be done.
func give(n *schemas.Node, path []cuesyntax.Step, name, key string, source schemas.Position) bool {
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
		given = give(part, path[1:], name, key, source) && given
	}
	return given
}

// addPart adds a part that may be anything; nil if n says something of it already.
func addPart(n *schemas.Node, s cuesyntax.Step) *schemas.Node {
	part := &schemas.Node{Kinds: schemas.AnyKind}
	if s.Kind == cuesyntax.Item {
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
	case s.Kind == cuesyntax.Key:
		n.Struct.Patterns = append(n.Struct.Patterns, schemas.KeyPattern{Key: &schemas.Node{Kinds: schemas.StringKind}, Value: part})
	default:
		n.Struct.Fields = append(n.Struct.Fields, schemas.Field{Name: s.Name, Presence: schemas.Optional, Schema: part})
	}
	return part
}

// checkImmutable refuses what is immutable in the items of a list, unless they have keys: it
// cannot be told which item is which.
func (c *Compiler) checkImmutable(n *schemas.Node, at *place) {
	if n == nil || n.Immutable != nil {
		return
	}
	if l := n.List; l != nil && l.Type != schemas.ListMap {
		visitParts(l, func(item *schemas.Node) {
			if item.Immutable != nil {
				c.diags = append(c.diags, schemas.Diagnostic{Pos: *item.Immutable, Path: at.path,
					Message: "the attribute @k8s(immutable) in the items of a list of which it cannot be told which item is which",
					Hint:    "give the list keys, @k8s(listType=map,listMapKeys=...), or write the attribute on the whole list"})
			}
		})
		return
	}
	if n.List != nil {
		c.checkImmutable(n.List.Items, at)
	}
	for _, s := range n.Structs() {
		for _, f := range s.EveryField() {
			c.checkImmutable(f.Schema, at)
		}
		for _, p := range s.Patterns {
			c.checkImmutable(p.Value, at)
		}
	}
}

// visitParts calls each for the items and everything below them.
func visitParts(l *schemas.List, each func(*schemas.Node)) {
	for _, part := range l.Parts() {
		part.Visit("", func(_ string, n *schemas.Node) { each(n) })
	}
}
