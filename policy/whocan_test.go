package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
)

// The requests that the policies of [randomForm] are asked about: for each word that occurs
// there is one that a rule can name, and one that only patterns do.
func everyRequest(yield func(policy.Request) bool) {
	for _, verb := range []string{"get", "list", "delete", "approve", "create", "*"} {
		for _, path := range []string{"/", "/api", "/api/", "/api/v1", "/apis", "/metrics", "/other"} {
			if !yield(policy.Request{Verb: verb, Path: path}) {
				return
			}
		}
		for _, group := range []string{"", "example.com", "other.org"} {
			for _, resource := range []string{"widgets", "gadgets", "others"} {
				for _, sub := range []string{"", "status", "scale", "log"} {
					for _, namespace := range []string{"", "dev", "dev-1", "dev-2", "drv-1", "prod-1", "other", "x"} {
						for _, name := range []string{"", "one", "two", "three"} {
							if !yield(policy.Request{Verb: verb, IsResource: true, Group: group, Resource: resource, Subresource: sub, Namespace: namespace, Name: name}) {
								return
							}
						}
					}
				}
			}
		}
	}
}

// by is a request in the name of a subject alone.
func by(s policy.Subject, r policy.Request) policy.Request {
	r.User, r.Groups = s.User, nil
	if s.Group != "" {
		r.User, r.Groups = "somebody", []string{s.Group}
	}
	if s.Group != "system:authenticated" {
		r.Groups = append(r.Groups, "system:authenticated")
	}
	return r
}

func rightsOf(t *testing.T, f *policy.Form) *rights.Rights {
	t.Helper()
	r, err := rights.New(f.Access())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// someone are subjects of random policies, and some that are in none.
var someone = []policy.Subject{{User: "alice"}, {User: "bob"}, {User: "devs"}, {User: "nobody"}, {Group: "devs"}, {Group: "ops"}, {Group: "alice"},
	{Group: "system:authenticated"}, {Group: "system:masters"}}

// someChains are orders in which policies are asked; what is outside of them decides nothing here.
var someChains = [][]string{nil, nil, nil, {"rbac", "deny"}, {"deny"}, {"system:masters", "deny", "rbac"}, {"rbac"}, {"rbac", "deny", "system:masters"}}

func TestWhoCanIsWhatIsAuthorized(t *testing.T) {
	answers := map[bool]int{}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := randomForm(rng)
		f.Authorizers = someChains[rng.IntN(len(someChains))]
		p, _, err := load(&f)
		if err != nil {
			t.Fatal(err)
		}
		of := rightsOf(t, &f)
		for r := range everyRequest {
			if rng.IntN(20) > 0 {
				continue
			}
			q := rights.Question{Verb: r.Verb, Path: r.Path, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name}
			if r.IsResource && r.Name == "" && r.Verb != "create" {
				continue // which asks about any name
			}
			answer := of.WhoCan(&q)
			for _, s := range someone {
				asked := by(s, r)
				listed := slices.ContainsFunc(answer.Holders, func(h rights.Holder) bool {
					return !h.Denied && (h.Subject == s || slices.Contains(asked.Groups, h.Subject.Group) && h.Subject.Group != "")
				}) && !slices.ContainsFunc(answer.Holders, func(h rights.Holder) bool { return h.Denied && h.Subject == s })
				// A deny that meets a group of theirs is not a deny of that group's holders.
				meets := func(o rights.Objection) bool {
					return slices.ContainsFunc(o.Subjects, func(x policy.Subject) bool {
						return x.User != "" && x.User == asked.User || x.Group != "" && slices.Contains(asked.Groups, x.Group)
					})
				}
				listed = listed && !(len(f.Authorizers) == 0 && slices.ContainsFunc(answer.Denies, meets))
				if allowed := p.Authorize(context.Background(), &asked).Allowed; len(f.Authorizers) == 0 && allowed != listed {
					t.Fatalf("seed %d: %+v by %v: allowed %v, listed %v\n%+v", seed, r, s, allowed, listed, answer)
				} else if len(f.Authorizers) == 0 {
					answers[allowed]++
				}
				own := slices.ContainsFunc(answer.Holders, func(h rights.Holder) bool { return !h.Denied && h.Subject == s })
				if allowed := p.Authorize(context.Background(), &asked).Allowed; own && !allowed {
					t.Fatalf("seed %d, chain %v: %+v by %v is listed, and refused\n%+v", seed, f.Authorizers, r, s, answer)
				}
			}
		}
	}
	if answers[true] < 1000 || answers[false] < 1000 {
		t.Errorf("the answers are mostly the same: %v", answers)
	}
}

// matches tells whether a scope has a request.
func matches(s *rights.Scope, r *policy.Request) bool {
	is := func(words, except []string, word string) bool {
		return (slices.Contains(words, word) || slices.Contains(words, "*")) && !slices.Contains(except, word)
	}
	if !is(s.Verbs, s.ExceptVerbs, r.Verb) || r.IsResource == (len(s.Paths) > 0) {
		return false
	}
	in := func(patterns []string, word string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return p == "*" || (p == "") == (word == "") && globbed(p, word) })
	}
	if !r.IsResource {
		return in(s.Paths, r.Path) && !in(s.ExceptPaths, r.Path)
	}
	subs := s.Subresources
	if len(subs) == 0 {
		subs = []string{""}
	}
	return is(s.APIGroups, s.ExceptAPIGroups, r.Group) && is(s.Resources, s.ExceptResources, r.Resource) && is(subs, s.ExceptSubresources, r.Subresource) &&
		(len(s.Names) == 0 || is(s.Names, s.ExceptNames, r.Name)) && in(s.Namespaces, r.Namespace) && !in(s.ExceptNamespaces, r.Namespace)
}

// globbed is what a pattern means, without any cleverness.
func globbed(pattern, word string) bool {
	switch {
	case pattern == "":
		return word == ""
	case pattern[0] == '*':
		return globbed(pattern[1:], word) || word != "" && globbed(pattern, word[1:])
	}
	return word != "" && word[0] == pattern[0] && globbed(pattern[1:], word[1:])
}

// A policy that is a little different from another one, and one that says the same otherwise.
func altered(rng *rand.Rand, f policy.Form) policy.Form {
	other := randomForm(rng)
	g := f
	g.Bindings, g.Denies, g.Roles = slices.Clone(f.Bindings), slices.Clone(f.Denies), slices.Clone(f.Roles)
	for range 1 + rng.IntN(3) {
		switch i := rng.IntN(len(g.Bindings)); rng.IntN(5) {
		case 0:
			g.Bindings[i].Subjects = other.Bindings[0].Subjects
		case 1:
			g.Bindings[i].Namespaces = other.Bindings[0].Namespaces
		case 2:
			g.Roles[rng.IntN(len(g.Roles))].Rules = other.Roles[0].Rules
		case 3:
			g.Denies = other.Denies
		case 4:
			g.Authorizers = someChains[rng.IntN(len(someChains))]
		}
	}
	return g
}

func TestDifferenceIsThatOfAllDecisions(t *testing.T) {
	types := map[string]int{}
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 2))
		before := randomForm(rng)
		before.Authorizers = someChains[rng.IntN(len(someChains))]
		after := altered(rng, before)
		p, _, err := load(&before)
		if err != nil {
			t.Fatal(err)
		}
		q, _, err := load(&after)
		if err != nil {
			t.Fatal(err)
		}
		from, to := rightsOf(t, &before), rightsOf(t, &after)
		order := rights.ChainDifference(from, to)
		changes, err := rights.Difference(t.Context(), from, to, rights.Selection{AnyNamespace: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			types[c.Type]++
		}
		for r := range everyRequest {
			if rng.IntN(4) > 0 {
				continue
			}
			// Of one subject: it is said if, and only if, the decisions differ.
			said := map[policy.Subject]string{}
			denied := map[policy.Subject]bool{}
			for i := range changes {
				c := &changes[i]
				if !matches(&c.Scope, &r) {
					continue
				}
				if c.Type == rights.Denied || c.Type == rights.NotDenied {
					denied[c.Subject] = true
					continue
				}
				if said[c.Subject] != "" {
					t.Fatalf("seed %d: %v is said twice of %v: %+v", seed, r, c.Subject, changes)
				}
				said[c.Subject] = c.Type
			}
			for _, s := range someone {
				asked := by(s, r)
				was, is := p.Authorize(context.Background(), &asked).Allowed, q.Authorize(context.Background(), &asked).Allowed
				want := ""
				if is && !was {
					want = rights.Gained
				} else if was && !is {
					want = rights.Lost
				}
				got := said[s]
				if got == "" && s.Group != "system:authenticated" && want != "" {
					got = said[policy.Subject{Group: "system:authenticated"}]
				}
				if got != want {
					t.Fatalf("seed %d: %+v by %v: %v, then %v, and it is said %q\nof %v\n%s", seed, r, s, was, is, got, said, text(changes))
				}
			}
			// Of several groups: nothing changes of which nothing is said. Where the chain has
			// another order, that is.
			if len(order) > 0 {
				continue
			}
			asked := r
			asked.User, asked.Groups = one(rng, someUsers), append(some(rng, list{"devs", "ops", "alice"}, 0, 3), "system:authenticated")
			was, is := p.Authorize(context.Background(), &asked).Allowed, q.Authorize(context.Background(), &asked).Allowed
			if was != is && said[policy.Subject{User: asked.User}] == "" && !denied[policy.Subject{User: asked.User}] &&
				!slices.ContainsFunc(asked.Groups, func(g string) bool {
					return said[policy.Subject{Group: g}] != "" || denied[policy.Subject{Group: g}]
				}) {
				t.Fatalf("seed %d: %+v: %v, then %v, and nothing is said\n%s", seed, asked, was, is, text(changes))
			}
		}
	}
	for _, want := range []string{rights.Gained, rights.Lost, rights.Denied, rights.NotDenied} {
		if types[want] < 20 {
			t.Errorf("there are few changes of the type %s: %v", want, types)
		}
	}
}

func text(changes []rights.AccessChange) string {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "%+v\n", c)
	}
	return b.String()
}

// accessOf is a policy by which devs may get secrets.
func accessOf(chain []string, plugins []policy.Plugin, when string) *rights.Rights {
	b := policy.Binding{ID: "b", Role: "r", Subjects: []policy.Subject{{Group: "devs"}}, Namespaces: []string{"*"}}
	if when != "" {
		b.When = &policy.Condition{Expression: policy.Expression{Text: when}}
	}
	r, err := rights.New(&policy.Access{
		Roles:       []policy.Role{{Name: "r", Rules: []policy.Rule{{ID: "r/x", Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}}}}},
		Bindings:    []policy.Binding{b},
		Authorizers: chain, Plugins: plugins,
	})
	if err != nil {
		panic(err)
	}
	return r
}

func TestWhoCanNamesTheAuthorizersThatItDoesNotKnow(t *testing.T) {
	plugin := policy.Plugin{Name: "window", FailurePolicy: "Deny", Match: policy.PluginMatch{Verbs: []string{"get"}}}
	shadow := policy.Plugin{Name: "shadow", Shadow: true}
	r := accessOf([]string{"abac", "plugin:window", "plugin:shadow", "deny", "rbac", "webhook"}, []policy.Plugin{plugin, shadow}, "")
	secrets := rights.Question{Verb: "get", Resource: "secrets"}
	want := []rights.Outsider{
		{Authorizer: "abac", MayAllow: true},
		{Authorizer: "plugin:window", MayAllow: true, MayDeny: true, FailurePolicy: "Deny"},
		{Authorizer: "webhook", MayAllow: true},
	}
	if got := r.WhoCan(&secrets).Outsiders; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	// A plugin that is asked about something else has nothing to do with it.
	secrets.Verb = "delete"
	if got := r.WhoCan(&secrets).Outsiders; !slices.Equal(got, []rights.Outsider{want[0], want[2]}) {
		t.Errorf("%+v", got)
	}
	// Where the chain has no rbac, no binding grants anything.
	if got := accessOf([]string{"deny", "webhook"}, nil, "").WhoCan(&rights.Question{Verb: "get", Resource: "secrets"}).Holders; len(got) != 1 || got[0].Subject.Group != "system:masters" {
		t.Errorf("%+v", got)
	}
}

func TestConditionsAreComparedByTheirText(t *testing.T) {
	for _, tc := range []struct{ before, after, want string }{
		{"", "", ""},
		{"a", "a", ""},
		{"", "a", "Changed:  > when a"},
		{"a", "", "Changed: when a > "},
		{"a", "b", "Changed: when a > when b"},
	} {
		changes, err := rights.Difference(t.Context(), accessOf(nil, nil, tc.before), accessOf(nil, nil, tc.after), rights.Selection{AnyNamespace: true})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, c := range changes {
			got += c.Type + ": " + c.Before + " > " + c.After
		}
		if got != tc.want {
			t.Errorf("from %q to %q: %q, want %q", tc.before, tc.after, got, tc.want)
		}
	}
}

func TestTheChainIsCompared(t *testing.T) {
	was := policy.Plugin{Name: "p", FailurePolicy: "Deny", SHA256: map[string]string{"linux/amd64": "1"}}
	is := was
	is.FailurePolicy, is.SHA256, is.Match.Verbs = "NoOpinion", map[string]string{"linux/amd64": "2"}, []string{"get"}
	shadow := was
	shadow.Shadow = true
	for _, tc := range []struct {
		name          string
		before, after []string
		plugins       [2][]policy.Plugin
		want          []string
	}{
		{"the same, said otherwise", nil, []string{"deny", "rbac"}, [2][]policy.Plugin{}, nil},
		{"one more", nil, []string{"deny", "rbac", "webhook"}, [2][]policy.Plugin{}, []string{"webhook Added false: it is asked after rbac"}},
		{"one more, before denies", nil, []string{"webhook", "deny", "rbac"}, [2][]policy.Plugin{}, []string{
			"webhook Added true: it is asked after system:masters", "deny Moved true: it was asked first, and is now after webhook"}},
		{"no denies", nil, []string{"system:masters", "rbac"}, [2][]policy.Plugin{}, []string{"deny Removed true: it was asked first"}},
		{"moved", []string{"deny", "webhook", "rbac"}, []string{"deny", "rbac", "webhook"}, [2][]policy.Plugin{}, []string{"webhook Moved true: it was asked after system:masters, and is now after rbac"}},
		{"moved forward", []string{"deny", "rbac", "webhook"}, []string{"deny", "webhook", "rbac"}, [2][]policy.Plugin{}, []string{"rbac Moved false: it was asked after system:masters, and is now after webhook"}},
		{"grants before what denies", []string{"deny", "webhook", "abac", "rbac"}, []string{"deny", "rbac", "webhook", "abac"}, [2][]policy.Plugin{}, []string{"rbac Moved true: it was asked after abac, and is now after system:masters"}},
		{"grants among themselves", []string{"deny", "abac", "rbac"}, []string{"deny", "rbac", "abac"}, [2][]policy.Plugin{}, []string{"abac Moved false: it was asked after system:masters, and is now after rbac"}},
		{"a shadow is gone", []string{"plugin:p", "rbac"}, []string{"rbac"}, [2][]policy.Plugin{{shadow}}, []string{"plugin:p Removed false: it was asked after system:masters"}},
		{"a shadow moved", []string{"plugin:p", "rbac"}, []string{"rbac", "plugin:p"}, [2][]policy.Plugin{{shadow}, {shadow}}, []string{"plugin:p Moved false: it was asked after system:masters, and is now after rbac"}},
		{"a plugin", []string{"plugin:p", "rbac"}, []string{"plugin:p", "rbac"}, [2][]policy.Plugin{{was}, {is}}, []string{
			"plugin:p Changed false: it is another program: the checksums differ", "plugin:p Changed true: failurePolicy was Deny, and is now NoOpinion",
			`plugin:p Changed true: it was asked about everything, and is now about verbs "get"`,
		}},
	} {
		var got []string
		for _, c := range rights.ChainDifference(accessOf(tc.before, tc.plugins[0], ""), accessOf(tc.after, tc.plugins[1], "")) {
			got = append(got, fmt.Sprintf("%s %s %v: %s", c.Authorizer, c.Type, c.Weaker, c.Message))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// Two large policies that differ in much are compared.
func TestLargePoliciesAreCompared(t *testing.T) {
	large := func(shift int) *rights.Rights {
		a := &policy.Access{}
		for i := range 100 {
			role := policy.Role{Name: fmt.Sprint("r", i)}
			for j := range 10 {
				role.Rules = append(role.Rules, policy.Rule{ID: fmt.Sprint(i, j), Verbs: []string{"get", "list", "watch", fmt.Sprint("v", j)}, APIGroups: []string{fmt.Sprintf("g%d.example.com", (i+shift)%7)},
					Resources: []string{fmt.Sprint("a", j), fmt.Sprint("b", (j+shift)%10)}})
			}
			a.Roles = append(a.Roles, role)
			a.Bindings = append(a.Bindings, policy.Binding{ID: fmt.Sprint("b", i), Role: role.Name, Namespaces: []string{fmt.Sprintf("team-%d-*", i%20)},
				Subjects: []policy.Subject{{Group: fmt.Sprint("g", i%30)}, {User: fmt.Sprint("u", i)}}})
		}
		r, err := rights.New(a)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	changes, err := rights.Difference(t.Context(), large(0), large(1), rights.Selection{AnyNamespace: true})
	if err != nil || len(changes) < 1000 {
		t.Errorf("%d changes, %v", len(changes), err)
	}
}

func TestRulesThatCutEachOtherIntoTooMuchAreRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	var words list
	for i := range 40 {
		words = append(words, fmt.Sprint("w", i))
	}
	half := func() list { return some(rng, words, 20, 20) }
	role := policy.Role{Name: "r"}
	for i := range 60 {
		role.Rules = append(role.Rules, policy.Rule{ID: fmt.Sprint(i), Verbs: half(), APIGroups: half(), Resources: half(), ResourceNames: half()})
	}
	r, err := rights.New(&policy.Access{Roles: []policy.Role{role}, Bindings: []policy.Binding{{ID: "b", Role: "r", Namespaces: half(), Subjects: []policy.Subject{{User: "u"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rights.Difference(t.Context(), accessOf(nil, nil, ""), r, rights.Selection{AnyNamespace: true}); !errors.Is(err, rights.ErrIntricate) {
		t.Errorf("%v", err)
	}
}
