package schemas

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
)

// union compiles a value into the union of its alternatives, as CUE has
// evaluated them: at most one list and one struct, and any number of scalars.
// refused says that the survey has found fault with the value already.
func (c *compiler) union(n *Node, v cue.Value, s shape, at *place, refused bool) {
	if lost := s.kinds & compositeKinds &^ v.IncompleteKind(); lost != 0 && !refused {
		c.refuse(at, nil, fmt.Sprintf("an alternative of type %s, which CUE drops before it sees any data", lost),
			"write the field without alternatives")
		return
	}
	a := armsOf(v)
	if s.braced && (a.tops > 0 || len(a.lists) > 0) && !refused {
		c.refuse(at, nil, "braces around a list or around _, which CUE then takes for closed", "write it without the braces")
		return
	}
	if a.tops > 0 && len(a.lists)+len(a.structs)+len(a.others) == 0 {
		n.Kinds = AnyKind // scalars add nothing to it
		c.setDefault(n, v, a, s, at)
		return
	}
	if a.tops > 0 || len(a.others) > 0 {
		if !refused {
			c.refuse(at, nil, fmt.Sprintf("%v, which may be of many kinds", v), "say which kinds it may have: string, int, bool, {...}")
		}
		return
	}
	c.setDefault(n, v, a, s, at)
	structs := apartFromDefault(n, a.structs)
	lists := apartFromDefault(n, a.lists)
	c.refuseUnions(n, a, s, structs, lists, at)

	n.Kinds = 0
	if len(structs) > 0 {
		n.Kinds |= StructKind
		n.Struct = c.structOf(choose(a.alone, v, structs[0]), s, at)
	}
	if len(lists) > 0 {
		n.Kinds |= ListKind
		n.List = c.list(choose(a.alone, v, lists[0]), s, at, refused)
	}
	scalars := c.enum(n, a.constants, at)
	for _, x := range a.scalars {
		scalars = append(scalars, c.scalar(x, at))
	}
	for _, x := range scalars {
		n.Kinds |= x.Kinds
	}
	n.Scalars = simplified(scalars)
	if n.Kinds == 0 { // the reason is among the diagnostics
		n.Kinds = AnyKind
	}
}

// refuseUnions refuses more than one list or struct among the alternatives,
// whether CUE has kept them apart or the survey has counted them.
func (c *compiler) refuseUnions(n *Node, a arms, s shape, structs, lists []cue.Value, at *place) {
	if len(structs) > 1 || s.structs > 1 {
		c.refuse(at, lastSource(structs), "a union of structs", "write one struct with optional fields, or give each alternative a field of its own")
	}
	if len(lists) > 1 || s.lists > 1 {
		c.refuse(at, lastSource(lists), "a union of lists", "write one list whose items have alternatives")
	}
	if len(structs) > 0 && len(lists) > 0 {
		c.refuse(at, nil, "a union of a struct and a list", "give each a field of its own")
	}
	if !a.alone && (s.structs > 0 && onlyDefault(n, structs) || s.lists > 0 && onlyDefault(n, lists)) {
		c.refuse(at, nil, "an alternative that CUE takes for equal to the default", "write the field without a default")
	}
}

func lastSource(values []cue.Value) ast.Node {
	if len(values) == 0 {
		return nil
	}
	return values[len(values)-1].Source()
}

const compositeKinds = cue.ListKind | cue.StructKind

// arms are the alternatives of an evaluated value, sorted by what they are.
type arms struct {
	alone     bool // there is one, and CUE has left none out
	tops      int  // alternatives that admit everything
	constants []cue.Value
	scalars   []cue.Value // with rules, or of a basic type
	lists     []cue.Value
	structs   []cue.Value
	others    []cue.Value // of kinds that do not go together
}

// armsOf sorts the alternatives of v. CUE leaves out of them a default that, it
// believes, another one subsumes, and it errs: `*1 | string & !=""` has lost the
// 1. So the scalars among the defaults are added again; too many alternatives do
// no harm. A list or a struct among them is kept by way of Node.Default.
func armsOf(v cue.Value) arms {
	all, dropped := alternatives(v.Eval(), nil)
	a := arms{alone: len(all) == 1 && !dropped}
	for _, d := range defaultsOf(v) {
		if !a.alone && d.IncompleteKind()&compositeKinds == 0 {
			all = append(all, d)
		}
	}
	for _, x := range all {
		switch kind := x.IncompleteKind(); {
		case isTop(x):
			a.tops++
		case isConstant(x):
			a.constants = append(a.constants, x)
		case kind == cue.StructKind:
			a.structs = append(a.structs, x)
		case kind == cue.ListKind:
			a.lists = append(a.lists, x)
		case kind&^(cue.BoolKind|cue.NumberKind|cue.StringKind) == 0:
			a.scalars = append(a.scalars, x)
		default:
			a.others = append(a.others, x)
		}
	}
	return a
}

// alternatives appends the alternatives of an evaluated value, and reports
// whether CUE left out any.
func alternatives(v cue.Value, all []cue.Value) (_ []cue.Value, dropped bool) {
	op, args := v.Expr()
	switch {
	case op == cue.OrOp:
		for _, a := range args {
			var d bool
			all, d = alternatives(a, all)
			dropped = dropped || d
		}
		// What is left may still be less than there was.
		_, marked := v.Default()
		return all, dropped || marked
	case op == cue.NoOp && len(args) == 1 && args[0] != v:
		all, _ = alternatives(args[0], all)
		return all, true
	}
	return append(all, v), false
}

// defaultsOf returns the alternatives among which v takes its default: one, if
// the default is not ambiguous, and none if there is no mark.
func defaultsOf(v cue.Value) []cue.Value {
	d, marked := v.Default()
	if !marked {
		return nil
	}
	all, _ := alternatives(d.Eval(), nil)
	return all
}

func isTop(v cue.Value) bool {
	op, _ := v.Expr()
	return op == cue.NoOp && v.IncompleteKind() == cue.TopKind && fmt.Sprint(v) == "_"
}

// setDefault sets the default of a value that has one and may use it.
func (c *compiler) setDefault(n *Node, v cue.Value, a arms, s shape, at *place) {
	d, _ := v.Default()
	kind := d.Kind()
	complete := d.Validate(cue.Concrete(true), cue.Final()) == nil
	switch {
	case a.alone && kind == cue.StructKind:
		return // created field by field
	case a.alone || kind&compositeKinds == 0:
		if marked := defaultsOf(v); !a.alone && len(marked) > 1 && slices.ContainsFunc(marked, isComposite) {
			c.refuse(at, marked[1].Source(), "several defaults", "mark one alternative as the default")
			return
		}
		if !complete || at.presence != Regular {
			return // incomplete or ambiguous: that a field is missing is an error
		}
	default:
		// Joined with anything else, a default may be open after all.
		if s.literals > 1 || a.rivals(d) && !(complete && isData(d)) {
			c.refuse(at, d.Source(), "a default that is not plain data",
				"write the default of a list or struct out in full, within a definition so that it is closed, and join the alternatives with nothing else")
			return
		}
		if !complete {
			return
		}
	}
	text, err := canonical(d)
	if err != nil {
		c.reported(err, at)
		return
	}
	n.Default = text
}

// rivals reports whether there are alternatives of the kind of the default d that
// are not d.
func (a arms) rivals(d cue.Value) bool {
	of := a.structs
	if d.Kind() == cue.ListKind {
		of = a.lists
	}
	text, err := canonical(d)
	return err != nil || len(of) != 1 || slices.ContainsFunc(of, func(x cue.Value) bool {
		other, err := canonical(x)
		return err != nil || !bytes.Equal(text, other)
	})
}

func isComposite(v cue.Value) bool { return v.IncompleteKind()&compositeKinds != 0 }

// isData reports whether v is the same whatever it is unified with: written out
// in full, and closed.
func isData(v cue.Value) bool {
	switch v.IncompleteKind() {
	case cue.StructKind:
		if v.Allows(cue.AnyString) {
			return false
		}
		fields, err := v.Fields()
		for err == nil && fields.Next() {
			if !isData(fields.Value()) {
				return false
			}
		}
	case cue.ListKind:
		items, err := v.List()
		for err == nil && items.Next() {
			if !isData(items.Value()) {
				return false
			}
		}
	}
	return isLiteral(v)
}

// apartFromDefault returns the alternatives that are not the default, unless
// that is all there is. What the default admits, a program admits by completing
// it (Node.Default).
func apartFromDefault(n *Node, all []cue.Value) []cue.Value {
	if n.Default == nil || len(all) < 2 {
		return all
	}
	for i, a := range all {
		if !isData(a) {
			continue
		}
		if text, err := canonical(a); err == nil && bytes.Equal(text, n.Default) {
			return slices.Delete(slices.Clone(all), i, i+1)
		}
	}
	return all
}

// onlyDefault reports whether nothing but the default is left of the
// alternatives.
func onlyDefault(n *Node, all []cue.Value) bool {
	if n.Default == nil || len(all) != 1 || !isLiteral(all[0]) {
		return false
	}
	text, err := canonical(all[0])
	return err == nil && bytes.Equal(text, n.Default)
}

// enum compiles constants into one alternative, in the order in which they are
// written. A null is only a kind.
func (c *compiler) enum(n *Node, constants []cue.Value, at *place) []Scalar {
	slices.SortStableFunc(constants, func(a, b cue.Value) int {
		p, q := c.position(a.Source(), at), c.position(b.Source(), at)
		return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
	})
	var s Scalar
	for _, v := range constants {
		text, ok := c.literalOf(v, at)
		if !ok || slices.ContainsFunc(s.Enum, func(e json.RawMessage) bool { return bytes.Equal(e, text) }) {
			continue
		}
		kind := kindOfJSON(text)
		if kind == NullKind {
			n.Kinds |= NullKind
			continue
		}
		s.Kinds |= kind
		s.Enum = append(s.Enum, text)
	}
	if len(s.Enum) == 0 {
		return nil
	}
	return []Scalar{s}
}

// literalOf returns a constant as canonical JSON. Decoded JSON does not tell 1.0
// from 1, and has 64 bits for an integer; constants beyond that are refused.
func (c *compiler) literalOf(v cue.Value, at *place) (json.RawMessage, bool) {
	text, err := canonical(v)
	if err != nil {
		c.reported(err, at)
		return nil, false
	}
	if v.Kind()&cue.NumberKind != 0 {
		integral := kindOfJSON(text) == IntegerKind
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

// scalar compiles an alternative that is not a constant: a conjunction of a
// basic type, bounds and validators.
func (c *compiler) scalar(v cue.Value, at *place) Scalar {
	s := Scalar{Kinds: kindsOf(v.IncompleteKind())}
	if v.IncompleteKind() == cue.FloatKind {
		c.refuse(at, v.Source(), "the type float, which does not admit 1", "write number")
	}
	c.rules(&s, v, at)
	return s
}

func kindsOf(k cue.Kind) Kinds {
	var kinds Kinds
	for _, m := range [...]struct {
		cue  cue.Kind
		json Kinds
	}{
		{cue.NullKind, NullKind},
		{cue.BoolKind, BoolKind},
		{cue.IntKind, IntegerKind},
		{cue.FloatKind, NumberKind | IntegerKind},
		{cue.StringKind, StringKind},
		{cue.ListKind, ListKind},
		{cue.StructKind, StructKind},
	} {
		if k&m.cue != 0 {
			kinds |= m.json
		}
	}
	return kinds
}

// rules adds the rules of an evaluated conjunction to s.
func (c *compiler) rules(s *Scalar, v cue.Value, at *place) {
	op, args := v.Expr()
	switch op {
	case cue.AndOp:
		for _, a := range args {
			c.rules(s, a, at)
		}
	case cue.GreaterThanOp, cue.GreaterThanEqualOp, cue.LessThanOp, cue.LessThanEqualOp:
		c.bound(s, v, op, args[0], at)
	case cue.NotEqualOp:
		if !isConstant(args[0]) {
			c.refuse(at, v.Source(), fmt.Sprintf("the rule %v", v), "compare with a constant")
			return
		}
		if text, ok := c.literalOf(args[0], at); ok && s.Kinds.Has(kindOfJSON(text)) {
			s.Not = append(s.Not, Constant{Value: text, Source: c.position(v.Source(), at)})
		}
	case cue.RegexMatchOp, cue.NotRegexMatchOp:
		re, err := args[0].String()
		if err != nil {
			c.reported(err, at)
			return
		}
		s.Patterns = append(s.Patterns, Pattern{
			Regexp: re, Negated: op == cue.NotRegexMatchOp, Source: c.position(v.Source(), at),
		})
	case cue.CallOp:
		c.validator(s, v, args, at)
	default:
		if !isBasic(v) {
			c.refuse(at, v.Source(), fmt.Sprintf("the rule %v", v), "")
		}
	}
}

func isBasic(v cue.Value) bool {
	switch fmt.Sprint(v) {
	case "bool", "int", "number", "string":
		return true
	}
	return false
}

func (c *compiler) bound(s *Scalar, v cue.Value, op cue.Op, operand cue.Value, at *place) {
	text, err := canonical(operand)
	if err != nil || operand.Kind()&cue.NumberKind == 0 {
		c.refuse(at, v.Source(), fmt.Sprintf("the bound %v, which is not a number", v), "write a regular expression")
		return
	}
	b := &Bound{
		Value:     string(text),
		Exclusive: op == cue.GreaterThanOp || op == cue.LessThanOp,
		Source:    c.position(v.Source(), at),
	}
	end := &s.Minimum
	if op == cue.LessThanOp || op == cue.LessThanEqualOp {
		end = &s.Maximum
	}
	if *end != nil { // CUE keeps the tighter of two
		c.refuse(at, v.Source(), fmt.Sprintf("the bound %v beside %s", v, (*end).Value), "write one bound")
		return
	}
	*end = b
}

func (c *compiler) validator(s *Scalar, v cue.Value, args []cue.Value, at *place) {
	name := fmt.Sprint(args[0])
	if name != "strings.MinRunes" && name != "strings.MaxRunes" || len(args) != 2 {
		c.refuse(at, v.Source(), fmt.Sprintf("the builtin %s", strings.TrimSuffix(name, "()")), supportedBuiltins)
		return
	}
	count, err := args[1].Int64()
	if err != nil || count < 0 || count > 1<<31-1 {
		c.refuse(at, v.Source(), fmt.Sprintf("the limit %v", args[1]), "write a number of characters")
		return
	}
	l := &Limit{Count: int(count), Source: c.position(v.Source(), at)}
	if name == "strings.MinRunes" {
		s.MinRunes = tighter(s.MinRunes, l, func(a, b int) bool { return a > b })
	} else {
		s.MaxRunes = tighter(s.MaxRunes, l, func(a, b int) bool { return a < b })
	}
}
