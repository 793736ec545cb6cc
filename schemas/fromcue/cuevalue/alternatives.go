package cuevalue

import (
	"bytes"
	"slices"

	"cuelang.org/go/cue"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
)

// Alternatives are the alternatives of an evaluated value, sorted by what they are.
type Alternatives struct {
	Alone     bool // there is one, and CUE has left none out
	Tops      int  // alternatives that admit everything
	Constants []cue.Value
	Scalars   []cue.Value // with rules, or of a basic type
	Lists     []cue.Value
	Structs   []cue.Value
	Others    []cue.Value // of kinds that do not go together
}

// Only returns the alternative of its kind: v itself if there are no others of any kind.
func (a Alternatives) Only(v cue.Value, ofKind []cue.Value) cue.Value {
	if a.Alone {
		return v
	}
	return ofKind[0]
}

// AlternativesOf sorts the alternatives of v. CUE leaves out of them a default that, it
// believes, another one subsumes, and it errs: `*1 | string & !=""` has lost the
// 1. So the scalars among the defaults are added again; too many alternatives do
// no harm. A list or a struct among them is kept by way of Node.Default.
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

// DefaultsOf returns the alternatives among which v takes its default: one, if
// the default is not ambiguous, and none if there is no mark.
func DefaultsOf(v cue.Value) []cue.Value {
	d, marked := v.Default()
	if !marked {
		return nil
	}
	all, _ := alternatives(d.Eval(), nil)
	return all
}

// Rivals reports whether there are alternatives of the kind of the default d that
// are not d.
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

// ApartFromDefault returns the alternatives that are not the default, unless
// that is all there is. What the default admits, a program admits by completing
// it (Node.Default).
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

// OnlyDefault reports whether nothing but the default is left of the
// alternatives.
func OnlyDefault(n *schemas.Node, all []cue.Value) bool {
	if n.Default == nil || len(all) != 1 || !IsLiteral(all[0]) {
		return false
	}
	text, err := cuesyntax.Canonical(all[0])
	return err == nil && bytes.Equal(text, n.Default)
}
