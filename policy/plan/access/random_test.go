package access_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/plantest"
	"stele.dev/stele/policy/rights"
)

// The words of random policies. Requests have one word more of each, which no rule names.
var (
	verbWords      = []string{"get", "list", "delete"}
	resourceWords  = []string{"widgets", "widgets/status", "gadgets"}
	namespaceWords = []string{"*", "dev", "dev-*", "*-1"}
	nameWords      = []string{"one", "two"}
	subjectWords   = []policy.Subject{{User: "alice"}, {Group: "devs"}, {Group: "ops"}, {Group: "system:authenticated"}}
)

func some[T any](rng *rand.Rand, words []T) []T {
	list := slices.Clone(words)
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:1+rng.IntN(2)]
}

func randomRules(rng *rand.Rand, id string) (rules []policy.Rule) {
	for i := range 1 + rng.IntN(2) {
		r := policy.Rule{ID: fmt.Sprintf("%s/r%d", id, i), Verbs: some(rng, append([]string{"*"}, verbWords...)), APIGroups: []string{"example.com"}, Resources: some(rng, resourceWords)}
		if rng.IntN(4) == 0 {
			r.ResourceNames = some(rng, nameWords)
		}
		rules = append(rules, r)
	}
	return rules
}

func randomForm(rng *rand.Rand) *policy.Form {
	f := &policy.Form{Cluster: "test"}
	for i := range 3 {
		id := fmt.Sprintf("t/clusterRoles/role%d", i)
		f.Roles = append(f.Roles, policy.Role{ID: id, Name: fmt.Sprintf("role%d", i), Rules: randomRules(rng, id)})
	}
	for i := range 2 + rng.IntN(3) {
		f.Bindings = append(f.Bindings, policy.Binding{ID: fmt.Sprintf("t/bindings/b%d", i), Role: f.Roles[rng.IntN(3)].Name, Subjects: some(rng, subjectWords), Namespaces: some(rng, namespaceWords)})
	}
	for i := range rng.IntN(3) {
		id := fmt.Sprintf("t/denies/d%d", i)
		f.Denies = append(f.Denies, policy.Deny{ID: id, Subjects: some(rng, subjectWords), Rules: randomRules(rng, id), Reason: "no"})
	}
	return f
}

func in(words, except []string, word string) bool {
	return (slices.Contains(words, word) || slices.Contains(words, "*")) && !slices.Contains(except, word)
}

func matches(s *rights.Scope, r *policy.Request) bool {
	subs := s.Subresources
	if len(subs) == 0 {
		subs = []string{""}
	}
	where := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			return p == "*" || (p == "") == (r.Namespace == "") && policy.GlobMatches(p, r.Namespace)
		})
	}
	return in(s.Verbs, s.ExceptVerbs, r.Verb) && in(s.APIGroups, s.ExceptAPIGroups, r.Group) && in(s.Resources, s.ExceptResources, r.Resource) && in(subs, s.ExceptSubresources, r.Subresource) &&
		(len(s.Names) == 0 || in(s.Names, s.ExceptNames, r.Name)) && where(s.Namespaces) && !where(s.ExceptNamespaces)
}

// What the findings say is what differs if each request of each subject is decided by both policies.
func TestFindingsAreTheDifferencesOfDecisions(t *testing.T) {
	flips := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		before := randomForm(rng)
		after := randomForm(rng)
		if rng.IntN(2) == 0 {
			after.Roles, after.Denies = before.Roles, before.Denies
		}
		s := plan.Sides{From: plantest.Load(t, before), To: plantest.Load(t, after)}
		type said struct {
			plan.Finding
			scopes []rights.Scope
		}
		var findings []said
		for _, f := range compare(t, s) {
			x := said{Finding: f}
			if f.Scope != nil {
				if err := json.Unmarshal(f.Scope, &x.scopes); err != nil {
					t.Fatal(err)
				}
			}
			findings = append(findings, x)
		}
		about := func(subject policy.Subject, r *policy.Request) (gains, loses bool) {
			for _, f := range findings {
				if !slices.Contains(strings.Split(f.Subject, ", "), rights.SubjectName(subject)) || !slices.ContainsFunc(f.scopes, func(x rights.Scope) bool { return matches(&x, r) }) {
					continue
				}
				switch f.Rule {
				case "GRANT_ADDED", "DENY_REMOVED":
					gains = gains || !strings.Contains(f.Message, "if something allows it")
				case "GRANT_REMOVED", "DENY_ADDED":
					loses = loses || !strings.Contains(f.Message, "whatever allows it")
				}
			}
			return gains, loses
		}
		for _, verb := range append(verbWords, "other") {
			for _, resource := range []string{"widgets", "gadgets", "others"} {
				for _, sub := range []string{"", "status"} {
					for _, namespace := range []string{"", "dev", "dev-1", "x-1", "x"} {
						for _, name := range []string{"one", "three"} {
							for _, subject := range append(subjectWords, policy.Subject{Group: policy.MastersGroup}) {
								r := policy.Request{User: "somebody", Verb: verb, IsResource: true, Group: "example.com", Resource: resource, Subresource: sub, Namespace: namespace, Name: name}
								if subject.User != "" {
									r.User = subject.User
								} else {
									r.Groups = []string{subject.Group}
								}
								everyone := policy.Subject{Group: "system:authenticated"}
								if subject != everyone {
									r.Groups = append(r.Groups, everyone.Group)
								}
								was, is := s.From.Authorize(context.Background(), &r).Allowed, s.To.Authorize(context.Background(), &r).Allowed
								gains, loses := about(subject, &r)
								if subject != everyone && !gains && !loses && was != is { // it is said of the group
									gains, loses = about(everyone, &r)
								}
								if was != is {
									flips++
								}
								if gains != (is && !was) || loses != (was && !is) {
									t.Fatalf("seed %d: %v %+v: %v, then %v, and the findings say gains %v, loses %v", seed, subject, r, was, is, gains, loses)
								}
							}
						}
					}
				}
			}
		}
	}
	if flips < 1000 {
		t.Errorf("only %d requests are decided otherwise", flips)
	}
}
