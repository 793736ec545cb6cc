package schemas

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/token"
)

// A mark is an attribute @k8s(...) or @stele(...) as it stands in the syntax of a value.
type mark struct {
	attribute *ast.Attribute
	path      []markStep // from the value to what the attribute is of
	loose     bool       // in an alternative, a comprehension or an argument: it may not apply
	flat      bool       // of something below the path, at an unknown place
	copied    bool       // of data that is referred to: what refers to it has its own attributes
}

// A markStep is one element of the path to what an attribute is of: a field, or any item of a
// list, or any key of a map.
type markStep struct {
	name string
	kind markKind
}

type markKind uint8

const (
	markField markKind = iota
	markItem
	markKey
)

// A marker collects the marks of a value. It reads syntax alone, so that it finds attributes
// in the parts of which CUE shows no values. All references are followed.
type marker struct {
	packages packages
	file     bool // the fields of a file are data
	found    []mark
	path     []markStep
	loose    int
	flat     int
	copied   int

	following []ast.Node          // definitions, from the outermost
	flattened map[ast.Node]bool   // definitions that were followed at the current path
	bare      map[ast.Node]bool   // definitions without any attributes
	variables map[string]ast.Expr // of the comprehensions around: what they run through
	visited   int
	exhausted bool // there is too much to see
}

// maxMarked bounds how many nodes of syntax are read for the marks of one value.
const maxMarked = 500_000

// marksOf returns the attributes in the syntax of v. file: the fields of a file are data. It
// returns false if the syntax is too large.
func marksOf(v cue.Value, in packages, file bool) ([]mark, bool) {
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

func newMarker(in packages, file bool) *marker {
	return &marker{packages: in, file: file,
		flattened: map[ast.Node]bool{}, bare: map[ast.Node]bool{}, variables: map[string]ast.Expr{}}
}

// startsOf appends the syntax that a value is written as: one node for each part of it.
func startsOf(v cue.Value, from *[]ast.Node, depth int) {
	if node := v.Source(); node != nil {
		if !slices.Contains(*from, node) {
			*from = append(*from, node)
		}
		if op, _ := v.Expr(); op != cue.AndOp {
			return
		}
	}
	if depth > maxDepth {
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

// flatly reads nodes of whose parts it is not known where they are.
func (m *marker) flatly(nodes ...ast.Node) {
	m.flat++
	m.loose++
	for _, node := range nodes {
		m.walk(node)
	}
	m.flat--
	m.loose--
}

// operands reads what a value is computed from: it is not what the value is, but what is
// written there in full must not be lost either.
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
		m.found = append(m.found, mark{a, slices.Clone(m.path), m.loose > 0, m.flat > 0, m.copied > 0})
	}
}

func (m *marker) below(s markStep, node ast.Node) {
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

// field reads a field of a struct. Definitions, hidden fields and lets are no data; they are
// read where something refers to them.
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
		m.below(markStep{name: l.Name}, f)
	case *ast.BasicLit:
		if name, _, err := ast.LabelName(l); err == nil {
			m.below(markStep{name: name}, f)
		}
	case *ast.ListLit:
		m.below(markStep{kind: markKey}, f)
	default: // computed
		m.flatly(f)
	}
}

func (m *marker) list(l *ast.ListLit) {
	for _, e := range l.Elts {
		if len(l.Elts) > 1 {
			m.loose++
		}
		m.below(markStep{kind: markItem}, e)
		if len(l.Elts) > 1 {
			m.loose--
		}
	}
}

// comprehension reads what a comprehension adds, which may be nothing.
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

// call reads the arguments of the functions whose result is a schema.
func (m *marker) call(x *ast.CallExpr) {
	lists := func(loose bool) {
		for _, a := range x.Args {
			elements := []ast.Expr{a}
			if l, ok := unparen(a).(*ast.ListLit); ok {
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
	name, _ := builtinName(x.Fun)
	switch {
	case isBuiltin(x.Fun, "close"), isBuiltin(x.Fun, "and"):
		lists(false)
	case isBuiltin(x.Fun, "or"), isBuiltin(x.Fun, "matchN"), isBuiltin(x.Fun, "matchIf"):
		lists(true)
	case name == "list.MatchN" && len(x.Args) == 2:
		m.loose++
		m.below(markStep{kind: markItem}, x.Args[1])
		m.loose--
	default:
		m.operands(x.Args...)
	}
}

// reference reads what x refers to.
func (m *marker) reference(x ast.Expr) {
	base := baseOf(x)
	if base == nil { // of an expression in parentheses, or of a call
		m.flatly(operandOf(x))
		return
	}
	if source, ok := m.variables[base.Name]; ok && meaningOf(base) == isAlias {
		m.flatly(source)
		return
	}
	data := meaningOf(base) == isField && (m.file || !m.packages.declares(base))
	targets := m.packages.targets(x, 0)
	flat := len(targets) == 0 && ast.Node(base) != ast.Node(x)
	if flat { // what is selected cannot be told
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

// operandOf returns what x selects from.
func operandOf(x ast.Expr) ast.Expr {
	switch x := x.(type) {
	case *ast.SelectorExpr:
		return x.X
	case *ast.IndexExpr:
		return x.X
	}
	return x
}

// follow reads a definition. Within itself it is read once more, for what there is at any
// depth.
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

// withoutMarks reports whether there are no attributes in t and in all that it refers to.
func (m *marker) withoutMarks(t ast.Node) bool {
	all := &marker{packages: m.packages, file: m.file, flat: 1,
		flattened: map[ast.Node]bool{}, bare: map[ast.Node]bool{}, variables: m.variables}
	all.walk(t)
	m.visited += all.visited
	return len(all.found) == 0 && !all.exhausted
}

// packages are those that a schema may refer to.
type packages struct {
	byFile map[string]*build.Instance // by the names of their files
}

func newPackages(instances []*build.Instance) packages {
	p := packages{byFile: map[string]*build.Instance{}}
	for _, i := range instances {
		for _, f := range i.Files {
			p.byFile[f.Pos().Filename()] = i
			p.byFile[f.Filename] = i
		}
	}
	return p
}

// declarationsOf returns the declarations at the top of the package in which a node stands.
func (p packages) declarationsOf(node ast.Node) (decls []ast.Decl) {
	i := p.byFile[node.Pos().Filename()]
	if i == nil {
		return nil
	}
	for _, f := range i.Files {
		decls = append(decls, f.Decls...)
	}
	return decls
}

// declares reports whether an identifier is declared at the top of a package.
func (p packages) declares(id *ast.Ident) bool {
	if _, ok := id.Scope.(*ast.File); ok {
		return true
	}
	return id.Scope == nil && len(named(p.declarationsOf(id), id.Name)) > 0
}

// targets returns the declarations that x refers to, none if that cannot be told from the
// syntax.
func (p packages) targets(x ast.Expr, depth int) []ast.Node {
	if depth > maxDepth {
		return nil
	}
	switch x := unparen(x).(type) {
	case *ast.Ident:
		return p.resolve(x)
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(x.Sel)
		if err != nil {
			return nil
		}
		if id, ok := x.X.(*ast.Ident); ok && meaningOf(id) == isPackage {
			return named(p.imported(id), name)
		}
		return p.selected(x.X, name, depth+1)
	case *ast.IndexExpr:
		if l, ok := unparen(x.Index).(*ast.BasicLit); ok && l.Kind == token.STRING {
			if name, _, err := ast.LabelName(l); err == nil {
				return p.selected(x.X, name, depth+1)
			}
		}
	}
	return nil
}

// resolve returns the declarations of an identifier.
func (p packages) resolve(id *ast.Ident) []ast.Node {
	if m := meaningOf(id); m == isPredeclared || m == isPackage {
		return nil
	}
	switch x := id.Node.(type) {
	case *ast.LetClause:
		return []ast.Node{x.Expr}
	case *ast.Alias:
		return []ast.Node{x.Expr}
	case *ast.Field:
		return []ast.Node{x}
	}
	var found []ast.Node
	switch scope := id.Scope.(type) {
	case *ast.StructLit:
		found = named(scope.Elts, id.Name)
	case *ast.File, nil:
		if found = named(p.declarationsOf(id), id.Name); len(found) > 0 {
			break
		}
		if f, ok := scope.(*ast.File); ok {
			found = named(f.Decls, id.Name)
		}
	}
	if len(found) == 0 && id.Node != nil && id.Node != ast.Node(id) {
		found = []ast.Node{id.Node}
	}
	return found
}

// imported returns the declarations of an imported package; none if it is one of CUE's own.
func (p packages) imported(id *ast.Ident) (decls []ast.Decl) {
	spec, ok := id.Node.(*ast.ImportSpec)
	if !ok {
		return nil
	}
	path, err := strconv.Unquote(spec.Path.Value)
	from := p.byFile[id.Pos().Filename()]
	if err != nil || from == nil {
		return nil
	}
	wanted := ast.ParseImportPath(path).Canonical()
	for _, i := range from.Imports {
		if got := ast.ParseImportPath(i.ImportPath).Canonical(); got.Path == wanted.Path && got.Qualifier == wanted.Qualifier {
			for _, f := range i.Files {
				decls = append(decls, f.Decls...)
			}
		}
	}
	return decls
}

// named returns the fields and lets of a name.
func named(decls []ast.Decl, name string) (found []ast.Node) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.Field:
			if label, _, err := ast.LabelName(d.Label); err == nil && label == name {
				found = append(found, d)
			}
		case *ast.LetClause:
			if d.Ident.Name == name {
				found = append(found, d.Expr)
			}
		}
	}
	return found
}

// selected returns the declarations of a field of what x is.
func (p packages) selected(x ast.Node, name string, depth int) (found []ast.Node) {
	if depth > maxDepth {
		return nil
	}
	of := func(decls []ast.Decl) {
		found = append(found, named(decls, name)...)
		for _, d := range decls {
			switch d := d.(type) {
			case *ast.EmbedDecl:
				found = append(found, p.selected(d.Expr, name, depth+1)...)
			case *ast.Comprehension:
				found = append(found, p.selected(d.Value, name, depth+1)...)
			}
		}
	}
	switch x := x.(type) {
	case *ast.Field:
		return p.selected(x.Value, name, depth)
	case *ast.Alias:
		return p.selected(x.Expr, name, depth)
	case *ast.ParenExpr:
		return p.selected(x.X, name, depth)
	case *ast.StructLit:
		of(x.Elts)
	case *ast.File:
		of(x.Decls)
	case *ast.UnaryExpr:
		return p.selected(x.X, name, depth+1)
	case *ast.BinaryExpr:
		return append(p.selected(x.X, name, depth+1), p.selected(x.Y, name, depth+1)...)
	case *ast.CallExpr:
		for _, a := range x.Args {
			found = append(found, p.selected(a, name, depth+1)...)
		}
	case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr:
		for _, t := range p.targets(x.(ast.Expr), depth+1) {
			found = append(found, p.selected(t, name, depth+1)...)
		}
	}
	return found
}
