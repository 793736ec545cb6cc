package importing

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// intersections returns resource rules that match what some of the rules a as well as some of the rules b match. exact says that other
// versions of a resource are other resources.
func intersections(a, b []admissionv1.NamedRuleWithOperations, exact bool) (rules []admissionv1.NamedRuleWithOperations) {
	for i := range a {
		for j := range b {
			r, ok := intersect(&a[i], &b[j], exact)
			if !ok || slices.ContainsFunc(rules, func(other admissionv1.NamedRuleWithOperations) bool { return includes(&other, &r) }) {
				continue
			}
			rules = slices.DeleteFunc(rules, func(other admissionv1.NamedRuleWithOperations) bool { return includes(&r, &other) })
			rules = joined(rules, r)
		}
	}
	return rules
}

// intersect returns the rule that matches what both rules match; false if that is nothing.
func intersect(a, b *admissionv1.NamedRuleWithOperations, exact bool) (r admissionv1.NamedRuleWithOperations, ok bool) {
	r.APIGroups, r.Resources = common(a.APIGroups, b.APIGroups, commonWord), common(a.Resources, b.Resources, commonResource)
	if r.APIVersions = common(a.APIVersions, b.APIVersions, commonWord); len(r.APIVersions) == 0 && !exact {
		r.APIVersions = a.APIVersions // a request in one version is also one in the other
	}
	for _, o := range common(operationsOf(a.Operations), operationsOf(b.Operations), commonWord) {
		r.Operations = append(r.Operations, admissionv1.OperationType(o))
	}
	switch {
	case len(a.ResourceNames) == 0:
		r.ResourceNames = b.ResourceNames
	case len(b.ResourceNames) == 0:
		r.ResourceNames = a.ResourceNames
	default:
		if r.ResourceNames = common(a.ResourceNames, b.ResourceNames, commonName); len(r.ResourceNames) == 0 {
			return r, false
		}
	}
	switch {
	case scopeOf(a) == "":
		r.Scope = b.Scope
	case scopeOf(b) == "" || scopeOf(a) == scopeOf(b):
		r.Scope = a.Scope
	default:
		return r, false
	}
	return r, len(r.APIGroups) > 0 && len(r.Resources) > 0 && len(r.APIVersions) > 0 && len(r.Operations) > 0
}

// common returns what words of a and words of b have in common.
func common(a, b []string, of func(x, y string) (string, bool)) (list []string) {
	for _, x := range a {
		for _, y := range b {
			if z, ok := of(x, y); ok && !slices.Contains(list, z) {
				list = append(list, z)
			}
		}
	}
	if slices.Contains(list, "*") && !slices.ContainsFunc(list, func(x string) bool { return strings.Contains(x, "/") }) {
		return []string{"*"}
	}
	return list
}

func commonName(x, y string) (string, bool) { return x, x == y }

// commonWord returns what two words match, of which "*" matches all.
func commonWord(x, y string) (string, bool) {
	if x == "*" {
		return y, true
	}
	return x, x == y || y == "*"
}

// commonResource returns the pattern of the resources that two patterns match: "*" matches all resources, "*/*" those and their
// subresources, "widgets/*" one with its subresources.
func commonResource(x, y string) (string, bool) {
	a, aSub, _ := strings.Cut(x, "/")
	b, bSub, _ := strings.Cut(y, "/")
	resource, ok := commonWord(a, b)
	sub, okSub := commonWord(aSub, bSub)
	if sub != "" {
		resource += "/" + sub
	}
	return resource, ok && okSub
}

// includes reports whether a rule matches all that another one matches.
func includes(a, b *admissionv1.NamedRuleWithOperations) bool {
	covers := func(a, b []string, of func(x, y string) (string, bool)) bool {
		return !slices.ContainsFunc(b, func(y string) bool {
			return !slices.ContainsFunc(a, func(x string) bool { z, ok := of(x, y); return ok && z == y })
		})
	}
	return covers(a.APIGroups, b.APIGroups, commonWord) && covers(a.APIVersions, b.APIVersions, commonWord) && covers(a.Resources, b.Resources, commonResource) &&
		covers(operationsOf(a.Operations), operationsOf(b.Operations), commonWord) && (scopeOf(a) == "" || scopeOf(a) == scopeOf(b)) &&
		(len(a.ResourceNames) == 0 || len(b.ResourceNames) > 0 && covers(a.ResourceNames, b.ResourceNames, commonName))
}
