package fromcue

import (
	"fmt"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
)

// literal surveys a struct literal. With embeddings, CUE returns the embedded values and the rest as a
// conjunction. If the literal only embeds one expression, CUE returns the parts of that expression.
func (c *Compiler) literal(v cue.Value, x ast.Node, decls []ast.Decl, op cue.Op, args []cue.Value, at *place) shape {
	at.literals = append(at.literals, x)
	embedded, fields := c.declarations(decls, at)
	switch {
	case len(embedded) == 0:
		s := shapeOf(cue.StructKind)
		s.literals = 1
		return s
	case len(embedded) == 1 && fields == 0:
		s := c.dispatch(v, cuesyntax.SyntaxOf(embedded[0]), op, args, at)
		s.literals++
		s.braced = s.braced || s.kinds&cue.ListKind != 0
		return s
	case op == cue.AndOp:
		s := c.conjunction(nil, args, at)
		s.literals++
		return s
	}
	c.leave(at, x, "a struct literal with an embedded scalar", "write the scalar without the braces")
	return everything()
}

// declarations checks the declarations of a struct literal. It returns the embedded expressions and the
// number of other declarations. The values of fields are surveyed when the fields are compiled.
func (c *Compiler) declarations(decls []ast.Decl, at *place) (embedded []ast.Expr, fields int) {
	for _, d := range decls {
		fields++
		switch d := d.(type) {
		case *ast.Field:
			c.label(d, at)
		case *ast.EmbedDecl:
			embedded = append(embedded, d.Expr)
			fields--
		case *ast.Ellipsis:
			if d.Type != nil {
				c.leave(at, d, "a type after ... in a struct", "write [string]: T for the type of other fields")
			}
		case *ast.Attribute:
			fields--
		case *ast.Comprehension:
			if p, ok := cuesyntax.ConditionOf(d); ok && !at.passing && at.within == 0 {
				at.pending = append(at.pending, p)
				at.literals = append(at.literals, d.Value)
				continue
			}
			at.cloud(d)
			word := "for"
			if _, ok := d.Clauses[0].(*ast.IfClause); ok {
				word = "if"
			}
			c.leave(at, d, fmt.Sprintf("a comprehension (%s)", word), "a schema can decide only by the object itself which fields there are")
		case *ast.LetClause:
		case *ast.CommentGroup, *ast.Package, *ast.ImportDecl:
			fields--
		default:
			c.refuse(at, d, fmt.Sprintf("a declaration of type %T", d), "")
		}
	}
	return embedded, fields
}

// label checks the label of a field. A computed label must not depend on data.
func (c *Compiler) label(f *ast.Field, at *place) {
	var node ast.Node = f.Label
	if a, ok := node.(*ast.Alias); ok {
		node = a.Expr
	}
	switch l := node.(type) {
	case *ast.Ident, *ast.BasicLit:
	case *ast.ListLit:
		for _, e := range l.Elts {
			if a, ok := e.(*ast.Alias); ok {
				e = a.Expr
			}
			c.static(e, at)
		}
	default:
		c.leave(at, f, "a computed field name", "write the name out")
	}
}

// item surveys a list item that has an index. The item is not a value of this place.
func (c *Compiler) item(v cue.Value, at *place) {
	within := &place{path: at.path, depth: at.depth + 1, parent: at, source: at.source, passing: true}
	c.survey(v, within)
	c.deep(v, within, false)
	at.recursive = at.recursive || within.recursive
	at.vague = at.vague || within.vague
}

// listLiteral surveys [...T], and lists of constants that serve as defaults.
func (c *Compiler) listLiteral(v cue.Value, x *ast.ListLit, at *place) shape {
	for _, e := range x.Elts {
		if _, ok := e.(*ast.Comprehension); ok {
			c.leave(at, x, "a comprehension in a list", "write the items out")
			return shapeOf(cue.ListKind)
		}
	}
	items, err := v.List()
	s := shapeOf(cue.ListKind)
	s.literals = 1
	for err == nil && items.Next() {
		s.fixed = true
		c.item(items.Value(), at)
	}
	return s
}
