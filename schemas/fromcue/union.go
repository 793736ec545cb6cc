package fromcue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/fromcue/cuevalue"
	"stele.dev/stele/schemas/fromcue/join"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/textforms"
)

// union compiles a value into the union of its alternatives as evaluated by CUE: at most one list, one
// struct, and any number of scalars. refused reports that the survey has already rejected the value.
func (c *Compiler) union(n *schemas.Node, v cue.Value, s shape, at *place, refused bool) {
	if lost := s.kinds & cuevalue.CompositeKinds &^ v.IncompleteKind(); lost != 0 && !refused {
		c.refuse(at, nil, fmt.Sprintf("an alternative of type %s, which CUE drops before it sees any data", lost),
			"write the field without alternatives")
		return
	}
	a := cuevalue.AlternativesOf(v)
	preferred, written := c.distinguish(&a, &s, v, at)
	if s.braced && (a.Tops > 0 || len(a.Lists) > 0) && !refused {
		c.leaveTo(at, at, nil, "braces around a list or around _, which CUE then takes for closed")
		c.vague(n, v, s, at)
		return
	}
	if a.Tops > 0 && len(a.Lists)+len(a.Structs)+len(a.Others) == 0 {
		n.Kinds = schemas.AnyKind // scalars do not widen it
		c.setDefault(n, v, a, s, at, false)
		return
	}
	if a.Tops > 0 || len(a.Others) > 0 {
		if !refused {
			c.leaveTo(at, at, nil, fmt.Sprintf("%v, which may be of many kinds", v))
			n.Kinds = cuevalue.KindsOf(v.IncompleteKind())
		}
		return
	}
	c.setDefault(n, v, a, s, at, preferred >= 0)
	structs := a.Structs
	if preferred < 0 {
		structs = cuevalue.ApartFromDefault(n, structs)
	}
	lists := cuevalue.ApartFromDefault(n, a.Lists)
	if !refused {
		if reason := c.beyondUnion(n, a, s, structs, lists, preferred >= 0); reason != "" {
			c.leaveTo(at, at, nil, reason)
			c.vague(n, v, s, at)
			return
		}
	}

	n.Kinds = 0
	of := claim{value: v, at: at, written: written}
	if len(structs) > 0 && len(lists) > 0 {
		c.unions[n] = of
	}
	c.structs(n, of, a, structs, s, preferred)
	if len(lists) > 0 {
		n.Kinds |= schemas.ListKind
		n.List = c.list(a.Only(v, lists), s, at, refused)
	}
	scalars := c.enum(n, withoutAdmitted(a.Constants, a.Scalars), at)
	for _, x := range a.Scalars {
		scalars = append(scalars, c.scalar(x, at))
	}
	for _, x := range scalars {
		n.Kinds |= x.Kinds
	}
	n.Scalars = join.Simplified(scalars)
	if n.Kinds == 0 { // an error is already recorded
		n.Kinds = schemas.AnyKind
	}
}

// structs compiles the alternatives that are structs.
func (c *Compiler) structs(n *schemas.Node, of claim, a cuevalue.Alternatives, structs []cue.Value, s shape, preferred int) {
	switch {
	case len(structs) == 1:
		n.Kinds |= schemas.StructKind
		around := of.at.arms
		of.at.arms = around || !a.Alone
		n.Struct = c.structOf(a.Only(of.value, structs), s, of.at)
		of.at.arms = around
	case len(structs) > 1:
		n.Kinds |= schemas.StructKind
		c.arms(n, of, structs, s, preferred)
	}
}

// distinguish finds the structs among the alternatives of v where CUE has dropped some: those that contradict another part of v, or look
// equal to others without data. It returns the index of the struct that is the default, or -1. written reports that the structs are
// those of the syntax, without what closes them.
func (c *Compiler) distinguish(a *cuevalue.Alternatives, s *shape, v cue.Value, at *place) (preferred int, written bool) {
	defaults := cuevalue.DefaultsOf(v)
	marked := !a.Alone && len(defaults) == 1 && defaults[0].IncompleteKind() == cue.StructKind
	if _, forced := c.forced[at.path]; forced || at.vague || at.recursive || at.embedsBesideFields() || !marked && (s.structs < 2 || s.structs == len(a.Structs)) {
		return -1, false
	}
	choices, ok := cuevalue.Choices(v, maxArms)
	if !ok {
		return -1, false
	}
	var structs []cue.Value
	preferred, apart := -1, false
	for _, x := range choices {
		switch {
		case x.Kind == cue.StructKind && x.Marked && preferred >= 0, x.Kind != cue.StructKind && x.Kind&cue.StructKind != 0:
			return -1, false
		case x.Kind == cue.StructKind:
			if x.Marked {
				preferred = len(structs)
			}
			structs, apart = append(structs, x.Value), apart || x.Apart
		}
	}
	if len(structs) < len(a.Structs) || marked != (preferred >= 0) {
		return -1, false
	}
	if len(structs) > len(a.Structs) {
		if apart {
			return -1, false
		}
		a.Structs, s.structs = structs, len(structs)
		return preferred, true
	}
	if s.structs = len(structs); !marked {
		c.narrowed = append(c.narrowed, at)
	} else {
		preferred = slices.IndexFunc(a.Structs, defaults[0].Equals)
	}
	if len(structs) < 2 || marked && preferred < 0 {
		return -1, false
	}
	return preferred, false
}

// embedsBesideFields reports whether a literal of the value embeds something beside fields of its own.
func (p *place) embedsBesideFields() bool {
	return slices.ContainsFunc(p.literals, func(lit ast.Node) bool {
		embeds, others := false, false
		for _, d := range cuesyntax.DeclsOf(lit) {
			switch d.(type) {
			case *ast.EmbedDecl:
				embeds, others = true, others || embeds
			case *ast.Field, *ast.Comprehension, *ast.Ellipsis:
				others = true
			}
		}
		return embeds && others
	})
}

// beyondUnion returns what the value has besides a choice between structs, or "". It compares CUE's
// alternatives with the survey's counts.
func (c *Compiler) beyondUnion(n *schemas.Node, a cuevalue.Alternatives, s shape, structs, lists []cue.Value, preferred bool) string {
	composite := n.Default != nil && !isScalarJSON(n.Default)
	switch {
	case len(lists) > 1 || s.lists > 1:
		return "a union of lists"
	case len(structs) > 0 && len(lists) > 0 && composite:
		return "a union of a struct and a list, with a default"
	case len(structs) > maxArms:
		return fmt.Sprintf("a union of %d structs", len(structs))
	case s.structs > 1 && s.structs != len(structs), len(structs) > 1 && composite && !preferred:
		return "a union of structs that CUE takes for equal, or with a default"
	case !a.Alone && (s.structs > 0 && cuevalue.OnlyDefault(n, structs) || s.lists > 0 && cuevalue.OnlyDefault(n, lists)):
		return "an alternative that CUE takes for equal to the default"
	}
	return ""
}

// setDefault sets the default of the node, if the value has one that may be used.
func (c *Compiler) setDefault(n *schemas.Node, v cue.Value, a cuevalue.Alternatives, s shape, at *place, preferred bool) {
	d, _ := v.Default()
	kind := d.Kind()
	complete := d.Validate(cue.Concrete(true), cue.Final()) == nil
	switch {
	case a.Alone && kind == cue.StructKind:
		return // built field by field
	case a.Alone || kind&cuevalue.CompositeKinds == 0:
		if marked := cuevalue.DefaultsOf(v); !a.Alone && len(marked) > 1 && slices.ContainsFunc(marked, cuevalue.IsComposite) {
			c.leaveTo(at, at, marked[1].Source(), "several defaults")
			return
		}
		if !complete || at.presence != schemas.Regular {
			return // incomplete or ambiguous: a missing field is an error
		}
	default:
		// In a conjunction, the default may be open after all.
		if !preferred && (s.literals > 1 || a.Rivals(d) && !(complete && cuevalue.IsData(d))) {
			c.leaveTo(at, at, d.Source(), "a default that is not plain data")
			return
		}
		if !complete || preferred && at.presence != schemas.Regular {
			return
		}
	}
	text, err := cuesyntax.Canonical(d)
	if err != nil {
		c.reported(err, at)
		return
	}
	n.Default = text
}

// withoutAdmitted returns the constants without those like 1.0 that another alternative admits. CUE takes 1.0 for different from 1, so
// that an enumeration cannot have it.
func withoutAdmitted(constants, scalars []cue.Value) []cue.Value {
	return slices.DeleteFunc(slices.Clone(constants), func(v cue.Value) bool {
		return v.Kind() == cue.FloatKind && slices.ContainsFunc(scalars, func(s cue.Value) bool { return s.Unify(v).Err() == nil })
	})
}

// enum compiles constants into one alternative, in the order of the source. Null only adds its kind.
func (c *Compiler) enum(n *schemas.Node, constants []cue.Value, at *place) []schemas.Scalar {
	slices.SortStableFunc(constants, func(a, b cue.Value) int {
		p, q := c.position(a.Source(), at), c.position(b.Source(), at)
		return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
	})
	var s schemas.Scalar
	for _, v := range constants {
		text, ok := c.literalOf(v, at)
		if !ok || slices.ContainsFunc(s.Enum, func(e json.RawMessage) bool { return bytes.Equal(e, text) }) {
			continue
		}
		kind := schemas.KindOfJSON(text)
		if kind == schemas.NullKind {
			n.Kinds |= schemas.NullKind
			continue
		}
		s.Kinds |= kind
		s.Enum = append(s.Enum, text)
	}
	if len(s.Enum) == 0 {
		return nil
	}
	return []schemas.Scalar{s}
}

// literalOf returns a constant as canonical JSON. It rejects constants that decoded JSON cannot represent:
// 1.0, which CUE distinguishes from 1, and integers beyond 64 bits.
func (c *Compiler) literalOf(v cue.Value, at *place) (json.RawMessage, bool) {
	text, err := cuesyntax.Canonical(v)
	if err != nil {
		c.reported(err, at)
		return nil, false
	}
	if v.Kind()&cue.NumberKind != 0 {
		integral := schemas.KindOfJSON(text) == schemas.IntegerKind
		if integral && v.Kind() == cue.FloatKind {
			c.refuse(at, v.Source(), fmt.Sprintf("the constant %v, which CUE takes for different from %s", v, text), "write "+string(text))
			return nil, false
		}
		if _, err := v.Int64(); integral && err != nil {
			c.refuse(at, v.Source(), "an integer that does not fit in 64 bits", "write a string")
			return nil, false
		}
	}
	return text, true
}

// scalar compiles an alternative that is a conjunction of a basic type, bounds and validators.
func (c *Compiler) scalar(v cue.Value, at *place) schemas.Scalar {
	s := schemas.Scalar{Kinds: cuevalue.KindsOf(v.IncompleteKind())}
	said := func(d schemas.Diagnostic) bool { return d.Path == at.path }
	if v.IncompleteKind() == cue.FloatKind && !slices.ContainsFunc(c.diags, said) {
		c.refuse(at, v.Source(), "the type float, which does not admit 1", "write number")
	}
	c.rules(&s, v, at)
	return s
}

// rules adds the rules of a conjunction to s.
func (c *Compiler) rules(s *schemas.Scalar, v cue.Value, at *place) {
	op, args := v.Expr()
	switch op {
	case cue.AndOp:
		for _, a := range args {
			c.rules(s, a, at)
		}
	case cue.GreaterThanOp, cue.GreaterThanEqualOp, cue.LessThanOp, cue.LessThanEqualOp:
		c.bound(s, v, op, args[0], at)
	case cue.NotEqualOp:
		if !cuevalue.IsConstant(args[0]) {
			c.leaveTo(at, at, v.Source(), fmt.Sprintf("the rule %v", v))
			return
		}
		if text, ok := c.literalOf(args[0], at); ok && s.Kinds.Has(schemas.KindOfJSON(text)) {
			s.Not = append(s.Not, schemas.Constant{Value: text, Source: c.position(v.Source(), at)})
		}
	case cue.RegexMatchOp, cue.NotRegexMatchOp:
		re, err := args[0].String()
		if err != nil {
			c.reported(err, at)
			return
		}
		s.Patterns = append(s.Patterns, schemas.Pattern{
			Regexp: re, Negated: op == cue.NotRegexMatchOp, Source: c.position(v.Source(), at),
		})
	case cue.CallOp:
		c.validator(s, v, args, at)
	default:
		if !cuevalue.IsBasic(v) {
			c.leaveTo(at, at, v.Source(), fmt.Sprintf("the rule %v", v))
		}
	}
}

func (c *Compiler) bound(s *schemas.Scalar, v cue.Value, op cue.Op, operand cue.Value, at *place) {
	text, err := cuesyntax.Canonical(operand)
	if err != nil || operand.Kind()&cue.NumberKind == 0 {
		c.leaveTo(at, at, v.Source(), fmt.Sprintf("the bound %v, which is not a number", v))
		return
	}
	b := &schemas.Bound{
		Value:     string(text),
		Exclusive: op == cue.GreaterThanOp || op == cue.LessThanOp,
		Source:    c.position(v.Source(), at),
	}
	end := &s.Minimum
	if op == cue.LessThanOp || op == cue.LessThanEqualOp {
		end = &s.Maximum
	}
	if *end != nil { // CUE keeps the tighter bound
		c.leaveTo(at, at, v.Source(), fmt.Sprintf("the bound %v beside %s", v, (*end).Value))
		return
	}
	*end = b
}

func (c *Compiler) validator(s *schemas.Scalar, v cue.Value, args []cue.Value, at *place) {
	name := fmt.Sprint(args[0])
	if form, ok := formOf(args); ok {
		if s.Kinds != schemas.StringKind {
			c.leaveTo(at, at, v.Source(), fmt.Sprintf("the builtin %s on what is not a string", strings.TrimSuffix(name, "()")))
			return
		}
		s.Forms = append(s.Forms, schemas.Form{Name: form, Source: c.position(v.Source(), at)})
		return
	}
	if name != "strings.MinRunes" && name != "strings.MaxRunes" || len(args) != 2 {
		c.leaveTo(at, at, v.Source(), fmt.Sprintf("the builtin %s", strings.TrimSuffix(name, "()")))
		return
	}
	count, err := args[1].Int64()
	if err != nil || count < 0 || count > 1<<31-1 {
		c.refuse(at, v.Source(), fmt.Sprintf("the limit %v", args[1]), "write a number of characters")
		return
	}
	l := &schemas.Limit{Count: int(count), Source: c.position(v.Source(), at)}
	if name == "strings.MinRunes" {
		s.MinRunes = tighter(s.MinRunes, l, func(a, b int) bool { return a > b })
	} else {
		s.MaxRunes = tighter(s.MaxRunes, l, func(a, b int) bool { return a < b })
	}
}

// formOf returns the name of the form that a validator demands: its arguments are the function, and what it is called with.
func formOf(args []cue.Value) (name string, ok bool) {
	name = strings.TrimSuffix(fmt.Sprint(args[0]), "()")
	switch len(args) {
	case 1:
		_, ok = textforms.Named(name)
	case 2:
		if text, err := args[1].String(); err == nil {
			return textforms.Call(name, text)
		}
	}
	return name, ok
}

// maxArms is the maximum number of alternatives of a union. Nested unions multiply.
const maxArms = 64

// arms compiles alternatives that are structs into a union. The union's struct has the fields of all
// arms.
func (c *Compiler) arms(n *schemas.Node, of claim, structs []cue.Value, s shape, preferred int) {
	at := of.at
	u := &schemas.Union{Source: at.source}
	at.arms = true
	defer func() { at.arms = false }()
	for i, x := range structs {
		arm := schemas.Arm{Struct: c.structOf(x, s, at), Preferred: i == preferred, Source: c.position(x.Source(), at)}
		arm.Struct.Open = x.Allows(cue.AnyString)
		u.Arms = append(u.Arms, arm)
	}
	n.Union, n.Struct = u, join.Arms(u)
	c.unions[n] = of
	if discriminate(u); u.Discriminator != "" || preferred >= 0 && len(structs) == 2 {
		return
	}
	text, err := c.selfContained(of.value, n)
	if err != nil {
		c.leaveTo(at, at, nil, "a union of structs without a field that has other constants in each")
		return
	}
	u.Ambiguous = interpreter.NewFallback(text, "a value that fits several alternatives", at.source)
}

// discriminate finds a field with different constants in each arm.
func discriminate(u *schemas.Union) {
next:
	for _, f := range u.Arms[0].Struct.Fields {
		var all [][]json.RawMessage
		for i := range u.Arms {
			values, ok := constantsOf(u.Arms[i].Struct, f.Name)
			if !ok {
				continue next
			}
			for _, others := range all {
				if slices.ContainsFunc(others, func(x json.RawMessage) bool {
					return slices.ContainsFunc(values, func(y json.RawMessage) bool { return bytes.Equal(x, y) })
				}) {
					continue next
				}
			}
			all = append(all, values)
		}
		u.Discriminator = f.Name
		for i := range u.Arms {
			u.Arms[i].Values = all[i]
		}
		return
	}
}

// constantsOf returns the constants that a field admits. ok is false if it admits other values.
func constantsOf(s *schemas.Struct, name string) (values []json.RawMessage, ok bool) {
	i := slices.IndexFunc(s.Fields, func(f schemas.Field) bool { return f.Name == name })
	if i < 0 || s.Fields[i].Presence == schemas.Optional {
		return nil, false
	}
	n := s.Fields[i].Schema
	if n.Kinds&^schemas.ScalarKinds != 0 || len(n.Scalars) == 0 || n.Fallback != nil {
		return nil, false
	}
	spoken := schemas.Kinds(0)
	for _, x := range n.Scalars {
		if len(x.Enum) == 0 {
			return nil, false
		}
		values = append(values, x.Enum...)
		spoken |= x.Kinds
	}
	return values, spoken == n.Kinds
}
