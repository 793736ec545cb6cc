package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/component-helpers/auth/rbac/validation"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/layer"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/brought"
)

// dynamic compares what becomes of writes to objects that show the bundle.
func (c *comparison) dynamic() {
	before, after := c.sides.From.Form().Dynamic, c.sides.To.Form().Dynamic
	for _, part := range eitherNames(before, after) {
		was, is := before[part], after[part]
		if sameDynamic(was, is) {
			continue
		}
		f := plan.Finding{Rule: "DYNAMIC_CHANGED", Path: "dynamic." + part, Before: shownMode(was), After: shownMode(is), Source: is.Source, Was: was.Source,
			Message: "Writes that agree with the bundle are accepted.", Class: plan.Widens}
		if is.Mode == policy.AllowWrites {
			f.Message = broughtBy[part]
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

// broughtBy says what Allow accepts, by the parts that can have it.
var broughtBy = map[string]string{
	policy.DynamicDefinitions: "Clients may bring definitions that the bundle does not have, of these groups.",
	brought.SectionRBAC:       "Clients may bring roles and bindings that the bundle does not have, in these namespaces and with these powers. Nobody can grant what they may not do.",
	brought.SectionWebhooks:   "Clients may bring webhooks that the bundle does not have, which see and change what is written.",
}

// sameDynamic reports whether a part accepts the same.
func sameDynamic(was, is policy.Dynamic) bool {
	return was.Mode == is.Mode && slices.Equal(was.Groups, is.Groups) && slices.Equal(was.Namespaces, is.Namespaces) &&
		(was.Powers == nil) == (is.Powers == nil) && covers(was.Powers, is.Powers) && covers(is.Powers, was.Powers)
}

// covers reports whether rules allow all that others do.
func covers(rules, others []policy.Rule) bool {
	covered, _ := validation.Covers(layer.Rules(rules), layer.Rules(others))
	return covered
}

// opensMore reports whether a part accepts anything that it did not accept before.
func opensMore(was, is policy.Dynamic) bool {
	if is.Mode != was.Mode {
		return slices.Index(modes, is.Mode) > slices.Index(modes, was.Mode)
	}
	further := func(was, is []string) bool {
		return slices.ContainsFunc(is, func(pattern string) bool { return !slices.Contains(was, pattern) && !slices.Contains(was, "*") })
	}
	return further(was.Groups, is.Groups) || further(was.Namespaces, is.Namespaces) || was.Powers != nil && (is.Powers == nil || !covers(was.Powers, is.Powers))
}

// shownMode returns the mode of a part, with what of Allow is limited.
func shownMode(d policy.Dynamic) string {
	mode := cmp.Or(d.Mode, policy.RefuseWrites)
	for _, list := range [][]string{d.Groups, d.Namespaces} {
		if len(list) > 0 {
			mode += " " + strings.Join(list, ", ")
		}
	}
	if d.Powers != nil {
		var powers []string
		for _, r := range d.Powers {
			powers = append(powers, fmt.Sprintf("%s %s", strings.Join(r.Verbs, ","), strings.Join(append(slices.Clone(r.Resources), r.NonResourceURLs...), ",")))
		}
		mode += " (powers: " + strings.Join(powers, "; ") + ")"
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
