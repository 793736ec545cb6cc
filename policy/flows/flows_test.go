package flows_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	upstream "k8s.io/apiserver/pkg/util/flowcontrol"
	upstreamrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"stele.dev/stele/core/resources/rendered"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false) // upstream writes a warning for every request that only the last resort matches
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

func TestTheBuiltinObjectsAreUpstreams(t *testing.T) {
	table := flows.New(&policy.Flow{})
	var got, want []string
	for _, s := range table.Schemas() {
		got = append(got, s.Name)
		if !s.Builtin || s.ID != "flow/flowSchemas/"+s.Name || s.Level.Name != s.PriorityLevel {
			t.Errorf("%+v", s)
		}
	}
	specs := map[string]any{}
	for _, o := range slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas) {
		want, specs[o.Name] = append(want, o.Name), o.Spec
	}
	slices.Sort(want)
	if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, want) {
		t.Errorf("flow schemas %q, want %q", sorted, want)
	}
	order := []string{"exempt", "probes", "system-leader-election", "system-node-high", "system-nodes", "kube-controller-manager", "kube-scheduler",
		"kube-system-service-accounts", "service-accounts", "global-default", "catch-all"}
	if !slices.Equal(got, order) {
		t.Errorf("the order is %q, want %q", got, order)
	}
	for _, s := range table.Schemas() {
		if diff := cmp.Diff(specs[s.Name], any(rendered.FlowSchemaSpec(&s.FlowSchema))); diff != "" {
			t.Errorf("%s (-upstream +here):\n%s", s.Name, diff)
		}
	}
	clear(specs)
	for _, o := range slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations) {
		specs[o.Name] = o.Spec
	}
	for _, l := range table.Levels() {
		if diff := cmp.Diff(specs[l.Name], any(rendered.PriorityLevelSpec(l))); diff != "" || !l.Builtin {
			t.Errorf("%s (-upstream +here):\n%s", l.Name, diff)
		}
		delete(specs, l.Name)
	}
	if len(specs) > 0 {
		t.Errorf("priority levels %v are missing", specs)
	}
}

func TestABundleReplacesWhatIsSuggested(t *testing.T) {
	everyone := []policy.Subject{{User: "*"}}
	all := []policy.FlowRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}
	table := flows.New(&policy.Flow{
		PriorityLevels: []policy.PriorityLevel{{Name: "workload-low", NominalConcurrencyShares: 7}, {Name: "exempt", NominalConcurrencyShares: 7}, {Name: "bulk", NominalConcurrencyShares: 1}},
		FlowSchemas: []policy.FlowSchema{
			{Name: "service-accounts", MatchingPrecedence: 20, PriorityLevel: "bulk", Subjects: everyone, Rules: all},
			{Name: "exempt", MatchingPrecedence: 10, PriorityLevel: "bulk", Subjects: everyone, Rules: all},
			{Name: "catch-all", MatchingPrecedence: 10, PriorityLevel: "bulk", Subjects: everyone, Rules: all},
			{Name: "broken", MatchingPrecedence: 10, PriorityLevel: "no-such", Subjects: everyone, Rules: all},
			{Name: "a", MatchingPrecedence: 20, PriorityLevel: "exempt"},
		},
	})
	var names []string
	for _, s := range table.Schemas() {
		names = append(names, fmt.Sprint(s.Name, " ", s.MatchingPrecedence, " ", s.Level.Name, " ", s.Builtin))
	}
	for _, want := range []string{"exempt 1 exempt true", "a 20 exempt false", "service-accounts 20 bulk false", "catch-all 10000 catch-all true"} {
		if !slices.Contains(names, want) {
			t.Errorf("%q is not one of %q", want, names)
		}
	}
	if len(names) != 12 || slices.Index(names, "a 20 exempt false") > slices.Index(names, "service-accounts 20 bulk false") {
		t.Errorf("%q", names)
	}
	for _, l := range table.Levels() {
		if l.Exempt != (l.Name == "exempt") || l.Builtin == (l.Name == "workload-low" || l.Name == "bulk") || l.UID == "" {
			t.Errorf("%+v", l)
		}
		if l.Name == "workload-low" && l.NominalConcurrencyShares != 7 {
			t.Errorf("the suggested level stands: %+v", l)
		}
	}
	get := policy.Request{User: "u", Verb: "get", IsResource: true, Resource: "pods", Namespace: "a"}
	if s := table.Classify(&get); s.Name != "service-accounts" {
		t.Errorf("classified as %s", s.Name)
	}
}

func TestUIDsStay(t *testing.T) {
	uidOf := func(f *policy.Flow) string {
		for _, s := range flows.New(f).Schemas() {
			if s.Name == "service-accounts" {
				return s.UID
			}
		}
		return ""
	}
	changed := uidOf(&policy.Flow{FlowSchemas: []policy.FlowSchema{{Name: "service-accounts", MatchingPrecedence: 3, PriorityLevel: "exempt"}}})
	if is := uidOf(&policy.Flow{}); is == "" || is != changed || is != policy.UIDOf("flowcontrol.apiserver.k8s.io", "flowschemas", "", "service-accounts") {
		t.Errorf("%q, then %q", is, changed)
	}
}

func TestDistinguish(t *testing.T) {
	r := policy.Request{User: "u", Namespace: "n"}
	for method, want := range map[string]string{"ByUser": "u", "ByNamespace": "n", "": ""} {
		if got := (&flows.Schema{FlowSchema: policy.FlowSchema{Distinguisher: method}}).Distinguish(&r); got != want {
			t.Errorf("%q: %q, want %q", method, got, want)
		}
	}
}

// A generator makes flow schemas and requests of few words, so that many match.
type generator struct{ *rand.Rand }

func (g generator) one(of ...string) string { return of[g.IntN(len(of))] }

// some returns some words, or "*" alone as the API demands.
func (g generator) some(of ...string) []string {
	if g.IntN(4) == 0 {
		return []string{"*"}
	}
	list := make([]string, 1+g.IntN(3))
	for i := range list {
		list[i] = g.one(of...)
	}
	return list
}

var (
	verbWords  = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post", "head"}
	groupWords = []string{"", "apps", "batch"}
	ruleWords  = []string{"pods", "pods/log", "pods/status", "pods/*", "*/scale", "pods/", "nodes", "deployments", "deployments/scale", "scale"}
	pathWords  = []string{"/", "/healthz", "/healthz/", "/healthz/*", "/healthz/a", "/healthz/a/b/*", "/metrics", "/apis/*", "/apis", "/met*", "//", "/openapi/v3/*", "/healthz/**"}
	urlWords   = []string{"/", "/healthz", "/healthz/", "/healthz/a", "/healthz/a/b", "/healthz/a/b/c", "/healthzz", "/metrics", "/metrics/x", "/apis", "/apis/x/y", "//", "//x", "/met", "/met/x", "/met*", "/openapi/v3", "/openapi/v3/apis/a", "", "x"}
	placeWords = []string{"default", "kube-system", "a"}
	userWords  = []string{"alice", "bob", "system:kube-scheduler", "system:serviceaccount:default:robot", "system:serviceaccount:a:robot", "system:serviceaccount:ab:robot", "system:serviceaccount:a"}
	memberOf   = []string{"system:authenticated", "system:unauthenticated", "system:masters", "system:serviceaccounts", "system:nodes", "devs", "ops"}
)

func (g generator) schema(i int) policy.FlowSchema {
	s := policy.FlowSchema{Name: fmt.Sprintf("s%d", g.IntN(5)*100+i), MatchingPrecedence: 1 + g.IntN(12), PriorityLevel: g.one("exempt", "workload-low", "system")}
	if g.IntN(8) == 0 {
		s.MatchingPrecedence = 9000 + g.IntN(1001)
	}
	for range g.IntN(4) {
		switch g.IntN(8) {
		case 0:
			s.Subjects = append(s.Subjects, policy.Subject{User: "*"})
		case 1:
			s.Subjects = append(s.Subjects, policy.Subject{Group: "*"})
		case 2:
			s.Subjects = append(s.Subjects, policy.Subject{User: "system:serviceaccount:" + g.one("default", "a", "b") + ":*"})
		case 3, 4:
			s.Subjects = append(s.Subjects, policy.Subject{User: g.one(userWords...)})
		default:
			s.Subjects = append(s.Subjects, policy.Subject{Group: g.one(memberOf...)})
		}
	}
	for range g.IntN(4) {
		r := policy.FlowRule{Verbs: g.some(verbWords...)}
		if g.IntN(3) == 0 {
			r.NonResourceURLs = g.some(pathWords...)
		} else {
			r.APIGroups, r.Resources = g.some(groupWords...), g.some(ruleWords...)
			if g.IntN(2) == 0 {
				r.Namespaces = g.some(placeWords...)
				if g.IntN(3) == 0 {
					r.Namespaces = append(r.Namespaces, "")
				}
			}
		}
		s.Rules = append(s.Rules, r)
	}
	return s
}

func (g generator) flow(schemas int) *policy.Flow {
	f := &policy.Flow{}
	taken := map[string]bool{}
	for i := range schemas {
		if s := g.schema(i); !taken[s.Name] {
			taken[s.Name] = true
			f.FlowSchemas = append(f.FlowSchemas, s)
		}
	}
	return f
}

func (g generator) request() *policy.Request {
	r := &policy.Request{User: g.one(userWords...), Verb: g.one(verbWords...)}
	for range g.IntN(4) {
		r.Groups = append(r.Groups, g.one(memberOf...))
	}
	if g.IntN(3) == 0 {
		r.Path = g.one(urlWords...)
		return r
	}
	r.IsResource, r.Group, r.Resource = true, g.one(groupWords...), g.one("pods", "nodes", "deployments", "scale", "*")
	if g.IntN(2) == 0 {
		r.Subresource = g.one("log", "status", "scale", "*")
	}
	if g.IntN(3) > 0 {
		r.Namespace = g.one(append([]string{"other"}, placeWords...)...)
	}
	return r
}

// objects returns the flow schemas of a policy as upstream has them.
func objects(schemas []*flows.Schema) (list []*flowcontrolv1.FlowSchema) {
	for _, s := range schemas {
		list = append(list, &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Spec: rendered.FlowSchemaSpec(&s.FlowSchema)})
	}
	return list
}

func userOf(r *policy.Request) user.Info { return &user.DefaultInfo{Name: r.User, Groups: r.Groups} }

func infoOf(r *policy.Request) *request.RequestInfo {
	return &request.RequestInfo{IsResourceRequest: r.IsResource, Path: r.Path, Verb: r.Verb, APIGroup: r.Group, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace}
}

// Upstream's controller gets the same flow schemas as objects, and classifies the same requests.
func TestClassifyIsUpstreams(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			g := generator{rand.New(rand.NewPCG(seed, 21))}
			table := flows.New(g.flow(g.IntN(25)))
			var stored []runtime.Object
			for _, o := range objects(table.Schemas()) {
				stored = append(stored, o)
			}
			for _, l := range table.Levels() {
				stored = append(stored, &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: l.Name}, Spec: rendered.PriorityLevelSpec(l)})
			}
			client := fake.NewClientset(stored...)
			factory := informers.NewSharedInformerFactory(client, 0)
			controller := upstream.New(factory, client.FlowcontrolV1(), 1000)
			ctx, cancel := context.WithCancel(t.Context())
			factory.Start(ctx.Done())
			go func() { _ = controller.Run(ctx.Done()) }()
			time.Sleep(time.Minute) // of the virtual clock: the controller reads the objects
			for range 300 {
				r := g.request()
				var theirs *flowcontrolv1.FlowSchema
				controller.Handle(ctx, upstream.RequestDigest{RequestInfo: infoOf(r), User: userOf(r)},
					func(s *flowcontrolv1.FlowSchema, _ *flowcontrolv1.PriorityLevelConfiguration, _ string) { theirs = s },
					func() upstreamrequest.WorkEstimate { return upstreamrequest.WorkEstimate{InitialSeats: 1} }, func(bool) {}, func() {})
				if ours := table.Classify(r); ours.Name != theirs.Name {
					t.Fatalf("seed %d: %+v is classified as %s, by upstream as %s\n%s", seed, *r, ours.Name, theirs.Name, describe(table, ours.Name, theirs.Name))
				}
			}
			cancel()
			factory.Shutdown()
			synctest.Wait()
		})
	}
}

func describe(t *flows.Table, names ...string) string {
	var b strings.Builder
	for _, s := range t.Schemas() {
		if slices.Contains(names, s.Name) {
			fmt.Fprintf(&b, "%+v\n", s.FlowSchema)
		}
	}
	return b.String()
}

// matches reports whether a flow schema of the API matches a request: one rule after the other, as upstream reads them.
func matches(o *flowcontrolv1.FlowSchema, r *policy.Request) bool {
	has := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Equal(list, []string{"*"})
	}
	return slices.ContainsFunc(o.Spec.Rules, func(p flowcontrolv1.PolicyRulesWithSubjects) bool {
		if !slices.ContainsFunc(p.Subjects, func(s flowcontrolv1.Subject) bool { return isSubject(s, r) }) {
			return false
		}
		if !r.IsResource {
			return slices.ContainsFunc(p.NonResourceRules, func(n flowcontrolv1.NonResourcePolicyRule) bool {
				return has(n.Verbs, r.Verb) && slices.ContainsFunc(n.NonResourceURLs, func(u string) bool {
					return u == "*" || u == r.Path || strings.HasPrefix(r.Path, strings.TrimSuffix(strings.TrimSuffix(u, "*"), "/")+"/")
				})
			})
		}
		name := r.Resource
		if r.Subresource != "" {
			name += "/" + r.Subresource
		}
		return slices.ContainsFunc(p.ResourceRules, func(x flowcontrolv1.ResourcePolicyRule) bool {
			place := has(x.Namespaces, r.Namespace)
			if r.Namespace == "" {
				place = x.ClusterScope
			}
			return has(x.Verbs, r.Verb) && has(x.Resources, name) && has(x.APIGroups, r.Group) && place
		})
	})
}

func isSubject(s flowcontrolv1.Subject, r *policy.Request) bool {
	switch {
	case s.User != nil:
		return s.User.Name == "*" || s.User.Name == r.User
	case s.Group != nil:
		return s.Group.Name == "*" || slices.Contains(r.Groups, s.Group.Name)
	}
	account := "system:serviceaccount:" + s.ServiceAccount.Namespace + ":"
	return account+s.ServiceAccount.Name == r.User || s.ServiceAccount.Name == "*" && strings.HasPrefix(r.User, account)
}

// search compares the index with the flow schemas tried one after the other, for the policies and requests of a seed.
func search(t *testing.T, seed uint64, schemas, requests int) {
	g := generator{rand.New(rand.NewPCG(seed, 7))}
	table := flows.New(g.flow(g.IntN(schemas)))
	list := objects(table.Schemas())
	for range requests {
		r := g.request()
		want := "catch-all"
		if i := slices.IndexFunc(list, func(o *flowcontrolv1.FlowSchema) bool { return matches(o, r) }); i >= 0 {
			want = list[i].Name
		}
		if got := table.Classify(r).Name; got != want {
			t.Fatalf("seed %d: %+v is classified as %s, want %s\n%s", seed, *r, got, want, describe(table, got, want))
		}
	}
}

func TestClassifyFindsTheFirstMatch(t *testing.T) {
	for seed := range uint64(600) {
		search(t, seed, 60, 60)
	}
	search(t, 1000, 1000, 1000)
}

func FuzzClassify(f *testing.F) {
	f.Add(uint64(1), uint16(30))
	f.Fuzz(func(t *testing.T, seed uint64, schemas uint16) { search(t, seed, 1+int(schemas)%300, 200) })
}

func TestClassifyAllocatesNothing(t *testing.T) {
	table, requests := benchmarked(200)
	if n := testing.AllocsPerRun(100, func() {
		for _, r := range requests {
			table.Classify(r)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// benchmarked returns the flow schemas of a large platform, a quarter for users, groups, service accounts and everybody
// each, and requests of users in 20 groups.
func benchmarked(schemas int) (*flows.Table, []*policy.Request) {
	f := &policy.Flow{}
	for i := range schemas {
		s := policy.FlowSchema{Name: fmt.Sprintf("schema-%d", i), MatchingPrecedence: 1000 + i, PriorityLevel: "workload-low"}
		switch i % 4 {
		case 0:
			s.Subjects = []policy.Subject{{User: fmt.Sprintf("user-%d", i)}, {Group: fmt.Sprintf("team-%d", i)}}
		case 1:
			s.Subjects = []policy.Subject{{Group: fmt.Sprintf("team-%d", i%40)}, {Group: fmt.Sprintf("team-%d", i)}}
		case 2:
			s.Subjects = []policy.Subject{{User: fmt.Sprintf("system:serviceaccount:ns-%d:*", i)}}
		case 3:
			s.Subjects = []policy.Subject{{Group: "system:authenticated"}}
		}
		s.Rules = []policy.FlowRule{
			{Verbs: []string{"list", "watch"}, APIGroups: []string{fmt.Sprintf("g%d.example.com", i%10)}, Resources: []string{fmt.Sprintf("things%d", i), "others"}, Namespaces: []string{fmt.Sprintf("ns-%d", i), "shared"}},
			{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{fmt.Sprintf("parts%d", i)}},
			{Verbs: []string{"get"}, NonResourceURLs: []string{fmt.Sprintf("/debug/%d/*", i)}},
		}
		f.FlowSchemas = append(f.FlowSchemas, s)
	}
	groups := []string{"system:authenticated"}
	for i := range 19 {
		groups = append(groups, fmt.Sprintf("team-%d", i*3))
	}
	var requests []*policy.Request
	for _, user := range []string{"user-4", "system:serviceaccount:ns-6:robot", "somebody"} {
		requests = append(requests,
			&policy.Request{User: user, Groups: groups, Verb: "list", IsResource: true, Group: "g1.example.com", Resource: "others", Namespace: "shared"},
			&policy.Request{User: user, Groups: groups, Verb: "get", IsResource: true, Resource: "pods", Subresource: "log", Namespace: "ns-6"},
			&policy.Request{User: user, Groups: groups, Verb: "list", IsResource: true, Group: "", Resource: "nodes"},
			&policy.Request{User: user, Groups: groups, Verb: "get", Path: "/openapi/v3/apis/apps/v1"})
	}
	return flows.New(f), requests
}

func BenchmarkClassify(b *testing.B) {
	for _, n := range []int{10, 200, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table, requests := benchmarked(n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				table.Classify(requests[i%len(requests)])
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	table, _ := benchmarked(200)
	f := &policy.Flow{}
	for _, s := range table.Schemas() {
		f.FlowSchemas = append(f.FlowSchemas, s.FlowSchema)
	}
	b.ReportAllocs()
	for b.Loop() {
		flows.New(f)
	}
}
