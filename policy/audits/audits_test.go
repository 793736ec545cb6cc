package audits_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	upstream "k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/policy/rights"
)

// get is a request of tim, who is a human and a developer.
func get(group, resource, namespace, name string) *policy.Request {
	r := &policy.Request{User: "tim", Groups: []string{"humans", "developers"}, Verb: "get", IsResource: true, Group: group, Namespace: namespace, Name: name}
	r.Resource, r.Subresource, _ = strings.Cut(resource, "/")
	return r
}

func TestTheFirstRuleThatMatchesDecides(t *testing.T) {
	users := func(names ...string) (list []policy.Subject) {
		for _, n := range names {
			list = append(list, policy.Subject{User: n})
		}
		return list
	}
	group := func(name string) []policy.Subject { return []policy.Subject{{Group: name}} }
	requests := map[string]*policy.Request{
		"pod":  get("", "pods", "default", "busybox"),
		"log":  get("", "pods/log", "default", "busybox"),
		"role": get("rbac.authorization.k8s.io", "clusterroles", "", "edit"),
		"path": {User: "tim", Groups: []string{"humans", "developers"}, Verb: "get", Path: "/logs/kubelet.log"},
	}
	for name, tc := range map[string]struct {
		rule policy.AuditRule
		want string // the requests that match
	}{
		"without lists":                    {policy.AuditRule{}, "log path pod role"},
		"a verb":                           {policy.AuditRule{Verbs: []string{"create"}}, ""},
		"some verbs":                       {policy.AuditRule{Verbs: []string{"create", "get"}}, "log path pod role"},
		"a user":                           {policy.AuditRule{Subjects: users("ann", "tim")}, "log path pod role"},
		"another user":                     {policy.AuditRule{Subjects: users("ann")}, ""},
		"a group":                          {policy.AuditRule{Subjects: group("developers")}, "log path pod role"},
		"a group with the name of a user":  {policy.AuditRule{Subjects: group("tim")}, ""},
		"one of a user and a group":        {policy.AuditRule{Subjects: append(users("ann"), group("humans")...)}, "log path pod role"},
		"a user who is a member":           {policy.AuditRule{Subjects: users("tim"), MemberOf: []string{"robots", "humans"}}, "log path pod role"},
		"a user who is no member":          {policy.AuditRule{Subjects: users("tim"), MemberOf: []string{"robots"}}, ""},
		"members":                          {policy.AuditRule{MemberOf: []string{"humans"}}, "log path pod role"},
		"service accounts":                 {policy.AuditRule{Subjects: group("system:serviceaccounts")}, ""},
		"a resource":                       {policy.AuditRule{APIGroups: []string{""}, Resources: []string{"pods"}}, "pod"},
		"a resource of another group":      {policy.AuditRule{APIGroups: []string{"apps"}, Resources: []string{"pods"}}, ""},
		"a resource of any group":          {policy.AuditRule{Resources: []string{"pods", "clusterroles"}}, "pod role"},
		"a subresource":                    {policy.AuditRule{Resources: []string{"pods/log"}}, "log"},
		"a subresource of all":             {policy.AuditRule{Resources: []string{"*/log"}}, "log"},
		"a resource and its subresources":  {policy.AuditRule{Resources: []string{"pods/*"}}, "log pod"},
		"all resources":                    {policy.AuditRule{Resources: []string{"*"}}, "log pod role"},
		"all resources of a group":         {policy.AuditRule{APIGroups: []string{""}}, "log pod"},
		"a namespace":                      {policy.AuditRule{Namespaces: []string{"default"}}, "log pod"},
		"outside of namespaces":            {policy.AuditRule{Namespaces: []string{""}}, "role"},
		"a resource outside of namespaces": {policy.AuditRule{Resources: []string{"clusterroles"}, Namespaces: []string{""}}, "role"},
		"a name":                           {policy.AuditRule{Resources: []string{"*"}, Names: []string{"edit", "x"}}, "role"},
		"a path":                           {policy.AuditRule{NonResourceURLs: []string{"/logs"}}, ""},
		"the beginning of a path":          {policy.AuditRule{NonResourceURLs: []string{"/logs*"}}, "path"},
		"one of some paths":                {policy.AuditRule{NonResourceURLs: []string{"/healthz*", "/logs/kubelet.log"}}, "path"},
		"all paths":                        {policy.AuditRule{NonResourceURLs: []string{"*"}}, "path"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.rule.ID, tc.rule.Level = "it", "Request"
			before := policy.AuditRule{ID: "before", Level: "None", Subjects: users("nobody")}
			after := policy.AuditRule{ID: "after", Level: "Metadata", Subjects: users("tim")}
			table := audits.New(&policy.Audit{Rules: []policy.AuditRule{before, tc.rule, after}})
			var matched []string
			for name, r := range requests {
				switch rule := table.Classify(r); rule.ID {
				case "it":
					matched = append(matched, name)
				case "after":
				default:
					t.Errorf("the rule of %s is %q", name, rule.ID)
				}
			}
			slices.Sort(matched)
			if got := strings.Join(matched, " "); got != tc.want {
				t.Errorf("it matches %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWithoutAMatchNothingIsRecorded(t *testing.T) {
	table := audits.New(&policy.Audit{Rules: []policy.AuditRule{{ID: "a", Level: "Metadata", Verbs: []string{"delete"}}}, OmitStages: []string{"Panic"}})
	r := table.Classify(get("", "pods", "a", "b"))
	if r.ID != "" || r.Level != logpb.AuditLevel_AUDIT_LEVEL_NONE || r.Recorded() || r.RecordsReads() || r.RecordsBodies() || r.Record.Level != r.Level {
		t.Errorf("%+v", r)
	}
	if r.Stages != audits.All&^audits.Panic {
		t.Errorf("the stages are %v", r.Stages.Names())
	}
}

func TestAPolicyWithoutRulesRecordsWritesAndRefusals(t *testing.T) {
	var tables audits.Tables
	for name, table := range map[string]*audits.Table{"no policy": tables.Of(nil), "no rules": audits.New(&policy.Audit{})} {
		r := table.Classify(get("", "pods", "a", "b"))
		if r.ID != "" || r.Level != logpb.AuditLevel_AUDIT_LEVEL_METADATA || r.Stages != audits.ResponseComplete || !r.Recorded() || r.RecordsReads() {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestStagesAndManagedFields(t *testing.T) {
	yes, no := true, false
	table := audits.New(&policy.Audit{OmitManagedFields: true, OmitStages: []string{"RequestReceived"}, Rules: []policy.AuditRule{
		{ID: "get", Level: "RequestResponse", Verbs: []string{"get"}, OmitStages: []string{"Panic", "ResponseStarted"}, OmitManagedFields: &no, Sync: true},
		{ID: "list", Level: "Request", Verbs: []string{"list"}, OmitManagedFields: &yes},
		{ID: "watch", Level: "Metadata", Verbs: []string{"watch"}, OmitStages: []string{"ResponseStarted", "ResponseComplete", "Panic"}},
	}})
	for verb, want := range map[string]string{
		"get":   "RequestResponse[ResponseComplete] false true true",
		"list":  "Request[ResponseStarted ResponseComplete Panic] true false true",
		"watch": "Metadata[] true false false",
	} {
		r := table.Classify(&policy.Request{Verb: verb, IsResource: true, Resource: "pods"})
		if got := fmt.Sprint(audits.LevelName(r.Level), r.Stages.Names(), r.OmitManagedFields, r.Sync, r.Recorded()); got != want {
			t.Errorf("%s: %s, want %s", verb, got, want)
		}
		if r.Record.Stages != uint32(r.Stages) || r.Record.OmitManagedFields != r.OmitManagedFields || r.Record.Rule != verb {
			t.Errorf("%s: the record is %v", verb, r.Record)
		}
	}
}

// A generator makes audit policies and requests of few words, so that many match.
type generator struct{ *rand.Rand }

func (g generator) some(words ...string) (list []string) {
	if g.IntN(3) > 0 {
		return nil
	}
	for range 1 + g.IntN(3) {
		list = append(list, words[g.IntN(len(words))])
	}
	return list
}

func (g generator) one(words ...string) string { return words[g.IntN(len(words))] }

var (
	userWords   = []string{"ann", "bob", "system:serviceaccount:a:robot", "developers"}
	groupWords  = []string{"developers", "system:masters", "system:authenticated", "ann"}
	verbWords   = []string{"get", "list", "watch", "create", "patch", "delete", "deletecollection"}
	apiGroups   = []string{"", "apps", "*", "a.example.com"}
	resourceOf  = []string{"pods", "pods/log", "pods/*", "*/scale", "*", "*/*", "*/", "pods/", "deployments", "deployments/scale", "*/log"}
	places      = []string{"", "default", "a", "kube-system"}
	objectNames = []string{"x", "y", ""}
	pathWords   = []string{"/metrics", "/healthz*", "/healthz", "*", "/*", "/api*", "/logs**", "/"}
	urls        = []string{"/metrics", "/healthz", "/healthz/etcd", "/api", "/logs/a", "/", "/version"}
	stages      = []string{"RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"}
)

func (g generator) rule() auditv1.PolicyRule {
	r := auditv1.PolicyRule{Level: auditv1.Level(g.one("None", "Metadata", "Request", "RequestResponse")),
		Users: g.some(userWords...), UserGroups: g.some(groupWords...), Verbs: g.some(verbWords...)}
	if g.IntN(4) == 0 {
		r.NonResourceURLs = g.some(pathWords...)
	} else {
		r.Namespaces = g.some(places...)
		for range g.IntN(3) {
			x := auditv1.GroupResources{Group: g.one(apiGroups...), Resources: g.some(resourceOf...)}
			if len(x.Resources) > 0 {
				x.ResourceNames = g.some(objectNames...)
			}
			r.Resources = append(r.Resources, x)
		}
	}
	for _, s := range g.some(stages...) {
		r.OmitStages = append(r.OmitStages, auditv1.Stage(s))
	}
	if g.IntN(4) == 0 {
		omit := g.IntN(2) == 0
		r.OmitManagedFields = &omit
	}
	return r
}

func (g generator) policy() *auditv1.Policy {
	p := &auditv1.Policy{OmitManagedFields: g.IntN(2) == 0}
	for _, s := range g.some(stages...) {
		p.OmitStages = append(p.OmitStages, auditv1.Stage(s))
	}
	n := 1 + g.IntN(8)
	if g.IntN(10) == 0 {
		n = 60 + g.IntN(90) // sets of more than a word
	}
	for range n {
		p.Rules = append(p.Rules, g.rule())
	}
	return p
}

func (g generator) request() *policy.Request {
	r := &policy.Request{User: g.one(userWords...), Groups: g.some(groupWords...), Verb: g.one(verbWords...)}
	if r.IsResource = g.IntN(4) > 0; !r.IsResource {
		r.Path = g.one(urls...)
		return r
	}
	r.Group, r.Namespace, r.Name = g.one("", "apps", "a.example.com", "b"), g.one(places...), g.one(objectNames...)
	r.Resource, r.Subresource = g.one("pods", "deployments", "nodes", "*"), g.one("", "", "log", "scale", "*")
	return r
}

// evaluator returns the evaluator of kube-apiserver. It does not see later changes of the policy.
func evaluator(t testing.TB, p *auditv1.Policy) func(*policy.Request) string {
	internal := &audit.Policy{}
	if err := auditv1.Convert_v1_Policy_To_audit_Policy(p.DeepCopy(), internal, nil); err != nil {
		t.Fatal(err)
	}
	evaluator := upstream.NewPolicyRuleEvaluator(internal)
	return func(r *policy.Request) string {
		c := evaluator.EvaluatePolicyRule(&authorizer.AttributesRecord{User: &user.DefaultInfo{Name: r.User, Groups: r.Groups}, Verb: r.Verb, ResourceRequest: r.IsResource,
			APIGroup: r.Group, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name, Path: r.Path})
		var omitted []string
		for _, s := range c.OmitStages {
			omitted = append(omitted, string(s))
		}
		return fmt.Sprint(c.Level, (audits.All &^ audits.StagesOf(omitted)).Names(), c.OmitManagedFields)
	}
}

func evaluated(r *audits.Rule) string {
	return fmt.Sprint(auditv1.Level(audits.LevelName(r.Level)), r.Stages.Names(), r.OmitManagedFields)
}

// checkEvaluation compares the evaluation of requests with that of kube-apiserver, for a policy and for what becomes of it when it
// is imported and exported.
func checkEvaluation(t *testing.T, g generator) {
	p := g.policy()
	theirs := evaluator(t, p)
	a := audits.FromKubernetes(p)
	table := audits.New(&a)
	exported := evaluator(t, audits.ToKubernetes(&a))
	for range 40 {
		r := g.request()
		want := theirs(r)
		if got := evaluated(table.Classify(r)); got != want {
			t.Fatalf("%+v is %s, upstream has %s, with the rules %+v", r, got, want, p.Rules)
		}
		if got := exported(r); got != want {
			t.Fatalf("%+v is %s after an export, upstream has %s, with the rules %+v", r, got, want, p.Rules)
		}
	}
}

func TestRulesMatchAsUpstream(t *testing.T) {
	for seed := range uint64(1500) {
		checkEvaluation(t, generator{rand.New(rand.NewPCG(seed, 1))})
	}
}

func FuzzRulesMatchAsUpstream(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) { checkEvaluation(t, generator{rand.New(rand.NewPCG(a, b))}) })
}

// Rules whose subjects are users and groups at once become two.
func TestExportedRulesRecordTheSame(t *testing.T) {
	for seed := range uint64(300) {
		g := generator{rand.New(rand.NewPCG(seed, 2))}
		a := audits.FromKubernetes(g.policy())
		for i := range a.Rules {
			if r := &a.Rules[i]; len(r.MemberOf) == 0 && g.IntN(2) == 0 {
				r.Subjects = append(r.Subjects, policy.Subject{User: g.one(userWords...)}, policy.Subject{Group: g.one(groupWords...)})
			}
		}
		table, exported := audits.New(&a), evaluator(t, audits.ToKubernetes(&a))
		for range 40 {
			r := g.request()
			if got, want := exported(r), evaluated(table.Classify(r)); got != want {
				t.Fatalf("%+v is %s after an export, and was %s, with the rules %+v", r, got, want, a.Rules)
			}
		}
	}
}

func TestClassifyAllocatesNothing(t *testing.T) {
	table, r := fifty()
	if n := testing.AllocsPerRun(100, func() { table.Classify(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// fifty returns a table of 50 rules, and a request that only the last one matches.
func fifty() (*audits.Table, *policy.Request) {
	a := &policy.Audit{}
	for i := range 49 {
		n := fmt.Sprint(i)
		r := policy.AuditRule{ID: n, Level: "Request", Verbs: []string{"get", "patch"}, APIGroups: []string{"apps", ""}, Resources: []string{"things" + n, "pods/*", "*/scale"}, Namespaces: []string{"team-" + n}}
		switch i % 4 {
		case 0:
			r.Subjects = []policy.Subject{{Group: "group-" + n}}
		case 1:
			r.Subjects, r.MemberOf = []policy.Subject{{User: "user-" + n}}, []string{"developers"}
		case 2:
			r.Names = []string{"name-" + n}
		}
		a.Rules = append(a.Rules, r)
	}
	a.Rules = append(a.Rules, policy.AuditRule{ID: "last", Level: "Metadata"})
	return audits.New(a), &policy.Request{User: "ann", Groups: []string{"developers", "a", "b", "system:authenticated"}, Verb: "get", IsResource: true, Resource: "pods", Namespace: "default", Name: "x"}
}

func BenchmarkClassify(b *testing.B) {
	b.Run("rules=50", func(b *testing.B) {
		table, r := fifty()
		b.ReportAllocs()
		for b.Loop() {
			table.Classify(r)
		}
	})
	b.Run("rules=0", func(b *testing.B) {
		_, r := fifty()
		table := audits.New(&policy.Audit{})
		b.ReportAllocs()
		for b.Loop() {
			table.Classify(r)
		}
	})
}

func subjects(groups []string) (list []policy.Subject) {
	for _, g := range groups {
		list = append(list, policy.Subject{Group: g})
	}
	return list
}

// If other rules match all samples of a rule, they match all of its requests.
func TestSamplesStandForAllRequests(t *testing.T) {
	covered := 0
	for seed := range uint64(3000) {
		g := generator{rand.New(rand.NewPCG(seed, 3))}
		a := audits.FromKubernetes(g.policy())
		if len(a.Rules) < 2 {
			continue
		}
		for i := range a.Rules {
			a.Rules[i].ID = fmt.Sprint(i)
		}
		last := &a.Rules[len(a.Rules)-1]
		table := audits.New(&a)
		reached := false
		for q := range audits.Samples(last) {
			reached = reached || table.Classify(q).ID == last.ID
		}
		if reached {
			continue
		}
		covered++
		for range 100 {
			q := g.request()
			for _, s := range append([]policy.Subject{{User: q.User}}, subjects(q.Groups)...) {
				for _, implied := range rights.Implied(s) { // every user is in these
					q.Groups = append(q.Groups, implied.Group)
				}
			}
			if q.Resource != "*" && q.Subresource != "*" && table.Classify(q).ID == last.ID {
				t.Fatalf("seed %d: %+v reaches %+v, and no sample does", seed, q, last)
			}
		}
	}
	if covered < 100 {
		t.Errorf("only %d rules were matched by others", covered)
	}
}
