package evaluation

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	cueerrors "cuelang.org/go/cue/errors"
	cueformat "cuelang.org/go/cue/format"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
)

// CUE accepts defaults that have no effect, or another effect than the author expects. These
// functions warn of them and say what to write.

// FieldDefaults warns of such defaults in the bundle's packages.
func (c *Evaluation) FieldDefaults() {
	for path, i := range c.Instances {
		if path == DefinitionsPath {
			continue
		}
		for _, f := range i.Files {
			if pos, ours := bundles.Locate(f.Pos()); !ours || !strings.HasPrefix(pos.File, "cue.mod/") {
				d := defaultsOf{c: c, file: f, instance: i}
				d.decls(f.Decls, nil)
			}
		}
	}
}

// defaultsOf checks the defaults of a file.
type defaultsOf struct {
	c        *Evaluation
	file     *ast.File
	instance *build.Instance
	scope    cue.Value // the package; set when needed
}

// decls checks the fields of the struct at a path.
func (d *defaultsOf) decls(decls []ast.Decl, at []string) {
	for _, decl := range decls {
		switch x := decl.(type) {
		case *ast.Field:
			path := at
			if label, _, err := ast.LabelName(x.Label); err == nil {
				path = append(slices.Clip(at), label)
			}
			d.field(x, path)
			d.checkStructs(x.Value, path)
		case *ast.EmbedDecl:
			d.checkStructs(x.Expr, at)
		case *ast.Comprehension:
			d.checkStructs(x.Value, at)
		case *ast.LetClause:
			d.checkStructs(x.Expr, at)
		}
	}
}

// checkStructs checks the structs in an expression.
func (d *defaultsOf) checkStructs(e ast.Node, at []string) {
	ast.Walk(e, func(n ast.Node) bool {
		s, ok := n.(*ast.StructLit)
		if ok {
			d.decls(s.Elts, at)
		}
		return !ok
	}, nil)
}

// field checks the defaults of one field.
func (d *defaultsOf) field(f *ast.Field, at []string) {
	alternatives := disjuncts(f.Value)
	var defaults, others []ast.Expr
	for _, a := range alternatives {
		if u, ok := a.(*ast.UnaryExpr); ok && u.Op == token.MUL {
			defaults = append(defaults, u.X)
		} else {
			others = append(others, a)
		}
	}
	d.covered(f, at, others)
	if len(defaults) == 0 {
		return
	}
	label, shown := strings.Join(at[max(len(at)-1, 0):], ""), source(defaults[0])
	switch {
	case f.Constraint == token.NOT:
		d.warn("DEFAULT_NEVER_APPLIES", f, at, fmt.Sprintf("the default %s never applies, as the field is required (!)", shown), fmt.Sprintf("write %s: %s, without the !, or leave the * out", label, source(f.Value)))
	case f.Constraint == token.OPTION:
		d.warn("DEFAULT_NEVER_APPLIES", f, at, fmt.Sprintf("the default %s never applies, as the field is optional (?)", shown), fmt.Sprintf("write %s: %s, without the ?, or leave the * out", label, source(f.Value)))
	case len(defaults) > 1 && !d.allEqual(defaults):
		d.warn("DEFAULTS_CONFLICT", f, at, fmt.Sprintf("there are %d defaults, so that none applies", len(defaults)), fmt.Sprintf("leave one *, as in %s: %s", label, d.onlyFirst(alternatives)))
	case len(defaults) == 1:
		d.outside(f, at, defaults[0], others)
	}
}

// covered warns of constants beside a type that admits them, so that they say nothing.
func (d *defaultsOf) covered(f *ast.Field, at []string, alternatives []ast.Expr) {
	var constants, types []ast.Expr
	for _, a := range alternatives {
		switch x := a.(type) {
		case *ast.BasicLit:
			if x.Kind == token.STRING || x.Kind == token.INT || x.Kind == token.FLOAT {
				constants = append(constants, a)
			}
		case *ast.Ident, *ast.SelectorExpr:
			types = append(types, a)
		}
	}
	if len(constants) == 0 || len(at) == 0 {
		return
	}
	for _, t := range types {
		v := d.value(t)
		if v.Err() != nil || v.IsConcrete() {
			continue
		}
		if op, _ := v.Expr(); op == cue.OrOp {
			continue // an enumeration of its own
		}
		var lost []ast.Expr
		for _, x := range constants {
			if d.value(x).Unify(v).Err() == nil {
				lost = append(lost, x)
			}
		}
		if len(lost) > 0 {
			d.warn("ALTERNATIVE_COVERED", f, at, fmt.Sprintf("%s says nothing beside %s, which admits it: the field takes any such value", sources(lost), source(t)),
				fmt.Sprintf("leave %s out, so that only the named values are taken, or leave %s out", source(t), sources(lost)))
		}
	}
}

// outside warns of a default (a number, string or bool) that the alternatives do not allow: it has
// another type, or is out of bounds.
func (d *defaultsOf) outside(f *ast.Field, at []string, mark ast.Expr, others []ast.Expr) {
	const scalars = cue.NumberKind | cue.StringKind | cue.BoolKind
	value := d.value(mark)
	if value.Kind()&scalars == 0 || !value.IsConcrete() {
		return
	}
	sameKind, open := false, false // whether an alternative has the default's type; whether one is a whole type
	var bound ast.Expr
	for _, o := range others {
		v := d.value(o)
		kind := v.IncompleteKind()
		if admitsNothing(v.Err()) {
			d.warn("ALTERNATIVE_EMPTY", f, at, fmt.Sprintf("the alternative %s admits no value", source(o)), "see its bounds")
			return
		}
		if v.Err() != nil || kind&^scalars != 0 || kind == cue.BottomKind {
			return // it is not known
		}
		if value.Unify(v).Err() == nil {
			return
		}
		open = open || !v.IsConcrete()
		if kind&value.Kind() != 0 {
			sameKind = true
			if !v.IsConcrete() {
				bound = o
			}
		}
	}
	label, shown := at[len(at)-1], source(mark)
	switch {
	case !open:
	case !sameKind:
		d.warn("DEFAULT_OUTSIDE", f, at, fmt.Sprintf("the default %s is a %v, and the field else takes %s", shown, value.Kind(), sources(others)),
			fmt.Sprintf("write a default of that type, or, if both are meant, %s: *%s | %v | %s", label, shown, value.Kind(), sources(others)))
	case bound != nil && value.Kind()&cue.NumberKind != 0:
		d.warn("DEFAULT_OUTSIDE", f, at, fmt.Sprintf("the default %s is outside of %s", shown, source(bound)),
			fmt.Sprintf("write a default within it, or, if it is meant, %s: *%s | %s | %s", label, shown, shown, sources(others)))
	case bound != nil && isForm(bound):
		d.warn("DEFAULT_OUTSIDE", f, at, fmt.Sprintf("the default %s is no %s", shown, source(bound)),
			fmt.Sprintf("write one%s, or, if it is meant, %s: *%s | %s | %s", formExample(bound), label, shown, shown, sources(others)))
	}
}

// isForm reports whether an expression is a form of strings of a CUE package, such as time.Duration or net.IPv4.
func isForm(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		e = call.Fun
	}
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && (pkg.Name == "time" || pkg.Name == "net" || pkg.Name == "uuid" || pkg.Name == "regexp")
}

// formExample returns an example of a form, to be appended to a hint; "" for the others.
func formExample(e ast.Expr) string {
	example := map[string]string{"time.Duration": "24h", "time.Time": "2026-11-20T14:00:00Z", "net.IPv4": "192.0.2.1", "net.IPCIDR": "192.0.2.0/24", "net.FQDN": "www.example.com"}[strings.TrimSuffix(source(e), "()")]
	if example == "" {
		return ""
	}
	return fmt.Sprintf(" such as %q", example)
}

// admitsNothing reports whether an error says that bounds exclude each other, rather than that a
// name is unknown.
func admitsNothing(err error) bool {
	if err == nil {
		return false
	}
	said := formatOf(cueerrors.Errors(err)[0])
	return strings.HasPrefix(said, "incompatible ") && strings.Contains(said, " bounds ") || strings.HasPrefix(said, conflicting)
}

// value evaluates an expression in the scope of the package.
func (d *defaultsOf) value(e ast.Expr) cue.Value {
	if !d.scope.Exists() {
		d.scope = d.c.Root
		if d.instance != d.c.Instances[d.instance.ImportPath] || d.instance.Dir != "" {
			d.scope = d.c.context.BuildInstance(d.instance)
		}
	}
	if nested(e) { // CUE panics on some names that are declared in a struct
		return d.c.context.BuildExpr(&ast.BottomLit{})
	}
	return d.c.context.BuildExpr(e, cue.Scope(d.scope), cue.InferBuiltins(true))
}

// nested reports whether an expression uses a name that a struct declares, or a clause of a comprehension.
func nested(e ast.Expr) (found bool) {
	ast.Walk(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Scope != nil {
			_, file := id.Scope.(*ast.File)
			found = found || !file
		}
		return !found
	}, nil)
	return found
}

// allEqual reports whether all defaults have the same value, so that it applies.
func (d *defaultsOf) allEqual(defaults []ast.Expr) bool {
	first := d.value(defaults[0])
	for _, e := range defaults[1:] {
		if !first.Equals(d.value(e)) {
			return false
		}
	}
	return true
}

// onlyFirst returns a disjunction with only the first default marked.
func (d *defaultsOf) onlyFirst(alternatives []ast.Expr) string {
	texts, marked := make([]string, len(alternatives)), false
	for i, a := range alternatives {
		u, ok := a.(*ast.UnaryExpr)
		switch {
		case ok && u.Op == token.MUL && marked:
			texts[i] = source(u.X)
		default:
			marked = marked || ok && u.Op == token.MUL
			texts[i] = source(a)
		}
	}
	return strings.Join(texts, " | ")
}

func (d *defaultsOf) warn(lint string, f *ast.Field, at []string, message, hint string) {
	pos, ok := bundles.Locate(f.Pos())
	if !ok {
		return
	}
	d.c.Warnings = append(d.c.Warnings, schemas.Diagnostic{Pos: pos, Path: strings.Join(at, "."), Message: message, Hint: hint, Lint: lint})
}

// maxFieldDepth and maxFieldsSeen limit the search for lost defaults, since a definition may refer
// to itself.
const (
	maxFieldDepth = 16
	maxFieldsSeen = 5000
)

// LostDefaults warns of schema fields that have several defaults, so that none applies.
func (c *Evaluation) LostDefaults(v cue.Value, at []string) {
	fields, err := v.Fields(cue.Optional(true))
	if err != nil || len(at) > maxFieldDepth {
		return
	}
	for fields.Next() && c.FieldsSeen < maxFieldsSeen {
		c.FieldsSeen++
		x, path := fields.Value(), append(slices.Clip(at), fields.Selector().Unquoted())
		if x.IncompleteKind() == cue.StructKind {
			c.LostDefaults(x, path)
			continue
		}
		op, parts := x.Expr()
		if _, applies := x.Default(); op != cue.AndOp || applies || x.IsConcrete() {
			continue
		}
		var found []cue.Value
		for _, part := range parts {
			if d, ok := part.Default(); ok && !slices.ContainsFunc(found, d.Equals) {
				found = append(found, d)
			}
		}
		if len(found) < 2 {
			continue
		}
		values := make([]string, len(found))
		for i, d := range found {
			values[i] = fmt.Sprint(d)
		}
		c.Warnings = append(c.Warnings, schemas.Diagnostic{Pos: Position(x), Path: strings.Join(path, "."),
			Message: fmt.Sprintf("the defaults %s exclude each other, so that none applies", strings.Join(values, " and ")), Hint: "leave one *", Lint: "DEFAULTS_CONFLICT"})
	}
}

// disjuncts returns the alternatives of an expression.
func disjuncts(e ast.Expr) []ast.Expr {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return disjuncts(x.X)
	case *ast.BinaryExpr:
		if x.Op == token.OR {
			return append(disjuncts(x.X), disjuncts(x.Y)...)
		}
	}
	return []ast.Expr{e}
}

// source returns the text of an expression in one line.
func source(e ast.Expr) string {
	text, err := cueformat.Node(e, cueformat.Simplify())
	if err != nil {
		return "…"
	}
	return shortened(strings.Join(strings.Fields(string(text)), " "), maxValue)
}

func sources(list []ast.Expr) string {
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = source(e)
	}
	return strings.Join(texts, " | ")
}
