package evaluation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	cueerrors "cuelang.org/go/cue/errors"
	"stele.dev/stele/policy/wording"
)

// grammar is what the definitions of bundles allow at one place: alternatives, of
// which there is mostly one.
type grammar struct {
	alternatives []cue.Value
	open         bool // to fields that the definitions do not name, if only because it is no struct
}

func grammarOf(values ...cue.Value) grammar {
	var g grammar
	structs := false
	for _, v := range values {
		g.add(v)
		structs = structs || v.IncompleteKind()&cue.StructKind != 0
		// A pattern for any name is a rule for the fields, and names none.
		g.open = g.open || v.Allows(cue.AnyString) && len(patterns(v)) == 0
	}
	g.open = g.open || !structs
	return g
}

func (g *grammar) add(v cue.Value) {
	if op, args := cue.Dereference(v).Expr(); op == cue.OrOp {
		for _, a := range args {
			g.add(a)
		}
		return
	}
	g.alternatives = append(g.alternatives, v)
}

// field is what is allowed in a field; false if there must be none of that name.
func (g grammar) field(name string) (grammar, bool) {
	var found []cue.Value
	for _, v := range g.alternatives {
		if slices.Contains(declared(v), name) || slices.ContainsFunc(patterns(v), func(p cue.Value) bool {
			return p.Unify(cuecontext.New().Encode(name)).Err() == nil
		}) {
			found = append(found, v.LookupPath(cue.MakePath(cue.Str(name).Optional())))
		}
	}
	return grammarOf(found...), len(found) > 0
}

// element is what is allowed in a list.
func (g grammar) element() grammar {
	var found []cue.Value
	for _, v := range g.alternatives {
		if e := v.LookupPath(cue.MakePath(cue.AnyIndex)); e.Exists() {
			found = append(found, e)
		}
	}
	return grammarOf(found...)
}

// names of the fields that are allowed, in the order of the alphabet.
func (g grammar) names() []string {
	all := map[string]bool{}
	for _, v := range g.alternatives {
		for _, n := range declared(v) {
			all[n] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// refuse says what is wrong with the name of a field that is not allowed, and what to
// write instead.
func (g grammar) refuse(name string) (message, hint string) {
	for _, v := range g.alternatives {
		for _, p := range patterns(v) {
			words, _ := wording.Bound(fmt.Sprint(p))
			return fmt.Sprintf("%q cannot be a name here", name), "write " + words
		}
	}
	return notAllowed, wording.DidYouMean(name, g.names(), "allowed here are")
}

// declared are the names of fields in a struct of the definitions.
func declared(v cue.Value) (list []string) {
	fields, err := v.Fields(cue.Optional(true), cue.Definitions(true))
	if err != nil {
		return nil // a scalar
	}
	for fields.Next() {
		if s := fields.Selector(); s.IsDefinition() {
			list = append(list, s.String())
		} else {
			list = append(list, s.Unquoted())
		}
	}
	return list
}

// patterns that names of fields have to match, without those that all match.
func patterns(v cue.Value) (list []cue.Value) {
	fields, err := v.Fields(cue.Optional(true), cue.Patterns(true))
	if err != nil {
		return nil
	}
	for fields.Next() {
		if s := fields.Selector(); s.ConstraintType() == cue.PatternConstraint && s.Pattern().IncompleteKind() == cue.StringKind {
			list = append(list, s.Pattern())
		}
	}
	return list
}

// grammarAt follows a path in the definitions. It returns how many labels of it they
// allow, and what they allow there: at the path, or where it leaves them.
func (c *Evaluation) grammarAt(at []string) (grammar, int) {
	var of cue.Value
	switch {
	case len(at) > 0 && at[0] == "bundle":
		of = c.definition("#Bundle")
	case len(at) > 0 && at[0] == "tests":
		of = c.definition("#Tests")
	}
	if !of.Exists() {
		return grammar{open: true}, len(at)
	}
	g := grammarOf(of)
	for i, label := range at {
		if i == 0 {
			continue
		}
		next, ok := g.field(wording.Unquoted(label))
		if _, err := strconv.Atoi(label); err == nil && !ok {
			next, ok = g.element(), true
		}
		switch {
		case g.open && !ok, strings.HasPrefix(label, "#"):
			return grammar{open: true}, len(at)
		case !ok:
			return g, i
		}
		g = next
	}
	return g, len(at)
}

// names checks the names of all fields of a bundle in which something is in error:
// beside that, CUE says nothing of a name that is not allowed, or that is missing.
func (c *Evaluation) names(v cue.Value, g grammar, at []string) {
	var missing [][]string
	for label, x := range FieldsOf(v) {
		below := append(slices.Clip(at), label.String())
		if label.LabelType() == cue.IndexLabel {
			c.names(x, g.element(), below)
			continue
		}
		next, ok := g.field(label.Unquoted())
		switch err := x.Err(); {
		case err != nil && formatOf(cueerrors.Errors(err)[0]) == notPresent:
			missing = append(missing, below)
		case ok:
			c.names(x, next, below)
		case !g.open:
			c.wrongName(below, Position(x), false)
		}
	}
	for _, at := range missing {
		c.missing(at, "")
	}
}
