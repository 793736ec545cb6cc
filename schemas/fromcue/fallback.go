package fromcue

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/format"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/fromcue/cuevalue"
	"stele.dev/stele/schemas/fromcue/join"
	"stele.dev/stele/schemas/fromcue/verify"
	"stele.dev/stele/schemas/interpreter"
)

// maxFallback bounds the text of a fallback, in bytes.
const maxFallback = 256 << 10

// leave records that the form cannot say what node means, which stands at a place: CUE
// itself is to evaluate the smallest part of the object that holds all data that node
// refers to. Data outside the object is refused.
func (c *Compiler) leave(at *place, node ast.Node, message, hint string) {
	at.vague = true
	anchor := at
	if node != nil {
		for _, id := range cuesyntax.NamesIn(node) {
			anchor = c.reaches(at, anchor, id, map[ast.Node]bool{})
		}
	}
	if anchor == nil {
		c.refuse(at, node, message, hint)
		return
	}
	c.leaveTo(anchor, at, node, message)
}

// leaveTo has CUE evaluate the part of the object at anchor.
func (c *Compiler) leaveTo(anchor, at *place, node ast.Node, message string) {
	for anchor.passing {
		anchor = anchor.parent
	}
	reason := reason{message: message, source: c.position(node, at)}
	if !slices.Contains(anchor.reasons, reason) {
		anchor.reasons = append(anchor.reasons, reason)
	}
}

// A reason is why CUE has to evaluate a part of an object.
type reason struct {
	message string
	source  schemas.Position
}

// reaches widens anchor to the place that holds what an identifier stands for; nil if that
// is data outside of the object. Declarations within the object are followed.
func (c *Compiler) reaches(at, anchor *place, id *ast.Ident, seen map[ast.Node]bool) *place {
	if anchor == nil || seen[id] {
		return anchor
	}
	seen[id] = true
	m := cuesyntax.MeaningOf(id)
	if m == cuesyntax.IsPredeclared || m == cuesyntax.IsPackage {
		return anchor
	}
	for p := at; p != nil; p = p.parent {
		decl, ok := p.declares(id)
		if !ok {
			continue
		}
		anchor = outer(anchor, p)
		if decl != nil {
			for _, next := range cuesyntax.NamesIn(decl) {
				anchor = c.reaches(at, anchor, next, seen)
			}
		}
		return anchor
	}
	if m == cuesyntax.IsFixed || m == cuesyntax.IsField && !at.encloses(id) {
		return anchor // declared where no data can change it
	}
	return nil
}

// outer returns the place that holds the other.
func outer(a, b *place) *place {
	for p := a; p != nil; p = p.parent {
		if p == b {
			return b
		}
	}
	return a
}

// declares reports whether the identifier is declared by a struct literal that contributes
// to the place, and returns the value that it is given there, as far as that can be told.
func (p *place) declares(id *ast.Ident) (value ast.Node, ok bool) {
	for _, lit := range p.literals {
		if alias, ok := id.Node.(*ast.Alias); ok && ast.Node(cuesyntax.SyntaxOf(alias.Expr)) == lit {
			return nil, true // a name for the struct itself
		}
		if id.Scope != lit && !slices.ContainsFunc(cuesyntax.DeclsOf(lit), func(d ast.Decl) bool {
			return ast.Node(d) == id.Scope || cuesyntax.Holds(d, id.Node) // the first is a name for the key of a map
		}) {
			continue
		}
		for _, d := range cuesyntax.DeclsOf(lit) {
			switch d := d.(type) {
			case *ast.Field:
				if name, _, err := ast.LabelName(d.Label); err == nil && name == id.Name || cuesyntax.Holds(d, id.Node) {
					return d.Value, true
				}
			case *ast.LetClause:
				if d.Ident.Name == id.Name {
					return d.Expr, true
				}
			}
		}
		return nil, true
	}
	return nil, false
}

// vague returns the node of a value that the form cannot describe: what can be said of it
// without knowing the data.
func (c *Compiler) vague(n *schemas.Node, v cue.Value, s shape, at *place) {
	kind := v.IncompleteKind()
	if kind == cue.BottomKind {
		kind = s.kinds // without data CUE cannot say
	}
	if s.split {
		kind |= s.kinds // of the alternatives, CUE may have dropped some already
	}
	n.Kinds = cuevalue.KindsOf(kind)
	if n.Kinds == 0 || at.recursive {
		n.Kinds = schemas.AnyKind
		return
	}
	a := cuevalue.AlternativesOf(v)
	if n.Kinds.Has(schemas.StructKind) {
		// Beside a validator such as matchN, CUE may not know the kind for want of data.
		is := v.IncompleteKind()
		unsure := (is == cue.BottomKind || is == cue.TopKind) && s.kinds == cue.StructKind && !s.split && !cuevalue.IsError(v)
		if len(a.Structs) == 0 && (unsure || is == cue.StructKind) {
			a.Structs = append(a.Structs, v)
		}
		n.Struct = &schemas.Struct{Open: true}
		if len(a.Structs) == max(1, s.structs) { // none is lost
			for i, x := range a.Structs {
				arm := c.structOf(x, s, at)
				arm.Open = x.Allows(cue.AnyString)
				if i == 0 {
					n.Struct = join.Clone(arm)
				} else {
					n.Struct = join.Structs(n.Struct, arm)
				}
			}
		}
		n.Struct.Open = true
	}
	if n.Kinds.Has(schemas.ListKind) && len(a.Lists) == 1 && s.lists <= 1 && !cuevalue.FixedItems(a.Lists[0]) {
		if item := a.Lists[0].LookupPath(cue.MakePath(cue.AnyIndex)); item.Exists() {
			n.List = &schemas.List{Items: c.node(item, at.below("[]", schemas.Required))}
		}
	}
}

// fallback completes the node of a place where CUE is to evaluate the object: v is
// written out in full, so that it needs nothing from outside itself, and what else is said
// of it becomes what holds whatever the data. What cannot be written out is left to the
// place around it.
func (c *Compiler) fallback(n *schemas.Node, v cue.Value, at *place) {
	first := at.reasons[0]
	text, err := c.selfContained(v, n)
	switch {
	case err == nil:
		weaken(n)
		n.Fallback = interpreter.NewFallback(text, first.message, first.source)
		c.carry(n, v, at, first.message)
	case at.parent == nil:
		c.diags = append(c.diags, schemas.Diagnostic{Pos: first.source, Path: at.path, Message: first.message,
			Hint: fmt.Sprintf("only CUE itself can check that, and it cannot be evaluated apart from the rest: %v", err)})
	default:
		weaken(n)
		at.parent.reasons = append(at.parent.reasons, first)
	}
}

// selfContained writes v, whose node is n, as an expression that needs nothing from outside
// itself, and makes sure that it means the same.
func (c *Compiler) selfContained(v cue.Value, n *schemas.Node) (text string, err error) {
	own := c.own(v)
	// With definitions in place of the references to them, or else beside them: one may
	// forget that they are closed, the other knows those of one package only.
	for _, options := range [][]cue.Option{{cue.Raw()}, nil, {cue.Raw(), cue.InlineImports(false)}} {
		var w *writing
		if w, err = c.written(own, options...); err != nil {
			continue
		}
		text := w.text()
		again, bad := interpreter.Expressed(text)
		if err = bad; err != nil && v.Validate() == nil {
			continue
		}
		if err = verify.SameMeaning(v, again, n, w.keys); err == nil {
			return text, nil
		}
	}
	return "", err
}

// A writing is a value that was written out, as a field of a definition: there CUE closes
// structs as it does in the schema.
type writing struct {
	imports, body, named string
	keys                 []string // names of the fields that occur in it
}

func (w *writing) text() string {
	return w.imports + interpreter.ExpressionLabel + ": " + w.body + "\n" + w.named
}

// written writes v out, with the definitions that the exporter leaves out because they
// refer to themselves.
func (c *Compiler) written(v cue.Value, options ...cue.Option) (*writing, error) {
	w := &writing{}
	text, err := w.add(v, options...)
	if err != nil {
		return nil, err
	}
	w.body = text
	for range maxNamed {
		name := unresolved(w.text())
		of, ok := c.named[name]
		if !ok {
			break
		}
		if text, err = w.add(of, append(options, cue.Raw())...); err != nil {
			return nil, err
		}
		w.named += name + ": " + text + "\n"
	}
	if size := len(w.text()); size > maxFallback {
		return nil, fmt.Errorf("it is %d bytes long, the limit is %d", size, maxFallback)
	}
	return w, nil
}

// add writes out a value, but for its imports.
func (w *writing) add(v cue.Value, options ...cue.Option) (text string, err error) {
	defer func() { // the exporter panics on some names in quotes
		if p := recover(); p != nil {
			err = fmt.Errorf("CUE cannot write it out: %v", p)
		}
	}()
	var syntax ast.Node = v.Syntax(append([]cue.Option{cue.InlineImports(true), cue.Definitions(true), cue.Optional(true), cue.Hidden(true),
		cue.Attributes(false), cue.Docs(false)}, options...)...)
	ast.Walk(syntax, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			if name, _, err := ast.LabelName(f.Label); err == nil {
				w.keys = append(w.keys, name)
			}
		}
		ast.SetComments(n, nil) // the exporter puts some where they hide what follows
		return true
	}, nil)
	if file, ok := syntax.(*ast.File); ok {
		body := &ast.StructLit{}
		for _, d := range file.Decls {
			switch d.(type) {
			case *ast.ImportDecl:
				text, err := format.Node(d)
				if err != nil {
					return "", err
				}
				if line := string(text) + "\n"; !strings.Contains(w.imports, line) {
					w.imports += line
				}
			case *ast.Package:
			default:
				body.Elts = append(body.Elts, d)
			}
		}
		syntax = body
		if e, ok := cuesyntax.SoleEmbedding(body); ok {
			syntax = e
		}
	}
	formatted, err := format.Node(syntax, format.Simplify())
	return string(formatted), err
}

// maxNamed is how many definitions may be missing from an expression that was written out.
const maxNamed = 32

// unresolved returns a name that the text refers to and does not declare, "" if there is
// none.
func unresolved(text string) string {
	for _, e := range errors.Errors(cuecontext.New().CompileString(text).Validate()) {
		if format, args := e.Msg(); format == "reference %q not found" && len(args) == 1 {
			return fmt.Sprint(args[0])
		}
	}
	return ""
}

// own returns of a conjunction the part that the bundle has written, without what the
// server's definitions say of every schema, which is nothing.
func (c *Compiler) own(v cue.Value) cue.Value {
	op, args := v.Expr()
	if op != cue.AndOp {
		return v
	}
	var mine []cue.Value
	for _, a := range args {
		if _, ok := c.SourceOf(a); ok || !a.Pos().IsValid() { // fields beside an embedding have no position
			mine = append(mine, a)
		}
	}
	if len(mine) == 1 {
		return c.own(mine[0])
	}
	return v
}

// weaken makes of n what its fallback does not contradict, whatever the data: which fields
// there must be, which there may be and what they are if missing is CUE's to say.
func weaken(n *schemas.Node) {
	if n == nil {
		return
	}
	n.Fallback, n.Union, n.From, n.Message = nil, nil, nil, ""
	if len(n.Default) > 0 && !isScalarJSON(n.Default) && string(n.Default) != "[]" {
		// What the default admits is nowhere else.
		n.Default, n.List, n.Struct = nil, nil, nil
	}
	if n.List != nil {
		n.List.MinItems, n.List.Unique = nil, false
		weaken(n.List.Items)
		for _, item := range n.List.Prefix {
			weaken(item)
		}
		weaken(n.List.Rest)
	}
	if s := n.Struct; s != nil {
		s.Fields = join.WithConditions(s, true)
		for i := range s.Fields {
			s.Fields[i].Presence = schemas.Optional
			weaken(s.Fields[i].Schema)
		}
		for i := range s.Patterns {
			weaken(s.Patterns[i].Value)
		}
		s.Open, s.Comparisons, s.Conditions = true, nil, nil
	}
}

func isScalarJSON(text []byte) bool {
	return len(text) > 0 && text[0] != '{' && text[0] != '['
}
