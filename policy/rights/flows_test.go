package rights

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
)

// some returns a few of the words, at least one.
func some[T any](r *rand.Rand, words ...T) []T {
	n := 1 + r.IntN(2)
	var list []T
	for range n {
		list = append(list, words[r.IntN(len(words))])
	}
	return list
}

func randomSubject(r *rand.Rand) policy.Subject {
	return some(r, policy.Subject{User: "u"}, policy.Subject{User: "v"}, policy.Subject{User: "*"}, policy.Subject{Group: "g"}, policy.Subject{Group: "*"}, policy.Subject{Group: "system:authenticated"},
		policy.Subject{Group: "system:unauthenticated"}, policy.Subject{User: "system:anonymous"}, policy.Subject{User: "system:serviceaccount:a:x"}, policy.Subject{User: "system:serviceaccount:a:*"},
		policy.Subject{Group: "system:serviceaccounts"}, policy.Subject{Group: "system:serviceaccounts:a"}, policy.Subject{Group: policy.MastersGroup})[0]
}

func randomFlow(r *rand.Rand) *policy.Flow {
	f := &policy.Flow{}
	for i := range 1 + r.IntN(5) {
		s := policy.FlowSchema{Name: fmt.Sprint("s", i), MatchingPrecedence: 2 + r.IntN(4), PriorityLevel: "workload-low", Subjects: []policy.Subject{randomSubject(r), randomSubject(r)}}
		for range 1 + r.IntN(3) {
			rule := policy.FlowRule{Verbs: some(r, "get", "list", "*")}
			if r.IntN(3) == 0 {
				rule.NonResourceURLs = some(r, "/*", "/a", "/a/b", "/a/*", "/b/*")
			} else {
				rule.APIGroups, rule.Resources = some(r, "", "x", "*"), some(r, "pods", "pods/log", "jobs", "*")
				rule.Namespaces = [][]string{nil, {"*"}, {""}, {"n"}, {"n", "m"}, {"", "m"}}[r.IntN(6)]
			}
			s.Rules = append(s.Rules, rule)
		}
		f.FlowSchemas = append(f.FlowSchemas, s)
	}
	return f
}

func randomRequest(r *rand.Rand) policy.Request {
	q := policy.Request{Verb: some(r, "get", "list", "watch")[0]}
	if r.IntN(3) == 0 {
		q.Path = some(r, "/", "/a", "/a/", "/a/b", "/a/c", "/ab", "/b", "/b/c", "/c")[0]
		return q
	}
	q.IsResource, q.Group, q.Resource, q.Namespace = true, some(r, "", "x", "y")[0], some(r, "pods", "jobs", "leases")[0], some(r, "", "n", "m", "o")[0]
	q.Subresource = some(r, "", "", "log", "status")[0]
	return q
}

// box returns the one request.
func boxOf(q *policy.Request) box {
	one := func(word string) set { return set{words: []string{word}} }
	if !q.IsResource {
		return box{path: true, sets: [...]set{one(q.Verb), anything, anything, anything, anything}, where: region{in: q.Path}}
	}
	return box{sets: [...]set{one(q.Verb), one(q.Group), one(q.Resource), one(q.Subresource), anything}, where: region{in: q.Namespace}}
}

// person returns somebody who is the subject, and nothing else that is not certain.
func person(q *policy.Request, s policy.Subject) {
	q.User, q.Groups = s.User, nil
	if s.Group != "" {
		q.User, q.Groups = "somebody", []string{s.Group}
	}
	q.User = strings.Replace(q.User, "*", "y", 1)
	for _, g := range Implied(s) {
		q.Groups = append(q.Groups, g.Group)
	}
}

func takenBy(parts []Part, q *policy.Request) int {
	b := boxOf(q)
	for _, p := range parts {
		if slices.ContainsFunc(p.boxes, func(x box) bool {
			return b.meets(&box{path: x.path, sets: x.sets, where: region{in: x.where.in}}) && len(minus(b, x)) == 0
		}) {
			return p.Schema
		}
	}
	return -1
}

// minus is for one request, of which a region is a name.
func minus(b, x box) []box {
	if slices.ContainsFunc(x.where.but, func(p string) bool { return b.globs().contains(p, b.where.in) }) {
		return []box{b}
	}
	return nil
}

func inForce(f *policy.Flow) (schemas []*policy.FlowSchema) {
	for _, s := range flows.New(f).Schemas() {
		schemas = append(schemas, &s.FlowSchema)
	}
	return schemas
}

func TestPartsAreWhatTheClassifierFinds(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := randomFlow(r)
		table, schemas := flows.New(f), inForce(f)
		for range 4 {
			subject := randomSubject(r)
			if subject.User == "*" || subject.Group == "*" {
				continue // nobody is only that
			}
			parts, err := NewFlows(t.Context(), schemas).Parts(subject)
			if err != nil {
				t.Fatal(err)
			}
			for range 40 {
				q := randomRequest(r)
				person(&q, subject)
				want := table.Classify(&q)
				if got := takenBy(parts, &q); got < 0 || schemas[got].Name != want.Name {
					t.Fatalf("seed %d: %+v: schema %d, want %s of %+v", seed, q, got, want.Name, f)
				}
			}
		}
	}
}

func TestFlowSchemasThatOthersComeBefore(t *testing.T) {
	unreached := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		f := randomFlow(r)
		table, schemas := flows.New(f), inForce(f)
		flowsOf := NewFlows(t.Context(), schemas)
		for i, s := range schemas {
			by, err := flowsOf.Before(i)
			if err != nil {
				t.Fatal(err)
			}
			if by == nil {
				continue
			}
			unreached++
			if slices.ContainsFunc(by, func(j int) bool { return j >= i }) {
				t.Fatalf("seed %d: %v come before %d", seed, by, i)
			}
			for _, listed := range s.Subjects {
				for _, subject := range Everyone(listed) {
					for range 40 {
						q := randomRequest(r)
						person(&q, subject)
						if got := table.Classify(&q); got.Name == s.Name {
							t.Fatalf("seed %d: %s is unreached, and takes %+v of %+v", seed, s.Name, q, f)
						}
					}
				}
			}
		}
	}
	if unreached < 50 {
		t.Errorf("only %d flow schemas were unreached", unreached)
	}
}

func TestMovesAreWhereTheClassifiersDiffer(t *testing.T) {
	moved := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		f, g := randomFlow(r), randomFlow(r)
		was, is := flows.New(f), flows.New(g)
		from, to := inForce(f), inForce(g)
		subject := randomSubject(r)
		if subject.User == "*" || subject.Group == "*" {
			continue
		}
		all := append([]policy.Subject{subject}, Implied(subject)...)
		same := func(i, j int) bool { return from[i].Name == to[j].Name }
		var moves []Move
		for _, s := range all {
			found, err := Moves(NewFlows(t.Context(), from), NewFlows(t.Context(), to), s, same)
			if err != nil {
				t.Fatal(err)
			}
			moves = append(moves, found...)
		}
		for range 60 {
			q := randomRequest(r)
			person(&q, subject)
			a, b := was.Classify(&q), is.Classify(&q)
			listed := slices.ContainsFunc(moves, func(m Move) bool {
				return from[m.From].Name == a.Name && to[m.To].Name == b.Name
			})
			if a.Name != b.Name && !listed {
				t.Fatalf("seed %d: %+v moved from %s to %s, which is not in %+v", seed, q, a.Name, b.Name, moves)
			}
			if a.Name != b.Name {
				moved++
			}
		}
	}
	if moved < 1000 {
		t.Errorf("only %d requests moved", moved)
	}
}

func TestFlowSchemasMeet(t *testing.T) {
	of := func(s policy.Subject, namespaces ...string) *policy.FlowSchema {
		return &policy.FlowSchema{Subjects: []policy.Subject{s}, Rules: []policy.FlowRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, Namespaces: namespaces}}}
	}
	user, group := func(name string) policy.Subject { return policy.Subject{User: name} }, func(name string) policy.Subject { return policy.Subject{Group: name} }
	for _, tc := range []struct {
		a, b *policy.FlowSchema
		want string
	}{
		{of(user("u")), of(user("v")), ""},
		{of(user("u")), of(user("u")), "User u: get pods in any namespace"},
		{of(user("u")), of(group("g")), "Group g: get pods in any namespace"},
		{of(group("h")), of(group("g"), "n"), "Group g: get pods in namespace n"},
		{of(group("h"), "m"), of(group("g"), "n"), ""},
		{of(group("h"), "*"), of(group("g"), ""), ""},
		{of(user("*")), of(group("g")), "Group g: get pods in any namespace"},
		{of(group("system:authenticated")), of(user("system:anonymous")), ""},
		{of(group("system:authenticated")), of(group("system:unauthenticated")), ""},
		{of(user("u")), of(group("system:serviceaccounts")), ""},
		{of(user("u")), of(group("system:serviceaccounts:a")), ""},
		{of(user("system:serviceaccount:a:x")), of(group("system:serviceaccounts:a")), "ServiceAccount a/x: get pods in any namespace"},
		{of(user("system:serviceaccount:a:x")), of(user("system:serviceaccount:a:*")), "ServiceAccount a/x: get pods in any namespace"},
		{of(user("system:serviceaccount:b:x")), of(user("system:serviceaccount:a:*")), ""},
		{of(user("system:serviceaccount:b:x")), of(group("system:serviceaccounts:a")), ""},
		{of(group("system:serviceaccounts:b")), of(group("system:serviceaccounts:a")), ""},
		{of(group("g")), of(group("system:serviceaccounts:a")), "Group system:serviceaccounts:a: get pods in any namespace"},
	} {
		for _, pair := range [][]*policy.FlowSchema{{tc.a, tc.b}, {tc.b, tc.a}} {
			scope, subject, err := NewFlows(t.Context(), pair).Meet(0, 1)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if scope != nil {
				got = SubjectWords(subject) + ": " + scope.String()
			}
			if (got == "") != (tc.want == "") || pair[0] == tc.a && got != tc.want {
				t.Errorf("%v and %v: %q, want %q", pair[0].Subjects, pair[1].Subjects, got, tc.want)
			}
		}
	}
}
