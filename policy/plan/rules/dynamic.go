package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
)

// dynamic compares what becomes of writes to objects that show the bundle.
func (c *comparison) dynamic() {
	before, after := c.sides.From.Form().Dynamic, c.sides.To.Form().Dynamic
	for _, part := range eitherNames(before, after) {
		was, is := before[part], after[part]
		if was.Mode == is.Mode && slices.Equal(was.Groups, is.Groups) {
			continue
		}
		f := plan.Finding{Rule: "DYNAMIC_CHANGED", Path: "dynamic." + part, Before: shownMode(was), After: shownMode(is), Source: is.Source, Was: was.Source,
			Message: "Writes that agree with the bundle are accepted.", Class: plan.Widens}
		if is.Mode == policy.AllowWrites {
			f.Message = "Clients may bring definitions that the bundle does not have, of these groups."
		}
		if is.Mode == "" {
			f.Message = "Writes that would change something are refused, also those of labels and annotations."
		}
		if !opensMore(was, is) {
			f.Class = plan.Narrows
		}
		c.add(f)
	}
}

// modes are the modes, those that accept less first.
var modes = []string{"", policy.MatchWrites, policy.AllowWrites}

// opensMore reports whether a part accepts anything that it did not accept before.
func opensMore(was, is policy.Dynamic) bool {
	if is.Mode != was.Mode {
		return slices.Index(modes, is.Mode) > slices.Index(modes, was.Mode)
	}
	return slices.ContainsFunc(is.Groups, func(g string) bool { return !slices.Contains(was.Groups, g) && !slices.Contains(was.Groups, "*") })
}

// shownMode returns the mode of a part, with the groups of Allow.
func shownMode(d policy.Dynamic) string {
	mode := cmp.Or(d.Mode, policy.RefuseWrites)
	if len(d.Groups) > 0 {
		mode += " " + strings.Join(d.Groups, ", ")
	}
	return mode
}

// renamed reports roles and bindings that both policies have and that are shown as other objects.
func (c *comparison) renamed() {
	before, after := shownObjects(c.sides.From.Form()), shownObjects(c.sides.To.Form())
	for _, id := range slices.Sorted(maps.Keys(after)) {
		was, had := before[id]
		if is := after[id]; had && was.name != is.name {
			c.add(plan.Finding{Rule: "OBJECT_RENAMED", Path: id, Before: was.name, After: is.name, Source: is.source, Was: was.source, Message: "Clients find it under another name."})
		}
	}
}

// shownObject is the name of the object that shows a part of a policy, behind its namespace if the part says that.
type shownObject struct {
	name   string
	source schemas.Position
}

// shownObjects returns the names of the objects that show the roles and bindings of a policy, by their IDs.
func shownObjects(f *policy.Form) map[string]shownObject {
	all := map[string]shownObject{}
	for i := range f.Roles {
		r := &f.Roles[i]
		name := r.ShownName()
		if r.Namespace != "" {
			name = r.Namespace + "/" + name
		}
		all[r.ID] = shownObject{name, r.Source}
	}
	for i := range f.Bindings {
		b := &f.Bindings[i]
		all[b.ID] = shownObject{b.ShownName(), b.Source}
	}
	return all
}
