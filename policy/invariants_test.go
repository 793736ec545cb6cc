package policy_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
)

// asked reports whether an invariant is about a request.
func asked(q *rights.Requests, r *policy.Request) bool {
	has := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Contains(list, "*")
	}
	resource := func(named string) bool {
		return named == "*" || named == r.Resource && r.Subresource == "" || r.Subresource != "" && (named == r.Resource+"/"+r.Subresource || named == "*/"+r.Subresource)
	}
	if !r.IsResource || !has(q.Verbs, r.Verb) || !has(q.APIGroups, r.Group) || !slices.ContainsFunc(q.Resources, resource) {
		return false
	}
	if (r.Verb == "create" || r.Verb == "deletecollection") && r.Name != "" || len(q.ResourceNames) > 0 && !slices.Contains(q.ResourceNames, r.Name) {
		return false
	}
	return len(q.Namespaces) == 0 || slices.ContainsFunc(q.Namespaces, func(n string) bool { return n == "*" || (n == "") == (r.Namespace == "") && globbed(n, r.Namespace) })
}

func TestInvariantsAreWhatIsAuthorized(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 3))
		f := randomForm(rng)
		f.Authorizers = someChains[rng.IntN(len(someChains))]
		p, _, err := load(&f)
		if err != nil {
			t.Fatal(err)
		}
		of := rightsOf(t, &f)
		q := &rights.Requests{Verbs: some(rng, someVerbs, 1, 2), APIGroups: some(rng, someAPIGroups, 1, 2), Resources: some(rng, someResources, 1, 2)}
		if rng.IntN(2) == 0 {
			q.Namespaces = some(rng, append(list{""}, someNamespaces...), 1, 2)
		}
		if rng.IntN(4) == 0 {
			q.ResourceNames = some(rng, someNames, 1, 1)
		}
		listed := []policy.Subject{someone[rng.IntN(len(someone))], someone[rng.IntN(len(someone))]}
		only, err := of.Only(t.Context(), listed, q)
		if err != nil {
			t.Fatal(err)
		}
		always, err := of.Always(t.Context(), listed, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range only.Violations {
			if !p.Authorize(context.Background(), &v.Request).Allowed || !asked(q, &v.Request) {
				t.Fatalf("seed %d: %+v is no counterexample of %+v", seed, v, q)
			}
		}
		for _, v := range always.Violations {
			if p.Authorize(context.Background(), &v.Request).Allowed || !asked(q, &v.Request) {
				t.Fatalf("seed %d: %+v is no counterexample of %+v", seed, v, q)
			}
		}
		violates := func(a *rights.Answer, s policy.Subject) bool {
			return slices.ContainsFunc(a.Violations, func(v rights.Violation) bool { return v.Subject == s })
		}
		everyone := policy.Subject{Group: "system:authenticated"}
		may, mayNot := map[policy.Subject]bool{}, map[policy.Subject]bool{}
		for r := range everyRequest {
			if !asked(q, &r) {
				continue
			}
			for _, s := range someone {
				r := by(s, r)
				if p.Authorize(context.Background(), &r).Allowed {
					may[s] = true
				} else {
					mayNot[s] = true
				}
			}
		}
		for _, s := range someone {
			isListed := slices.Contains(listed, s) || s.Group == policy.MastersGroup || slices.Contains(listed, everyone)
			if want := may[s] && !isListed; want && !violates(only, s) && !violates(only, everyone) || violates(only, s) && !want {
				t.Fatalf("seed %d: only %v: %v may: %v, and the answer is %+v", seed, listed, s, may[s], only.Violations)
			}
			// The universe has a word that no rule names in each dimension, so trying is enough.
			if want := mayNot[s] && slices.Contains(listed, s); want != violates(always, s) {
				t.Fatalf("seed %d: always %v: %v may not: %v, and the answer is %+v", seed, listed, s, mayNot[s], always.Violations)
			}
		}
		outcomes["only"] += len(only.Violations)
		outcomes["always"] += len(always.Violations)
		if len(only.Violations) == 0 {
			outcomes["only holds"]++
		}
		if len(always.Violations) == 0 {
			outcomes["always holds"]++
		}
	}
	for _, o := range []string{"only", "always", "only holds", "always holds"} {
		if outcomes[o] < 5 {
			t.Errorf("the answers are mostly the same: %v", outcomes)
		}
	}
}

// The server's controllers are administrators at run time, so that nothing but a deny stops them.
func TestAnInvariantKnowsTheServersControllers(t *testing.T) {
	collector := policy.Subject{User: "system:serviceaccount:kube-system:generic-garbage-collector"}
	f := &policy.Form{}
	every := &rights.Requests{Verbs: []string{"delete"}, APIGroups: []string{"*"}, Resources: []string{"*"}}
	a, err := rightsOf(t, f).Always(t.Context(), []policy.Subject{collector, {User: "dana"}}, every)
	if err != nil || len(a.Violations) != 1 || a.Violations[0].Subject.User != "dana" {
		t.Errorf("%+v, %v", a, err)
	}
	f.Denies = []policy.Deny{{ID: "t/denies/stay", Subjects: []policy.Subject{{Group: "system:authenticated"}}, Rules: []policy.Rule{{Verbs: []string{"delete"}, APIGroups: []string{"example.com"}, Resources: []string{"widgets"}}}}}
	a, err = rightsOf(t, f).Always(t.Context(), []policy.Subject{collector}, every)
	if err != nil || len(a.Violations) != 1 || a.Violations[0].By[0].ID != "t/denies/stay" || a.Violations[0].Request.Resource != "widgets" {
		t.Errorf("%+v, %v", a, err)
	}
}
