package fromcue

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	cueliteral "cuelang.org/go/cue/literal"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/fromcue/cuevalue"
	"stele.dev/stele/schemas/program"
)

// A taken is a field that gets its value from another field. It is pending until the struct from which
// the reference is resolved is compiled.
type taken struct {
	at      *place
	n       *schemas.Node
	node    ast.Expr
	anchors []*place      // one per part of the reference; nil for constant text
	free    schemas.Kinds // for a default: the kinds of the other alternatives
	copies  bool          // the referenced field constrains the value
}

// take makes a field a reference if x refers to data or interpolates such references. It reports whether
// it did.
func (c *Compiler) take(x ast.Expr, at *place, free schemas.Kinds, byDefault bool) bool {
	if at.from != nil || at.passing || at.operand > 0 || at.name == "" || at.parent == nil || at.variant || c.untaken[at.path] {
		return false
	}
	r := &schemas.Reference{Default: byDefault, Source: c.position(x, at)}
	t := &taken{at: at, node: x, free: free}
	switch x := x.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		part, anchor, ok := dataAt(x, at)
		if !ok {
			return false
		}
		r.Parts, t.anchors = []schemas.Part{part}, []*place{anchor}
		at.loose = part.Key
	case *ast.Interpolation:
		if !interpolated(x, at, r, t) {
			return false
		}
		at.loose = true
	default:
		return false
	}
	at.from, at.taken = r, t
	return true
}

// interpolated adds the parts of an interpolation to a reference. It reports whether it could.
func interpolated(x *ast.Interpolation, at *place, r *schemas.Reference, t *taken) bool {
	r.Joined = true
	first, ok1 := x.Elts[0].(*ast.BasicLit)
	last, ok2 := x.Elts[len(x.Elts)-1].(*ast.BasicLit)
	if !ok1 || !ok2 {
		return false
	}
	quotes, prefix, _, err := cueliteral.ParseQuotes(first.Value, last.Value)
	if err != nil || !quotes.IsDouble() {
		return false
	}
	for i, e := range x.Elts {
		if i%2 == 1 {
			part, anchor, ok := dataAt(cuesyntax.Unparen(e), at)
			if !ok {
				return false
			}
			r.Parts, t.anchors = append(r.Parts, part), append(t.anchors, anchor)
			continue
		}
		lit, ok := e.(*ast.BasicLit)
		if !ok || len(lit.Value) < prefix {
			return false
		}
		text, err := quotes.Unquote(lit.Value[prefix:])
		if err != nil {
			return false
		}
		if prefix = 1; text != "" { // skip the closing parenthesis
			r.Parts, t.anchors = append(r.Parts, schemas.Part{Text: text}), append(t.anchors, nil)
		}
	}
	return true
}

// dataAt returns the path of a reference relative to a field, and the place of the struct that declares
// its first name.
func dataAt(x ast.Expr, at *place) (part schemas.Part, anchor *place, ok bool) {
	var path []string
	for {
		sel, selects := x.(*ast.SelectorExpr)
		if !selects {
			break
		}
		name, _, err := ast.LabelName(sel.Sel)
		if err != nil || strings.HasPrefix(name, "#") || strings.HasPrefix(name, "_") {
			return part, nil, false
		}
		path = append([]string{name}, path...)
		x = cuesyntax.Unparen(sel.X)
	}
	id, ok := dataNamed(x, at)
	if !ok {
		return part, nil, false
	}
	up, of := -1, -1 // of is the level of the struct child, or -1
	for child, p := at, at.parent; p != nil; child, p = p, p.parent {
		before := of
		if of = -1; child.name != "" || child.entry {
			up++
			of = up
		}
		if p.passing || p.arms || p.variant {
			return part, nil, false
		}
		name, key, found := p.declaration(id)
		if !found {
			continue
		}
		switch {
		case key:
			return schemas.Part{Up: before, Key: true}, p, before >= 0 && of >= 0 && len(path) == 0
		case name != "":
			path = append([]string{name}, path...)
		}
		return schemas.Part{Up: of, Path: path}, p, of >= 0 && len(path) > 0
	}
	return part, nil, false
}

// dataNamed returns the identifier if x is a field or an alias, or a hidden field that is an alias of
// one.
func dataNamed(x ast.Expr, at *place) (id *ast.Ident, ok bool) {
	for range maxNesting {
		if id, ok = x.(*ast.Ident); !ok {
			return nil, false
		}
		switch cuesyntax.MeaningOf(id) {
		case cuesyntax.IsField, cuesyntax.IsAlias:
			return id, true
		case cuesyntax.IsFixed:
		default:
			return nil, false
		}
		var value ast.Node
		for p := at; p != nil && value == nil; p = p.parent {
			value, _ = p.declares(id)
		}
		x = cuesyntax.SyntaxOf(value)
	}
	return nil, false
}

// declaration returns the name of the field that an identifier refers to, if the place declares it. The
// name is empty if the identifier stands for the struct itself, or with key set, for a map key.
func (p *place) declaration(id *ast.Ident) (name string, key, found bool) {
	for _, lit := range p.literals {
		if alias, ok := id.Node.(*ast.Alias); ok && ast.Node(cuesyntax.SyntaxOf(alias.Expr)) == lit {
			return "", false, true
		}
		for _, d := range cuesyntax.DeclsOf(lit) {
			f, ok := d.(*ast.Field)
			if !ok {
				continue
			}
			if _, pattern := f.Label.(*ast.ListLit); pattern {
				if ast.Node(f) == id.Scope {
					return "", true, true
				}
				continue
			}
			label := f.Label
			aliased := false
			if alias, ok := label.(*ast.Alias); ok {
				label, _ = alias.Expr.(ast.Label)
				aliased = id.Node == ast.Node(alias) || id.Node == ast.Node(f)
			}
			field, isIdent, err := ast.LabelName(label)
			switch {
			case err != nil, strings.HasPrefix(field, "#"), strings.HasPrefix(field, "_"):
			case aliased, f.Value != nil && id.Node == ast.Node(f.Value):
				return field, false, true
			case id.Scope == lit && isIdent && field == id.Name:
				return field, false, true
			}
		}
	}
	return "", false, false
}

// takenByDefault surveys a disjunction whose default is a reference and whose other alternatives are of the kinds that the reference
// may have. It reports whether x is such a disjunction.
func (c *Compiler) takenByDefault(x *ast.BinaryExpr, args []cue.Value, at *place) bool {
	var marked ast.Expr
	terms := cuesyntax.Disjuncts(x, false, nil)
	for _, t := range terms {
		if t.Marked && marked != nil {
			return false
		}
		if t.Marked {
			marked = t.Expr
		}
	}
	if marked == nil || at.within > 0 {
		return false
	}
	var free schemas.Kinds
	var ruled []cue.Value
	for _, t := range terms {
		if t.Marked {
			continue
		}
		id, ok := t.Expr.(*ast.Ident)
		if ok && cuesyntax.MeaningOf(id) == cuesyntax.IsPredeclared && basicKinds[id.Name] != 0 && (id.Name != "_" || at.joint == 0) {
			if free |= basicKinds[id.Name]; id.Name == "_" {
				anything := c.scratch.BuildExpr(top())
				at.beside = &anything
			}
			continue
		}
		i := slices.IndexFunc(args, func(a cue.Value) bool { return a.Source() == t.Expr })
		if i < 0 {
			return false
		}
		ruled = append(ruled, args[i])
	}
	if free == 0 && at.joint == 0 && len(ruled) == 1 && !cuevalue.IsComposite(ruled[0]) { // the reference has its value whether or not this admits it
		free, at.beside = cuevalue.KindsOf(ruled[0].IncompleteKind())&schemas.ScalarKinds, &ruled[0]
	}
	return free != 0 && c.take(marked, at, free, true)
}

var basicKinds = map[string]schemas.Kinds{
	"_": schemas.ScalarKinds, "string": schemas.StringKind, "int": schemas.IntegerKind, "number": schemas.NumberKind | schemas.IntegerKind, "bool": schemas.BoolKind,
}

// equal surveys a reference to data that is the whole constraint of a field or one of its conjuncts. It
// reports whether the form can express it.
func (c *Compiler) equal(v cue.Value, x ast.Expr, at *place) bool {
	if at.within > 0 || cuevalue.IsError(v) || !c.take(x, at, 0, false) {
		return false
	}
	if v.IncompleteKind() == cue.BottomKind && !at.loose { // the field is required and CUE says nothing else
		at.loose, at.taken.copies = true, true
	}
	if at.loose && at.joint > 0 { // CUE's value for it hides the other constraints
		if at.taken.copies {
			at.from, at.taken, at.loose = nil, nil, false
			return false
		}
		at.loose, at.dropped = false, append(at.dropped, x)
	}
	return true
}

// jointly surveys the parts of a conjunction, one of which may be a reference to data. If another part
// has a default, the reference alone does not determine the value.
func (c *Compiler) jointly(args []cue.Value, at *place) (leave func()) {
	operands, joint := 0, 0
	for _, a := range args {
		if a.Source() != args[0].Source() {
			joint = 1 // CUE repeats what a pattern says
		}
		_, marked := a.Default()
		switch cuesyntax.SyntaxOf(a.Source()).(type) {
		case *ast.Ident, *ast.SelectorExpr:
		default:
			if marked {
				operands = 1
			}
		}
	}
	at.joint += joint
	at.operand += operands
	return func() {
		at.joint -= joint
		at.operand -= operands
	}
}

// settle completes the node of a field that gets its value from another field.
func (c *Compiler) settle(n *schemas.Node, at *place) {
	if at.from == nil {
		return
	}
	n.From, n.Default, at.taken.n = at.from, nil, n
	if at.presence == schemas.Required || n.Kinds&^schemas.ScalarKinds != 0 && !at.from.Default || n.Kinds == 0 {
		c.untake(at.taken)
		return
	}
	c.taken = append(c.taken, at.taken)
}

// untake marks the field to be left to CUE instead of becoming a reference, in the next round.
func (c *Compiler) untake(t *taken) {
	t.n.From = nil
	c.untaken[t.at.path] = true
	anchor := t.at
	for _, a := range t.anchors {
		if a != nil {
			anchor = outer(anchor, a)
		}
	}
	to := "fields of the object"
	if !t.at.from.Joined {
		to = fmt.Sprintf("the field %s", t.at.from)
	}
	c.leaveTo(anchor, t.at, t.node, "a reference to "+to)
}

// anchored checks the references that are resolved from a struct, after the struct is compiled.
func (c *Compiler) anchored(result *schemas.Struct, v cue.Value, at *place) {
	for _, t := range c.taken {
		for i, a := range t.anchors {
			if a != at || t.n.From == nil {
				continue
			}
			if !c.admits(t, result, &t.n.From.Parts[i]) {
				c.untake(t)
				continue
			}
			if _, ok := c.related[result]; !ok {
				c.related[result] = claim{value: v, at: at, order: len(c.related)}
			}
		}
	}
}

// admits reports whether the part of the reference leads to a scalar that always has a value and is
// valid for the field.
func (c *Compiler) admits(t *taken, s *schemas.Struct, p *schemas.Part) bool {
	r := t.n.From
	if p.Key {
		return !r.Default || t.free.Has(schemas.StringKind)
	}
	var n *schemas.Node
	for _, name := range p.Path {
		if n != nil {
			if n.Kinds != schemas.StructKind || n.Union != nil || n.Fallback != nil || n.Struct == nil {
				return false
			}
			s = n.Struct
		}
		f, ok := schemas.FieldNamed(s, name)
		if !ok || f.Presence == schemas.Optional || slices.ContainsFunc(s.Conditions, func(when schemas.Condition) bool {
			return slices.ContainsFunc(when.Fields, func(g schemas.Field) bool { return g.Name == name })
		}) {
			return false
		}
		if n = f.Schema; n.Fallback != nil || n == t.n {
			return false
		}
		if _, fills := program.Absent(&f); t.at.beside != nil && !r.Joined && (fills || f.TakenFromElsewhere()) {
			return false // where it is missing, CUE takes each value that it may have for the default
		}
		t.n.Sensitive = t.n.Sensitive || n.Sensitive
	}
	if t.copies {
		if slices.ContainsFunc(c.taken, func(other *taken) bool { return other.n == n && other.copies }) {
			return false
		}
		t.n.Kinds, t.n.Scalars, t.n.Format = n.Kinds, n.Scalars, n.Format
	}
	switch {
	case n.Kinds&^schemas.ScalarKinds != 0:
		return false
	case r.Joined && n.Kinds != schemas.StringKind && n.Kinds != schemas.IntegerKind:
		return false
	case r.Joined && r.Default:
		return t.free.Has(schemas.StringKind)
	case r.Default:
		return t.free.Has(n.Kinds)
	}
	return true
}

// isAliasOfData reports whether a hidden field is only an alias of data.
func isAliasOfData(v cue.Value) bool {
	op, _ := v.Expr()
	x := cuesyntax.SyntaxOf(v.Source())
	if op != cue.NoOp && op != cue.SelectorOp {
		return false
	}
	base := ast.Expr(nil)
	switch x := x.(type) {
	case *ast.Ident:
		base = x
	case *ast.SelectorExpr:
		base = cuesyntax.BaseOf(x)
	}
	id, ok := base.(*ast.Ident)
	return ok && id != nil && (cuesyntax.MeaningOf(id) == cuesyntax.IsField || cuesyntax.MeaningOf(id) == cuesyntax.IsAlias)
}
