package rules

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// match compares the requests that a rule is asked about, as far as its lists and selectors say.
func (c *comparison) match(was, is *policy.Validation, finding func(string) plan.Finding) {
	before, after := matchText(&was.Match), matchText(&is.Match)
	if before == after {
		return
	}
	f := finding("MATCH_CHANGED")
	f.Before, f.After = before, after
	more, less := includesMatch(&is.Match, &was.Match), includesMatch(&was.Match, &is.Match)
	switch {
	case more && !less:
		f.Class, f.Message = plan.Narrows, "The rule is asked about more requests."
	case less && !more:
		f.Class, f.Message = plan.Widens, "The rule is asked about fewer requests."
	case more && less:
		return // the same requests in other words
	default:
		f.Message = "The rule is asked about other requests."
	}
	a, b := was.Match, is.Match
	a.Conditions, b.Conditions = nil, nil
	f.Details = []string{changed(differences(&a, &b, matchNames))}
	c.add(harmless(f, was, is))
}

// includesMatch reports whether a match surely has all requests of another one.
func includesMatch(m, other *policy.Match) bool {
	if m.Exact && !other.Exact || len(m.Excludes) > 0 && m.Exact != other.Exact {
		return false // what is excluded depends on the match policy
	}
	listed := includes(&policy.Exclude{APIGroups: m.APIGroups, APIVersions: m.APIVersions, Resources: m.Resources, Operations: m.Operations, ResourceNames: m.ResourceNames, Scope: m.Scope},
		&policy.Exclude{APIGroups: other.APIGroups, APIVersions: other.APIVersions, Resources: other.Resources, Operations: other.Operations, ResourceNames: other.ResourceNames, Scope: other.Scope})
	return listed &&
		!slices.ContainsFunc(m.Excludes, func(e policy.Exclude) bool {
			return !slices.ContainsFunc(other.Excludes, func(x policy.Exclude) bool { return includes(&x, &e) })
		}) &&
		(m.NamespaceSelector == nil || reflect.DeepEqual(m.NamespaceSelector, other.NamespaceSelector)) &&
		(m.ObjectSelector == nil || reflect.DeepEqual(m.ObjectSelector, other.ObjectSelector))
}

// includes reports whether lists surely name all requests that others name.
func includes(m, other *policy.Exclude) bool {
	all := func(mine, others []string) bool {
		return slices.Contains(mine, "*") || !slices.ContainsFunc(others, func(w string) bool { return !slices.Contains(mine, w) })
	}
	resource := func(named string) bool {
		name, sub, _ := strings.Cut(named, "/")
		return slices.ContainsFunc(m.Resources, func(r string) bool {
			n, s, _ := strings.Cut(r, "/")
			return (n == "*" || n == name) && (s == "*" || s == sub)
		})
	}
	names := len(m.ResourceNames) == 0 || len(other.ResourceNames) > 0 && !slices.ContainsFunc(other.ResourceNames, func(n string) bool { return !slices.Contains(m.ResourceNames, n) })
	return all(m.APIGroups, other.APIGroups) && all(m.APIVersions, other.APIVersions) && all(m.Operations, other.Operations) &&
		!slices.ContainsFunc(other.Resources, func(r string) bool { return !resource(r) }) &&
		names && (m.Scope == "" || m.Scope == other.Scope)
}

// matchText describes a match without its conditions.
func matchText(m *policy.Match) string {
	lists := *m
	lists.Conditions = nil
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	lists.APIGroups, lists.APIVersions, lists.Resources, lists.Operations = sorted(m.APIGroups), sorted(m.APIVersions), sorted(m.Resources), sorted(m.Operations)
	lists.ResourceNames = sorted(m.ResourceNames)
	return encoded(lists)
}

// encoded returns plain data as JSON.
func encoded(x any) string {
	data, err := json.Marshal(x)
	if err != nil {
		panic(err) // plain data always encodes
	}
	return string(data)
}
