package fromcue

import (
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/fromcue/cuevalue"
)

// A shape is what the survey learns from the syntax of a value. The survey visits every expression that
// contributes to the value and rejects expressions that make the value depend on data. The meaning
// itself comes from evaluated CUE.
type shape struct {
	kinds    cue.Kind
	source   schemas.Position // first known position
	literals int              // number of contributing struct and list literals, with references followed

	// lists and structs are the numbers of alternatives that are lists and structs, without a
	// default that is a literal. CUE merges some alternatives that only look equal, so the numbers
	// may differ from CUE's.
	lists, structs int

	// Limits on the length of lists. CUE checks them but does not keep them in evaluated values.
	minItems, maxItems *schemas.Limit
	unique             bool

	// Limits on the number of fields of structs, for which the same is true.
	minFields, maxFields *schemas.Limit

	// fixed reports that a list literal has items.
	fixed bool

	// braced reports that a struct literal only embeds a value.
	braced bool

	// split reports that a disjunction has a list or a struct among its alternatives.
	split bool
}

// everything returns the shape of `_`, which is neutral in conjunctions.
func everything() shape { return shapeOf(cue.TopKind) }

// shapeOf returns the shape of a single value of the kind.
func shapeOf(kind cue.Kind) shape {
	s := shape{kinds: kind}
	if kind&cue.ListKind != 0 {
		s.lists = 1
	}
	if kind&cue.StructKind != 0 {
		s.structs = 1
	}
	return s
}

// and returns the shape of the conjunction of s and t.
func (s shape) and(t shape) shape {
	s.kinds &= t.kinds
	if s.source.IsZero() {
		s.source = t.source
	}
	s.literals += t.literals
	s.lists *= t.lists
	s.structs *= t.structs
	s.minItems = tighter(s.minItems, t.minItems, func(a, b int) bool { return a > b })
	s.maxItems = tighter(s.maxItems, t.maxItems, func(a, b int) bool { return a < b })
	s.unique = s.unique || t.unique
	s.minFields = tighter(s.minFields, t.minFields, func(a, b int) bool { return a > b })
	s.maxFields = tighter(s.maxFields, t.maxFields, func(a, b int) bool { return a < b })
	s.braced = s.braced || t.braced
	s.fixed = s.fixed || t.fixed
	s.split = s.split || t.split
	return s
}

func tighter(a, b *schemas.Limit, better func(a, b int) bool) *schemas.Limit {
	switch {
	case a == nil:
		return b
	case b != nil && better(b.Count, a.Count):
		return b
	}
	return a
}

// composite reports whether the shape admits lists or structs.
func (s shape) composite() bool { return s.kinds&cuevalue.CompositeKinds != 0 }

func (s shape) hasMinItems() bool { return s.minItems != nil && s.minItems.Count > 0 }

// survey visits every expression that contributes to v. It skips the fields of structs and the items of
// lists, which are surveyed as values of their own.
func (c *Compiler) survey(v cue.Value, at *place) shape {
	op, args := v.Expr()
	return c.expression(v, v.Source(), op, args, at)
}

// expression surveys v. node is its syntax; op and args are the operation and operands that CUE returns
// for v.
func (c *Compiler) expression(v cue.Value, node ast.Node, op cue.Op, args []cue.Value, at *place) shape {
	if c.steps++; c.steps > maxSteps {
		c.refuse(at, nil, "the schema is too large to compile", "split the kind")
		return everything()
	}
	var source schemas.Position
	if node != nil {
		source, _ = c.locate(node.Pos())
	}
	s := c.dispatch(v, cuesyntax.SyntaxOf(node), op, args, at)
	if !source.IsZero() {
		s.source = source
	}
	return s
}

// dispatch surveys v by its syntax, or by the operation if v has several parts. If v has several
// conjuncts, x is the syntax of one of them.
func (c *Compiler) dispatch(v cue.Value, x ast.Expr, op cue.Op, args []cue.Value, at *place) shape {
	switch x := x.(type) {
	case *ast.StructLit:
		return c.literal(v, x, x.Elts, op, args, at)
	case *cuesyntax.FileSyntax:
		return c.literal(v, x.File, x.File.Decls, op, args, at)
	}
	switch op {
	case cue.AndOp:
		return c.conjunction(x, args, at)
	case cue.OrOp:
		return c.disjunction(x, args, at)
	}
	switch x := x.(type) {
	case nil:
		return c.computed(v, op, args, at)
	case *ast.BasicLit:
		return shapeOf(v.IncompleteKind())
	case *ast.Ident:
		return c.reference(v, x, op, args, at)
	case *ast.SelectorExpr:
		return c.reference(v, x, op, args, at)
	case *ast.IndexExpr:
		c.static(x.Index, at)
		return c.reference(v, x, op, args, at)
	case *ast.UnaryExpr, *ast.Interpolation:
		return c.operation(v, x, args, at)
	case *ast.BinaryExpr:
		if x.Op == token.OR { // CUE dropped all other alternatives
			return c.disjunction(x, args, at)
		}
		return c.operation(v, x, args, at)
	case *ast.ListLit:
		return c.listLiteral(v, x, at)
	case *ast.CallExpr:
		return c.call(v, x, args, at)
	}
	if _, ok := x.(*ast.BottomLit); ok {
		c.refuse(at, x, cuesyntax.NameOf(x), "")
		return everything()
	}
	c.leave(at, x, cuesyntax.NameOf(x), "")
	return everything()
}

// computed surveys a value without its own syntax: the fields of a struct literal next to its
// embeddings, or a part of a predeclared type. The enclosing value's survey covers the syntax.
func (c *Compiler) computed(v cue.Value, op cue.Op, args []cue.Value, at *place) shape {
	kind := v.IncompleteKind()
	switch {
	case op == cue.NoOp && (kind == cue.StructKind || kind == cue.TopKind || v.IsConcrete()):
		return shapeOf(kind)
	case cuevalue.IsBound(op):
		for _, a := range args {
			c.constant(a, nil, at)
		}
		return shapeOf(kind)
	}
	c.refuse(at, nil, "an expression that cannot be traced to its source", "write the type out")
	return everything()
}

func (c *Compiler) conjunction(x ast.Expr, args []cue.Value, at *place) shape {
	if call, ok := x.(*ast.CallExpr); ok && cuesyntax.IsBuiltin(call.Fun, "and") {
		for _, a := range call.Args {
			c.static(a, at)
		}
		if at.vague {
			return everything()
		}
	}
	defer c.jointly(args, at)()
	s := everything()
	shapes := make([]shape, len(args))
	for i, a := range args {
		shapes[i] = c.survey(a, at)
		s = s.and(shapes[i])
	}
	if s.split {
		// Each alternative is surveyed together with the other conjuncts.
		for i, a := range args {
			if c.deep(a, at, true) || shapes[i].hasMinItems() {
				c.refuseMinItems(a, at)
			}
		}
	}
	return s
}

// disjunction surveys alternatives. If another alternative subsumes the default, CUE omits the default
// from args. It is then surveyed by its syntax.
func (c *Compiler) disjunction(x ast.Expr, args []cue.Value, at *place) shape {
	split := len(args) > 1
	var terms []cuesyntax.Disjunct
	if b, ok := x.(*ast.BinaryExpr); ok {
		if rest, kept, ok := at.explained(b, args); ok {
			x, args = rest, kept
			if b, still := x.(*ast.BinaryExpr); !still || b.Op != token.OR {
				return c.survey(args[0], at)
			}
		}
	}
	switch x := x.(type) {
	case *ast.BinaryExpr:
		if c.takenByDefault(x, args, at) {
			return c.surveyAlternatives(x, args, at)
		}
		split = true
		terms = cuesyntax.Disjuncts(x, false, nil)
		for _, t := range terms {
			kept := func(a cue.Value) bool { return a.Source() == t.Expr }
			if !slices.ContainsFunc(args, kept) {
				c.static(t.Expr, at)
			}
		}
	case *ast.CallExpr:
		for _, a := range x.Args {
			c.static(a, at)
		}
		if at.vague {
			return everything()
		}
	}
	s := shape{}
	if split { // a single bound still belongs to a choice
		at.within++
		defer func() { at.within-- }()
	}
	if len(slices.DeleteFunc(slices.Clone(args), func(a cue.Value) bool { return a.IncompleteKind() == cue.NullKind })) > 1 {
		at.mixed++
		defer func() { at.mixed-- }()
	}
	of := c.survey
	if _, list := x.(*ast.CallExpr); list {
		of = c.listed
	}
	for _, a := range args {
		t := of(a, at)
		s.kinds |= t.kinds
		s.split = s.split || t.split
		s.braced = s.braced || t.braced
		s.fixed = s.fixed || t.fixed
		s.literals = max(s.literals, t.literals)
		if !t.composite() || at.recursive {
			continue
		}
		s.split = s.split || split
		if (c.deep(a, at, false) || t.hasMinItems()) && split {
			c.refuseMinItems(a, at)
		}
		marked := slices.ContainsFunc(terms, func(t cuesyntax.Disjunct) bool { return t.Marked && t.Expr == a.Source() })
		if !marked || !cuevalue.IsLiteral(a) {
			s.lists += t.lists
			s.structs += t.structs
		}
		if t.kinds&cue.ListKind != 0 {
			s.minItems = tighter(s.minItems, t.minItems, func(a, b int) bool { return a > b })
			s.maxItems = tighter(s.maxItems, t.maxItems, func(a, b int) bool { return a < b })
			s.unique = s.unique || t.unique
		}
	}
	return s
}

// surveyAlternatives surveys the other alternatives of a disjunction whose default is a reference.
func (c *Compiler) surveyAlternatives(x *ast.BinaryExpr, args []cue.Value, at *place) shape {
	at.within++
	defer func() { at.within-- }()
	s := shape{}
	for _, t := range cuesyntax.Disjuncts(x, false, nil) {
		if t.Marked {
			continue
		}
		for _, a := range args {
			if a.Source() == t.Expr {
				s.kinds |= c.survey(a, at).kinds
			}
		}
		if id, ok := t.Expr.(*ast.Ident); ok {
			s.kinds |= map[string]cue.Kind{"_": cue.TopKind, "string": cue.StringKind, "int": cue.IntKind, "number": cue.NumberKind, "bool": cue.BoolKind}[id.Name]
		}
	}
	return s
}

// explained removes error("…") as the last alternative and keeps its text as the message for values that
// match no other alternative.
func (p *place) explained(x *ast.BinaryExpr, args []cue.Value) (rest ast.Expr, kept []cue.Value, ok bool) {
	call, isCall := cuesyntax.Unparen(x.Y).(*ast.CallExpr)
	if x.Op != token.OR || !isCall || !cuesyntax.IsBuiltin(call.Fun, "error") || len(call.Args) != 1 {
		return nil, nil, false
	}
	text, isText := cuesyntax.TextOf(call.Args[0])
	if !isText {
		return nil, nil, false
	}
	for _, a := range args {
		if cuesyntax.SyntaxOf(a.Source()) == ast.Expr(call) {
			continue
		}
		if a.IncompleteKind()&cuevalue.CompositeKinds != 0 {
			return nil, nil, false // the error may be in a part of the value
		}
		kept = append(kept, a)
	}
	if rest = cuesyntax.SyntaxOf(x.X); len(kept) == 0 || len(kept) == len(args) {
		return nil, nil, false
	}
	if p.within == 0 && p.joint == 0 && !p.passing && p.message == "" {
		p.message = text
	}
	return rest, kept, true
}

// refuseMinItems rejects a list with a minimum length in an alternative: CUE takes the schema's list as
// empty and drops the alternative.
func (c *Compiler) refuseMinItems(v cue.Value, at *place) {
	c.refuse(at, v.Source(), "list.MinItems in one of several alternatives, which CUE drops before it sees any data",
		"make the field optional instead of an alternative, or drop list.MinItems")
}

// deep surveys all parts of v. It reports whether a list with a minimum length is always part of v. With
// countOptional, optional parts count too, because another conjunct may require them. Alternatives are
// surveyed by the survey of their disjunction.
func (c *Compiler) deep(v cue.Value, at *place, countOptional bool) bool {
	if at.depth >= schemas.MaxDepth {
		c.refuseDepth(at)
		return false
	}
	found := false
	visit := func(child cue.Value, certain bool) {
		if _, ok := forbidden(child); ok && !certain {
			return
		}
		within := &place{path: at.path, depth: at.depth + 1, parent: at, source: at.source, passing: true}
		s := c.survey(child, within)
		if within.recursive {
			at.recursive = true
			return
		}
		nested := c.deep(child, within, countOptional)
		if (certain || countOptional) && (nested || s.hasMinItems()) {
			found = true
		}
	}
	switch v.IncompleteKind() {
	case cue.StructKind:
		fields, err := v.Fields(cue.All(), cue.Patterns(true))
		for err == nil && fields.Next() {
			optional := fields.FieldType() & (cue.OptionalConstraint | cue.PatternConstraint)
			visit(fields.Value(), optional == 0)
		}
	case cue.ListKind:
		if item := v.LookupPath(cue.MakePath(cue.AnyIndex)); item.Exists() {
			visit(item, false)
		}
	}
	return found
}

// operation surveys an operator with constant operands: a bound, arithmetic, or an interpolation. The
// result must be a constant, except for bounds.
func (c *Compiler) operation(v cue.Value, x ast.Expr, args []cue.Value, at *place) shape {
	op, _ := v.Expr()
	if cuevalue.IsBound(op) {
		if c.comparison(x, at) {
			return shapeOf(v.IncompleteKind())
		}
		for _, a := range args {
			c.constant(a, x, at)
		}
		return shapeOf(v.IncompleteKind())
	}
	before := len(c.diags)
	if i, ok := x.(*ast.Interpolation); ok && c.equal(v, i, at) {
		return shapeOf(cue.StringKind)
	}
	if op == cue.NoOp && len(args) == 1 && args[0].Source() == v.Source() {
		c.static(x, at) // CUE returns no operands for it
		args = nil
	}
	at.operand++
	for _, a := range args {
		c.survey(a, at)
	}
	at.operand--
	if !cuevalue.IsConstant(v) {
		if len(c.diags) == before && !at.vague {
			c.leave(at, x, cuesyntax.NameOf(x)+" over values that are not constants", "a schema may compute with constants and with the object's own fields")
		}
		return everything()
	}
	return shapeOf(v.Kind())
}

// constant surveys an operand that must be a constant.
func (c *Compiler) constant(v cue.Value, x ast.Expr, at *place) {
	before := len(c.diags)
	at.operand++
	c.survey(v, at)
	at.operand--
	if len(c.diags) > before || at.vague || cuevalue.IsConstant(v) {
		return
	}
	const message, hint = "a bound that is not a constant", "compare with a constant, or with a field of the object"
	d, _ := cue.Dereference(v).Default()
	if x != nil && !cuevalue.IsConstant(d) && !slices.ContainsFunc(cuesyntax.NamesIn(x), func(id *ast.Ident) bool { return declared(at, id) }) {
		c.refuse(at, x, message, hint) // data cannot make it a constant
		return
	}
	c.leave(at, x, message, hint)
}
