package audits

import (
	"iter"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
)

// Other stands in [Samples] for a value that no audit rule names. A rule that matches a request with it matches those with any
// value.
const Other = "\x00"

// Samples yields requests that a rule matches: one for each combination of the names in it, with [Other] for what it does not name.
// If other rules match all of them, they match every request of the rule: a rule that matches a request with a value that nobody names, or of a user with few groups, matches those with
// any value, and of users in more groups.
func Samples(r *policy.AuditRule) iter.Seq[*policy.Request] {
	or := func(list []string, otherwise string) []string {
		if len(list) == 0 {
			return []string{otherwise}
		}
		return list
	}
	return func(yield func(*policy.Request) bool) {
		for _, who := range subjectsOf(r) {
			for _, verb := range or(r.Verbs, Other) {
				q := policy.Request{User: who.user, Groups: who.groups, Verb: verb}
				if !ForResources(r) && !pathSamples(r, q, yield) || len(r.NonResourceURLs) == 0 && !resourceSamples(r, q, or, yield) {
					return
				}
			}
		}
	}
}

func pathSamples(r *policy.AuditRule, q policy.Request, yield func(*policy.Request) bool) bool {
	paths := r.NonResourceURLs
	if len(paths) == 0 {
		paths = []string{"*"}
	}
	for _, p := range paths {
		if q.Path = p; strings.HasSuffix(p, "*") {
			q.Path = strings.TrimRight(p, "*") + Other
		}
		if !yield(&q) {
			return false
		}
	}
	return true
}

func resourceSamples(r *policy.AuditRule, q policy.Request, or func([]string, string) []string, yield func(*policy.Request) bool) bool {
	q.IsResource = true
	for _, resource := range or(r.Resources, "*") {
		name, sub, isSub := strings.Cut(resource, "/")
		subs := []string{sub}
		switch {
		case resource == "*":
			subs = []string{"", Other}
		case isSub && sub == "*":
			subs = []string{"", Other}
		}
		for _, q.Subresource = range subs {
			if q.Resource = name; name == "*" {
				q.Resource = Other
			}
			for _, q.Group = range or(r.APIGroups, Other) {
				if q.Group == "*" {
					q.Group = Other
				}
				for _, q.Namespace = range or(r.Namespaces, Other) {
					for _, q.Name = range or(r.Names, Other) {
						if !yield(&q) {
							return false
						}
					}
				}
			}
		}
	}
	return true
}

// person is a user with groups.
type person struct {
	user   string
	groups []string
}

// subjectsOf returns the users of a rule, each only with the groups that all users of the subject certainly have.
func subjectsOf(r *policy.AuditRule) (list []person) {
	subjects := r.Subjects
	if len(subjects) == 0 {
		subjects = []policy.Subject{{User: Other}}
	}
	for _, s := range subjects {
		p := person{user: s.User}
		if s.Group != "" {
			p = person{user: Other, groups: []string{s.Group}}
		}
		if len(r.Subjects) > 0 {
			for _, implied := range rights.Implied(s) {
				p.groups = append(p.groups, implied.Group)
			}
		}
		if len(r.MemberOf) == 0 {
			list = append(list, p)
		}
		for _, g := range r.MemberOf {
			list = append(list, person{p.user, append(slices.Clip(p.groups), g)})
		}
	}
	return list
}
