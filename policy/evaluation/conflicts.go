package evaluation

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	cueerrors "cuelang.org/go/cue/errors"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// twoValues reports two values of the user's that exclude each other.
func (c *Evaluation) twoValues(m *mistake, e cueerrors.Error, x *conflict) {
	if m.name() == "clusterRole" && slices.Contains(m.path, "bindings") {
		roles := c.roles()
		for _, v := range []struct {
			value string
			at    schemas.Position
		}{{x.value, x.at}, {x.allowed, x.other}} {
			if name := wording.Unquoted(v.value); name != v.value && !slices.Contains(roles, name) {
				c.Add(v.at, m.String(), v.value+" is not one of "+wording.Enumerate(wording.Quoted(roles)), wording.DidYouMean(name, roles, ""))
				return
			}
		}
	}
	hint := x.hint()
	if _, err := strconv.Atoi(m.name()); err != nil && hint != "" && path.Dir(x.at.File) != path.Dir(x.other.File) { // no item of a list
		hint += fmt.Sprintf("; to let an environment choose, write a default there: %s: %s", m.name(), asDefault(x.allowed))
	}
	c.Add(x.at, m.String(), MessageOf(e), hint)
}

// asDefault returns a value as the default of a field that takes others of its type.
func asDefault(value string) string {
	kind := "_"
	switch first := value[:min(len(value), 1)]; {
	case first == `"`:
		kind = "string"
	case value == "true", value == "false":
		kind = "bool"
	case first >= "0" && first <= "9", first == "-":
		kind = "number"
		if !strings.ContainsAny(value, ".eE") {
			kind = "int"
		}
	}
	return fmt.Sprintf("%s | *%s", kind, shortened(value, maxValue))
}

// roles returns the names of the roles that bindings can name, but those of the server's own components.
func (c *Evaluation) roles() []string {
	names := c.Words("#BuiltinRoles")
	for _, team := range c.Fields(c.Root, "bundle.teams") {
		for name := range c.Fields(team, "rbac.clusterRoles") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// conflict is an error of two values that exclude each other. The user wrote one or both of them at
// this place.
type conflict struct {
	value, allowed string
	at, other      schemas.Position
	both           bool
}

// conflict parses CUE's error of two conflicting values. The error's first two positions are those
// of the values; the others are references between them.
func (c *Evaluation) conflict(e cueerrors.Error) *conflict {
	positions := e.InputPositions()
	if !strings.HasPrefix(formatOf(e), conflicting) || len(positions) < 2 {
		return nil
	}
	a, b := argument(e, 0), argument(e, 1)
	pa, userA := bundles.Locate(positions[0])
	pb, userB := bundles.Locate(positions[1])
	x := &conflict{value: b, allowed: a, at: pb, other: pa}
	x.both = userA && userB
	for _, p := range positions {
		if _, theirs := bundles.Locate(p); !theirs {
			x.both = false // one is a constraint on the other
		}
	}
	if userA && !userB || x.both && c.lessRelevant(pb, pa) {
		x.value, x.allowed, x.at, x.other = a, b, pa, pb
	}
	return x
}

// lessRelevant reports whether position a is less relevant to the user than b: it is in another package,
// or else it comes first.
func (c *Evaluation) lessRelevant(a, b schemas.Position) bool {
	if here := path.Dir(a.File) == c.folder; here != (path.Dir(b.File) == c.folder) {
		return !here
	}
	return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) < 0
}

func (x *conflict) hint() string {
	if x.other.IsZero() || x.other.String() == x.at.String() {
		return ""
	}
	return "the other one is at " + x.other.String()
}

// choice reports a value that is not among the allowed ones.
func (c *Evaluation) choice(m *mistake, x *conflict, allowed []string) {
	if m.name() == "_id" {
		c.Add(c.enclosing(m.path), m.parent(), fmt.Sprintf("the kind %s stands under the key %s", x.allowed, x.value), "the key is plural.group")
		return
	}
	if x.at.IsZero() {
		x.at = c.enclosing(m.path)
	}
	if name, ok := strings.CutPrefix(wording.Unquoted(x.value), policy.PluginPrefix); ok && m.parent() == "bundle.authorizers" {
		c.noPlugin(x.at, m.String(), name)
		return
	}
	slices.Sort(allowed)
	allowed = slices.Compact(allowed)
	globs := len(allowed) > 0
	var words, bounds []string
	for i, a := range allowed {
		globs = globs && isGlob(a)
		var bound bool
		if allowed[i], bound = describeBound(a); !bound {
			words = append(words, wording.Unquoted(a))
		} else if strings.ContainsAny(a[:1], "<>") {
			bounds = append(bounds, allowed[i])
		}
	}
	switch {
	case globs:
		c.outsideNamespaces(x.at, m, x.value, allowed)
	case len(bounds) > 0: // the words are the default
		c.Add(x.at, m.String(), shortened(x.value, maxValue)+" is not "+strings.Join(bounds, " and "), "")
	default:
		c.Add(x.at, m.String(), shortened(x.value, maxValue)+" is not one of "+wording.Enumerate(allowed), wording.DidYouMean(wording.Unquoted(x.value), words, ""))
	}
}
