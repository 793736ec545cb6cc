package cuevalue

import (
	"bytes"
	"slices"

	"cuelang.org/go/cue"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
)

// Alternatives are the alternatives of an evaluated value, sorted by kind.
type Alternatives struct {
	Alone     bool // there is only one, and CUE has dropped none
	Tops      int  // alternatives that admit everything
	Constants []cue.Value
	Scalars   []cue.Value // basic types, or scalars with rules
	Lists     []cue.Value
	Structs   []cue.Value
	Others    []cue.Value // mixtures of kinds
}

// Only returns the only alternative of a kind. It returns v itself if there are no alternatives of other
// kinds.
func (a Alternatives) Only(v cue.Value, ofKind []cue.Value) cue.Value {
	if a.Alone {
		return v
	}
	return ofKind[0]
}

// AlternativesOf returns the alternatives of v, sorted by kind. CUE drops a default that another
// alternative seems to cover, sometimes wrongly: `*1 | string & !=""` loses the 1. So scalar defaults
// are added again. A default that is a list or a struct is stored in Node.Default instead.
func AlternativesOf(v cue.Value) Alternatives {
	all, dropped := alternatives(v.Eval(), nil)
	a := Alternatives{Alone: len(all) == 1 && !dropped}
	for _, d := range DefaultsOf(v) {
		if !a.Alone && d.IncompleteKind()&CompositeKinds == 0 {
			all = append(all, d)
		}
	}
	for _, x := range all {
		switch kind := x.IncompleteKind(); {
		case isTop(x):
			a.Tops++
		case IsConstant(x):
			a.Constants = append(a.Constants, x)
		case kind == cue.StructKind:
			a.Structs = append(a.Structs, x)
		case kind == cue.ListKind:
			a.Lists = append(a.Lists, x)
		case kind&^(cue.BoolKind|cue.NumberKind|cue.StringKind) == 0:
			a.Scalars = append(a.Scalars, x)
		default:
			a.Others = append(a.Others, x)
		}
	}
	return a
}

// alternatives appends the alternatives of an evaluated value to all. dropped reports whether CUE
// dropped any.
func alternatives(v cue.Value, all []cue.Value) (_ []cue.Value, dropped bool) {
	op, args := v.Expr()
	switch {
	case op == cue.OrOp:
		for _, a := range args {
			var d bool
			all, d = alternatives(a, all)
			dropped = dropped || d
		}
		// CUE may have dropped other alternatives.
		_, marked := v.Default()
		return all, dropped || marked
	case op == cue.NoOp && len(args) == 1 && args[0] != v:
		all, _ = alternatives(args[0], all)
		return all, true
	}
	return append(all, v), false
}

// DefaultsOf returns the alternatives that are marked as default. There are several if the default is
// ambiguous.
func DefaultsOf(v cue.Value) []cue.Value {
	d, marked := v.Default()
	if !marked {
		return nil
	}
	all, _ := alternatives(d.Eval(), nil)
	return all
}

// Rivals reports whether there is an alternative of the same kind as the default d that differs from d.
func (a Alternatives) Rivals(d cue.Value) bool {
	of := a.Structs
	if d.Kind() == cue.ListKind {
		of = a.Lists
	}
	text, err := cuesyntax.Canonical(d)
	return err != nil || len(of) != 1 || slices.ContainsFunc(of, func(x cue.Value) bool {
		other, err := cuesyntax.Canonical(x)
		return err != nil || !bytes.Equal(text, other)
	})
}

// ApartFromDefault returns the alternatives without the default, if there are others. A program admits
// the default by completing values to Node.Default.
func ApartFromDefault(n *schemas.Node, all []cue.Value) []cue.Value {
	if n.Default == nil || len(all) < 2 {
		return all
	}
	for i, a := range all {
		if !IsData(a) {
			continue
		}
		if text, err := cuesyntax.Canonical(a); err == nil && bytes.Equal(text, n.Default) {
			return slices.Delete(slices.Clone(all), i, i+1)
		}
	}
	return all
}

// OnlyDefault reports whether the default is the only alternative.
func OnlyDefault(n *schemas.Node, all []cue.Value) bool {
	if n.Default == nil || len(all) != 1 || !IsLiteral(all[0]) {
		return false
	}
	text, err := cuesyntax.Canonical(all[0])
	return err == nil && bytes.Equal(text, n.Default)
}
