package core_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// outside is an authorizer that is not the policy, as a test has it.
type outside struct {
	mu     sync.Mutex
	asked  []policy.Request
	answer func(r *policy.Request) policy.Opinion
}

func (o *outside) Authorize(_ context.Context, r *policy.Request) policy.Opinion {
	o.mu.Lock()
	o.asked = append(o.asked, *r)
	answer := o.answer
	o.mu.Unlock()
	return answer(r)
}

func (o *outside) ByName(*policy.Request) bool { return true }

func (o *outside) last() policy.Request { return o.before(0) }

// before is what it was asked that many questions before the last one.
func (o *outside) before(n int) policy.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[len(o.asked)-1-n]
}

// askingBundle asks a webhook behind what it says itself.
var askingBundle = strings.Replace(bundle, `cluster: "test"`, "cluster: \"test\"\n\tauthorizers: [\"deny\", \"rbac\", \"webhook\"]", 1)

// newAskingPlane is a control plane whose policy asks an authorizer outside of it.
func newAskingPlane(t testing.TB, o *outside, enforceable core.Enforceable) *replica {
	t.Helper()
	var store memlog.Store
	bind := func(p *policy.Policy) *policy.Policy {
		return p.WithAuthorizers(func(string) policy.Authorizer { return o })
	}
	r, err := tryStartAsking(t.Context(), store.Open(nil), bind, enforceable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	r.bootstrap(t, askingBundle)
	return r
}

func opines(v policy.Verdict, reason string) func(*policy.Request) policy.Opinion {
	return func(*policy.Request) policy.Opinion {
		return policy.Opinion{Verdict: v, Reason: reason, Detail: "10.0.0.1 said so"}
	}
}

// client is client-go's, for a token.
func (r *replica) client(t testing.TB, token string) dynamic.Interface {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	c, err := dynamic.NewForConfig(&rest.Config{Host: server.URL, BearerToken: token})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An authorizer outside of the policy is asked what clients ask, with their selectors.
func TestSelectorsReachAuthorizers(t *testing.T) {
	o := &outside{answer: opines(policy.Allows, "")}
	r := newAskingPlane(t, o, nil)
	widgets := r.client(t, "nobody-token").Resource(widgetsResource.WithVersion("v1")).Namespace("default")
	ask := func(verbs ...string) { // the last of which is what it heard last
		t.Helper()
		for n, verb := range verbs {
			if got := o.before(len(verbs) - 1 - n); got.Verb != verb || got.User != "nobody" || got.Resource != "widgets" || got.Namespace != "default" || got.Selectors == nil ||
				len(got.Selectors.Labels) != 1 || got.Selectors.Labels[0].String() != "team=a" || len(got.Selectors.Fields) != 1 || got.Selectors.Fields[0].Field != "spec.color" {
				t.Errorf("of a %s it heard %+v, %+v", verb, got, got.Selectors)
			}
		}
	}
	selected := metav1.ListOptions{LabelSelector: "team=a", FieldSelector: "spec.color=red"}
	if _, err := widgets.List(t.Context(), selected); err != nil {
		t.Fatal(err)
	}
	ask("list")
	watch, err := widgets.Watch(t.Context(), selected)
	if err != nil {
		t.Fatal(err)
	}
	watch.Stop()
	ask("watch")
	if err := widgets.DeleteCollection(t.Context(), metav1.DeleteOptions{}, selected); err != nil {
		t.Fatal(err)
	}
	ask("deletecollection", "list") // the answer shows what was there
	if _, err := widgets.Get(t.Context(), "x", metav1.GetOptions{}); err == nil {
		t.Error("there is an object")
	}
	if got := o.last(); got.Verb != "get" || got.Selectors != nil {
		t.Errorf("of a get it heard %+v", got)
	}
}

// Who is refused reads the authorizer's reason, and no detail; who is allowed is in the log with it.
func TestWhatAnAuthorizerSaid(t *testing.T) {
	o := &outside{answer: opines(policy.Denies, "outside of the change window")}
	r := newAskingPlane(t, o, nil)
	a := r.must(t, http.StatusForbidden, "POST", widgetsPath, widget("w", 1), "Authorization", "Bearer nobody-token")
	if text := string(a.body); !strings.Contains(text, "outside of the change window") || strings.Contains(text, "10.0.0.1") {
		t.Errorf("the caller reads %s", text)
	}
	o.answer = opines(policy.Allows, "ticket 5")
	r.must(t, http.StatusCreated, "POST", widgetsPath, widget("w", 1), "Authorization", "Bearer nobody-token", "Audit-ID", "the-write")
	e := r.must(t, http.StatusOK, "GET", "/apis/policy.stele.dev/v1/explanations/the-write", "")
	if text := string(e.body); !strings.Contains(text, `"rule":"webhook"`) || !strings.Contains(text, "ticket 5") {
		t.Errorf("of the write it is known %s", text)
	}
	r.must(t, http.StatusCreated, "POST", widgetsPath, widget("by-rbac", 1), "Authorization", "Bearer editor-token")
	if n := len(o.asked); n != 2 {
		t.Errorf("it was asked %d times, want 2: what the policy allows ends the chain", n)
	}
	var explained = r.must(t, http.StatusCreated, "POST", "/apis/policy.stele.dev/v1/explanations", `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"get","group":"example.com","version":"v1","resource":"widgets","namespace":"default","name":"w","user":"zoe"}}`)
	if text := string(explained.body); !strings.Contains(text, `"verdict":"allows","reason":"ticket 5","detail":"10.0.0.1 said so"`) {
		t.Errorf("the explanation is %s", text)
	}
}

// P3: what an authorizer allowed under one policy is decided again if another one is in force by the time
// of the commit.
func TestWhatWasAllowedOutsideIsDecidedAgainUnderTheNextPolicy(t *testing.T) {
	o := &outside{}
	r := newAskingPlane(t, o, nil)
	var activated atomic.Bool
	o.answer = func(*policy.Request) policy.Opinion {
		if !activated.Swap(true) {
			if _, err := activation.ActivateCompiled(context.Background(), r.committer, planetest.Compile(t, bundle), "test"); err != nil {
				t.Error(err)
			}
		}
		return policy.Opinion{Verdict: policy.Allows}
	}
	a := r.must(t, http.StatusForbidden, "POST", widgetsPath, widget("w", 1), "Authorization", "Bearer nobody-token")
	if got, want := a.header.Get("Stele-Policy"), r.committer.Tip().Policy.DigestString(); got != want {
		t.Errorf("it was decided by %s, in force is %s", got, want)
	}
	if n := len(o.asked); n != 1 {
		t.Errorf("it was asked %d times: the next policy does not ask it", n)
	}
}

// Reviews have selectors, with upstream's rules for what is wrong with them.
func TestReviewsOfSelections(t *testing.T) {
	o := &outside{answer: opines(policy.Allows, "")}
	r := newAskingPlane(t, o, nil)
	for name, tc := range map[string]struct {
		selectors string
		code      int
		want      string // in the answer
		asked     string // of the selectors
	}{
		"both, raw":       {`"fieldSelector":{"rawSelector":"a=b"},"labelSelector":{"rawSelector":"x=1"}`, 201, `"allowed":true`, "a=b x=1"},
		"both, as lists":  {`"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}]},"labelSelector":{"requirements":[{"key":"x","operator":"Exists"}]}`, 201, `"allowed":true`, "a=b x"},
		"a broken text":   {`"fieldSelector":{"rawSelector":"a"}`, 201, `"evaluationError":"spec.resourceAttributes.fieldSelector ignored due to parse error"`, ""},
		"an operator":     {`"labelSelector":{"requirements":[{"key":"x","operator":"Near","values":["1"]},{"key":"y","operator":"Exists"}]}`, 201, `"evaluationError":"spec.resourceAttributes.labelSelector partially ignored due to parse error"`, "y"},
		"text and list":   {`"fieldSelector":{"rawSelector":"a=b","requirements":[{"key":"a","operator":"In","values":["b"]}]}`, 422, "may not specified at the same time as requirements", ""},
		"neither":         {`"labelSelector":{}`, 422, "requirements or rawSelector is required", ""},
		"values too many": {`"labelSelector":{"requirements":[{"key":"x","operator":"Exists","values":["1"]}]}`, 422, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.must(t, tc.code, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
				`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"zoe","resourceAttributes":{"verb":"list","group":"example.com","resource":"widgets",`+tc.selectors+`}}}`)
			if !strings.Contains(string(a.body), tc.want) {
				t.Errorf("it says %s, want %s", a.body, tc.want)
			}
			if tc.code != 201 {
				return
			}
			s, got := o.last().Selectors, []string{}
			for _, f := range s.Fields {
				got = append(got, f.Field+string(f.Operator)+f.Value)
			}
			for i := range s.Labels {
				got = append(got, s.Labels[i].String())
			}
			if strings.Join(got, " ") != tc.asked {
				t.Errorf("it was asked about %q, want %q", got, tc.asked)
			}
		})
	}
}

// A policy that this replica cannot enforce does not come in force: the answer says why, and where it stands.
func TestAPolicyThatCannotBeEnforcedHereIsRefused(t *testing.T) {
	wrong := schemas.Diagnostic{Pos: schemas.Position{File: "bundle.cue", Line: 7, Column: 2}, Path: "bundle.plugins.p", Message: "the plugin cannot be used here: there is no such program", Hint: "put it there"}
	r := newAskingPlane(t, &outside{answer: opines(policy.SaysNothing, "")}, func(_ context.Context, compiled *compile.Result) schemas.Diagnostics {
		if len(compiled.Form.Authorizers) == 0 {
			return schemas.Diagnostics{wrong}
		}
		return nil
	})
	before := r.committer.Tip().Revision()
	for _, query := range []string{"", "?dryRun=All"} {
		a := r.must(t, http.StatusUnprocessableEntity, "POST", "/apis/policy.stele.dev/v1/policies"+query, policyBody(t, bundle, nil))
		for _, want := range []string{"bundle.cue:7", "bundle.plugins.p", "there is no such program", "put it there"} {
			if !strings.Contains(string(a.body), want) {
				t.Errorf("the answer lacks %q: %s", want, a.body)
			}
		}
	}
	if now := r.committer.Tip().Revision(); now != before {
		t.Errorf("revision %d, was %d", now, before)
	}
}

// Who proposes a chain with one more authorizer is told what that means.
func TestAnAuthorizerThatJoinsTheChainIsSaid(t *testing.T) {
	r := newAskingPlane(t, &outside{answer: opines(policy.SaysNothing, "")}, nil)
	more := strings.Replace(askingBundle, `"webhook"]`, `"webhook", "abac"]`, 1)
	a := r.must(t, http.StatusCreated, "POST", "/apis/policy.stele.dev/v1/policies?dryRun=All", policyBody(t, more, nil))
	if got := strings.Join(a.header.Values("Warning"), "\n"); !strings.Contains(got, "abac joins the chain") || strings.Contains(got, "webhook joins") {
		t.Errorf("it warns %s", got)
	}
}

// What may be seen cannot be decided while an authorizer fails: who may see it by the policy itself is told so, where
// else changes would be missing without a word. Others see nothing, and so do not learn what there is.
func TestChangesAreNotLeftOutBecauseAnAuthorizerFails(t *testing.T) {
	var failing atomic.Bool
	o := &outside{answer: func(r *policy.Request) policy.Opinion {
		switch {
		case r.Resource == "changes":
			return policy.Opinion{Verdict: policy.Allows}
		case failing.Load():
			return policy.Opinion{Verdict: policy.Denies, Reason: "it is unavailable", Failed: true}
		}
		return policy.Opinion{}
	}}
	r := newAskingPlane(t, o, nil)
	r.bootstrap(t, strings.Replace(askingBundle, `"rbac", "webhook"`, `"webhook", "rbac"`, 1))
	before := r.committer.Tip().Revision()
	r.must(t, http.StatusCreated, "POST", widgetsPath, widget("w", 1))
	all := fmt.Sprintf("%s?fieldSelector=since%%3D%d", changesPath, before+1)
	one := fmt.Sprintf("%s/%d", changesPath, before+1)
	reader, nobody := []string{"Authorization", "Bearer reader-token"}, []string{"Authorization", "Bearer nobody-token"}

	failing.Store(true)
	r.must(t, http.StatusServiceUnavailable, "GET", all, "", reader...)
	r.must(t, http.StatusServiceUnavailable, "GET", one, "", reader...)
	w := r.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", changesPath, before), reader...)
	if e := w.next(t); e.Type != "ERROR" || e.Object["code"] != float64(http.StatusServiceUnavailable) {
		t.Errorf("who follows is sent %v", e)
	}
	if got := r.must(t, http.StatusOK, "GET", all, "", nobody...).revisions(); len(got) != 0 {
		t.Errorf("who may not see it sees %v", got)
	}
	r.must(t, http.StatusNotFound, "GET", one, "", nobody...)

	failing.Store(false)
	if got := r.must(t, http.StatusOK, "GET", all, "", reader...).revisions(); len(got) != 1 {
		t.Errorf("when it answers again they see %v", got)
	}
}

// Who waits for an authorizer keeps nobody from reading history who does not.
func TestAnAuthorizerThatIsSlowStallsNoOtherReader(t *testing.T) {
	asked, answers := make(chan struct{}, 100), make(chan struct{})
	o := &outside{answer: func(r *policy.Request) policy.Opinion {
		if r.Resource == "widgets" {
			asked <- struct{}{}
			<-answers
		}
		return policy.Opinion{Verdict: policy.Allows}
	}}
	r := newAskingPlane(t, o, nil)
	r.must(t, http.StatusCreated, "POST", widgetsPath, widget("w", 1))
	var readers sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		readers.Go(func() { r.do("GET", changesPath, "", "Authorization", "Bearer nobody-token") })
	}
	for range 2 * runtime.GOMAXPROCS(0) {
		<-asked
	}
	r.must(t, http.StatusOK, "GET", changesPath, "")
	close(answers)
	readers.Wait()
}
