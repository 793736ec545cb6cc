package fromcue

import (
	"fmt"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/fromcue/marks"
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
		if m.Copied && key != "sensitive" || marks.Carried(n, m.Path, attribute.Name(), key, value, m.Flat) {
			continue
		}
		if m.Flat && key == "immutable" || !marks.Give(n, m.Path, attribute.Name(), key, c.position(m.Attribute, at)) {
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

// checkImmutable refuses what is immutable in the items of a list, unless they have keys: it
// cannot be told which item is which.
func (c *Compiler) checkImmutable(n *schemas.Node, at *place) {
	if n == nil || n.Immutable != nil {
		return
	}
	if l := n.List; l != nil && l.Type != schemas.ListMap {
		marks.VisitParts(l, func(item *schemas.Node) {
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
