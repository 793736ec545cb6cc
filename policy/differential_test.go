package policy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/schemas"
)

// TestAccessAsKubernetes holds decisions against an evaluator that looks at every rule of
// every binding, and asks Kubernetes' own code whether the rule covers the request.
func TestAccessAsKubernetes(t *testing.T) {
	const policies = 4000
	counts := map[string]int{}
	for seed := range uint64(policies) {
		for outcome, n := range differ(t, seed) {
			counts[outcome] += n
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("outcomes: %v", counts)
	all := 0
	for _, n := range counts {
		all += n
	}
	// Requests that mostly meet the same answer show little.
	for _, outcome := range []string{"allowed", "denied", "no opinion"} {
		if counts[outcome] < all/10 {
			t.Errorf("%s: only %d of %d requests", outcome, counts[outcome], all)
		}
	}
}

func FuzzAccessAsKubernetes(f *testing.F) {
	f.Add(uint64(0))
	f.Fuzz(func(t *testing.T, seed uint64) { differ(t, seed) })
}

// access is a policy, and a request under it.
type access struct {
	Form    policy.Form
	Request policy.Request
}

// differ makes a policy and requests of a seed, and counts the outcomes. What fails is
// printed as small as it can be made.
func differ(t *testing.T, seed uint64) map[string]int {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	a := access{Form: randomForm(rng)}
	p, o, err := load(&a.Form)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for range 16 {
		a.Request = randomRequest(rng)
		outcome, wrong := compare(p, o, &a.Request)
		if wrong == "" {
			counts[outcome]++
			continue
		}
		shrink(&a)
		if p, o, err = load(&a.Form); err == nil {
			_, wrong = compare(p, o, &a.Request)
		}
		text, _ := json.Marshal(a)
		t.Fatalf("seed %d: %s\n%s", seed, wrong, text)
	}
	return counts
}

func load(f *policy.Form) (*policy.Policy, *oracle, error) {
	f.Version = policy.FormVersion
	encoded, _ := f.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		return nil, nil, err
	}
	return p, newOracle(f), nil
}

// compare returns what a request comes to, and what is wrong with that.
func compare(p *policy.Policy, o *oracle, r *policy.Request) (outcome, wrong string) {
	d := p.Authorize(context.Background(), r)
	denies, grants := o.matching(r)
	masters := slices.Contains(r.Groups, "system:masters")
	named := func(f fact) bool {
		return f.id == d.Rule && f.source == d.Source && strings.Contains(d.Reason, f.reason)
	}
	switch {
	case d.Allowed && d.Denied:
		return "", "both allowed and denied"
	case d.Denied != (len(denies) > 0):
		return "", fmt.Sprintf("denied: %v, but these denies match: %v", d.Denied, denies)
	case d.Denied && !slices.ContainsFunc(denies, named):
		return "", fmt.Sprintf("denied by %q (%s), which does not match: %v do", d.Rule, d.Reason, denies)
	case !d.Denied && d.Allowed != (masters || len(grants) > 0):
		return "", fmt.Sprintf("allowed: %v, but these grants match: %v", d.Allowed, grants)
	case d.Allowed && !masters && !slices.ContainsFunc(grants, named):
		return "", fmt.Sprintf("allowed by %q (%s), which does not match: %v do", d.Rule, d.Reason, grants)
	case d.Allowed && masters && d.Rule != "system:masters":
		return "", fmt.Sprintf("masters are allowed by %q", d.Rule)
	}
	// What is listed as granted is what is granted, paths in any namespace; denies are not
	// in the list.
	namespace := r.Namespace
	if !r.IsResource {
		namespace = "dev-1"
	}
	listed := slices.ContainsFunc(p.RulesOf(r.User, r.Groups, namespace), func(x policy.Rule) bool { return covers(kubernetes(&x), r) })
	if listed != (masters || len(grants) > 0) {
		return "", fmt.Sprintf("a rule that RulesOf lists allows it: %v, but these grants match: %v", listed, grants)
	}
	switch {
	case d.Denied:
		return "denied", ""
	case d.Allowed:
		return "allowed", ""
	}
	return "no opinion", ""
}

// oracle is the plain evaluator.
type oracle struct {
	form  *policy.Form
	rules map[*policy.Rule]rbacv1.PolicyRule
	globs map[string]*regexp.Regexp
}

// fact is a rule that matches, as a decision has to name it.
type fact struct{ id, source, reason string }

func newOracle(f *policy.Form) *oracle {
	o := &oracle{form: f, rules: map[*policy.Rule]rbacv1.PolicyRule{}, globs: map[string]*regexp.Regexp{}}
	add := func(rules []policy.Rule) {
		for i := range rules {
			o.rules[&rules[i]] = kubernetes(&rules[i])
		}
	}
	for i := range f.Roles {
		add(f.Roles[i].Rules)
	}
	for i := range f.Denies {
		add(f.Denies[i].Rules)
	}
	for i := range f.Bindings {
		for _, g := range f.Bindings[i].Namespaces {
			o.globs[g] = regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(g), `\*`, ".*") + "$")
		}
	}
	return o
}

// matching returns the denies and the grants that are about a request.
func (o *oracle) matching(r *policy.Request) (denies, grants []fact) {
	for i := range o.form.Denies {
		d := &o.form.Denies[i]
		for j := range d.Rules {
			if names(d.Subjects, r) && covers(o.rules[&d.Rules[j]], r) {
				denies = append(denies, fact{d.ID, d.Source.String(), d.Reason})
			}
		}
	}
	for i := range o.form.Bindings {
		b := &o.form.Bindings[i]
		if !names(b.Subjects, r) || !o.reaches(b, r) {
			continue
		}
		for j := range o.form.Roles {
			role := &o.form.Roles[j]
			for k := range role.Rules {
				if role.Name == b.Role && covers(o.rules[&role.Rules[k]], r) {
					grants = append(grants, fact{b.ID, b.Source.String(), strconv.Quote(role.Rules[k].ID)})
				}
			}
		}
	}
	return denies, grants
}

func names(subjects []policy.Subject, r *policy.Request) bool {
	return slices.ContainsFunc(subjects, func(s policy.Subject) bool {
		return s.User != "" && s.User == r.User || s.Group != "" && slices.Contains(r.Groups, s.Group)
	})
}

// reaches tells whether a binding is about where the request is: one of all namespaces is
// what a ClusterRoleBinding is in Kubernetes, all others are RoleBindings.
func (o *oracle) reaches(b *policy.Binding, r *policy.Request) bool {
	return slices.ContainsFunc(b.Namespaces, func(g string) bool {
		return g == "*" || r.IsResource && r.Namespace != "" && o.globs[g].MatchString(r.Namespace)
	})
}

func kubernetes(r *policy.Rule) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames, NonResourceURLs: r.NonResourceURLs}
}

// covers asks upstream, to whom a request is a rule that allows nothing else.
func covers(rule rbacv1.PolicyRule, r *policy.Request) bool {
	asked := rbacv1.PolicyRule{Verbs: []string{r.Verb}}
	if r.IsResource {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		asked.APIGroups, asked.Resources = []string{r.Group}, []string{resource}
		if r.Name != "" {
			asked.ResourceNames = []string{r.Name}
		}
	} else {
		asked.NonResourceURLs = []string{r.Path}
	}
	yes, _ := validation.Covers([]rbacv1.PolicyRule{rule}, []rbacv1.PolicyRule{asked})
	return yes
}

// The words of random policies and requests. There are few, so that they often meet.
var (
	someUsers      = list{"alice", "bob", "devs"}
	someGroups     = list{"devs", "ops", "alice", "system:authenticated"}
	someVerbs      = list{"get", "list", "delete", "approve", "*"}
	someAPIGroups  = list{"", "example.com", "*"}
	someResources  = list{"widgets", "gadgets", "*", "widgets/status", "gadgets/status", "gadgets/scale", "*/status", "*/scale"}
	someNames      = list{"one", "two"}
	someNamespaces = list{"*", "dev", "dev-1", "dev-*", "*-1", "d*v-*", "*v*", "**", "other"}
	somePaths      = list{"*", "/", "/*", "/api", "/api*", "/api/*", "/api/**", "/api/v1", "/metrics"}
)

func some(rng *rand.Rand, from list, atLeast, atMost int) list {
	var chosen list
	for _, i := range rng.Perm(len(from))[:atLeast+rng.IntN(atMost-atLeast+1)] {
		chosen = append(chosen, from[i])
	}
	return chosen
}

func one(rng *rand.Rand, from list) string { return from[rng.IntN(len(from))] }

func randomForm(rng *rand.Rand) (f policy.Form) {
	rules := func(of string) (rules []policy.Rule) {
		for i := range 1 + rng.IntN(3) {
			r := policy.Rule{ID: fmt.Sprintf("%s/r%d", of, i), Verbs: some(rng, someVerbs, 1, 4)}
			if rng.IntN(4) == 0 {
				r.NonResourceURLs = some(rng, somePaths, 1, 2)
			} else {
				r.APIGroups, r.Resources = some(rng, someAPIGroups, 1, 2), some(rng, someResources, 1, 4)
				if rng.IntN(4) == 0 {
					r.ResourceNames = some(rng, someNames, 1, 1)
				}
			}
			rules = append(rules, r)
		}
		return rules
	}
	subjects := func() (subjects []policy.Subject) {
		for range 1 + rng.IntN(3) {
			if rng.IntN(3) == 0 {
				subjects = append(subjects, policy.Subject{User: one(rng, someUsers)})
			} else {
				subjects = append(subjects, policy.Subject{Group: one(rng, someGroups)})
			}
		}
		return subjects
	}
	for i := range 1 + rng.IntN(4) {
		name := fmt.Sprintf("role%d", i)
		f.Roles = append(f.Roles, policy.Role{ID: "t/clusterRoles/" + name, Name: name, Rules: rules(name)})
	}
	for i := range 2 + rng.IntN(7) {
		f.Bindings = append(f.Bindings, policy.Binding{
			ID: fmt.Sprintf("t/bindings/b%d", i), Role: f.Roles[rng.IntN(len(f.Roles))].Name, Subjects: subjects(),
			Namespaces: some(rng, someNamespaces, 1, 2), Source: schemas.Position{File: "rbac.cue", Line: i + 1},
		})
	}
	for i := range rng.IntN(3) {
		id := fmt.Sprintf("t/denies/d%d", i)
		f.Denies = append(f.Denies, policy.Deny{
			ID: id, Subjects: subjects(), Rules: rules(id), Reason: fmt.Sprintf("reason %d", i), Source: schemas.Position{File: "denies.cue", Line: i + 1},
		})
	}
	return f
}

func randomRequest(rng *rand.Rand) policy.Request {
	r := policy.Request{User: one(rng, someUsers), Groups: some(rng, someGroups, 1, 4), Verb: one(rng, someVerbs)}
	if rng.IntN(40) == 0 {
		r.Groups = append(r.Groups, "system:masters")
	}
	if rng.IntN(4) == 0 {
		r.Path = one(rng, list{"/", "/api", "/api/", "/api/v1", "/apis", "/metrics", "/other"})
		return r
	}
	r.IsResource, r.Group, r.Resource = true, one(rng, list{"", "example.com", "example.com", "other.org", "*"}), one(rng, list{"widgets", "widgets", "gadgets", "others", "*"})
	r.Subresource = one(rng, list{"", "", "", "status", "scale", "log"})
	r.Namespace = one(rng, list{"", "dev", "dev-1", "dev-2", "drv-1", "prod-1"})
	r.Name = one(rng, list{"", "one", "two", "three"})
	return r
}

// shrink takes away what a failure does not need, list item by list item.
func shrink(a *access) {
	fails := func() bool {
		p, o, err := load(&a.Form)
		if err != nil {
			return false // a binding without its role, say
		}
		_, wrong := compare(p, o, &a.Request)
		return wrong != ""
	}
	for smaller := true; smaller; {
		smaller = without(reflect.ValueOf(a).Elem(), fails)
	}
}

// without takes out of all lists those items that fails does not need, and tells whether
// there were any.
func without(v reflect.Value, fails func() bool) (smaller bool) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			smaller = without(v.Field(i), fails) || smaller
		}
	case reflect.Slice:
		for i := 0; i < v.Len(); {
			whole := v.Slice(0, v.Len())
			fewer := reflect.MakeSlice(v.Type(), 0, v.Len()-1)
			v.Set(reflect.AppendSlice(reflect.AppendSlice(fewer, whole.Slice(0, i)), whole.Slice(i+1, whole.Len())))
			if fails() {
				smaller = true
				continue
			}
			v.Set(whole)
			smaller = without(v.Index(i), fails) || smaller
			i++
		}
	}
	return smaller
}
