package cuesyntax

import (
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
)

// A Mark is an attribute @k8s(...) or @stele(...) in the syntax of a value.
type Mark struct {
	Attribute *ast.Attribute
	Path      []Step // path from the value to the part with the attribute
	Loose     bool   // in an alternative, a comprehension or an argument, so it may not apply
	Flat      bool   // the attribute is at an unknown place below the path
	Copied    bool   // the attribute belongs to referenced data; the referring field has its own attributes
}

// A Step is one element of a path in a value: a field, any item of a list, or any key of a map.
type Step struct {
	Name string
	Kind stepKind
}

type stepKind uint8

const (
	FieldStep stepKind = iota
	Item
	Key
)

// A marker collects the marks of a value. It reads only syntax and follows all references. So it also
// finds attributes in parts for which CUE has no value.
type marker struct {
	packages Packages
	file     bool // the top-level fields of a file are data
	found    []Mark
	path     []Step
	loose    int
	flat     int
	copied   int

	following []ast.Node          // definitions being read, outermost first
	flattened map[ast.Node]bool   // definitions already read at the current path
	bare      map[ast.Node]bool   // definitions known to have no attributes
	variables map[string]ast.Expr // the source expressions of comprehension variables
	visited   int
	exhausted bool // the limit maxMarked was reached
}

// maxMarked is the maximum number of syntax nodes that are read for one value.
const maxMarked = 500_000

// MarksOf returns the attributes in the syntax of v. file says that the top-level fields of a file are
// data. ok is false if the syntax is too large.
func MarksOf(v cue.Value, in Packages, file bool) ([]Mark, bool) {
	var from []ast.Node
	startsOf(v, &from, 0)
	first := newMarker(in, file)
	first.flat = 1
	for _, node := range from {
		first.walk(node)
	}
	if len(first.found) == 0 && !first.exhausted {
		return nil, true
	}
	m := newMarker(in, file)
	for _, node := range from {
		m.walk(node)
	}
	return m.found, !m.exhausted
}

func newMarker(in Packages, file bool) *marker {
	return &marker{packages: in, file: file,
		flattened: map[ast.Node]bool{}, bare: map[ast.Node]bool{}, variables: map[string]ast.Expr{}}
}

// startsOf appends the syntax nodes of a value, one for each conjunct.
func startsOf(v cue.Value, from *[]ast.Node, depth int) {
	if node := v.Source(); node != nil {
		if !slices.Contains(*from, node) {
			*from = append(*from, node)
		}
		if op, _ := v.Expr(); op != cue.AndOp {
			return
		}
	}
	if depth > schemas.MaxDepth {
		return
	}
	op, args := v.Expr()
	if op == cue.AndOp || op == cue.OrOp {
		for _, a := range args {
			startsOf(a, from, depth+1)
		}
		return
	}
	if t := cue.Dereference(v); t != v {
		startsOf(t, from, depth+1)
	}
}

// walk reads an expression or a declaration whose value is at the current path.
func (m *marker) walk(node ast.Node) {
	if m.visited++; m.visited > maxMarked {
		m.exhausted = true
		return
	}
	switch x := node.(type) {
	case *ast.Field:
		m.attributes(x.Attrs)
		m.walk(x.Value)
	case *ast.File:
		m.declarations(x.Decls)
	case *ast.StructLit:
		m.declarations(x.Elts)
	case *ast.Alias:
		m.walk(x.Expr)
	case *ast.LetClause:
		m.walk(x.Expr)
	case *ast.EmbedDecl:
		m.walk(x.Expr)
	case *ast.ParenExpr:
		m.walk(x.X)
	case *ast.PostfixExpr:
		m.walk(x.X)
	case *ast.ListLit:
		m.list(x)
	case *ast.Ellipsis:
		if x.Type != nil {
			m.walk(x.Type)
		}
	case *ast.Comprehension:
		m.comprehension(x)
	case *ast.UnaryExpr:
		if x.Op == token.MUL {
			m.walk(x.X)
		} else {
			m.operands(x.X)
		}
	case *ast.BinaryExpr:
		m.binary(x)
	case *ast.CallExpr:
		m.call(x)
	case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr:
		m.reference(x.(ast.Expr))
	case *ast.Interpolation:
		m.operands(x.Elts...)
	}
}

// loosely reads nodes that may not apply.
func (m *marker) loosely(nodes ...ast.Expr) {
	m.loose++
	for _, node := range nodes {
		m.walk(node)
	}
	m.loose--
}

// flatly reads nodes whose parts are at unknown places.
func (m *marker) flatly(nodes ...ast.Node) {
	m.flat++
	m.loose++
	for _, node := range nodes {
		m.walk(node)
	}
	m.flat--
	m.loose--
}

// operands reads the expressions from which a value is computed. They are not the value, but attributes
// written in them must not be lost.
func (m *marker) operands(nodes ...ast.Expr) {
	for _, node := range nodes {
		ast.Walk(node, func(n ast.Node) bool {
			if a, ok := n.(*ast.Attribute); ok {
				m.flat++
				m.loose++
				m.attributes([]*ast.Attribute{a})
				m.flat--
				m.loose--
			}
			return true
		}, nil)
	}
}

func (m *marker) attributes(all []*ast.Attribute) {
	for _, a := range all {
		if name, _ := a.Split(); name != "k8s" && name != "stele" {
			continue
		}
		m.found = append(m.found, Mark{a, slices.Clone(m.path), m.loose > 0, m.flat > 0, m.copied > 0})
	}
}

func (m *marker) descend(s Step, node ast.Node) {
	if m.flat > 0 {
		m.walk(node)
		return
	}
	m.path = append(m.path, s)
	outer := m.flattened
	m.flattened = map[ast.Node]bool{}
	m.walk(node)
	m.flattened = outer
	m.path = m.path[:len(m.path)-1]
}

func (m *marker) declarations(decls []ast.Decl) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.Field:
			m.field(d)
		case *ast.Attribute:
			m.attributes([]*ast.Attribute{d})
		case *ast.Ellipsis:
			if d.Type != nil {
				m.flatly(d.Type)
			}
		case *ast.EmbedDecl, *ast.Comprehension:
			m.walk(d)
		}
	}
}

// field reads a field of a struct. Definitions, hidden fields and lets hold no data; they are read where
// they are referred to.
func (m *marker) field(f *ast.Field) {
	var label ast.Node = f.Label
	if a, ok := label.(*ast.Alias); ok {
		label = a.Expr
	}
	switch l := label.(type) {
	case *ast.Ident:
		if strings.HasPrefix(l.Name, "#") || strings.HasPrefix(l.Name, "_") {
			return
		}
		m.descend(Step{Name: l.Name}, f)
	case *ast.BasicLit:
		if name, _, err := ast.LabelName(l); err == nil {
			m.descend(Step{Name: name}, f)
		}
	case *ast.ListLit:
		m.descend(Step{Kind: Key}, f)
	default: // a computed label
		m.flatly(f)
	}
}

func (m *marker) list(l *ast.ListLit) {
	for _, e := range l.Elts {
		if len(l.Elts) > 1 {
			m.loose++
		}
		m.descend(Step{Kind: Item}, e)
		if len(l.Elts) > 1 {
			m.loose--
		}
	}
}

// comprehension reads the fields that a comprehension may add.
func (m *marker) comprehension(x *ast.Comprehension) {
	outer := m.variables
	m.variables = map[string]ast.Expr{}
	for name, source := range outer {
		m.variables[name] = source
	}
	for _, clause := range x.Clauses {
		switch clause := clause.(type) {
		case *ast.ForClause:
			if clause.Value != nil {
				m.variables[clause.Value.Name] = clause.Source
			}
		case *ast.LetClause:
			m.variables[clause.Ident.Name] = clause.Expr
		}
	}
	m.loosely(x.Value)
	m.variables = outer
	if x.Fallback != nil {
		m.loosely(x.Fallback.Body)
	}
}

func (m *marker) binary(x *ast.BinaryExpr) {
	switch x.Op {
	case token.AND:
		m.walk(x.X)
		m.walk(x.Y)
	case token.OR:
		m.loosely(x.X, x.Y)
	default:
		m.operands(x.X, x.Y)
	}
}

// call reads the arguments of functions that return a schema.
func (m *marker) call(x *ast.CallExpr) {
	lists := func(loose bool) {
		for _, a := range x.Args {
			elements := []ast.Expr{a}
			if l, ok := Unparen(a).(*ast.ListLit); ok {
				elements = l.Elts
			}
			if loose {
				m.loosely(elements...)
				continue
			}
			for _, e := range elements {
				m.walk(e)
			}
		}
	}
	name, _ := BuiltinName(x.Fun)
	switch {
	case IsBuiltin(x.Fun, "close"), IsBuiltin(x.Fun, "and"):
		lists(false)
	case IsBuiltin(x.Fun, "or"), IsBuiltin(x.Fun, "matchN"), IsBuiltin(x.Fun, "matchIf"):
		lists(true)
	case name == "list.MatchN" && len(x.Args) == 2:
		m.loose++
		m.descend(Step{Kind: Item}, x.Args[1])
		m.loose--
	default:
		m.operands(x.Args...)
	}
}

// reference reads the declarations that x refers to.
func (m *marker) reference(x ast.Expr) {
	base := BaseOf(x)
	if base == nil { // the base is in parentheses or is a call
		m.flatly(operandOf(x))
		return
	}
	if source, ok := m.variables[base.Name]; ok && MeaningOf(base) == IsAlias {
		m.flatly(source)
		return
	}
	data := MeaningOf(base) == IsField && (m.file || !m.packages.declares(base))
	targets := m.packages.targets(x, 0)
	flat := len(targets) == 0 && ast.Node(base) != ast.Node(x)
	if flat { // the selected declaration is unknown
		targets = m.packages.targets(base, 0)
	}
	if data {
		m.copied++
		defer func() { m.copied-- }()
	}
	for _, t := range targets {
		m.follow(t, flat)
	}
}

// operandOf returns the operand of a selector or an index expression.
func operandOf(x ast.Expr) ast.Expr {
	switch x := x.(type) {
	case *ast.SelectorExpr:
		return x.X
	case *ast.IndexExpr:
		return x.X
	}
	return x
}

// follow reads a definition. Inside itself it is read once more, for marks at any depth.
func (m *marker) follow(t ast.Node, flat bool) {
	if empty, known := m.bare[t]; known && empty {
		return
	} else if !known && m.flat == 0 {
		m.bare[t] = m.withoutMarks(t)
		if m.bare[t] {
			return
		}
	}
	if flat = flat || slices.Contains(m.following, t); flat || m.flat > 0 {
		if m.flattened[t] {
			return
		}
		m.flattened[t] = true
	}
	m.following = append(m.following, t)
	outer := m.variables
	m.variables = map[string]ast.Expr{}
	if field, ok := t.(*ast.Field); ok {
		m.attributes(field.Attrs)
		t = field.Value
	}
	if flat {
		m.flatly(t)
	} else {
		m.walk(t)
	}
	m.variables = outer
	m.following = m.following[:len(m.following)-1]
}

// withoutMarks reports whether neither t nor anything it refers to has attributes.
func (m *marker) withoutMarks(t ast.Node) bool {
	all := &marker{packages: m.packages, file: m.file, flat: 1,
		flattened: map[ast.Node]bool{}, bare: map[ast.Node]bool{}, variables: m.variables}
	all.walk(t)
	m.visited += all.visited
	return len(all.found) == 0 && !all.exhausted
}
