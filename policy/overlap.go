package policy

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// DeniesSome returns a deny that refuses to a user something that a rule is about, wherever and except for what; nil if there is none.
func (p *Policy) DeniesSome(user string, groups []string, rule *rbacv1.PolicyRule) *Deny {
	for i := range p.form.Denies {
		d := &p.form.Denies[i]
		if named(d.Subjects, user, groups) && slices.ContainsFunc(d.Rules, func(of Rule) bool { return overlap(&of, rule) }) {
			return d
		}
	}
	return nil
}

// overlap reports whether there may be a request that two rules are about.
func overlap(a *Rule, b *rbacv1.PolicyRule) bool {
	if !meet(a.Verbs, b.Verbs, sameOrAny) {
		return false
	}
	return meet(a.NonResourceURLs, b.NonResourceURLs, pathsMeet) ||
		meet(a.APIGroups, b.APIGroups, sameOrAny) && meet(a.Resources, b.Resources, resourcesMeet) &&
			(len(a.ResourceNames) == 0 || len(b.ResourceNames) == 0 || meet(a.ResourceNames, b.ResourceNames, func(a, b string) bool { return a == b }))
}

func meet(a, b []string, both func(a, b string) bool) bool {
	return slices.ContainsFunc(a, func(a string) bool { return slices.ContainsFunc(b, func(b string) bool { return both(a, b) }) })
}

func sameOrAny(a, b string) bool { return a == b || a == "*" || b == "*" }

// resourcesMeet reports whether two names of resources in rules are about a common one: "*" is all, "*/scale" the subresource of all.
func resourcesMeet(a, b string) bool {
	if sameOrAny(a, b) {
		return true
	}
	of, sub, _ := strings.Cut(a, "/")
	other, otherSub, _ := strings.Cut(b, "/")
	return sub == otherSub && sameOrAny(of, other)
}

func pathsMeet(a, b string) bool {
	head, _, wild := strings.Cut(a, "*")
	other, _, otherWild := strings.Cut(b, "*")
	switch {
	case wild && otherWild:
		return strings.HasPrefix(head, other) || strings.HasPrefix(other, head)
	case wild:
		return strings.HasPrefix(b, head)
	case otherWild:
		return strings.HasPrefix(a, other)
	}
	return a == b
}
