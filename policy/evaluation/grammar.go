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
	"stele.dev/stele/schemas/wording"
)

// grammar is what the definitions of bundles allow at a path: one alternative, or several.
type grammar struct {
	alternatives []cue.Value
	open         bool // other fields are allowed, or the value is not a struct
}

func grammarOf(values ...cue.Value) grammar {
	var g grammar
	structs := false
	for _, v := range values {
		g.add(v)
		structs = structs || v.IncompleteKind()&cue.StructKind != 0
		// A pattern that matches every name applies to the fields' values; it does not allow names.
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

// field returns the grammar of a field; false if the name is not allowed.
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

// element returns the grammar of a list's elements.
func (g grammar) element() grammar {
	var found []cue.Value
	for _, v := range g.alternatives {
		if e := v.LookupPath(cue.MakePath(cue.AnyIndex)); e.Exists() {
			found = append(found, e)
		}
	}
	return grammarOf(found...)
}

// names returns the names of the allowed fields, sorted.
func (g grammar) names() []string {
	all := map[string]bool{}
	for _, v := range g.alternatives {
		for _, n := range declared(v) {
			all[n] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// refuse returns the message for a field that is not allowed, and a hint what to write instead.
func (g grammar) refuse(name string) (message, hint string) {
	for _, v := range g.alternatives {
		for _, p := range patterns(v) {
			words, _ := describeBound(fmt.Sprint(p))
			return fmt.Sprintf("%q cannot be a name here", name), "write " + words
		}
	}
	if meant := g.meant(name); meant != "" {
		return notAllowed, fmt.Sprintf("did you mean %q?", meant)
	}
	return notAllowed, "allowed here are " + wording.EnumerateAll(wording.Quoted(g.names()))
}

// meant returns the field that a name is probably meant to be; "" if there is none.
func (g grammar) meant(name string) string {
	names := g.names()
	if near := wording.Nearest(name, names); near != "" {
		return near
	}
	return otherWord(name, names)
}

// declared returns the field names in a struct of the definitions.
func declared(v cue.Value) (list []string) {
	fields, err := v.Fields(cue.Optional(true), cue.Definitions(true))
	if err != nil {
		return nil // not a struct
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

// patterns returns the patterns of field names.
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

// grammarAt follows a path in the definitions. It returns how many labels of the path they allow,
// and the grammar there.
func (c *Evaluation) grammarAt(at []string) (grammar, int) {
	var of cue.Value
	from := 1 // the label that the grammar is about
	switch {
	case len(at) > 0 && at[0] == "bundle":
		of = c.definition("#Bundle")
	case len(at) > 1 && at[0] == "accept":
		of, from = c.definition("#Acceptance"), 2
	case len(at) > 0 && at[0] == suiteField:
		of = c.definition("#Suite")
	}
	if !of.Exists() {
		return grammar{open: true}, len(at)
	}
	g := grammarOf(of)
	for i, label := range at {
		if i < from {
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

// names checks the field names of a bundle that has errors, because CUE does not report wrong or
// missing names if there are other errors.
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
