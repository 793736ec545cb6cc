package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/quotas"
	"stele.dev/stele/schemas"
)

// quotas compares what resource quotas can limit, and the scopes that they can have.
func (c *comparison) quotas() {
	from, to := &c.sides.From.Form().Quota, &c.sides.To.Form().Quota
	resource := func(r *quotas.Resource) string { return r.Name }
	before, after := policy.IndexBy(from.Resources, resource), policy.IndexBy(to.Resources, resource)
	for _, name := range eitherNames(before, after) {
		c.quotaResource(before[name], after[name])
	}
	scope := func(s *quotas.Scope) string { return s.Name }
	was, is := policy.IndexBy(from.Scopes, scope), policy.IndexBy(to.Scopes, scope)
	for _, name := range eitherNames(was, is) {
		c.quotaScope(was[name], is[name])
	}
}

// eitherNames returns the names of both sides, sorted.
func eitherNames[T any](before, after map[string]T) []string {
	all := map[string]T{}
	maps.Copy(all, before)
	maps.Copy(all, after)
	return slices.Sorted(maps.Keys(all))
}

// quotaResource compares what is summed under a name of spec.hard; one side may lack it.
func (c *comparison) quotaResource(was, is *quotas.Resource) {
	switch {
	case was == nil:
		c.add(plan.Finding{Rule: "QUOTA_RESOURCE_ADDED", Path: is.ID, After: strings.Join(summed(is), ", "), Source: is.At,
			Message: fmt.Sprintf("Quotas can limit %s.", is.Name)})
		return
	case is == nil:
		c.add(plan.Finding{Rule: "QUOTA_RESOURCE_REMOVED", Path: was.ID, Before: strings.Join(summed(was), ", "), Was: was.At,
			Message: fmt.Sprintf("Quotas that limit %s limit nothing by it any more.", was.Name)})
		return
	}
	before, after := summed(was), summed(is)
	if slices.Equal(before, after) {
		return
	}
	f := plan.Finding{Rule: "QUOTA_RESOURCE_CHANGED", Path: is.ID, Before: strings.Join(before, ", "), After: strings.Join(after, ", "), Source: is.At, Was: was.At}
	switch more, less := isSubset(before, after), isSubset(after, before); {
	case more:
		f.Class, f.Message = plan.Narrows, fmt.Sprintf("More is counted as %s.", is.Name)
	case less:
		f.Class, f.Message = plan.Widens, fmt.Sprintf("Less is counted as %s.", is.Name)
	default:
		f.Message = fmt.Sprintf("Other fields are counted as %s.", is.Name)
	}
	c.add(f)
}

// summed returns the paths that are summed, sorted. One that is summed twice is there twice.
func summed(r *quotas.Resource) (list []string) {
	for i := range r.Sums {
		list = append(list, r.Sums[i].Kind+" "+r.Sums[i].Path)
	}
	slices.Sort(list)
	return list
}

// isSubset reports whether a sorted list has all items of another one, as often.
func isSubset(some, all []string) bool {
	for _, x := range all {
		if len(some) > 0 && some[0] == x {
			some = some[1:]
		}
	}
	return len(some) == 0
}

// quotaScope compares a scope; one side may lack it.
func (c *comparison) quotaScope(was, is *quotas.Scope) {
	text := func(s *quotas.Scope) string {
		plain := *s
		plain.ID, plain.Name, plain.At = "", "", schemas.Position{}
		plain.Kinds = slices.Sorted(slices.Values(s.Kinds))
		fields, _ := plan.Plain(&plain, "checked").(map[string]any)
		delete(fields, "id")
		delete(fields, "name")
		return encoded(fields)
	}
	switch {
	case was == nil:
		c.add(plan.Finding{Rule: "QUOTA_SCOPE_ADDED", Path: is.ID, After: text(is), Source: is.At, Message: fmt.Sprintf("Quotas can have the scope %s.", is.Name)})
	case is == nil:
		c.add(plan.Finding{Rule: "QUOTA_SCOPE_REMOVED", Path: was.ID, Before: text(was), Was: was.At, Message: fmt.Sprintf("Quotas with the scope %s count nothing any more.", was.Name)})
	case text(was) != text(is):
		c.add(plan.Finding{Rule: "QUOTA_SCOPE_CHANGED", Path: is.ID, Before: text(was), After: text(is), Source: is.At, Was: was.At,
			Message: fmt.Sprintf("Quotas with the scope %s count other objects.", is.Name)})
	}
}
