package fromcue

import (
	"fmt"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
)

// carry keeps the attributes of a value that CUE evaluates, because CUE drops them. It adds secrets and
// immutable fields to n, the node of v, and rejects other attributes that n does not have.
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

// holdMarks checks that no attribute of a whole schema is lost. It skips attributes in alternatives and
// comprehensions: those are handled where the alternative or the comprehension is compiled.
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

// carryMark adds to n what the mark says of a part of n, unless n already has it.
func (c *Compiler) carryMark(n *schemas.Node, m cuesyntax.Mark, at *place, why string) {
	attribute, ok := c.parsed(m.Attribute)
	if !ok {
		return // CUE already rejected it
	}
	for i := range attribute.NumArgs() {
		key, value := attribute.Arg(i)
		if m.Copied && key != "sensitive" || cuesyntax.CarriedMark(n, m.Path, attribute.Name(), key, value, m.Flat) {
			continue
		}
		if m.Flat && key == "immutable" || !cuesyntax.GiveMark(n, m.Path, attribute.Name(), key, c.position(m.Attribute, at)) {
			c.refuse(at, m.Attribute, fmt.Sprintf("the attribute @%s(%s) would be lost: %s", attribute.Name(), attribute.Contents(), why),
				"take the field out of that part, or write the part in a simpler way")
			return
		}
	}
}

// parsed returns the attribute as parsed by CUE.
func (c *Compiler) parsed(a *ast.Attribute) (cue.Attribute, bool) {
	of := c.scratch.CompileString("x: _ " + a.Text).LookupPath(cue.ParsePath("x")).Attributes(cue.FieldAttr)
	if len(of) == 0 {
		return cue.Attribute{}, false
	}
	return of[0], true
}

// checkImmutable rejects immutable values in the items of a list without keys, because old and new items
// cannot be matched.
func (c *Compiler) checkImmutable(n *schemas.Node, at *place) {
	if n == nil || n.Immutable != nil {
		return
	}
	if l := n.List; l != nil && l.Type != schemas.ListMap {
		cuesyntax.VisitParts(l, func(item *schemas.Node) {
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
