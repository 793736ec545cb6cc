package schemas

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/format"
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
		for _, id := range namesIn(node) {
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
	source  Position
}

// namesIn returns the identifiers of an expression that are resolved outside of it.
func namesIn(node ast.Node) (names []*ast.Ident) {
	within := map[ast.Node]bool{}
	var all []*ast.Ident
	var walk func(ast.Node)
	walk = func(node ast.Node) {
		ast.Walk(node, func(n ast.Node) bool {
			within[n] = true
			switch n := n.(type) {
			case *ast.Field:
				switch l := n.Label.(type) {
				case *ast.Ident, *ast.BasicLit:
					within[l] = true // it is no reference
				default:
					walk(l)
				}
				if n.Value != nil {
					walk(n.Value)
				}
				return false
			case *ast.SelectorExpr:
				walk(n.X)
				return false
			case *ast.ForClause:
				walk(n.Source)
				return false
			case *ast.LetClause:
				walk(n.Expr)
				return false
			case *ast.Alias:
				walk(n.Expr)
				return false
			case *ast.Ident:
				all = append(all, n)
			}
			return true
		}, nil)
	}
	walk(node)
	for _, id := range all {
		if (id.Scope == nil || !within[id.Scope]) && (id.Node == nil || !within[id.Node]) {
			names = append(names, id)
		}
	}
	return names
}

// reaches widens anchor to the place that holds what an identifier stands for; nil if that
// is data outside of the object. Declarations within the object are followed.
func (c *Compiler) reaches(at, anchor *place, id *ast.Ident, seen map[ast.Node]bool) *place {
	if anchor == nil || seen[id] {
		return anchor
	}
	seen[id] = true
	m := meaningOf(id)
	if m == isPredeclared || m == isPackage {
		return anchor
	}
	for p := at; p != nil; p = p.parent {
		decl, ok := p.declares(id)
		if !ok {
			continue
		}
		anchor = outer(anchor, p)
		if decl != nil {
			for _, next := range namesIn(decl) {
				anchor = c.reaches(at, anchor, next, seen)
			}
		}
		return anchor
	}
	if m == isFixed || m == isField && !at.encloses(id) {
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
		if alias, ok := id.Node.(*ast.Alias); ok && ast.Node(syntaxOf(alias.Expr)) == lit {
			return nil, true // a name for the struct itself
		}
		if id.Scope != lit && !slices.ContainsFunc(declsOf(lit), func(d ast.Decl) bool {
			return ast.Node(d) == id.Scope || holds(d, id.Node) // the first is a name for the key of a map
		}) {
			continue
		}
		for _, d := range declsOf(lit) {
			switch d := d.(type) {
			case *ast.Field:
				if name, _, err := ast.LabelName(d.Label); err == nil && name == id.Name || holds(d, id.Node) {
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

func declsOf(lit ast.Node) []ast.Decl {
	switch lit := lit.(type) {
	case *ast.StructLit:
		return lit.Elts
	case *ast.File:
		return lit.Decls
	}
	return nil
}

// holds reports whether a declaration is node, or the declaration of an alias that is node.
func holds(d ast.Decl, node ast.Node) bool {
	if node == nil {
		return false
	}
	if d == node {
		return true
	}
	f, ok := d.(*ast.Field)
	return ok && (f.Label == node || f.Value == node)
}

// vague returns the node of a value that the form cannot describe: what can be said of it
// without knowing the data.
func (c *Compiler) vague(n *Node, v cue.Value, s shape, at *place) {
	kind := v.IncompleteKind()
	if kind == cue.BottomKind {
		kind = s.kinds // without data CUE cannot say
	}
	if s.split {
		kind |= s.kinds // of the alternatives, CUE may have dropped some already
	}
	n.Kinds = kindsOf(kind)
	if n.Kinds == 0 || at.recursive {
		n.Kinds = AnyKind
		return
	}
	a := armsOf(v)
	if n.Kinds.Has(StructKind) {
		// Beside a validator such as matchN, CUE may not know the kind for want of data.
		is := v.IncompleteKind()
		unsure := (is == cue.BottomKind || is == cue.TopKind) && s.kinds == cue.StructKind && !s.split && !isError(v)
		if len(a.structs) == 0 && (unsure || is == cue.StructKind) {
			a.structs = append(a.structs, v)
		}
		n.Struct = &Struct{Open: true}
		if len(a.structs) == max(1, s.structs) { // none is lost
			for i, x := range a.structs {
				arm := c.structOf(x, s, at)
				arm.Open = x.Allows(cue.AnyString)
				if i == 0 {
					n.Struct = clonedStruct(arm)
				} else {
					n.Struct = mergedStructs(n.Struct, arm)
				}
			}
		}
		n.Struct.Open = true
	}
	if n.Kinds.Has(ListKind) && len(a.lists) == 1 && s.lists <= 1 && !fixedItems(a.lists[0]) {
		if item := a.lists[0].LookupPath(cue.MakePath(cue.AnyIndex)); item.Exists() {
			n.List = &List{Items: c.node(item, at.below("[]", Required))}
		}
	}
}

// fallback completes the node of a place where CUE is to evaluate the object: v is
// written out in full, so that it needs nothing from outside itself, and what else is said
// of it becomes what holds whatever the data. What cannot be written out is left to the
// place around it.
func (c *Compiler) fallback(n *Node, v cue.Value, at *place) {
	first := at.reasons[0]
	text, err := c.selfContained(v, n)
	switch {
	case err == nil:
		weaken(n)
		n.Fallback = newFallback(text, first.message, first.source)
		c.carry(n, v, at, first.message)
	case at.parent == nil:
		c.diags = append(c.diags, Diagnostic{Pos: first.source, Path: at.path, Message: first.message,
			Hint: fmt.Sprintf("only CUE itself can check that, and it cannot be evaluated apart from the rest: %v", err)})
	default:
		weaken(n)
		at.parent.reasons = append(at.parent.reasons, first)
	}
}

// selfContained writes v, whose node is n, as an expression that needs nothing from outside
// itself, and makes sure that it means the same.
func (c *Compiler) selfContained(v cue.Value, n *Node) (text string, err error) {
	own := c.own(v)
	// With definitions in place of the references to them, or else beside them: one may
	// forget that they are closed, the other knows those of one package only.
	for _, options := range [][]cue.Option{{cue.Raw()}, nil, {cue.Raw(), cue.InlineImports(false)}} {
		var w *writing
		if w, err = c.written(own, options...); err != nil {
			continue
		}
		text := w.text()
		again, bad := expressed(text)
		if err = bad; err != nil && v.Validate() == nil {
			continue
		}
		if err = sameMeaning(v, again, n, w.keys); err == nil {
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

func (w *writing) text() string { return w.imports + expressionLabel + ": " + w.body + "\n" + w.named }

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
		if e, ok := soleEmbedding(body); ok {
			syntax = e
		}
	}
	formatted, err := format.Node(syntax, format.Simplify())
	return string(formatted), err
}

// soleEmbedding returns the expression that is all that a struct embeds.
func soleEmbedding(s *ast.StructLit) (ast.Expr, bool) {
	if len(s.Elts) != 1 {
		return nil, false
	}
	e, ok := s.Elts[0].(*ast.EmbedDecl)
	if !ok {
		return nil, false
	}
	return e.Expr, true
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

// sameMeaning compares two values by what CUE makes of data that is near n. What CUE makes of
// what is valid is tried once more with a field too many in each of its structs.
func sameMeaning(v, again cue.Value, n *Node, keys []string) error {
	g := maker{rand.New(rand.NewPCG(3, 4)), 30, keys, 85}
	var seen coverage
	for i := range exportTries {
		if g.full = 0; i%4 < 2 {
			g.full = 85
		}
		x := g.near(n)
		if i%2 == 0 {
			x = g.witness(n)
		}
		whole, ok, err := sameVerdict(v, again, x)
		if err == nil && !ok && i%3 == 0 && repair(again, x) {
			whole, ok, err = sameVerdict(v, again, x)
		}
		if err != nil {
			return err
		}
		if !ok || !seen.adds(whole) {
			continue
		}
		for _, more := range withUnknown(whole, append(slices.Clip(keys), "unknown field")) {
			if _, _, err := sameVerdict(v, again, more); err != nil {
				return err
			}
		}
	}
	return nil
}

// A coverage is which structs there were in the valid values that were tried with a field too
// many.
type coverage struct {
	tried int
	paths map[string]bool
}

// maxValid is how many valid values are tried whatever they have; maxCovering, how many are if
// they have a struct that none had before.
const (
	maxValid    = 4
	maxCovering = 24
)

// adds reports whether x is worth trying, and counts it if so.
func (c *coverage) adds(x any) bool {
	before := len(c.paths)
	if c.paths == nil {
		c.paths = make(map[string]bool)
	}
	c.note(x, "")
	if c.tried >= maxCovering || c.tried >= maxValid && len(c.paths) == before {
		return false
	}
	c.tried++
	return true
}

func (c *coverage) note(x any, path string) {
	switch x := x.(type) {
	case map[string]any:
		c.paths[path] = true
		for key, y := range x {
			c.note(y, path+"\x00"+key)
		}
	case []any:
		for _, y := range x {
			c.note(y, path+"\x00")
		}
	}
}

// repair removes from x what v finds fault with, and reports whether anything was removed: what
// fields have to be of each other, random data never is.
func repair(v cue.Value, x any) (changed bool) {
	for range maxPrunings {
		value, err := json.Marshal(x)
		if err != nil {
			return changed
		}
		removed := false
		for _, f := range ask(v, value).faults {
			for n := len(f.Path); n > 0 && f.Kind != Incomplete; n-- {
				if Remove(x, f.Path[:n]) {
					removed, changed = true, true
					break
				}
			}
		}
		if !removed {
			break
		}
	}
	return changed
}

// sameVerdict compares what two values make of x, and returns that if x is valid.
func sameVerdict(v, again cue.Value, x any) (whole any, valid bool, err error) {
	value, err := json.Marshal(x)
	if err != nil {
		return nil, false, nil
	}
	was, is := ask(v, value), askExpression(again, value)
	if was.valid() != is.valid() || was.valid() && !reflect.DeepEqual(was.result, is.result) {
		return nil, false, fmt.Errorf("written out it says something else of %s", value)
	}
	return was.result, was.valid(), nil
}

// withUnknown returns x with one more field in one of its structs, in each way.
func withUnknown(x any, keys []string) (all []any) {
	switch x := x.(type) {
	case map[string]any:
		for _, key := range keys {
			if _, ok := x[key]; !ok && len(all) < maxUnknown {
				m := maps.Clone(x)
				m[key] = int64(1)
				all = append(all, m)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(x)) {
			for _, more := range withUnknown(x[key], keys[len(keys)-1:]) {
				m := maps.Clone(x)
				m[key] = more
				all = append(all, m)
			}
		}
	case []any:
		for i, y := range x {
			for _, more := range withUnknown(y, keys[len(keys)-1:]) {
				l := slices.Clone(x)
				l[i] = more
				all = append(all, l)
			}
		}
	}
	return all
}

// maxUnknown is how many names are tried for a field too many.
const maxUnknown = 12

// exportTries is how many values an expression that was written out is compared with the
// original by.
const exportTries = 150

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
func weaken(n *Node) {
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
		s.Fields = s.conditional(true)
		for i := range s.Fields {
			s.Fields[i].Presence = Optional
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
