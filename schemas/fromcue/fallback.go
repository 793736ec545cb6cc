package fromcue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/fromcue/cuevalue"
	"stele.dev/stele/schemas/fromcue/join"
	"stele.dev/stele/schemas/fromcue/verify"
	"stele.dev/stele/schemas/interpreter"
)

// maxFallback is the maximum length of a fallback's expression in bytes.
const maxFallback = 256 << 10

// leave records that the form cannot express node. CUE then evaluates the smallest part of the object
// that contains all data that node refers to. References to data outside the object are rejected.
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

// leaveTo lets CUE evaluate the part of the object at anchor.
func (c *Compiler) leaveTo(anchor, at *place, node ast.Node, message string) {
	for anchor.passing {
		anchor = anchor.parent
	}
	reason := reason{message: message, source: c.position(node, at)}
	if !slices.Contains(anchor.reasons, reason) {
		anchor.reasons = append(anchor.reasons, reason)
	}
}

// A reason says why CUE must evaluate a part of an object.
type reason struct {
	message string
	source  schemas.Position
}

// reaches widens anchor until it contains the data that an identifier refers to. It follows declarations
// within the object. It returns nil if the data is outside the object.
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
		return anchor // declared where data cannot change it
	}
	return nil
}

// outer returns the outer one of two nested places.
func outer(a, b *place) *place {
	for p := a; p != nil; p = p.parent {
		if p == b {
			return b
		}
	}
	return a
}

// declares reports whether a struct literal that contributes to the place declares the identifier. value
// is the identifier's value there, if known.
func (p *place) declares(id *ast.Ident) (value ast.Node, ok bool) {
	for _, lit := range p.literals {
		if alias, ok := id.Node.(*ast.Alias); ok && ast.Node(cuesyntax.SyntaxOf(alias.Expr)) == lit {
			return nil, true // an alias of the struct itself
		}
		if id.Scope != lit && !slices.ContainsFunc(cuesyntax.DeclsOf(lit), func(d ast.Decl) bool {
			return ast.Node(d) == id.Scope || cuesyntax.Holds(d, id.Node) // an alias of a map key, or a declaration in d
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

// vague sets n to what is known without data about a value that the form cannot describe.
func (c *Compiler) vague(n *schemas.Node, v cue.Value, s shape, at *place) {
	kind := v.IncompleteKind()
	if kind == cue.BottomKind {
		kind = s.kinds // unknown to CUE without data
	}
	if s.split {
		kind |= s.kinds // CUE may have dropped some alternatives
	}
	n.Kinds = cuevalue.KindsOf(kind)
	if n.Kinds == 0 || at.recursive {
		n.Kinds = schemas.AnyKind
		return
	}
	a := cuevalue.AlternativesOf(v)
	if n.Kinds.Has(schemas.StructKind) {
		// Next to a validator such as matchN, CUE may not know the kind without data.
		is := v.IncompleteKind()
		unsure := (is == cue.BottomKind || is == cue.TopKind) && s.kinds == cue.StructKind && !s.split && !cuevalue.IsError(v)
		if len(a.Structs) == 0 && (unsure || is == cue.StructKind) {
			a.Structs = append(a.Structs, v)
		}
		n.Struct = &schemas.Struct{Open: true}
		if len(a.Structs) == max(1, s.structs) { // no alternative was dropped
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
			n.List = &schemas.List{Items: c.node(item, at.partPlace("[]", schemas.Required))}
		}
	}
}

// fallback completes the node of a place that CUE evaluates. It writes v as a self-contained expression
// and weakens the rest of n to what holds for all data. If v cannot be written out, the enclosing place
// is left to CUE.
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

// selfContained returns v, whose node is n, as a self-contained expression, and checks that it means the
// same as v.
func (c *Compiler) selfContained(v cue.Value, n *schemas.Node) (string, error) {
	var first error
	own := c.ownConjuncts(v)
	// Try both with inlined definitions and with references to definitions. Inlining may lose that a
	// definition is closed; references work only within one package.
	for _, options := range [][]cue.Option{{cue.Raw()}, nil, {cue.Raw(), cue.InlineImports(false)}} {
		w, err := c.written(own, options...)
		if err != nil {
			first = cmp.Or(first, err)
			continue
		}
		texts := []string{w.text()}
		if text, ok := hoisted(w.text()); ok {
			texts = append(texts, text)
		}
		for _, text := range texts {
			again, err := interpreter.Expressed(text)
			if err == nil || v.Validate() != nil {
				err = verify.SameMeaning(v, again, n, w.keys)
			}
			if err == nil {
				return text, nil
			}
			first = cmp.Or(first, err)
		}
	}
	return "", first
}

// hoisted returns an expression in which the let clauses of its outermost struct are hidden fields beside it. CUE's exporter writes what
// is outside of a value as such clauses, and let clauses cannot refer to each other in a circle. The result may have another meaning, if
// clauses refer to fields of the struct. It returns false if there are no such clauses.
func hoisted(text string) (string, bool) {
	file, err := parser.ParseFile("", text)
	if err != nil {
		return "", false
	}
	names := map[string]bool{}
	var beside []ast.Decl
	for _, d := range file.Decls {
		outer, ok := d.(*ast.Field)
		if !ok {
			continue
		}
		body := outer.Value
		for range strings.Count(interpreter.ExpressionLabel, ":") {
			if s, ok := body.(*ast.StructLit); ok && len(s.Elts) == 1 {
				if f, ok := s.Elts[0].(*ast.Field); ok {
					body = f.Value
				}
			}
		}
		s, ok := body.(*ast.StructLit)
		if !ok {
			continue
		}
		s.Elts = slices.DeleteFunc(s.Elts, func(d ast.Decl) bool {
			l, ok := d.(*ast.LetClause)
			if ok {
				names[l.Ident.Name] = true
				beside = append(beside, &ast.Field{Label: ast.NewIdent(l.Ident.Name), Value: l.Expr})
			}
			return ok
		})
	}
	file.Decls = append(file.Decls, beside...)
	ast.Walk(file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && names[id.Name] {
			id.Name = "_let_" + id.Name
		}
		return true
	}, nil)
	formatted, err := format.Node(file)
	return string(formatted), err == nil && len(names) > 0
}

// A writing is a value written out as a field of a definition. CUE closes structs there as it does in
// the schema.
type writing struct {
	imports, body, named string
	keys                 []string // field names that occur in it
}

func (w *writing) text() string {
	return w.imports + interpreter.ExpressionLabel + ": " + w.body + "\n" + w.named
}

// written writes out v and the recursive definitions that CUE's exporter omits.
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

// add writes out a value without its imports.
func (w *writing) add(v cue.Value, options ...cue.Option) (text string, err error) {
	defer func() { // the exporter panics on some quoted names
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
		ast.SetComments(n, nil) // the exporter places some comments so that they hide code
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

// maxNamed is the maximum number of definitions that are added to an expression.
const maxNamed = 32

// unresolved returns a name that the text uses and does not declare, or "".
func unresolved(text string) string {
	for _, e := range errors.Errors(cuecontext.New().CompileString(text).Validate()) {
		if format, args := e.Msg(); format == "reference %q not found" && len(args) == 1 {
			return fmt.Sprint(args[0])
		}
	}
	return ""
}

// ownConjuncts returns the conjuncts of v that the bundle wrote. The conjuncts of the server's definitions
// constrain nothing.
func (c *Compiler) ownConjuncts(v cue.Value) cue.Value {
	op, args := v.Expr()
	if op != cue.AndOp {
		return v
	}
	var mine []cue.Value
	for _, a := range args {
		if _, ok := c.SourceOf(a); ok || !a.Pos().IsValid() { // fields next to an embedding have no position
			mine = append(mine, a)
		}
	}
	if len(mine) == 1 {
		return c.ownConjuncts(mine[0])
	}
	return v
}

// weaken removes the rules of n that may contradict its fallback: required fields, closedness and
// defaults are left to CUE.
func weaken(n *schemas.Node) {
	if n == nil {
		return
	}
	n.Fallback, n.Union, n.From, n.Message = nil, nil, nil, ""
	if len(n.Default) > 0 && !isScalarJSON(n.Default) && string(n.Default) != "[]" {
		// Only the default declared these.
		n.Default, n.List, n.Struct = nil, nil, nil
	}
	if n.List != nil {
		n.List.MinItems, n.List.Unique, n.List.Prefix, n.List.Rest = nil, false, nil, nil // Items admits what each of them admits
		weaken(n.List.Items)
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
