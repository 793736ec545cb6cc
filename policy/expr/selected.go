package expr

import (
	"maps"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"stele.dev/stele/schemas/celtype"
)

// bindings are the types of variables, also those of loops.
type bindings map[string]*celtype.Type

// selectedFrom returns the type whose field the selection with an id selects; nil if it is not known.
func (s *Scope) selectedFrom(text string, id int64) *celtype.Type {
	parsed, issues := s.env.Parse(text)
	if issues.Err() != nil {
		return nil
	}
	operand, in := selection(parsed.NativeRep().Expr(), id, bindings(s.vars))
	if operand == nil {
		return nil
	}
	if t := in.typeOf(operand); t != nil && t.IsMessage() {
		return t
	}
	return nil
}

// selection returns the operand of the selection with an id, and the variables there.
func selection(e ast.Expr, id int64, in bindings) (ast.Expr, bindings) {
	if e.ID() == id {
		return operand(e), in
	}
	inner := in
	if e.Kind() == ast.ComprehensionKind {
		inner = in.loop(e.AsComprehension())
	}
	for _, child := range children(e) {
		within := inner
		if c := e.AsComprehension(); e.Kind() == ast.ComprehensionKind && (child == c.IterRange() || child == c.AccuInit()) {
			within = in
		}
		if found, at := selection(child, id, within); found != nil {
			return found, at
		}
	}
	return nil, nil
}

// operand returns the operand of a selection a.b or a.?b.
func operand(e ast.Expr) ast.Expr {
	switch {
	case e.Kind() == ast.SelectKind:
		return e.AsSelect().Operand()
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.OptSelect && len(e.AsCall().Args()) == 2:
		return e.AsCall().Args()[0]
	}
	return nil
}

func children(e ast.Expr) (list []ast.Expr) {
	switch e.Kind() {
	case ast.SelectKind:
		list = append(list, e.AsSelect().Operand())
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			list = append(list, e.AsCall().Target())
		}
		list = append(list, e.AsCall().Args()...)
	case ast.ListKind:
		list = append(list, e.AsList().Elements()...)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			list = append(list, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			list = append(list, field.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		list = append(list, c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	}
	return list
}

// loop returns the bindings with the variables of a loop.
func (in bindings) loop(c ast.ComprehensionExpr) bindings {
	in = maps.Clone(in)
	in[c.AccuVar()] = in.typeOf(c.AccuInit())
	of := in.typeOf(c.IterRange())
	if of == nil || of.Items() == nil {
		delete(in, c.IterVar())
		return in
	}
	key := celtype.Int
	if of.CEL().Kind() == types.MapKind {
		key = celtype.String
	}
	switch {
	case c.HasIterVar2():
		in[c.IterVar()], in[c.IterVar2()] = key, of.Items()
	case key == celtype.String:
		in[c.IterVar()] = key
	default:
		in[c.IterVar()] = of.Items()
	}
	return in
}

// typeOf returns the type of an expression that consists of names, selections and indexes only; nil
// for others.
func (in bindings) typeOf(e ast.Expr) *celtype.Type {
	if e.Kind() == ast.IdentKind {
		return in[e.AsIdent()]
	}
	var from ast.Expr
	name := ""
	switch e.Kind() {
	case ast.SelectKind:
		from, name = operand(e), e.AsSelect().FieldName()
	case ast.CallKind:
		call := e.AsCall()
		if name := call.FunctionName(); name != operators.Index && name != operators.OptIndex && name != operators.OptSelect || len(call.Args()) != 2 {
			return nil
		}
		from = call.Args()[0]
		if field := call.Args()[1]; call.FunctionName() == operators.OptSelect && field.Kind() == ast.LiteralKind {
			name, _ = field.AsLiteral().Value().(string)
		}
	default:
		return nil
	}
	t := in.typeOf(from)
	if t == nil {
		return nil
	}
	if !t.IsMessage() {
		return t.Items() // of a list, or of a map, whose keys can be selected as fields
	}
	if f := t.Field(name); f != nil {
		return f.Type
	}
	return nil
}
