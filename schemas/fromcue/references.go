package fromcue

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/fromcue/cuevalue"
	"stele.dev/stele/schemas/textforms"
)

// reference surveys an identifier, or a selector that starts with one.
func (c *Compiler) reference(v cue.Value, x ast.Expr, op cue.Op, args []cue.Value, at *place) shape {
	base := cuesyntax.BaseOf(x)
	if base == nil {
		c.leave(at, x, "a selection from an expression", "name the value in a definition and select from that")
		return everything()
	}
	m := cuesyntax.MeaningOf(base)
	if m == cuesyntax.IsPredeclared && op == cue.SelectorOp {
		m = cuesyntax.IsField // another file of the package declares the field
	}
	switch m {
	case cuesyntax.IsPredeclared:
		return c.basic(v, x, base, at)
	case cuesyntax.IsPackage:
		if name, ok := cuesyntax.BuiltinName(x); ok {
			return c.member(v, x, name, at)
		}
	case cuesyntax.IsField:
		outside := !declared(at, base) && !at.encloses(base)
		if t, ok := cuevalue.Target(v, args); ok && cuevalue.IsConstant(t) && (outside || cuevalue.IsWritten(t)) {
			return shapeOf(t.Kind())
		}
		if outside {
			break // not data
		}
		if c.equal(v, x, at) {
			return shapeOf(v.IncompleteKind())
		}
		c.leave(at, x, fmt.Sprintf("a reference to the field %s", base.Name),
			"the field is not a part of the object; refer to a definition (#name), a hidden field (_name) or a constant")
		return everything()
	case cuesyntax.IsAlias:
		if at.listing > 0 && cuesyntax.IsLoopVariable(base) {
			return c.variable(v, x, at)
		}
		if cuevalue.IsConstant(v) && (!declared(at, base) && !at.encloses(base) || overTable(at, base)) {
			return shapeOf(v.Kind()) // such as the key of an entry in a table
		}
		if c.equal(v, x, at) {
			return shapeOf(v.IncompleteKind())
		}
		c.leave(at, x, fmt.Sprintf("a reference to the alias %s", base.Name),
			"an alias may stand for data; refer to a definition (#name) or a hidden field (_name)")
		return everything()
	}
	if _, whole := x.(*ast.Ident); !whole && len(args) > 0 && !cuesyntax.SelectsFromPackage(x) {
		// The operand of the selector must not depend on data either.
		at.operand++
		c.survey(args[0], at)
		at.operand--
	}
	t, ok := cuevalue.Target(v, args)
	switch {
	case at.vague:
		return everything() // the index or the operand depends on data
	case ok && cuevalue.IsError(t):
		return everything() // CUE reports the error or drops the alternative
	case !ok || t.IncompleteKind() == cue.BottomKind && t.Source() == nil:
		message, hint := "a reference that cannot be followed", "repeat the value in place of the reference"
		if m == cuesyntax.IsFixed && declared(at, base) {
			message, hint = fmt.Sprintf("the parameter %s, which no object can set", base.Name), fmt.Sprintf("give it a value where the schema refers to the definition: & {%s: ...}", base.Name)
		}
		c.refuse(at, x, message, hint)
		return everything()
	}
	return c.follow(t, x, at)
}

// follow surveys the value that the reference x refers to.
func (c *Compiler) follow(t cue.Value, x ast.Node, at *place) shape {
	if id, ok := x.(*ast.Ident); ok {
		c.named[id.Name] = t
	}
	// CUE drops the attributes of referenced values.
	for _, a := range t.Attributes(cue.ValueAttr) {
		if at.mixed > 0 && a.Name() == "k8s" {
			c.refuse(at, x, fmt.Sprintf("the attribute @k8s(%s) on one of several alternatives", a.Contents()), "write it on the field")
			continue
		}
		at.attributes = append(at.attributes, a)
	}
	if c.following[x] {
		c.refuseRecursion(at, x)
		return everything()
	}
	if !slices.Contains(at.refs, x) {
		at.refs = append(at.refs, x)
		above := 0
		for p := at.parent; p != nil; p = p.parent {
			if slices.Contains(p.refs, x) {
				above++
			}
		}
		if above >= maxNesting {
			c.refuseRecursion(at, x)
			return everything()
		}
	}
	c.following[x] = true
	defer delete(c.following, x)
	return c.survey(t, at)
}

func (c *Compiler) refuseRecursion(at *place, x ast.Node) {
	at.recursive = true
	c.leaveTo(at, at, x, recursion)
	at.vague = true
}

// basic surveys a predeclared type.
func (c *Compiler) basic(v cue.Value, x ast.Expr, id *ast.Ident, at *place) shape {
	if _, ok := x.(*ast.Ident); !ok {
		c.refuse(at, x, "a selection from a predeclared name", "")
		return everything()
	}
	switch strings.TrimPrefix(id.Name, "__") {
	case "_":
		return everything()
	case "bool", "string", "int", "number":
		return shapeOf(v.IncompleteKind())
	case "float":
		c.refuse(at, x, "the type float, which does not admit 1", "write number")
	case "bytes":
		c.refuse(at, x, "the type bytes, which JSON does not have", "write string")
	default:
		c.refuse(at, x, fmt.Sprintf("the predeclared name %s", id.Name), "")
	}
	return everything()
}

// member surveys a name of a CUE standard package that is not called.
func (c *Compiler) member(v cue.Value, x ast.Expr, name string, at *place) shape {
	switch {
	case name == "list.UniqueItems":
		s := shapeOf(cue.ListKind)
		s.unique = true
		return s
	case cuevalue.IsConstant(v):
		return shapeOf(v.Kind())
	}
	if _, ok := textforms.Named(name); ok {
		return shapeOf(v.IncompleteKind())
	}
	c.leave(at, x, fmt.Sprintf("the builtin %s", name), "")
	return everything()
}

// call surveys a call of a validator, or of a function with constant arguments.
func (c *Compiler) call(v cue.Value, x *ast.CallExpr, args []cue.Value, at *place) shape {
	if cuesyntax.IsBuiltin(x.Fun, "or") || cuesyntax.IsBuiltin(x.Fun, "and") {
		for _, a := range x.Args {
			c.static(a, at)
		}
		if at.vague {
			return everything()
		}
		s := everything()
		for _, a := range args {
			s = s.and(c.listed(a, at))
		}
		return s
	}
	if cuesyntax.IsBuiltin(x.Fun, "close") && len(args) == 2 {
		return c.survey(args[1], at)
	}
	name, ok := cuesyntax.BuiltinName(x.Fun)
	if id, plain := x.Fun.(*ast.Ident); plain && cuesyntax.MeaningOf(id) == cuesyntax.IsPredeclared {
		name, ok = id.Name, true
	}
	if !ok || len(args) == 0 {
		c.refuse(at, x, "a call of something that is not a builtin function", "a schema may call what CUE has, such as strings.MinRunes")
		return everything()
	}
	args = args[1:]
	if name == "matchN" {
		if s, ok := c.matchesOne(x, args, at); ok {
			return s
		}
	}
	switch name {
	case "time.Time", "time.Duration", "net.IP", "net.IPv4", "net.IPv6", "net.IPCIDR", "net.FQDN", "net.URL", "net.AbsURL":
		if len(args) == 0 {
			return shapeOf(v.IncompleteKind())
		}
	case "strings.HasPrefix", "strings.HasSuffix", "strings.Contains":
		if len(args) == 1 {
			c.constant(args[0], x, at)
			return shapeOf(cue.StringKind)
		}
	case "strings.MinRunes", "strings.MaxRunes", "time.Format":
		for _, a := range args {
			c.constant(a, x, at)
		}
		return shapeOf(cue.StringKind)
	case "list.MinItems":
		s := shapeOf(cue.ListKind)
		s.minItems = c.count(args, x, at)
		return s
	case "list.MaxItems":
		s := shapeOf(cue.ListKind)
		s.maxItems = c.count(args, x, at)
		return s
	case "struct.MinFields", "struct.MaxFields":
		if at.within > 0 || at.parent == nil {
			break // a limit of some alternatives, or of an object, whose apiVersion, kind and metadata CUE does not see
		}
		s := shapeOf(cue.StructKind)
		if limit := c.count(args, x, at); name == "struct.MinFields" {
			s.minFields = limit
		} else {
			s.maxFields = limit
		}
		return s
	case "list.UniqueItems":
		if len(args) == 0 {
			s := shapeOf(cue.ListKind)
			s.unique = true
			return s
		}
	}
	at.operand++
	for _, a := range args {
		c.survey(a, at)
		c.deep(a, at, false)
	}
	at.operand--
	if cuevalue.IsConstant(v) && !at.vague {
		return shapeOf(v.Kind())
	}
	c.leave(at, x, fmt.Sprintf("the builtin %s", name), "")
	return everything()
}

// listed surveys an item of the list argument of the functions or and and. Neither the list nor the
// variables of its comprehensions depend on data.
func (c *Compiler) listed(v cue.Value, at *place) shape {
	at.listing++
	defer func() { at.listing-- }()
	return c.survey(v, at)
}

// overTable reports whether an identifier is the variable of a comprehension over what data cannot change.
func overTable(at *place, id *ast.Ident) bool {
	loop, ok := id.Scope.(*ast.ForClause)
	if !ok {
		loop, ok = id.Node.(*ast.ForClause)
	}
	return ok && !slices.ContainsFunc(cuesyntax.NamesIn(loop.Source), func(name *ast.Ident) bool {
		m := cuesyntax.MeaningOf(name)
		return m == cuesyntax.IsField || m == cuesyntax.IsAlias || declared(at, name)
	})
}

// variable surveys a reference to the variable of a comprehension in such a list.
func (c *Compiler) variable(v cue.Value, x ast.Expr, at *place) shape {
	at.attributes = append(at.attributes, v.Attributes(cue.ValueAttr)...)
	if cuevalue.IsConstant(v) {
		return shapeOf(v.Kind())
	}
	if t := cue.Dereference(v); t != v {
		return c.follow(t, x, at)
	}
	c.leave(at, nil, "an alternative that is the variable of a comprehension", "")
	return everything()
}

// count surveys the numeric argument of a limit such as list.MaxItems.
func (c *Compiler) count(args []cue.Value, x ast.Node, at *place) *schemas.Limit {
	if len(args) != 1 {
		c.refuse(at, x, "a limit without a number", "")
		return nil
	}
	c.constant(args[0], cuesyntax.SyntaxOf(x), at)
	n, err := args[0].Int64()
	if err != nil || n < 0 || n > 1<<31-1 {
		c.refuse(at, x, "a limit that is not a number of items", "")
		return nil
	}
	return &schemas.Limit{Count: int(n), Source: c.position(x, at)}
}

// static surveys syntax that has no value. If it refers to data, CUE must evaluate it.
func (c *Compiler) static(node ast.Node, at *place) {
	anchor := at
	for _, id := range cuesyntax.NamesIn(node) {
		wider := c.reaches(at, anchor, id, map[ast.Node]bool{})
		if wider == nil {
			c.refuse(at, id, fmt.Sprintf("a reference to %s in a default or in an argument", id.Name), "declare it as a definition (#name) at the top of the file")
			return
		}
		anchor = wider
		if declared(at, id) {
			c.leave(at, node, fmt.Sprintf("a reference to %s in a default or in an argument", id.Name), "")
			return
		}
	}
}

// encloses reports whether the identifier is declared in a literal that is nested in a contributing
// literal and does not itself contribute to the object, as far as known.
func (p *place) encloses(id *ast.Ident) bool {
	scope := id.Scope
	if scope == nil {
		return false
	}
	for ; p != nil; p = p.parent {
		for _, lit := range p.literals {
			if _, file := lit.(*ast.File); !file && cuesyntax.ContainsNode(lit, scope) {
				return true
			}
		}
	}
	return false
}

// declared reports whether the identifier is declared within the object.
func declared(at *place, id *ast.Ident) bool {
	for p := at; p != nil; p = p.parent {
		if _, ok := p.declares(id); ok {
			return true
		}
	}
	return false
}
