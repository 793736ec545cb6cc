package simulation_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
)

// TestP3UnderLoad has many users write and read on replicas of one log while policies that grant
// and revoke come in force at any time. Afterwards every event of the log is judged again
// under the policy in force at its revision, and every read under that of the state that
// it was answered from. A failure names the seed that shows it again.
func TestP3UnderLoad(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that goroutines take turns the same way each time
	seeds := uint64(20)
	if testing.Short() {
		seeds = 2
	}
	total := outcomes{}
	for seed := uint64(1); seed <= seeds; seed++ {
		if *simulationSeed != 0 && seed != *simulationSeed {
			continue
		}
		synctest.Test(t, func(t *testing.T) { // which ends the test if it fails
			defer func() {
				if t.Failed() {
					t.Logf("seed %d failed; go test ./core/conformance/simulation -run TestP3UnderLoad -simulation-seed %d", seed, seed)
				}
			}()
			s := &lawgivers{simulation: &simulation{t: t, seed: seed, counts: total}, laws: map[string]*policy.Policy{}}
			s.run()
		})
	}
	t.Logf("outcomes: %v", total)
	for _, what := range []string{"activation", "written", "refused", "read", "listed"} {
		if *simulationSeed == 0 && total[what] < int(seeds)*10 {
			t.Errorf("%q happened %d times in %d seeds", what, total[what], seeds)
		}
	}
}

// lawgivers is a simulation in which policies change all the time.
type lawgivers struct {
	*simulation
	compiled []*compile.Result
	laws     map[string]*policy.Policy // by digest
	asked    []*question
}

// question is a request, what it was to the policy, and what came of it.
type question struct {
	access      policy.Request
	auditID     string
	begin, end  int // batches in the log then
	anyRevision bool
	answer      planetest.Answer
}

func (s *lawgivers) run() {
	s.enact(s.rng(0))
	s.calm.Store(true) // a log that is slow, with three who write to it, is enough
	for i := range simReplicas {
		r, err := planetest.OpenReplica(s.t.Context(), s.store.Open(s.schedule(i)), 1<<20)
		if err != nil {
			s.t.Fatal(err)
		}
		s.replicas = append(s.replicas, r)
	}
	s.replicas[0].Bootstrap(s.t, planetest.Bundle)

	ctx, stop := context.WithCancel(s.t.Context())
	var activators, users sync.WaitGroup
	for i := range 2 {
		activators.Go(func() { s.activate(ctx, s.rng(uint64(1+i))) })
	}
	for i := range 8 {
		users.Go(func() { s.user(i, s.rng(uint64(100+i))) })
	}
	users.Wait()
	stop()
	activators.Wait()
	for _, r := range s.replicas {
		r.Close()
	}
	time.Sleep(time.Minute) // what they had sent has arrived
	s.judge()
}

// enact makes policies that allow and deny this and that to some and others.
func (s *lawgivers) enact(rng *rand.Rand) {
	base := planetest.Compile(s.t, planetest.Bundle)
	s.remember(base.Form)
	for i := range 6 {
		form := *base.Form
		form.Roles, form.Bindings, form.Denies, form.Probes = slices.Clip(form.Roles), nil, nil, nil
		for j := range 10 {
			role := fmt.Sprintf("role%d", j)
			form.Roles = append(form.Roles, policy.Role{ID: role, Name: role, Rules: []policy.Rule{{
				ID: role + "/r", APIGroups: []string{"example.com"}, Resources: []string{"widgets"},
				Verbs: planetest.Pick(rng, []string{"*"}, []string{"get", "list", "create", "patch"}, []string{"get", "update", "delete", "deletecollection"}, []string{"list", "patch", "create"}),
			}}})
			form.Bindings = append(form.Bindings, policy.Binding{
				ID: fmt.Sprintf("law%d/bindings/%d", i, j), Role: role,
				Subjects:   []policy.Subject{planetest.Pick(rng, policy.Subject{User: "user0"}, policy.Subject{User: "user1"}, policy.Subject{Group: "even"}, policy.Subject{Group: "odd"})},
				Namespaces: planetest.Pick(rng, []string{"*"}, []string{"*"}, []string{"default"}, []string{"kube-*"}),
			})
		}
		form.Denies = append(form.Denies, policy.Deny{
			ID: fmt.Sprintf("law%d/denies/d", i), Subjects: []policy.Subject{{Group: planetest.Pick(rng, "even", "odd")}}, Reason: "no",
			Rules: []policy.Rule{{ID: "d/r", APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{planetest.Pick(rng, "get", "update", "delete", "create", "deletecollection")}}},
		})
		s.remember(&form)
		s.compiled = append(s.compiled, &compile.Result{Form: &form, Source: base.Source})
	}
}

func (s *lawgivers) remember(f *policy.Form) {
	encoded, _ := f.Encode()
	p, err := policy.New(encoded)
	if err != nil {
		s.t.Fatal(err)
	}
	s.laws[p.DigestString()] = p
}

func (s *lawgivers) activate(ctx context.Context, rng *rand.Rand) {
	for wait(ctx, time.Duration(rng.IntN(40))*time.Millisecond) {
		if _, err := activation.ActivateCompiled(ctx, s.replica(rng).Committer, planetest.Pick(rng, s.compiled...), "lawgiver"); err == nil {
			s.count("activation")
		}
	}
}

// user sends random requests in somebody's name.
func (s *lawgivers) user(number int, rng *rand.Rand) {
	name, group := fmt.Sprintf("user%d", number), []string{"even", "odd"}[number%2]
	for i := range 40 {
		time.Sleep(time.Duration(rng.IntN(10_000)) * time.Microsecond)
		q := &question{auditID: fmt.Sprintf("%d-%d", number, i)}
		q.access = policy.Request{
			User: name, Groups: []string{group, "system:authenticated"}, IsResource: true, Group: "example.com", Resource: "widgets",
			Namespace: planetest.Pick(rng, "default", "kube-system"), Name: planetest.Pick(rng, "a", "b", "c"),
		}
		header := []string{"Impersonate-User", name, "Impersonate-Group", group, "Audit-ID", q.auditID}
		base := "/apis/example.com/v1/namespaces/" + q.access.Namespace + "/widgets"
		path, method, body := base+"/"+q.access.Name, "GET", ""
		object := planetest.Widget(q.access.Name, 1+rng.IntN(1000))
		switch q.access.Verb = planetest.Pick(rng, "get", "list", "create", "create", "update", "update", "patch", "patch", "delete", "deletecollection"); q.access.Verb {
		case "list":
			path, q.access.Name = base, ""
			if q.anyRevision = rng.IntN(2) == 0; q.anyRevision {
				path += "?resourceVersion=0"
			}
		case "create":
			path, method, body, q.access.Name = base, "POST", object, ""
		case "update":
			method, body = "PUT", object
		case "patch":
			method, body = "PATCH", fmt.Sprintf(`{"spec":{"size":%d}}`, 1+rng.IntN(1000))
			header = append(header, "Content-Type", "application/merge-patch+json")
		case "delete":
			method = "DELETE"
		case "deletecollection":
			path, method, q.access.Name = base, "DELETE", ""
		}
		r := s.replica(rng)
		q.begin = len(s.store.Batches())
		q.answer = r.Do(method, path, body, header...)
		q.end = len(s.store.Batches())
		s.mu.Lock()
		s.asked = append(s.asked, q)
		s.mu.Unlock()
	}
}

// reign is a policy, and from which revision on states are under it.
type reign struct {
	from uint64
	*policy.Policy
}

// judge holds the log, and what readers saw, against the policies.
func (s *lawgivers) judge() {
	m := s.model()
	var reigns []reign
	inForce := func(revision uint64) *policy.Policy { // in the state at that revision
		var p *policy.Policy
		for _, r := range reigns {
			if r.from <= revision {
				p = r.Policy
			}
		}
		return p
	}
	decidedBy := map[string]string{} // audit id -> digest that its event names
	for _, stored := range s.store.Batches() {
		b, err := eventlog.DecodeBatch(stored.First, stored.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range b.Events {
			// An event stands on the state before it.
			if law := inForce(e.Revision - 1); law != nil {
				s.judgeEvent(e, law)
				decidedBy[e.Meta.GetRequest().GetAuditId()] = law.DigestString()
			}
			if a := e.Meta.GetPolicyActivated(); a != nil {
				reigns = append(reigns, reign{e.Revision, s.laws[hex.EncodeToString(a.GetDigest())]})
			}
		}
	}
	for _, q := range s.asked {
		s.judgeAnswer(m, q, inForce, decidedBy[q.auditID])
	}
}

func (s *lawgivers) judgeEvent(e *eventlog.Event, law *policy.Policy) {
	if got := hex.EncodeToString(e.Meta.GetPolicyDigest()); got != law.DigestString() {
		s.t.Errorf("P3: the event at revision %d names the policy %.12s, in force was %.12s", e.Revision, got, law.DigestString())
	}
	o, by, decision := e.Meta.GetObject(), e.Meta.GetActor(), e.Meta.GetDecisions()
	if o == nil {
		return // of a policy
	}
	access := &policy.Request{
		User: by.GetUser(), Groups: by.GetGroups(), Verb: e.Meta.GetRequest().GetVerb(), IsResource: true, Group: o.GetGroup(), Resource: o.GetResource(),
		Subresource: e.Meta.GetRequest().GetSubresource(), Namespace: o.GetNamespace(), Name: o.GetName(),
	}
	if e.Meta.GetType() == logpb.Type_TYPE_CREATED {
		access.Name = ""
	}
	d := law.Authorize(context.Background(), access)
	if !d.Allowed {
		s.t.Errorf("P3: the event at revision %d was not allowed by the policy in force: %+v", e.Revision, access)
	}
	if o.GetResource() != "widgets" {
		return
	}
	if decision.GetRule() != d.Rule || decision.GetAuthorizer() != d.Authorizer {
		s.t.Errorf("P5: the event at revision %d names %v, but in force was %q", e.Revision, decision, d.Rule)
	}
	s.count("written")
}

// judgeAnswer: whoever was answered was so by a policy that was in force, meanwhile, in the
// very state that the answer is from.
func (s *lawgivers) judgeAnswer(m *model, q *question, inForce func(uint64) *policy.Policy, event string) {
	code, digest := q.answer.Code, q.answer.Header.Get("Stele-Policy")
	lo, hi := m.revisionOf[q.begin], m.revisionOf[q.end]
	if q.anyRevision {
		lo = 0
	}
	fail := func(format string, args ...any) {
		s.t.Errorf("%s (%s) under %.12s, revisions %d..%d: %.200s\n%s", q.access.Verb, q.auditID, digest, lo, hi, q.answer, fmt.Sprintf(format, args...))
	}
	law := s.laws[digest]
	if law == nil {
		fail("the policy is not known")
		return
	}
	under := func(holds func(uint64) bool) bool {
		return within(lo, hi, func(r uint64) bool { return inForce(r) == law && holds(r) })
	}
	switch d := law.Authorize(context.Background(), &q.access); {
	case code == 403:
		s.count("refused")
		if d.Allowed {
			fail("P3: it was refused, though the policy allows it")
		}
		if !under(func(uint64) bool { return true }) {
			fail("P3: that policy was not in force meanwhile")
		}
	case code >= 500:
	case !d.Allowed:
		fail("P3: it was answered, though the policy does not allow it")
	case event != "" && event != digest && q.access.Verb != "deletecollection": // which has many
		fail("P3: its event was decided by %.12s", event)
	case q.access.Verb == "list" && code == 200:
		s.count("listed")
		v, _ := q.answer.Field("metadata", "resourceVersion").(string)
		at, _ := strconv.ParseUint(v, 10, 64)
		if at < lo || at > hi || inForce(at) != law {
			fail("P3: the list is of revision %d, where %.12s was in force", at, inForce(at).DigestString())
		}
		if got, want := string(q.answer.Body), m.list(q.access.Namespace, at); got != want {
			fail("P2: at revision %d there was\n%s", at, want)
		}
	case q.access.Verb == "get" && (code == 200 || code == 404):
		s.count("read")
		want := ""
		if code == 200 {
			want = strings.TrimSuffix(string(q.answer.Body), "\n")
		}
		if !under(func(r uint64) bool { return m.at(q.access.Namespace+"/"+q.access.Name, r) == want }) {
			fail("P3: it was never like this under that policy")
		}
	}
}
